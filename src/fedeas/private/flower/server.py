"""The server of a deployment with secure sums: what is settled with the sites before they train.

The same run is submitted again after a crash of anything, and goes on after its last round.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from flwr.serverapp import Grid

from fedeas._internal.files import read_json, write_json
from fedeas._internal.settings import read_settings
from fedeas.data import Dataset
from fedeas.errors import InputError
from fedeas.planning.policies import with_target
from fedeas.planning.targets import inline_shares
from fedeas.private.accounting import DELTA, SAMPLE
from fedeas.private.flower.handover import give_generator
from fedeas.private.flower.queries import FlowerSums, class_prior
from fedeas.private.flower.site_config import RunConfig
from fedeas.private.generator.make import make_once
from fedeas.private.generator.start import FILE, PrivateStart
from fedeas.private.queries.query import SampleSum
from fedeas.private.secure_sum.identity import Members
from fedeas.private.sums import Release
from fedeas.train.flower.deployed import row_policy
from fedeas.train.flower.exchange import log_errors_in_one_line, wait_for_nodes
from fedeas.train.flower.roster import ask_sizes
from fedeas.train.flower.rounds import Trained
from fedeas.train.flower.server import StageResult, check_policy, train_sites

_LOG = logging.getLogger("flwr")  # Flower streams it to `flwr run --stream`


def run_server(grid: Grid, config: Mapping[str, object]) -> Trained:
    """Train a deployed federation as its run's configuration says.

    With `fedeas(beta=12, target=federation)` the federation's class distribution comes from a noisy
    secure sum over the sites, at `prior-epsilon`. With `generator-epsilon` sites get a generator
    made from such sums before the first round.

    Parameters
    ----------
    grid
        The Flower grid of the ServerApp.
    config
        The run's configuration, as in `context.run_config`.
    """
    log_errors_in_one_line()
    settings = read_settings(RunConfig, config, "the run's configuration")
    members = _members(settings)
    stages = (partial(_policy, members), partial(_generator, members))
    return train_sites(grid, settings, stages)


def _policy(
    members: Members | None, grid: Grid, settings: RunConfig, data: Dataset, folder: Path
) -> StageResult:
    """Settle the policy of the run; its target holds for the run that goes on too."""
    path, classes = folder / "policy.json", data.classes
    if not settings.aims_at_federation:
        check_policy(settings.policy, classes)
        return StageResult()
    try:
        agreed = read_json(path)
    except InputError:
        agreed = _aimed(grid, settings, classes, members)
        write_json(path, {"asked": settings.policy, **agreed})
    began = {"policy": agreed.get("asked", settings.policy), "unit": agreed.get("unit", SAMPLE)}
    for what, before in began.items():
        if before != getattr(settings, what):
            raise InputError(
                f"the run in {path.parent} began with another {what}",
                got=getattr(settings, what),
                allowed=str(before),
                fix="choose another folder `out`",
            )
    return StageResult(str(agreed["policy"]))


def _aimed(
    grid: Grid, settings: RunConfig, names: Sequence[str], members: Members | None
) -> dict[str, object]:
    """Aim the policy at the federation's class distribution, from a noisy sum over the sites."""
    spec, epsilon, classes = settings.policy, settings.prior_epsilon, len(names)
    like = inline_shares([1 / classes] * classes)
    row_policy(with_target(spec, like)).local([1] * classes)  # before anything is spent
    needed = _needed(members, "the federation's class distribution")
    nodes = wait_for_nodes(grid, settings.sites, settings.timeout)
    prior = class_prior(
        grid, nodes, classes, needed, epsilon=epsilon, timeout=settings.timeout, unit=settings.unit
    )
    policy = with_target(spec, inline_shares(prior.known_shares()))
    _LOG.info("class distribution of the federation, at epsilon %s: %s", epsilon, policy)
    return {
        "policy": policy,
        "shares": prior.shares.tolist(),
        "errors": prior.errors.tolist(),
        "epsilon": epsilon,
        "delta": DELTA,
        "sites": len(nodes),
        "unit": settings.unit,
    }


def _generator(
    members: Members | None, grid: Grid, settings: RunConfig, data: Dataset, folder: Path
) -> StageResult:
    """Make the federation's own generator and give it to the sites, if the run is to have one."""
    if not settings.generator_epsilon:
        return StageResult()
    folder = folder / "private-generator"
    needed = _needed(members, "the federation's own generator")
    nodes = wait_for_nodes(grid, settings.sites, settings.timeout)
    samples = ask_sizes(grid, nodes, settings.federated(), settings.seed, settings.largest)
    sums = FlowerSums(
        grid, nodes, needed, samples=samples, timeout=settings.timeout, unit=settings.unit
    )

    def ask(query: SampleSum, share: float) -> Release:
        return sums.ask(query, settings.generator_epsilon, share)

    # Another epsilon or list of members is refused the folder.
    request = {
        "epsilon": settings.generator_epsilon, "delta": DELTA,
        "seed": settings.seed, "unit": settings.unit,
        "members": needed.fingerprint, "classes": list(data.classes),
        "shape": list(data.samples.shape[1:]),
        "columns": None if data.schema is None else data.schema.to_list(),
        **({"classifier": True} if settings.generator_classifier else {}),
    }  # fmt: skip
    generator = make_once(data, ask, request, folder)
    sites, guarantee = generator.card.training.sites, generator.card.guarantee
    _LOG.info("the federation's generator is from sums of %s sites, %s", sites, guarantee)
    give_generator(grid, nodes, folder, settings.timeout)
    if not settings.generator_start:
        return StageResult(name=generator.fingerprint)
    start, federated = PrivateStart.load(folder), settings.federated()
    start.check(data, federated)
    path = folder / FILE
    start.write(path, data, federated, settings.seed, settings.device)
    _LOG.info("training begins from samples of the federation's generator: %s", start)
    return StageResult(name=f"{generator.fingerprint} {start.fingerprint}", weights=str(path))


def _needed(members: Members | None, purpose: str) -> Members:
    """Return the members of the federation, which private sums cannot do without."""
    if members is None:
        raise InputError(
            f"{purpose} needs the list of members",
            fix="set `members` to a members.toml",
        )
    return members


def _members(settings: RunConfig) -> Members | None:
    """Return the members of the federation, if the run's configuration names them."""
    if not settings.members:
        return None
    members = Members.load(settings.members)
    _LOG.info("%s members, fingerprint %s", len(members), members.fingerprint)
    return members
