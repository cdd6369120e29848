"""A frame or an array of rows and its labels, with synthetic rows after the real ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.dropin.arrays import Arrays
from fedeas.dropin.frames import Frame
from fedeas.dropin.synthetic import Order, synthesize, warn_of_few_classes
from fedeas.errors import InputError
from fedeas.generators import Classes, Generator, OwnArrays
from fedeas.limits import check_cells
from fedeas.specs import parse

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class LabelNames:
    """Labels of any type as places in a list of classes, and back."""

    classes: tuple[Any, ...]

    @classmethod
    def of(cls, labels: NDArray[Any], classes: Classes | None) -> "LabelNames":
        """Take the classes that are given, in their order, or those of the labels."""
        refuse_missing(labels)
        found = np.unique(labels).tolist()
        if classes is None:
            return cls(tuple(found))
        if isinstance(classes, int):
            return cls(tuple(range(classes)))
        by_text = {str(label): label for label in found}
        return cls(tuple(by_text.get(str(name), name) for name in classes))

    def encode(self, labels: NDArray[Any]) -> Ints:
        """Return the place of every label."""
        place = {label: at for at, label in enumerate(self.classes)}
        if strange := [label for label in np.unique(labels).tolist() if label not in place]:
            raise InputError(
                "a label without a class",
                got=strange[0],
                allowed=", ".join(map(str, self.classes[:20])),
                fix="say classes= if there are more",
            )
        return np.array([place[label] for label in labels.tolist()], np.int64)

    def decode(self, places: Ints, like: NDArray[Any]) -> NDArray[Any]:
        """Return the labels at places, in the type of other labels where they fit it."""
        names = [self.classes[place] for place in places.tolist()]
        try:
            made = np.array(names, like.dtype) if like.dtype.kind != "U" else np.array(names, str)
        except ValueError:
            raise InputError(
                "a class that is not like the labels", got=names[0], allowed=str(like.dtype)
            ) from None
        return made


def refuse_missing(labels: Any) -> None:
    """Refuse labels of which some are missing: None, NaN, or a missing value of pandas."""
    missing = np.array([_is_missing(label) for label in np.asarray(labels).ravel()], bool)
    if missing.any():
        raise InputError(
            f"{int(missing.sum()):,} rows have no label",
            got=f"row {int(missing.argmax())}",
            fix="leave these rows out, or say what they are",
        )


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)  # noqa: PLR0124 - only NaN is not itself
    except TypeError:  # the missing value of pandas is neither
        return True


def tabular(generator: str | Generator) -> str | Generator:
    """Return a generator for one client's rows: `gaussian` without settings learns from them."""
    if isinstance(generator, str) and parse(generator, "generator") == ("gaussian", {}):
        return "local-gaussian"
    return generator


def known_classes(classes: Classes | None, generator: Generator) -> Classes | None:
    """Return all classes: those that are given, or those that the generator knows."""
    known: Sequence[str] | None = getattr(generator, "classes", None)
    return known if classes is None else classes


def augment_table(data: Any, labels: Any, order: Order) -> Arrays:
    """Append synthetic rows to a frame of pandas or polars, or to an array of numbers."""
    marks = np.asarray(labels)
    if len(marks) != len(data) or marks.ndim != 1:
        raise InputError(
            "rows and labels differ in length",
            got=(len(data), marks.shape),
            allowed="a label per row",
        )
    samples = replace(order.samples, generator=tabular(order.samples.generator))
    generator = samples.open_generator()
    frame = Frame.of(data, getattr(generator, "schema", None))
    names = LabelNames.of(marks, known_classes(order.classes, generator))
    real = names.encode(marks)
    texts = [str(name) for name in names.classes]
    own = OwnArrays(frame.rows, real, frame.schema)
    samples = replace(samples, generator=generator)
    n = np.bincount(real, minlength=len(texts))
    wanted = int(samples.planned(n, texts).sum())
    check_cells(wanted * len(frame.schema), f"a table of {wanted:,} synthetic rows", "lower beta")
    if not wanted and order.classes is None and not hasattr(generator, "classes"):
        warn_of_few_classes(samples, n)
    made = synthesize(real, None, Order(samples, texts), own)
    if not len(made.labels):
        return Arrays(data, labels, len(marks))
    new = names.decode(made.labels, marks)
    return Arrays(
        frame.with_rows(made.images.astype(np.float32)), _joined(labels, marks, new), len(marks)
    )


def _joined(labels: Any, marks: NDArray[Any], new: NDArray[Any]) -> Any:
    """Append labels to a list, an array, or a series of pandas or polars."""
    if isinstance(labels, list):
        return labels + new.tolist()
    if hasattr(labels, "iloc"):
        both = np.concatenate([marks, new]).tolist()
        return type(labels)(both, name=labels.name, dtype=labels.dtype)
    if hasattr(labels, "to_list") and hasattr(labels, "dtype"):
        return type(labels)(labels.name, labels.to_list() + new.tolist(), dtype=labels.dtype)
    return np.concatenate([marks, new])
