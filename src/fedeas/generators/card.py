"""`GeneratorCard`: what a generator is, what it was made from, and what it may reveal.

A generator that is kept in a folder has its card there, as `generator.json`; the file is written
last, so a folder without one is not a generator.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedeas._internal.files import atomic_write, content_hash, parse_json, read_text
from fedeas.counts.label_counts import names
from fedeas.data import Federation
from fedeas.errors import InputError
from fedeas.generators.resampler import Resampler

CARD = "generator.json"
_INCLUDED = Path(__file__).parent / "included"  # small models that come with fedeas, by name
_FORMAT = "generator/1"
_SENTENCES = {"generator", "method", "training", "privacy", "notes"}  # what people are shown
_NO_GUARANTEE = (
    "none: samples can resemble training samples; measure memorisation before you share them"
)
_NOT_STATED = "not stated by the generator"
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class TrainingRecord:
    """How a generator was trained; 0 and '' where that is not known or does not apply.

    Parameters
    ----------
    data : str
        Fingerprint of the data set.
    samples, steps : int
        Training samples, and steps of training.
    sites, rounds : int
        Sites of the federation that trained it, and rounds.
    """

    data: str = ""
    samples: int = 0
    steps: int = 0
    sites: int = 0
    rounds: int = 0


@dataclass(frozen=True)
class PrivacyGuarantee:
    """Differential privacy of a generator.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee for one `unit`.
    unit : str
        What is protected, in words.
    epsilon_replaced : float, optional
        The guarantee for a sample that is replaced by another, if `epsilon` does not cover that.
    """

    epsilon: float
    delta: float
    unit: str
    epsilon_replaced: float | None = None

    def __str__(self) -> str:
        text = f"epsilon = {self.epsilon:.3g}, delta = {self.delta:g} for {self.unit}"
        if self.epsilon_replaced is None:
            return text
        return f"{text}; epsilon = {self.epsilon_replaced:.3g} for one replaced by another"


@dataclass(frozen=True)
class GeneratorCard:
    """What a generator is; what it was made from; what it may reveal.

    Parameters
    ----------
    generator : str
        The name by which specs open it: 'diffusion', 'gaussian', ...
    classes : tuple of str
        The names of its classes.
    shape : tuple of int
        The shape of a sample.
    settings : mapping
        What this generator needs to open its files: values of JSON.
    method : str
        How it was made, where a generator can be made in several ways.
    counts, quality : tuple of float
        Per class: about how many samples it was made from, and what a generated sample is worth in
        real ones, 0 to 1. Empty: not known.
    training : TrainingRecord
        How it was trained.
    privacy : PrivacyGuarantee, optional
        What the samples that it was made from are promised; None: no guarantee.
    notes : mapping
        Sentences for whoever reads the card, by topic.
    """

    generator: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    settings: Mapping[str, Any]
    method: str = ""
    counts: tuple[float, ...] = ()
    quality: tuple[float, ...] = ()
    training: TrainingRecord = TrainingRecord()
    privacy: PrivacyGuarantee | None = None
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def guarantee(self) -> str:
        """The privacy guarantee in words."""
        return _NO_GUARANTEE if self.privacy is None else f"differential privacy: {self.privacy}"

    def save(self, folder: Path) -> None:
        """Write the card into a generator's folder."""
        body = {"format": _FORMAT, "guarantee": self.guarantee, **asdict(self)}
        body["training"] = {name: value for name, value in body["training"].items() if value}
        body["settings"] = body.pop("settings")  # long, and for no reader: last
        body = json.loads(json.dumps(body))  # tuples as lists, as it will be read
        try:
            _check_printable({name: body[name] for name in body.keys() & _SENTENCES})
        except ValueError as error:
            raise InputError(f"a generator's card cannot hold {error}") from None
        body["sha256"] = content_hash(body)
        with atomic_write(folder / CARD) as temporary:
            temporary.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path | str, generator: str | None = None) -> "GeneratorCard":
        """Read the card of a generator's folder; refuse that of another than `generator`."""
        path, noun = Path(folder) / CARD, _noun(generator)
        if path.parent.is_dir() and not path.exists():
            raise InputError(f"{folder} is not the folder of a {noun}: it has no {CARD}")
        body = parse_json(read_text(path), str(path))
        try:
            if body["format"] != _FORMAT or body.pop("sha256") != content_hash(body):
                raise ValueError("another format, or modified")
            card = msgspec.convert(body, cls)
            names(card.classes, len(card.classes), "class")
            _check_printable({name: body[name] for name in body.keys() & _SENTENCES})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise InputError(
                f"{path} is not a generator's card of this version of fedeas, or damaged",
                fix="make the generator again",
            ) from None
        if generator is not None and card.generator != generator:
            near = (path.parent.parent / CARD, *path.parent.glob(f"*/{CARD}"))
            right = [other.parent for other in near if _names_generator(other, generator)]
            raise InputError(
                f"{folder} is not the folder of a {noun}",
                got=f"that of a {_noun(card.generator)}",
                fix=f"give {right[0]}" if right else None,
            )
        return card


