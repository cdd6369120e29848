"""A report that has the paper beside runs: its accuracies, its claims and its figures."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedeas._internal.files import make_folder
from fedeas.lab.report.page import ReferenceColumn
from fedeas.lab.results import FinishedRun
from fedeas.lab.tables import ResultRow
from fedeas.planning.beta import admissible_betas
from fedeas.plots import figures
from fedeas.plots.canvas import write_picture
from fedeas.plots.page import Grid, Picture, Section
from reproduction.claims import Claim, exact_claims, training_claims
from reproduction.counts import main_plan, paper_counts
from reproduction.evidence import Evidence
from reproduction.figures import concentration_picture, demand_picture
from reproduction.tables import printed


def _table_1(row: ResultRow, settings: Mapping[str, Any]) -> float | None:
    data, partition = settings["data"], settings["partition"]
    setting = data["name"], partition["clients"], partition["alpha"]
    return printed(*setting, row.method, row.policy)


TABLE_1 = ReferenceColumn(
    "paper's %",
    "The paper's column is its Table 1: ResNet-18, 200 rounds of 10 epochs, 45,000 images, "
    "a diffusion model, tests on the clients' own parts. Compare rankings and gaps, not "
    "absolute accuracy.",
    _table_1,
)


def paper_sections(runs: Sequence[FinishedRun]) -> Iterator[Section]:
    """Yield the paper's claims as runs see them, and its figures from label counts."""
    yield _claims([*exact_claims(), *training_claims(Evidence(runs))])
    yield _partition()


def _claims(claims: Iterable[Claim]) -> Section:
    """Return the paper's claims with their states."""
    rows = [(c.where, c.what, c.paper, c.command or c.ours, c.split, c.state) for c in claims]
    text = (
        "Exact: computed from label counts. Agrees, disagrees, cannot tell: judged from the runs "
        "above, by Student's t over seeds with Holm's correction at .05; ± is half of the 95 % "
        "interval. The rest waits for a GPU, with the command that runs it."
    )
    grid = Grid(("where", "what", "paper", "ours", "split", "state"), rows, facts=True)
    return Section("The paper's claims", [text, grid])


def _partition() -> Section:
    """Return the paper's figures that follow from label counts alone."""
    counts, plan = paper_counts(), main_plan()
    interval = admissible_betas(counts)
    return Section(
        "The paper's partition, from label counts alone",
        [
            "CIFAR-10 on 20 clients, alpha = 0.1: the figures that need no training.",
            Picture("demand", demand_picture(counts, plan), "Samples per client."),
            Picture(
                "concentration", concentration_picture(counts, plan), "Where the imbalance sits."
            ),
            Picture(
                "reduction", figures.reduction_picture(counts, plan.total), "Imbalance removed."
            ),
            Picture(
                "beta",
                figures.beta_picture(counts, interval.choice, interval),
                "Choosing beta by two conditions.",
            ),
        ],
    )


def paper_figures(folder: Path) -> None:
    """Draw the four figures into a folder."""
    make_folder(folder)
    counts, plan = paper_counts(), main_plan()
    write_picture(folder / "demand.png", demand_picture(counts, plan, "png"))
    write_picture(folder / "concentration.png", concentration_picture(counts, plan, "png"))
    figures.reduction(counts, folder / "reduction.png", mark=plan.total)
    interval = admissible_betas(counts)
    figures.beta_selection(counts, folder / "beta.png", interval.choice, interval)
