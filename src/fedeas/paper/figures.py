"""The paper's count-level figures, drawn on its main partition."""

from pathlib import Path
from typing import Any

from fedeas.files import make_folder
from fedeas.paper.counts import main_plan, paper_counts
from fedeas.policies import FullBalance
from fedeas.report import canvas, figures
from fedeas.select import admissible_betas


def paper_figures(folder: Path) -> None:
    """Draw the four figures into a folder."""
    make_folder(folder)
    counts, plan = paper_counts(), main_plan()
    full = FullBalance().plan(counts)

    def only_demand(figure: Any) -> None:
        figures.draw_demand(figure.subplots(), counts, plan, full)
        canvas.caption(
            figure,
            f"Balancing every class takes {full.total:,} samples; FedEAS (beta = 12) takes "
            f"{plan.total:,}, most of them where the skew is.",
        )

    def only_concentration(figure: Any) -> None:
        figures.draw_concentration(figure.subplots(), counts, plan)
        canvas.caption(
            figure, "Few clients hold most of the imbalance, and FedEAS gives them most samples."
        )

    figures.write_picture(folder / "demand.png", canvas.picture(only_demand, "png"))
    figures.write_picture(folder / "concentration.png", canvas.picture(only_concentration, "png"))
    figures.reduction(counts, folder / "reduction.png", mark=plan.total)
    interval = admissible_betas(counts)
    figures.beta_selection(counts, folder / "beta.png", interval.choice, interval)
