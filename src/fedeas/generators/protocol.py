"""The protocol of a generator, and generators by name."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.specs import Registry, parse
from fedeas.data.dataset import Dataset
from fedeas.data.kinds import Array
from fedeas.data.schema import check_columns
from fedeas.errors import InputError
from fedeas.generators.card import GeneratorCard, find_model
from fedeas.generators.resampler import Resampler
from fedeas.planning.named_values import planned_quality

Ints = NDArray[np.int64]
Seeds = NDArray[np.uint64]
Classes = Sequence[str] | int  # their names, or how many there are
_FEW = 5  # names of classes that an error shows


_REGISTRY = Registry("generator", "fedeas.generators", method="sample(labels, seeds)")


@runtime_checkable
class Generator(Protocol):
    """Anything that draws samples: two members are enough.

    `fingerprint` names everything that a sample depends on besides its label and seed. `sample`
    returns one sample per label and seed, in the shape and dtype of the data: height x width x
    channels of uint8 for images, float32 for rows of a table. The same label and seed give the same
    sample in every batch, up to floating-point rounding.

    A label is the place of a class. Where samples have several labels, a class is a label set, and
    its name lists them: 'flu|cough'.

    A generator may also have `classes`, the names of the classes that it knows, `least_batch`, the
    number of samples below which drawing a batch is mostly overhead: fills then take as many; a
    `card` with a `quality` per class, from which runs plan; and `training_data`, for reports.
    """

    @property
    def fingerprint(self) -> str:
        """Identify the generator: another fingerprint means other samples."""
        ...

    def sample(self, labels: Ints, seeds: Seeds) -> Array:
        """Draw one sample for every label, with its own seed; a batch may mix classes."""
        ...


def make_generator(spec: str, **offered: object) -> Generator:
    """Make a generator from 'pool(data=cifar10)', an entry point's name, or a dotted path.

    Parameters
    ----------
    spec : str
        The generator's name or dotted path, with settings in brackets.
    **offered : object
        Settings to use where the generator takes them and `spec` does not set them.
    """
    return _make(spec, offered, by_owner=True)


def _make(spec: str, offered: Mapping[str, object], by_owner: bool) -> Generator:
    generator = _REGISTRY.make(spec, offered, by_owner=by_owner)
    if not isinstance(generator, Generator):
        raise InputError(
            f"{spec!r} is not a generator", allowed="an object with `fingerprint` and `sample`"
        )
    return generator


def find_resampler(spec: str, *, by_owner: bool) -> Resampler | None:
    """Make the generator of a spec if it needs clients' own samples; no other is opened.

    Unless the owner of this process wrote the spec, a dotted path is refused.
    """
    if not spec:
        return None
    factory = _REGISTRY.factory(parse(spec, "generator")[0], by_owner=by_owner)
    if not hasattr(factory, "sample_from"):
        return None
    generator = _make(spec, {}, by_owner)
    return generator if isinstance(generator, Resampler) else None


def open_generator(spec: str, offered: tuple[tuple[str, object], ...] = ()) -> Generator:
    """Make a generator with those offered settings that it takes.

    It is kept by whoever needs it again, never by its spec: the files that a spec names change.
    """
    return make_generator(spec, **dict(offered))


def check_stated_classes(classes: Classes, spec: str) -> None:
    """Refuse a diffusion model of other classes by its metadata, before its libraries are loaded.

    What cannot be read is left to whoever opens the model.
    """
    name, settings = parse(spec, "generator")
    if name != "diffusion":
        return
    model_classes = None
    with suppress(InputError):
        model_classes = GeneratorCard.load(find_model(str(settings.get("model", "")))).classes
    _check_same_classes(classes, model_classes, ("data", "generator"))


def check_classes(
    classes: Classes, generator: object, nouns: tuple[str, str] = ("data", "generator")
) -> None:
    """Refuse a generator of other classes; spelling may differ, as 'T-shirt/top' does.

    Parameters
    ----------
    classes : sequence of str or int
        The classes of the data, or how many there are.
    generator : object
        The generator, or a judge; one without `classes` takes any.
    nouns : pair of str
        What an error calls them.
    """
    _check_same_classes(classes, getattr(generator, "classes", None), nouns)


def check_fits(data: Dataset, generator: object) -> None:
    """Refuse a generator of other classes than the data, or of other columns.

    Parameters
    ----------
    data : Dataset
        The data that samples are for.
    generator : object
        The generator; one without `classes`, `schema` or a card takes any.
    """
    check_classes(data.classes, generator)
    check_shape(data.samples.shape[1:], generator)
    if (known := getattr(generator, "schema", None)) is not None:
        check_columns(data.schema, known, ("data", "generator"))


def check_shape(shape: Sequence[int], generator: object) -> None:
    """Refuse a generator whose card says that its samples have another shape, before any is made.

    Parameters
    ----------
    shape : sequence of int
        The shape of a real sample.
    generator : object
        The generator; one without a card takes any.
    """
    card = getattr(generator, "card", None)
    if isinstance(card, GeneratorCard) and tuple(card.shape) != tuple(shape):
        raise InputError(
            "the generator's samples have another shape than the data's",
            got=tuple(card.shape),
            allowed=str(tuple(shape)),
        )


def _check_same_classes(
    classes: Classes, known: Sequence[str] | None, nouns: tuple[str, str]
) -> None:
    if known is None:
        return
    count, (ours, theirs) = count_classes(classes), nouns
    names = known[:count] if isinstance(classes, int) else classes
    alike = [_letters(a) == _letters(b) for a, b in zip(names, known, strict=False)]
    if len(known) != count or not all(alike):
        first = alike.index(False) if False in alike else 0
        given = f"{count}" if isinstance(classes, int) else f"{count} ({_some(names, first)})"
        rename = ", or rename the classes" if len(known) == count else ""
        raise InputError(
            f"the {ours} and the {theirs} have different classes: {given} in the {ours}, "
            f"{len(known)} ({_some(known, first)}) in the {theirs}",
            fix=f"choose another {theirs}{rename}",
        )


def _some(names: Sequence[str], first: int) -> str:
    """Return a few names, the first that differs from another list's among them.

    >>> _some("abcdefghij", 3)
    '..., d, e, f, g, h, ...'
    """
    last = first + _FEW
    before, after = ["..."] * (first > 0), ["..."] * (last < len(names))
    return ", ".join([*before, *names[first:last], *after])


def stated_quality(generator: object) -> list[float] | None:
    """Return what a generator says that its samples of each class are worth in real ones."""
    stated: Sequence[float] = getattr(getattr(generator, "card", None), "quality", ())
    return planned_quality(stated) if stated else None


def count_classes(classes: Classes) -> int:
    """Return how many classes there are."""
    if isinstance(classes, bool) or (isinstance(classes, int) and classes < 2):
        raise InputError("not a number of classes", got=classes, allowed="2 and more, or names")
    return classes if isinstance(classes, int) else len(classes)


def _letters(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())
