"""Sums that sites paid for, kept until a generator is made of them."""

import hashlib
import json
from pathlib import Path

import numpy as np
import torch

from fedeas.privacy.queries.registry import encode_query
from fedeas.privacy.queries.sample_sum import SampleSum
from fedeas.privacy.release import Ask, Release
from fedeas.tensors import load_tensors, save_tensors


def kept(ask_sites: Ask, folder: Path, epsilon: float) -> Ask:
    """Return a way of asking that pays for a sum once, even if the server dies after it.

    Parameters
    ----------
    ask_sites
        Asks the sites.
    folder
        Where answers are kept.
    epsilon
        What the sums may cost; answers to another one are of no use.
    """

    def asked(query: SampleSum, part: float) -> Release:
        about = json.dumps([encode_query(query), part, epsilon], sort_keys=True)
        path = folder / f"{hashlib.sha256(about.encode()).hexdigest()[:16]}.safetensors"
        if path.exists():
            held, told = load_tensors(path)
            return Release(
                held["sums"].numpy(), told["sigma"], told["sites"], epsilon, told["delta"]
            )
        found = ask_sites(query, part)
        folder.mkdir(parents=True, exist_ok=True)
        sums = torch.from_numpy(np.asarray(found.sums, np.int64))
        told = {"sigma": found.sigma, "sites": found.sites, "delta": found.delta}
        save_tensors(path, {"sums": sums}, told)
        return found

    return asked
