"""Files of a site and of a run, and what `fedeas check` says of them."""

import json
from pathlib import Path

from fedeas.private.flower.site_config import SiteConfig
from helpers.deployed_sites import config

NOISY = {"rounds": 0, "generator-epsilon": 1.0}


def written(path: Path, values: dict[str, object]) -> Path:
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
    return path


def site_toml(sites: Path, folder: Path, **changed: object) -> Path:
    return written(folder / "site.toml", {**node_config(config(sites, folder, 0)), **changed})


def node_config(site: SiteConfig) -> dict[str, object]:
    """Return what an owner writes; a key that is left out has its default."""
    values = {name.replace("_", "-"): value for name, value in site.to_dict().items()}
    return {name: value for name, value in values.items() if value is not None}


def wrong(out: str) -> dict[str, str]:
    lines = [line.split(maxsplit=2) for line in out.splitlines()]
    found: dict[str, str] = {}
    for line in lines:
        if line[0] == "wrong":
            found[line[1]] = "; ".join(filter(None, (found.get(line[1]), line[2])))
    return found
