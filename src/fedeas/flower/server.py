"""The server of a deployment: from a run's configuration to a model, a log and a checkpoint.

The same run is submitted again after a crash of anything, and goes on after its last round.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from flwr.serverapp import Grid

from fedeas.data import Dataset
from fedeas.errors import InputError
from fedeas.files import read_json, write_json
from fedeas.flower.deployed import open_part, read_classes, row_policy
from fedeas.flower.exchange import wait_for_nodes
from fedeas.flower.log import Line, RoundLog
from fedeas.flower.negotiate import (
    Negotiated,
    class_prior,
    negotiate_beta,
    negotiate_price,
)
from fedeas.flower.own_generator import give_generator, make_generator_of_sites
from fedeas.flower.rounds import Trained, run_rounds
from fedeas.generators.card import Card
from fedeas.generators.generator import heavy
from fedeas.locks import locked
from fedeas.policies import FedEAS, with_target
from fedeas.privacy.secure_sum.identity import Members
from fedeas.settings.deployment import RunConfig
from fedeas.settings.reading import read_settings
from fedeas.specs import parse
from fedeas.targets import FEDERATION, inline_shares
from fedeas.tensors import Tensors, choose_device, save_tensors
from fedeas.training.loop import scores
from fedeas.training.models import make_model
from fedeas.training.samples import Samples
from fedeas.training.task import Task

NEGOTIATE = "negotiate"  # as a policy: the sites settle it, by sums over all of them
_LOG = logging.getLogger("flwr")  # Flower streams it to `flwr run --stream`


def serve(grid: Grid, config: Mapping[str, object]) -> Trained:
    """Train a deployed federation as its run's configuration says.

    With the policy `negotiate` beta is chosen by the paper's two conditions, with
    `negotiate(total=5000)` the price of water-filling, from noisy secure sums over the sites.
    `negotiate(epsilon=4)` has less noise; the default is 1. With `fedeas(beta=12,
    target=federation)` the federation's class distribution comes from such a sum, at
    `prior-epsilon`.

    Parameters
    ----------
    grid
        The Flower grid of the ServerApp.
    config
        The run's configuration, as in `context.run_config`.
    """
    settings = read_settings(RunConfig, config, "the run's configuration")
    data = _test_data(settings)
    task = Task.of(data)
    folder = Path(settings.out)
    with locked(folder, lambda: _LOG.warning("%s: another run ends; waiting for it", folder)):
        members = _members(settings)
        policy = _agreed(folder / "policy.json", grid, settings, data.classes, members)
        known = (task.mean, task.spread)
        columns = () if task.schema is None else (task.schema.to_list(),)
        drawn_by = _generator(folder / "own-generator", grid, settings, data, members)
        told = f"{policy} {drawn_by}" if drawn_by else policy
        experiment = settings.experiment(told, (*known, *columns))
        log = RoundLog(folder / "log.jsonl", [_say])
        trained = run_rounds(
            grid,
            settings.federated(),
            task,
            settings.seed,
            folder / "checkpoint.safetensors",
            experiment,
            lambda weights: _measure(weights, settings, task, data),
            log.add,
            log.go_on,
            settings.replace(policy=policy),
            members,
        )
        save_tensors(folder / "model.safetensors", trained.weights, {"experiment": experiment})
        if settings.federated().model.is_generator:
            _save_generator(folder / "generator", trained, settings, task, data.classes)
    return trained


def _save_generator(
    folder: Path, trained: Trained, settings: RunConfig, task: Task, classes: Sequence[str]
) -> None:
    """Write the generator that the sites trained, with a card of how they did."""
    federated = settings.federated()
    # Only secure sums have noise.
    noisy = settings.secure and settings.epsilon
    noise = (settings.epsilon, settings.delta) if noisy else (None, None)
    card = Card(settings.sites, federated.rounds, federated.secure, *noise)
    writer = heavy("fedeas.generators.federated", "a generator's folder", "diffusion")
    writer.save_generator(
        folder, trained.weights, federated, task, classes, "sites", trained.history, card
    )
    _LOG.info("generator: diffusion(model=%s)", folder)


def _agreed(
    path: Path, grid: Grid, settings: RunConfig, classes: Sequence[str], members: Members | None
) -> str:
    """Return the policy of the run; one that was negotiated holds for the run that goes on too."""
    name, asked = parse(settings.policy, "policy")
    if name != NEGOTIATE and asked.get("target") != FEDERATION:
        # Sites would refuse another one, or one that asks for more than their own row of counts.
        row_policy(settings.policy).local([1] * len(classes))
        return settings.policy
    try:
        agreed = read_json(path)
    except InputError:
        if name == NEGOTIATE:
            agreed = _negotiated(grid, settings, asked, len(classes), members)
        else:
            agreed = _aimed(grid, settings, len(classes), members)
        write_json(path, {"asked": settings.policy, **agreed})
    if agreed.get("asked", settings.policy) != settings.policy:
        raise InputError(
            f"the run in {path.parent} began with another policy",
            got=settings.policy,
            allowed=str(agreed["asked"]),
            fix="choose another folder `out`",
        )
    return str(agreed["policy"])


def _aimed(
    grid: Grid, settings: RunConfig, classes: int, members: Members | None
) -> dict[str, object]:
    """Aim the policy at the federation's class distribution, from a noisy sum over the sites."""
    spec, epsilon = settings.policy, settings.prior_epsilon
    like = inline_shares([1 / classes] * classes)
    row_policy(with_target(spec, like)).local([1] * classes)  # before anything is spent
    nodes = wait_for_nodes(grid, settings.sites, settings.timeout)
    needed = _needed(members, "the federation's class distribution")
    prior = class_prior(grid, nodes, classes, needed, epsilon=epsilon, timeout=settings.timeout)
    policy = with_target(spec, inline_shares(prior.known_shares()))
    _LOG.info("class distribution of the federation, at epsilon %s: %s", epsilon, policy)
    return {
        "policy": policy,
        "shares": prior.shares.tolist(),
        "errors": prior.errors.tolist(),
        "epsilon": epsilon,
    }


