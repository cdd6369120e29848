import numpy as np
import pytest

from fedeas import FedEAS, LabelCounts, admissible_betas
from fedeas.report import figures

PNG = b"\x89PNG"


def test_the_papers_four_figures(fedeas, tmp_path):
    assert fedeas("paper", "counts", "--plot", tmp_path / "figures").code == 0
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
    figures.demand(counts, FedEAS().plan(counts), tmp_path / "demand.png")
    figures.reduction(counts, tmp_path / "reduction.svg", mark=FedEAS().plan(counts).total)
    figures.beta_selection(counts, tmp_path / "beta.pdf", 7.5)
    assert len(list(tmp_path.iterdir())) == 3


def test_the_same_picture_is_the_same_file(paper, tmp_path):
    for name in ("a.svg", "b.svg"):
        interval = admissible_betas(paper)
        figures.beta_selection(paper, tmp_path / name, interval.choice, interval)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_commands_draw(fedeas, paper_csv, tmp_path):
    for command in ("plan", "compare", "select"):
        assert fedeas(command, paper_csv, "--plot", tmp_path / f"{command}.png").code == 0
        assert (tmp_path / f"{command}.png").read_bytes().startswith(PNG)
