"""A Hugging Face data set with synthetic rows after the real ones, same features and format."""

import copy
from typing import Any

import numpy as np

from fedeas.dropin.pictures import check_form, check_pixels, picture
from fedeas.dropin.synthetic import Order, synthesize
from fedeas.errors import InputError


def augment_hugging_face(dataset: Any, label: str | None, order: Order) -> Any:
    """Append synthetic rows; the data set's own transform or format applies to them too."""
    image, label = _columns(dataset, label)
    # Labels only: images stay undecoded, and the user's transform is not called.
    labels = dataset.with_format("numpy", columns=[label])[:][label] if len(dataset) else []

    def with_rows(images: Any, marks: Any) -> Any:
        check_pixels(images)
        result = _with_rows(dataset, image, label, images, marks)
        _check_rows(dataset, result)
        return result

    def check(images: Any) -> None:
        with_rows(images[:1], np.zeros(1, np.int64))

    made = synthesize(labels, dataset.features[label].names, order, check=check)
    made_any = len(made.labels) > 0
    result = with_rows(made.images, made.labels) if made_any else copy.copy(dataset)
    result.num_real = len(dataset)
    return result


def _check_rows(dataset: Any, result: Any) -> None:
    """Refuse synthetic rows that do not look like the real ones."""
    if len(dataset):
        first, new = dataset[0], result[len(dataset)]
        for column in first:
            fix = "choose a generator of the same size and colours, or resize and convert before"
            check_form(column, new.get(column), first[column], fix)


def _with_rows(dataset: Any, image: str, label: str, images: Any, labels: Any) -> Any:
    from datasets import Dataset, concatenate_datasets

    rows = Dataset.from_dict(
        {image: [picture(pixels) for pixels in images], label: labels.tolist()},
        features=dataset.features,
    )
    # Concatenation drops formats that differ, so they are taken off before and put on after.
    result = concatenate_datasets([dataset.with_format(None), rows])
    form = dataset.format
    result.set_format(
        form["type"], form["columns"], form["output_all_columns"], **form["format_kwargs"]
    )
    return result


def _columns(dataset: Any, label: str | None) -> tuple[str, str]:
    """Return the image column and the label column; there must be no others."""
    from datasets import ClassLabel, Image

    features = dataset.features
    images = [name for name, feature in features.items() if isinstance(feature, Image)]
    labels = [name for name, feature in features.items() if isinstance(feature, ClassLabel)]
    if len(images) != 1:
        raise InputError(
            "need exactly one image column",
            got=images or list(features),
            allowed="one column of the feature Image",
            fix="use select_columns([...]) or cast_column(...) before",
        )
    if label is None and len(labels) != 1:
        raise InputError(
            "which column holds the label?",
            got=labels or list(features),
            allowed="a column of the feature ClassLabel",
            fix="pass label_column='...', after class_encode_column(...) if it is not a ClassLabel",
        )
    label = labels[0] if label is None else label
    if label not in labels:
        raise InputError(
            "no such label column",
            got=label,
            allowed=", ".join(labels) or "a column of the feature ClassLabel",
            fix="use class_encode_column(...) if it holds labels of another type",
        )
    if others := [name for name in features if name not in (images[0], label)]:
        raise InputError(
            "columns that a synthetic sample cannot have",
            got=others,
            allowed=f"{images[0]}, {label}",
            fix=f"use select_columns([{images[0]!r}, {label!r}]) before",
        )
    return images[0], label