def _generator(
    folder: Path, grid: Grid, settings: RunConfig, data: Dataset, members: Members | None
) -> str:
    """Make the federation's own generator and give it to the sites, if the run is to have one."""
    if not settings.generator_epsilon:
        return ""
    needed = _needed(members, "the federation's own generator")
    nodes = wait_for_nodes(grid, settings.sites, settings.timeout)
    made = make_generator_of_sites(
        grid, nodes, data, needed, folder, epsilon=settings.generator_epsilon,
        way=settings.generator_way, steps=settings.generator_steps, seed=settings.seed,
        timeout=settings.timeout,
    )  # fmt: skip
    give_generator(grid, nodes, folder, settings.timeout)
    return made


def _negotiated(
    grid: Grid,
    settings: RunConfig,
    asked: Mapping[str, object],
    classes: int,
    members: Members | None,
) -> dict[str, object]:
    """Settle the policy with the sites, from noisy sums over all of them."""
    known = ("total", "min_reduction", "max_share", "epsilon")
    if strange := asked.keys() - set(known):
        raise InputError(
            "a negotiation has no such setting", got=sorted(strange)[0], allowed=", ".join(known)
        )
    nodes = wait_for_nodes(grid, settings.sites, settings.timeout)
    ask: Callable[..., Negotiated] = negotiate_price if "total" in asked else negotiate_beta
    needed = _needed(members, "a negotiation")
    found = ask(grid, nodes, classes, needed, **asked, timeout=settings.timeout)
    choice = found.choice
    chosen = choice.policy
    policy = (
        f"fedeas(beta={chosen.beta!r})"
        if isinstance(chosen, FedEAS)
        else f"waterfill(price={chosen.price!r})"
    )
    _LOG.info(
        "negotiated %s over %s sites: %s samples remove %.1f %% of the imbalance",
        policy, choice.sites, round(choice.samples.value), 100 * choice.reduction.value,
    )  # fmt: skip
    if choice.met is not True:
        _LOG.warning("not sure that all conditions are met: %s", choice.sure)
    for node, why in found.left_out.items():
        _LOG.warning("the sums are without node %s: %s", node, why)
    return {
        "policy": policy,
        "sites": choice.sites,
        "real": round(choice.real.value),
        "samples": round(choice.samples.value),
        "reduction": choice.reduction.value,
        "conditions_met": choice.met,
        "sure": choice.sure,
        "left_out": {str(node): why for node, why in found.left_out.items()},
    }


def _needed(members: Members | None, purpose: str) -> Members:
    """Return the members of the federation, which private sums cannot do without."""
    if members is None:
        raise InputError(
            f"{purpose} needs the list of members",
            fix="set `members` to a members.toml, or fix beta: fedeas(beta=12)",
        )
    return members


def _members(settings: RunConfig) -> Members | None:
    """Return the members of the federation, if the run's configuration names them."""
    if not settings.members:
        return None
    found = Members.load(settings.members)
    _LOG.info("%s members, fingerprint %s", len(found), found.fingerprint)
    return found


def _test_data(settings: RunConfig) -> Dataset:
    """Open the server's test images; it has no others, so normalisation follows from them."""
    store = str(Path(settings.out) / "store")
    classes = read_classes(settings.classes, "the run")
    data = open_part("test", settings.test_data, store, classes, settings.schema, settings.label)
    return replace(data, train_size=len(data.labels))


def _measure(weights: Tensors, settings: RunConfig, task: Task, data: Dataset) -> Line:
    model = make_model(settings.federated().model, task, 0).to(choose_device(settings.device))
    model.load_state_dict(weights)
    return scores(model, Samples.of(data, np.arange(len(data.labels))))


def _say(line: Line) -> None:
    """Log the result of a round."""
    measured = "loss" if "loss" in line else "accuracy"
    _LOG.info(
        "round %s: %s %.4f, %s sites, %.1f s",
        line["round"], measured, line.get(measured, float("nan")), line["clients"],
        line["seconds"],
    )  # fmt: skip
    for wrong in line["refused"]:
        _LOG.warning("round %s without %s", line["round"], wrong)
    if line.get("capped"):
        _LOG.warning(
            "round %s: clients %s claim more than %s samples and weigh no more than that",
            line["round"], line["capped"], line["weight_cap"],
        )  # fmt: skip
    if silent := [p for p in line["missing"] if not _named(p, line)]:
        _LOG.warning("round %s without clients %s: too late", line["round"], silent)


def _named(partition: int, line: Line) -> bool:
    return any(wrong.startswith(f"client {partition}:") for wrong in line["refused"])
