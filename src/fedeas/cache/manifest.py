"""The JSON files of a cache: written with the hash of their content, read with every field checked.

The hash finds damage. It is no signature: who may write to the folder can write a file with a right
hash, so whatever a file says is checked, and what is not as we write it is refused.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedeas.cache.shard import REPAIR, Segment, Shard, damaged, parse_segment, parse_shard
from fedeas.errors import InputError
from fedeas.files import read_json, write_json

FORMAT = "cache/1"
About = dict[str, str | int]
Request = tuple[str, Segment]


def make_about(generator: str, data: str, seed: int) -> About:
    """Return what the samples of a cache come from."""
    for what, name in (("generator", generator), ("data", data)):
        # It is shown by `fedeas cache list`.
        if not isinstance(name, str) or not name.isprintable():
            raise InputError(f"the fingerprint of the {what} must be printable text", got=name)
    return {"format": FORMAT, "generator": generator, "data": data, "seed": seed}


def read_about(path: Path) -> About:
    """Read what the samples of a cache come from."""
    found = _read(path)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise damaged(path, f"its format is not {FORMAT}")
    try:
        generator, data, seed = found["generator"], found["data"], found["seed"]
        if not isinstance(generator, str) or not isinstance(data, str) or type(seed) is not int:
            raise ValueError("a field of a wrong type")
        if found != make_about(generator, data, seed):
            raise ValueError("unknown fields")
    except (KeyError, ValueError, InputError) as error:
        raise damaged(path, str(error)) from None
    return found


def read_manifest(path: Path) -> tuple[str, list[Shard]]:
    """Read the name of a client and the shards that its manifest lists."""
    found = _read(path)
    try:
        if not isinstance(found, dict) or found.keys() != {"client", "shards"}:
            raise ValueError("not a manifest")
        client, listed = found["client"], found["shards"]
        if not isinstance(client, str) or not isinstance(listed, list):
            raise ValueError("a field of a wrong type")
        shards = [_listed(entry) for entry in listed]
    except ValueError as error:
        raise damaged(path, str(error)) from None
    return client, shards


def write_manifest(path: Path, client: str, shards: Sequence[Shard]) -> None:
    """Write the list of a client's shards."""
    listed = [{"name": shard.name, "segments": shard.segments} for shard in shards]
    write_json(path, {"client": client, "shards": listed})


def read_journal(path: Path, key: object, wanted: Mapping[str, Sequence[int]]) -> list[Request]:
    """Read the requests of the fill that a journal was written for, if that is the one of `key`."""
    found = _read(path)
    try:
        if not isinstance(found, dict) or found.keys() != {"key", "requests"}:
            raise ValueError("not a journal")
        if found["key"] != key or not isinstance(found["requests"], list):
            raise ValueError("the journal of another fill")
        return [_request(entry, wanted) for entry in found["requests"]]
    except ValueError as error:
        raise damaged(path, str(error)) from None


def _read(path: Path) -> Any:
    try:
        return read_json(path)
    except InputError as error:
        raise InputError(error.what, fix=REPAIR) from None


def _listed(entry: Any) -> Shard:
    if not isinstance(entry, dict) or entry.keys() != {"name", "segments"}:
        raise ValueError("not a list of shards")
    return parse_shard(entry["name"], entry["segments"])


def _request(entry: Any, wanted: Mapping[str, Sequence[int]]) -> Request:
    """Return one request; a fill never notes what is not wanted."""
    if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
        raise ValueError("not a request")
    client, segment = entry[0], parse_segment(entry[1])
    own = wanted.get(client, ())
    if segment.label >= len(own) or segment.stop > own[segment.label]:
        raise ValueError("samples that nobody wants")
    return client, segment
