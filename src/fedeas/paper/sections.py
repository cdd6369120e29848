"""What a report says about the paper: its accuracies, its claims and its partition."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fedeas.experiments.runs import Run
from fedeas.experiments.tables import Row
from fedeas.paper.claims import Claim, exact_claims, training_claims
from fedeas.paper.counts import main_plan, paper_counts
from fedeas.paper.evidence import Evidence
from fedeas.paper.tables import printed
from fedeas.report import figures
from fedeas.report.page import Grid, Picture, Section
from fedeas.report.sections import ReferenceColumn
from fedeas.select import admissible_betas


def _table_1(row: Row, settings: Mapping[str, Any]) -> float | None:
    data, partition = settings["data"], settings["partition"]
    place = data["name"], partition["clients"], partition["alpha"]
    return printed(*place, row.method, row.policy)


TABLE_1 = ReferenceColumn(
    "paper's %",
    "The paper's column is its Table 1: ResNet-18, 200 rounds of 10 epochs, 45,000 images, "
    "a diffusion model, tests on the clients' own parts. Compare rankings and gaps, not "
    "absolute accuracy.",
    _table_1,
)


def paper_sections(runs: Sequence[Run]) -> Iterator[Section]:
    """Yield the paper's claims as runs see them, and its figures from label counts."""
    yield _claims([*exact_claims(), *training_claims(Evidence(runs))])
    yield _partition()


def _claims(claims: Iterable[Claim]) -> Section:
    """Return the paper's claims with their states."""
    rows = [(c.where, c.what, c.paper, c.command or c.ours, c.protocol, c.state) for c in claims]
    said = (
        "Exact: computed from label counts. Agrees, disagrees, cannot tell: judged from the runs "
        "above, by Student's t over seeds with Holm's correction at .05; ± is half of the 95 % "
        "interval. The rest waits for a GPU, with the command that runs it."
    )
    grid = Grid(("where", "what", "paper", "ours", "protocol", "state"), rows, facts=True)
    return Section("The paper's claims", [said, grid])


def _partition() -> Section:
    """Return the paper's figures that follow from label counts alone."""
    counts, plan = paper_counts(), main_plan()
    interval = admissible_betas(counts)
    demand, concentration = figures.client_pictures(counts, plan)
    return Section(
        "The paper's partition, from label counts alone",
        [
            "CIFAR-10 on 20 clients, alpha = 0.1: the figures that need no training.",
            Picture("demand", demand, "Samples per client."),
            Picture("concentration", concentration, "Where the imbalance sits."),
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