def _check_printable(value: object) -> None:
    """Refuse text that a terminal takes for commands: a card may come from anybody."""
    if isinstance(value, str) and not value.isprintable():
        raise ValueError("unprintable text")
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for one in value:
            _check_printable(one)


def _noun(generator: str | None) -> str:
    """Return what people call that which a card names.

    >>> _noun(None), _noun("private"), _noun("private-classifier")
    ('generator', 'private generator', 'private classifier')
    """
    if generator is None:
        return "generator"
    kind, _, noun = generator.partition("-")
    return f"{kind} {noun or 'generator'}"


def _names_generator(path: Path, generator: str) -> bool:
    """Tell whether a file is the card of such a generator."""
    with suppress(InputError):
        return GeneratorCard.load(path.parent).generator == generator
    return False


def find_model(model: Path | str) -> Path:
    """Return the folder of a model: the one that is named, or else an included model's."""
    folder = Path(model)
    included = _INCLUDED / folder.name
    if not folder.is_dir() and str(model) == folder.name and included.is_dir():
        return included
    return folder


@dataclass(frozen=True, eq=False)
class TrainingData:
    """What a generator says of its training data, in its attribute `training_data`.

    A generator that saw 60,000 images, of which the clients hold 2,000, brings in what the
    federation does not have. Its gain is not that of a federation on its own, so reports say so.

    Parameters
    ----------
    what : str
        The data in words.
    samples : int
        How many there were; 0 if that is not known.
    fingerprint : str
        The data set that they are from; '' if that is not known.
    indices : array of int, optional
        Where they are in it; the training part by default, if it has as many samples.
    """

    what: str
    samples: int = 0
    fingerprint: str = ""
    indices: Ints | None = None

    def __str__(self) -> str:
        return f"{self.samples:,} {self.what}" if self.samples else self.what


def describe_training(generator: object, federation: Federation) -> str:
    """Say what data a run's generator was trained on, and how many of them its clients hold.

    Parameters
    ----------
    generator : object
        The generator.
    federation : Federation
        The run's clients.
    """
    if isinstance(generator, Resampler):
        return "each client's own samples"
    stated = getattr(generator, "training_data", None)
    if not isinstance(stated, TrainingData):
        return _NOT_STATED
    if not stated.fingerprint:
        return str(stated)
    data, held = federation.data, federation.partition.train.indices
    if stated.fingerprint != data.fingerprint:
        return f"{stated} of another data set than the clients'"
    indices = stated.indices
    if indices is None and stated.samples != data.train_size:
        return f"{stated}, of which the clients hold at most {min(stated.samples, len(held)):,}"
    training = np.arange(data.train_size) if indices is None else indices
    return f"{stated}, of which the clients hold {int(np.isin(held, training).sum()):,}"
