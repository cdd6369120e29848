"""Replies that no honest client sends: every one of them has to be refused."""

import io
import math
import pickle

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from fedeas.train.flower import records

NUMBERS = (-1, -(2**40), 2**62, 0.5, math.nan, math.inf, -math.inf, 1e300)
ODD_TYPES = (np.float64, np.int32, np.float16, np.uint8, np.bool_, np.complex64, "S4", "<U3")
REASONS = ("", "\x1b[2J\x1b[1;1H", "x" * 10**5, "\0\r\n" * 50, "\u202e")


def spoilt_arrays(rng: np.random.Generator, held: dict[str, np.ndarray]) -> ArrayRecord:
    """Spoil one of the arrays: its values, shape, type, name or bytes."""
    name = sorted(held)[int(rng.integers(len(held)))]
    arrays = {key: Array(value) for key, value in held.items()}
    array = held[name].copy()
    match int(rng.integers(10)):
        case 0:
            array = array.reshape(-1)
            array[int(rng.integers(array.size))] = rng.choice([math.nan, math.inf, -math.inf, 1e30])
            arrays[name] = Array(array.reshape(held[name].shape))
        case 1:
            shape = ((*array.shape, 1), (1, *array.shape), (array.size, 1, 1, 1, 1), (0,))
            other = shape[int(rng.integers(len(shape)))]
            arrays[name] = Array(np.zeros(other, np.float32))
        case 2:
            arrays[name] = Array(array.astype(ODD_TYPES[int(rng.integers(len(ODD_TYPES)))]))
        case 3:
            del arrays[name]
        case 4:
            arrays[rng.choice(["", "x", "../x", "w\0", name + " ", "\x1b[31m"])] = Array(array)
        case 5:
            arrays[name + "?"] = arrays.pop(name)
        case 6:
            data = arrays[name].data
            cut = int(rng.integers(len(data)))
            arrays[name].data = rng.choice([data[:cut], rng.bytes(cut + 1), b"", b"\x93NUMPY"])
        case 7:
            arrays[name].data = pickle.dumps({"a": 1})
        case 8:  # a head that claims a terabyte
            head = io.BytesIO()
            described = {"descr": "<f4", "fortran_order": False, "shape": (10**12,)}
            np.lib.format.write_array_header_1_0(head, described)
            shape = rng.choice([True, False])
            arrays[name].data = head.getvalue() + b"\0" * 64
            arrays[name].shape = (10**12,) if shape else arrays[name].shape
        case _:
            arrays[name].stype = str(rng.choice(["torch.Tensor", "", "numpy.ndarray.object"]))
    return ArrayRecord(arrays)


def hostile(rng: np.random.Generator, asked: Message, real: int) -> Message:
    """Answer a train message in a way that has to be refused."""
    weights = records.tensors(asked.content, "weights")
    held = {name: tensor.numpy() for name, tensor in weights.items()}
    arrays = ArrayRecord({name: Array(value) for name, value in held.items()})
    numbers: dict[str, object] = {"num-examples": real, "partition": 0, "steps": 1, "trained-on": 1}
    content = RecordDict({"weights": arrays, "numbers": MetricRecord(dict(numbers))})
    match int(rng.integers(8)):
        case 0 | 1 | 2:
            content["weights"] = spoilt_arrays(rng, held)
        case 3:
            name = str(rng.choice(["num-examples", "steps", "trained-on"]))
            numbers[name] = NUMBERS[int(rng.integers(len(NUMBERS)))]
            content["numbers"] = MetricRecord(numbers)
        case 4:
            numbers["num-examples"] = [real + 1, 0, [real], [float(real), 1.0]][
                int(rng.integers(4))
            ]
            content["numbers"] = MetricRecord(numbers)
        case 5:
            del content[str(rng.choice(["weights", "numbers"]))]
        case 6:
            instead = (ConfigRecord({"num-examples": str(real)}), MetricRecord({"w": 1.0}))
            content[str(rng.choice(["weights", "numbers"]))] = instead[0]
            content["shown"] = ArrayRecord({"w": Array(np.zeros(3))})
        case _:
            reason = REASONS[int(rng.integers(len(REASONS)))]
            return Message(Error(code=int(rng.integers(300)), reason=reason), reply_to=asked)
    return Message(content, reply_to=asked)


def hostile_hello(rng: np.random.Generator, asked: Message, taken: int) -> Message:
    """Introduce a client in a way that has to be refused; number `taken` is somebody else's."""
    numbers: dict[str, object] = {"partition": 7, "num-examples": 10}
    content = RecordDict()
    match int(rng.integers(6)):
        case 0:
            numbers["partition"] = NUMBERS[int(rng.integers(len(NUMBERS)))]
        case 1:
            numbers["num-examples"] = NUMBERS[int(rng.integers(len(NUMBERS)))]
        case 2:
            del numbers[str(rng.choice(["partition", "num-examples"]))]
        case 3:
            numbers["num-examples"] = [0, 10**9, [10]][int(rng.integers(3))]
        case 4:
            content["known"] = spoilt_arrays(rng, {"x": np.ones(1, np.float32)})
            numbers["partition"] = 10**6
        case _:
            reason = REASONS[int(rng.integers(len(REASONS)))]
            return Message(Error(code=0, reason=reason), reply_to=asked)
    content["numbers"] = MetricRecord(numbers)
    return Message(content, reply_to=asked)


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
