"""The card of a model from noisy sums: what it is, what it cost, and what it is good for."""

import math
from collections.abc import Mapping
from typing import Any

from fedeas.generators.card import (
    GeneratorCard,
    PrivacyGuarantee,
    TrainingData,
    TrainingRecord,
)
from fedeas.private.accounting import ADDED, GROUP, replace_one_epsilon, rho_for
from fedeas.private.queries.query import Floats
from fedeas.private.sums import Release

PRIVATE = "private"  # the generator's name in specs and cards
CLASSIFIER = "private-classifier"  # the classifier's name in cards
FINGERPRINT = f"{PRIVATE}-"  # how the fingerprint of every such generator begins
WEIGHTS = "weights.safetensors"
_COUNTED = "counted"  # what the sums count, where that is not samples
_GOOD_FOR = {
    PRIVATE: "further training samples of classes that a site lacks",
    CLASSIFIER: "a first guess of the class, a judge of other generators' samples",
}
_MAY_SEE = "anybody who may know the classes{} and about how many {}s the federation has"
_COLUMNS = ", the columns with their categories,"  # found in all rows, unless a schema was given
_NOBODY = (
    "no guarantee of privacy: the sums had no noise, or noise from a seed, which anybody can draw "
    "again and subtract; give it to nobody who may not see the samples"
)
_NOT_FOR = {
    PRIVATE: (
        "looking at single samples, judging a model, or drawing conclusions about anybody: samples "
        "reflect what is typical of a class; rare cases are lost to the noise"
    ),
    CLASSIFIER: "decisions about anybody: rare cases are lost to the noise",
}
_LICENCE = (
    "made of noise and sums over the sites' samples: whatever the sites agreed on for their data; "
    "the code is Apache-2.0"
)


def make_card(
    method: str,
    classes: tuple[str, ...],
    shape: tuple[int, ...],
    releases: tuple[Release, ...],
    counts: Floats,
    quality: tuple[float, ...],
    settings: Mapping[str, Any],
    kind: str = PRIVATE,
) -> GeneratorCard:
    """Return the card of a model that was made from noisy sums.

    Parameters
    ----------
    method, classes, shape
        How it was made, the names of its classes, and the shape of a sample.
    releases
        The sums. Each states what all of them cost together; the worst counts.
    counts, quality
        Per class: how many samples, or groups, the sums say there are, and the quality from 0 to 1.
    settings
        What the model needs to open its files.
    kind
        `PRIVATE` or `CLASSIFIER`.
    """
    epsilon = max(released.epsilon for released in releases)
    delta = max(released.delta for released in releases)
    unit = releases[0].unit
    privacy, who = None, {"warning": _NOBODY}
    if math.isfinite(epsilon):
        replaced = replace_one_epsilon(rho_for(epsilon, delta), delta)
        privacy, who = (
            PrivacyGuarantee(epsilon, delta, ADDED[unit], replaced),
            {"may_be_given_to": _MAY_SEE.format(_COLUMNS if len(shape) == 1 else "", unit)},
        )
    if unit == GROUP:
        who[_COUNTED] = unit
    return GeneratorCard(
        kind,
        classes,
        shape,
        settings,
        method,
        tuple(counts.round(1).tolist()),
        quality,
        TrainingRecord(sites=min(released.sites for released in releases)),
        privacy,
        {**who, "good_for": _GOOD_FOR[kind], "not_for": _NOT_FOR[kind], "licence": _LICENCE},
    )


def training_data(card: GeneratorCard) -> TrainingData:
    """Return what a generator was made of, as far as the sums tell."""
    noise = "sums without a guarantee" if card.privacy is None else "noisy sums"
    count, sites = sum(card.counts), card.training.sites
    counted = "groups of samples" if card.notes.get(_COUNTED) == GROUP else "samples"
    return TrainingData(f"{noise} over about {count:,.0f} {counted} of {sites:,} sites")
