import itertools

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from fedeas import FedEAS, LabelCounts
from fedeas.planning.beta import BetaInterval, admissible_betas
from fedeas.plots import figures
from reproduction.figures import draw_concentration

PNG = b"\x89PNG"


def test_the_papers_four_figures(reproduction, tmp_path):
    assert reproduction("counts", "--plot", tmp_path / "figures").code == 0
    files = sorted((tmp_path / "figures").iterdir())
    assert [f.name for f in files] == [
        "beta.png",
        "concentration.png",
        "demand.png",
        "reduction.png",
    ]
    assert all(f.read_bytes().startswith(PNG) and f.stat().st_size > 10_000 for f in files)


@pytest.mark.parametrize(
    "n",
    [
        [[9, 1, 0]],
        [[9, 1, 1], [1, 9, 1]],  # no absent pair: missing-only is not drawn
        [[9, 1, 0], [0, 0, 0]],
        np.random.default_rng(0).integers(0, 99, (300, 4)),
    ],
)
def test_figures_of_odd_federations(n, tmp_path):
    counts = LabelCounts(n)
    figures.reduction(counts, tmp_path / "reduction.svg", mark=FedEAS().plan(counts).total)
    figures.beta_selection(counts, tmp_path / "beta.pdf", 7.5)
    assert len(list(tmp_path.iterdir())) == 2


def drawn(draw, width=6.6, height=4.2):
    """Draw a figure as `picture` does, and return it with what tells the size of its parts."""
    figure = Figure(figsize=(width, height), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    draw(figure)
    canvas.draw()
    return figure, canvas.get_renderer()


def overlapping(boxes):
    return [(a, b) for a, b in itertools.combinations(boxes, 2) if a.overlaps(b)]


CROWDED = LabelCounts(
    [[900, 700, 300, 150, 100, 100], [55, 20, 0, 0, 0, 0], [80, 200, 90, 150, 300, 260]]
)


@pytest.mark.parametrize("choice", [3.0, 12.0, 30.0, 72.0])
def test_labels_of_betas_do_not_run_into_each_other(choice, paper, monkeypatch):
    made = []
    monkeypatch.setattr(figures, "picture", lambda draw, *_, **__: made.append(drawn(draw)))
    for counts in (CROWDED, paper):
        interval = BetaInterval(0.9 * choice, 1.1 * choice, choice, 0.5, 0.25)
        figures.beta_picture(counts, choice, interval)
        figure, renderer = made[-1]
        (axes,) = figure.axes
        texts = [text for text in axes.texts if text.get_text()]
        assert any(text.get_text() == rf"$\beta$={choice:g}" for text in texts)
        assert len([text for text in texts if "beta" in text.get_text()]) >= 3
        boxes = [text.get_window_extent(renderer) for text in texts]
        assert not overlapping(boxes)
        assert all(axes.bbox.x0 - 1 <= box.x0 and box.x1 <= axes.bbox.x1 + 1 for box in boxes)


@pytest.mark.parametrize("kind", ["the paper's", "crowded", "alike", "many"])
def test_the_note_on_concentration_is_not_over_the_legend(kind, paper):
    counts = {
        "the paper's": paper,
        "crowded": CROWDED,
        "alike": LabelCounts(np.array([[30, 10], [10, 30]] * 4)),
        "many": LabelCounts(np.random.default_rng(0).integers(0, 99, (300, 4))),
    }[kind]
    plan = FedEAS().plan(counts)
    for height in (4.2, 2.4):
        figure, renderer = drawn(
            lambda figure: draw_concentration(figure.subplots(), counts, plan), 4.2, height
        )
        (axes,) = figure.axes
        (note,) = axes.texts
        parts = [note, axes.get_legend(), axes.xaxis.label]
        # The extent of the words alone, without the line that leads to the point.
        boxes = [Text.get_window_extent(note, renderer)]
        boxes += [part.get_window_extent(renderer) for part in parts[1:]]
        assert not overlapping(boxes)


def test_the_same_picture_is_the_same_file(paper, tmp_path):
    for name in ("a.svg", "b.svg"):
        interval = admissible_betas(paper)
        figures.beta_selection(paper, tmp_path / name, interval.choice, interval)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_commands_draw(fedeas, paper_csv, tmp_path):
    for command in (["plan"], ["compare"]):
        file = tmp_path / f"{len(command)}-{command[0]}.png"
        assert fedeas(command[0], paper_csv, *command[1:], "--plot", file).code == 0
        assert file.read_bytes().startswith(PNG)
