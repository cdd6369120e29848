"""Four real sites with images, and the run and the app that they take part in."""

import sys
from pathlib import Path

import numpy as np
from flwr.app import Context

from fedeas.private.flower.deployed import open_site
from fedeas.private.flower.queries import QueryContext, answer_queries
from fedeas.private.flower.site_config import NOISY_SUMS, UPDATES, SiteConfig
from fedeas.private.ledger import Ledger
from fedeas.private.secure_sum.identity import Identity, Members, load_identity, make_identity
from fedeas.private.secure_sum.keys import identity_of
from fedeas.train.flower.client import make_client_app
from helpers.image_sets import CLASSES, draw_shapes, encoded

ROOT = Path(__file__).parents[2]
COUNTS = np.array([[30, 2, 0], [0, 25, 6], [4, 0, 20], [12, 11, 10]])
NAMES = ", ".join(CLASSES)


def write_sites(folder: Path) -> Path:
    """Write four sites with images in folders by class, and the server's test images."""
    images, labels = draw_shapes(300)
    free = [np.flatnonzero(labels == c).tolist() for c in range(3)]
    for k, row in enumerate(COUNTS):
        for c, count in enumerate(row):
            for _ in range(count):
                write_image(folder / str(k) / "data" / CLASSES[c], images[free[c].pop()])
    for c in range(3):
        for place in free[c]:
            write_image(folder / "test" / CLASSES[c], images[place])
    keys = {f"site-{k}": identity_of(make_identity(folder / f"{k}.key")) for k in range(4)}
    (folder / "members.toml").write_text(Members.of(keys).to_toml())
    return folder


def write_image(folder: Path, image: np.ndarray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{len(list(folder.iterdir())):04}.png").write_bytes(encoded(image))


def config(sites: Path, state: Path, k: int, **changed: object) -> SiteConfig:
    made = SiteConfig(
        k, NAMES, str(sites / str(k) / "data"), str(state / str(k)),
        "helpers.small_federations:Shapes", device="cpu", identity_key=str(sites / f"{k}.key"),
        members=str(sites / "members.toml"), allow=f"{NOISY_SUMS} {UPDATES}",
    )  # fmt: skip
    return made.replace(**changed)


def settings(sites: Path, out: Path, **changed: object) -> dict[str, object]:
    return {
        "out": str(out), "test-data": str(sites / "test"), "classes": NAMES, "sites": 4,
        "rounds": 2, "epochs": 1, "batch": 8, "learning-rate": 0.05, "device": "cpu",
        "timeout": 300.0, "members": str(sites / "members.toml"), "policy": "fedeas(beta=12)",
        **changed,
    }  # fmt: skip


def app_of(sites: Path, state: Path, **changed: object):
    def own(context: Context) -> SiteConfig:
        return config(sites, state, context.node_config["partition-id"], **changed)

    app = make_client_app(lambda context: open_site(own(context)))

    def hold(context: Context) -> QueryContext:
        mine = own(context)
        identity = Identity.of(load_identity(mine.identity_key), Members.load(mine.members))
        ledger = Ledger.open(mine.ledger_folder, mine.epsilon, mine.delta)
        counts = COUNTS[mine.partition_id]
        return QueryContext(counts, Path(mine.state) / "sums", identity, ledger)

    answer_queries(app, hold)
    return app


def load_example():
    sys.path.insert(0, str(ROOT / "examples" / "federation"))
    try:
        import loopback
        import replay

        return loopback, replay
    finally:
        sys.path.pop(0)
