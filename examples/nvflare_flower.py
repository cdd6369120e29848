"""The Flower app of `examples/federation` as a job of NVFlare, here in NVFlare's simulator.

    python examples/nvflare_flower.py run.toml --sites 3 --workspace /tmp/nvflare

`run.toml` is the run's configuration, as for `flwr run`. The machine of each site names in
FEDEAS_SITES the folder of its configuration, `NUMBER.toml`; NVFlare numbers sites by their names.
"""

import argparse
import tomllib
from pathlib import Path

from nvflare.app_opt.flower.recipe import FlowerRecipe
from nvflare.recipe.sim_env import SimEnv

APP = Path(__file__).parent / "federation"


def main() -> None:
    """Run the job."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("--sites", type=int, required=True)
    parser.add_argument("--workspace", required=True)
    options = parser.parse_args()
    recipe = FlowerRecipe(
        name="fedeas",
        flower_content=str(APP),
        min_clients=options.sites,
        run_config=tomllib.loads(options.config.read_text(encoding="utf-8")),
    )
    recipe.execute(SimEnv(num_clients=options.sites, workspace_root=options.workspace))


if __name__ == "__main__":
    main()
