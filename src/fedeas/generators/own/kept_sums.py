"""Sums that sites paid for, kept until a generator is made of them."""

import hashlib
import json
import math
from pathlib import Path

import numpy as np
import torch

from fedeas.files import make_folder, read_json, write_json
from fedeas.privacy.accounting import epsilon_of, rho_for
from fedeas.privacy.queries.registry import encode_query
from fedeas.privacy.queries.sample_sum import SampleSum
from fedeas.privacy.release import Ask, Release
from fedeas.tensors import load_tensors, save_tensors

_TRIES = "tries.json"


def kept(
    ask_sites: Ask, folder: Path, epsilon: float, delta: float, simulated: bool = False
) -> Ask:
    """Return a way of asking that pays for a sum once, even if the process dies after it.

    What dies between a sum and saving it is paid for twice. So every attempt is written down
    before it is made, and those without an answer count in the epsilon of the answers.

    Parameters
    ----------
    ask_sites
        Asks the sites.
    folder
        Where answers are kept.
    epsilon, delta
        What the sums may cost together; answers to another one are of no use.
    simulated
        Whether an answer that was not saved was seen by nobody, and so costs nothing.
    """
    tries: dict[str, list[float]] = {}
    if (folder / _TRIES).exists():
        tries = read_json(folder / _TRIES)

    def path_of(name: str) -> Path:
        return folder / f"{name}.safetensors"

    # In parts of the whole cost.
    lost = sum(part * (times - path_of(name).exists()) for name, (part, times) in tries.items())
    paid = epsilon
    if lost and math.isfinite(epsilon):
        paid = epsilon_of([(1 + lost) * rho_for(epsilon, delta)], delta)

    def asked(query: SampleSum, part: float) -> Release:
        about = json.dumps([encode_query(query), part, epsilon, delta], sort_keys=True)
        name = hashlib.sha256(about.encode()).hexdigest()[:16]
        if path_of(name).exists():
            held, told = load_tensors(path_of(name))
            guarantee = paid if told["guarantee"] else math.inf
            return Release(
                held["sums"].numpy(), told["sigma"], told["sites"], guarantee, told["delta"],
                told["samples"],
            )  # fmt: skip
        make_folder(folder)
        if not simulated:
            tries[name] = [part, tries.get(name, [part, 0])[1] + 1]
            write_json(folder / _TRIES, tries)
        found = ask_sites(query, part)
        sums = torch.from_numpy(np.asarray(found.sums, np.int64))
        guaranteed = math.isfinite(found.epsilon)
        about_it = {
            "sigma": found.sigma, "sites": found.sites, "delta": found.delta,
            "guarantee": guaranteed, "samples": found.samples,
        }  # fmt: skip
        save_tensors(path_of(name), {"sums": sums}, about_it)
        return found._replace(epsilon=paid) if guaranteed else found

    return asked
