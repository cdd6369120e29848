"""The folder of a run: held by one process, and of one experiment."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedeas.errors import InputError
from fedeas.experiments.code import code_hash
from fedeas.files import read_json, write_json
from fedeas.locks import locked
from fedeas.settings.config import Config

if TYPE_CHECKING:
    from fedeas.experiments.run import Prepared


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a run's folder; a second process is told, instead of training the same run twice."""

    def busy() -> None:
        raise InputError(f"{folder} is being run by another process", fix="wait for it")

    with locked(folder, busy):
        yield


def claim(path: Path, config: Config, ready: "Prepared", allow_other: bool) -> tuple[str, ...]:
    """Write the config down, or see that the folder is of the same run; return whose code it is.

    A damaged config is written anew: result and checkpoint name their experiment themselves.
    """
    now = code_hash()
    try:
        found = read_json(path)
    except InputError:
        found = {"experiment": ready.experiment, "code": now, "config": config.to_dict()}
        write_json(path, found)
    codes = tuple(dict.fromkeys([found["code"], *found.get("later_code", ()), now]))
    if found["experiment"] != ready.named(codes[0]):
        raise InputError(f"{path.parent} holds another run", fix="choose another folder")
    if len(codes) > 1:
        if not allow_other:
            raise InputError(
                f"{path.parent} was begun by another version of the code or its libraries",
                fix="run it again in another folder, or go on with --allow-other-code",
            )
        write_json(path, {**found, "later_code": list(codes[1:])})
    return codes
