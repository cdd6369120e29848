"""The heat map of label counts and plans: any size, hatched cells, text that a phone can show."""

import itertools

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex

import fedeas
from fedeas import InputError, LabelCounts
from fedeas.plots.heatmap import label_heatmap

PHONE = 390  # pixels


def federation(clients, classes):
    rng = np.random.default_rng(clients + classes)
    shares = rng.dirichlet([0.2] * classes, clients)
    return LabelCounts(
        np.stack([rng.multinomial(30 * classes, row) for row in shares]),
        clients=[f"a hospital of number {k}" for k in range(clients)],
        classes=[f"diagnosis {c}" for c in range(classes)],
    )


def marks(axes, marker):
    lines = [line for line in axes.get_lines() if line.get_marker() == marker]
    return {(int(y), int(x)) for line in lines for x, y in line.get_xydata()}


@pytest.mark.parametrize("clients", [3, 14, 50, 300])
@pytest.mark.parametrize("classes", [2, 7, 26, 100])
def test_text_can_be_read_on_a_phone_and_does_not_overlap(clients, classes):
    counts = federation(clients, classes)
    figure = label_heatmap(counts, fedeas.plan(counts), title="A federation")
    FigureCanvasAgg(figure).draw()
    figure.draw_without_rendering()
    width, height = figure.bbox.width, figure.bbox.height
    scale = PHONE / figure.get_figwidth() / 72  # pixels of a point
    assert height / width * PHONE < 800
    real, after, _ = figure.axes
    for axes in (real, after):
        for labels, side in ((axes.get_xticklabels(), 0), (axes.get_yticklabels(), 1)):
            shown = [text for text in labels if text.get_visible() and text.get_text()]
            boxes = sorted((text.get_window_extent() for text in shown), key=lambda b: b.min[side])
            gaps = [b.min[side] - a.max[side] for a, b in itertools.pairwise(boxes)]
            assert min(gaps, default=0) > -2
    texts = [*real.get_xticklabels(), *figure.legends[0].get_texts(), figure._supxlabel]
    texts += [real.title, after.title]
    assert all(text.get_size() * scale >= 9 for text in texts)
    for text in texts:
        box = text.get_window_extent()
        assert box.x0 >= -1
        assert box.x1 <= width + 1
        assert box.y0 >= -1
        assert box.y1 <= height + 1
    assert len(real.get_images()[0].get_array()) <= 60


def test_marks_tell_what_copies_could_fill_from_what_must_be_generated():
    counts = LabelCounts([[90, 4, 0], [0, 80, 9], [70, 60, 50]])
    plan = fedeas.FedEAS(beta=6).plan(counts)
    _, after, _ = label_heatmap(counts, plan).axes
    order = [0, 2, 1]  # by the largest class, and its share
    n, samples = counts.n[order], plan.samples[order]
    assert marks(after, "x") == set(zip(*np.nonzero((n == 0) & (samples > 0)), strict=True))
    assert marks(after, "o") == set(zip(*np.nonzero((n > 0) & (samples > 0)), strict=True))


def test_suppressed_counts_are_hatched_and_neither_zero_nor_told():
    counts = LabelCounts([[90, 4, 0], [0, 80, 9], [70, 60, 50]])
    plan = fedeas.FedEAS(beta=6).plan(counts)
    hidden = counts.n == 4
    figure = label_heatmap(counts, plan, suppressed=hidden)
    for axes in figure.axes[:2]:
        (patch,) = axes.patches
        assert patch.get_hatch()
        assert patch.get_xy() == (0.5, -0.5)
        colours = axes.get_images()[0].get_array()
        assert to_hex(colours[0, 1]) == "#e6e6e6"
    assert to_hex(figure.axes[0].get_images()[0].get_array()[0, 2]) == "#ffffff"
    assert (0, 1) not in marks(figure.axes[1], "o") | marks(figure.axes[1], "x")
    with pytest.raises(InputError):
        label_heatmap(counts, suppressed=hidden[:2])


def test_a_group_without_a_class_at_most_clients_is_empty():
    n = np.array([[50, 0, 0], [40, 9, 0], [60, 0, 900]] * 40)
    counts = LabelCounts(n)
    real, after, _ = label_heatmap(counts, fedeas.FedEAS(beta=6).plan(counts)).axes
    colours = real.get_images()[0].get_array()
    assert len(colours) == 30
    empty = (colours == 1).all(-1).sum(0)
    assert empty[0] == 0
    assert empty[1] == 20  # of the 10 others, most clients hold it
    assert marks(after, "x")


def test_the_darker_the_more():
    counts = LabelCounts([[1, 10, 100, 1000, 0]])
    colours = label_heatmap(counts).axes[0].get_images()[0].get_array()[0, :, :3]
    grey = colours @ [0.299, 0.587, 0.114]
    assert (np.diff(grey[:4]) < -0.05).all()
    assert grey[4] - grey[0] > 0.05  # one sample is not none
