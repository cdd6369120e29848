"""Is the model right? The same run once more, in one process, without the sites that were missing.

    python replay.py FOLDER

reads what `loopback.py` left there, trains on the inline grid with the sites that every round of
the log names, and compares the two models bit by bit. Nothing of the run is touched.
"""

import shutil
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from loopback import APP, Loopback

from fedeas._internal.files import read_json
from fedeas._internal.settings import read_settings
from fedeas.private.flower import run_server
from fedeas.private.flower.deployed import open_site
from fedeas.private.flower.site_config import SiteConfig
from fedeas.train.flower.backends import InlineGrid
from fedeas.train.flower.client import TRAIN, make_client_app
from fedeas.train.flower.site import Site
from fedeas.train.tensors import load_tensors


class ReplayGrid(InlineGrid):
    """An inline grid whose clients are silent in the rounds in which they were missing."""

    def __init__(self, app: ClientApp, clients: int, missing: Mapping[int, Sequence[int]]) -> None:
        super().__init__(app, clients)
        self._missing = missing

    def _reply(self, message: Message) -> Message:
        context = self._contexts[message.metadata.dst_node_id]
        if message.metadata.message_type == TRAIN:
            silent = self._missing.get(int(message.metadata.group_id), ())
            if context.node_config["partition-id"] in silent:
                return Message(Error(code=0, reason="missing then"), reply_to=message)
        return super()._reply(message)


def replay(
    own: Loopback, folder: Path, missing: Mapping[int, Sequence[int]]
) -> dict[str, torch.Tensor]:
    """Train the sites on the inline grid, with states and caches of their own in FOLDER."""
    config = run_config(own)

    def opened(context: Context) -> Site:
        number = context.node_config["partition-id"]
        site = site_config(own, number)
        state, cache = (str(folder / name / str(number)) for name in ("state", "cache"))
        given = Path(site.state) / "generator"  # that the federation made
        if given.exists():
            shutil.copytree(given, Path(state) / "generator", dirs_exist_ok=True)
        return open_site(site.replace(state=state, cache=cache, allow="updates"))

    grid = ReplayGrid(make_client_app(opened), own.sites, missing)
    # The generator is there.
    plain = {"min-reply-fraction": 0.0, "generator-epsilon": 0.0, "out": str(folder / "run")}
    return run_server(grid, {**config, **plain}).weights


def run_config(own: Loopback) -> dict[str, object]:
    """Return the run's configuration: the app's own, what the run changes, what was settled."""
    usual = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    config = {**usual, **tomllib.loads((own.folder / "run.toml").read_text())}
    agreed = own.out / "policy.json"  # what the sites settled
    if agreed.exists():
        config["policy"] = read_json(agreed)["policy"]
    if history := own.history():  # the bound on a site's weight follows from who was there at first
        config["max-weight"] = history[0]["weight_cap"]
    return config


def site_config(own: Loopback, number: int) -> SiteConfig:
    """Read what the owner of a site says."""
    return read_settings(SiteConfig, own.folder / "sites" / f"{number}.toml")


def site_counts(own: Loopback, number: int) -> np.ndarray:
    """Count a site's images of every class, as nobody but the site can."""
    real = open_site(site_config(own, number)).real
    return np.bincount(real.labels, minlength=len(real.data.classes))


def is_right(own: Loopback) -> bool:
    """Tell whether a run's model is that of a replay of its log."""
    missing = {line["round"]: line["missing"] for line in own.history()}
    with tempfile.TemporaryDirectory() as folder:
        again = replay(own, Path(folder), missing)
    model, _ = load_tensors(own.out / "model.safetensors")
    return model.keys() == again.keys() and all(torch.equal(model[k], again[k]) for k in model)


def main() -> int:
    """Compare, and say so."""
    folder = Path(sys.argv[1])
    own = Loopback(folder, len(list((folder / "sites").glob("*.toml"))))
    right = is_right(own)
    print("the model is right, bit by bit" if right else "the model is another one")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
