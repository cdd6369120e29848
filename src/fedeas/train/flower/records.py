"""Tensors and settings in Flower's records, and checks of records from another party."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedeas.errors import InputError
from fedeas.train.tensors import NUMBER_FORMATS, Tensors

SETTINGS = "settings"


def pack(
    arrays: Mapping[str, Tensors],
    settings: object = None,
    numbers: Mapping[str, float] | None = None,
) -> RecordDict:
    """Put groups of tensors, settings and numbers into a message's content."""
    content = RecordDict()
    for group, tensors in arrays.items():
        if tensors:
            held = {k: Array(np.asarray(v.detach().cpu())) for k, v in tensors.items()}
            content[group] = ArrayRecord(held)
    if settings is not None:
        content[SETTINGS] = ConfigRecord({"json": json.dumps(settings)})
    if numbers:
        content["numbers"] = MetricRecord(dict(numbers))
    return content


def with_settings(content: RecordDict, asked: object) -> RecordDict:
    """Return the same records with settings of their own; arrays are not copied."""
    own = RecordDict(dict(content))
    own[SETTINGS] = ConfigRecord({"json": json.dumps(asked)})
    return own


def tensors(content: RecordDict, group: str) -> Tensors:
    """Read a group of tensors; an absent one is empty, and anything but plain arrays is refused."""
    if group not in content.array_records:
        return {}
    found: Tensors = {}
    for name, array in content.array_records[group].items():
        # `Array.numpy` loads with allow_pickle=False; a strange type or form is refused before.
        if array.stype != "numpy.ndarray" or array.dtype not in NUMBER_FORMATS:
            raise InputError(f"array {name!r} has an unsupported format", got=array.dtype)
        try:
            values = array.numpy()
        except Exception as error:  # bytes from another party can raise anything
            raise InputError(f"array {name!r} cannot be read: {type(error).__name__}") from None
        if list(values.shape) != list(array.shape) or str(values.dtype) != array.dtype:
            raise InputError(f"array {name!r} does not match its own header", got=values.shape)
        found[name] = torch.from_numpy(values.copy() if not values.flags.writeable else values)
    return found


def settings(content: RecordDict) -> Any:
    """Read the settings of a message."""
    try:
        return json.loads(str(content.config_records[SETTINGS]["json"]))
    except (KeyError, ValueError):
        raise InputError("a message without settings") from None


def whole(content: RecordDict, name: str) -> int:
    """Read a whole number, from 0 to 2**53."""
    try:
        value = content.metric_records["numbers"][name]
    except KeyError:
        raise InputError(f"a reply without {name!r}") from None
    if isinstance(value, list) or not 0 <= value <= 2**53 or value != int(value):
        raise InputError(f"{name!r} must be a whole number from 0", got=value)
    return int(value)
