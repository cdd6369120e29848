"""Label counts of sites by NVFlare's federated statistics, here in NVFlare's simulator.

    python examples/nvflare_statistics.py FOLDER --classes 3 --workspace stats
    fedeas counts stats/labels/server/simulate_job/labels.json --label diagnosis --out counts.csv

FOLDER has a table per site, `site-1.csv` and so on, with labels 0 to C - 1 in `diagnosis`.
"""

import argparse
from pathlib import Path

import pandas as pd
from nvflare.app_opt.statistics.df.df_core_statistics import DFStatisticsCore
from nvflare.recipe.fedstats import FedStatsRecipe
from nvflare.recipe.sim_env import SimEnv


class SiteTable(DFStatisticsCore):
    """The statistics of a site's own table."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder

    def initialize(self, fl_ctx) -> None:
        """Read the table when the job starts at the site."""
        self.data = {"train": pd.read_csv(f"{self.folder}/{fl_ctx.get_identity_name()}.csv")}


def main() -> None:
    """Run the job."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--classes", type=int, required=True)
    parser.add_argument("--workspace", required=True)
    options = parser.parse_args()
    sites = sorted(path.stem for path in options.folder.glob("*.csv"))
    # One bin per class, with the label in its middle: the last bin holds its upper end too.
    bins = {"bins": options.classes, "range": [-0.5, options.classes - 0.5]}
    recipe = FedStatsRecipe(
        name="labels",
        stats_output_path="labels.json",
        sites=sites,
        statistic_configs={"count": {}, "histogram": {"*": {"bins": 5}, "diagnosis": bins}},
        stats_generator=SiteTable(str(options.folder.resolve())),
    )
    recipe.execute(SimEnv(clients=sites, workspace_root=options.workspace))


if __name__ == "__main__":
    main()
