"""What somebody chooses about a table, and what is unclear about it."""

import codecs
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fedeas._internal.scalars import LARGEST
from fedeas.counts.cells import SIGNS
from fedeas.errors import InputError

_REPEATED = ("drop_columns", "drop_rows")
_LONGEST = 240  # characters of one problem


@dataclass(frozen=True)
class Options:
    """How a table is to be read; see `fedeas counts --help`."""

    client: str | None = None
    client_name: str | None = None
    label: str | None = None
    count: str | None = None
    add_up: bool = False
    transpose: bool = False
    drop_columns: tuple[str, ...] = ()
    drop_rows: tuple[str, ...] = ()
    thousands: str | None = None
    blank: int | None = None
    suppressed: int | None = None
    delimiter: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    keep: bool = False

    def __post_init__(self) -> None:
        for name in ("blank", "suppressed"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= LARGEST:
                raise InputError(f"--{name} is not a count", got=value, allowed="0 and above")
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                allowed = "utf-8, utf-16, cp1252, latin-1, ..."
                raise InputError("unknown encoding", got=self.encoding, allowed=allowed) from None
        if self.thousands is not None and self.thousands not in SIGNS:
            raise InputError("not a sign", got=self.thousands, allowed=" ".join(SIGNS))
        if self.count is not None and self.label is None:
            raise InputError("--count needs --label, the column of the classes", got=self.count)
        if self.client_name is not None and (self.label is None or self.client is not None):
            raise InputError(
                "--client-name is for a file of one client's records",
                got=self.client_name,
                fix="give --label, and no --client",
            )
        if self.transpose and (self.label is not None or self.client is not None):
            raise InputError("give --transpose without --client and --label")

    def typed(self) -> list[str]:
        """Return the options as they are typed.

        >>> Options(drop_rows=("All sites",), keep=True).typed()
        ['--drop-row', 'All sites', '--keep']
        """
        words = []
        for field in fields(self):
            value = getattr(self, field.name)
            name = field.name.removesuffix("s") if field.name in _REPEATED else field.name
            flag = f"--{name.replace('_', '-')}"
            if value is True:
                words.append(flag)
            elif value is not None and value is not False:
                for one in value if isinstance(value, tuple) else (value,):
                    words += [flag, "tab" if one == "\t" else str(one)]
        return words


class UnclearError(InputError):
    """A table with several readings; `command` is the line that settles all of it."""

    def __init__(
        self, problems: Iterable[str], command: str, way: str = "if this is right"
    ) -> None:
        self.command = command
        super().__init__("; ".join(problems), fix=f"{way}, run: {command}")


class Choices:
    """The options of a table that is read; they grow by what is tried where it is unclear."""

    def __init__(self, options: Options) -> None:
        self.options = self.given = options
        self.notes: list[str] = []
        self.path = self._named = Path()  # which file is read, and which a problem named last
        self._problems: list[str] = []
        self._by_hand = False  # whether something has to be corrected in a file
        self._as_json = False  # whether text cannot hold what is kept
        self._or_keep = True  # whether all of that may also be right as it is

    def ask(self, what: str, **tried: Any) -> None:
        """Note what is unclear, and go on with the options that are tried."""
        lists = {k: (*getattr(self.options, k), *v) for k, v in tried.items() if k in _REPEATED}
        self.options = replace(self.options, **{**tried, **lists})
        self._note_problem(what)

    def refuse(self, what: str, *, or_keep: bool = False, as_json: bool = False) -> None:
        """Note what has to be corrected in the file; `or_keep` if it may be right as it is.

        `as_json` if counts that are kept as they are cannot be written as text.
        """
        self._by_hand = True
        self._as_json |= as_json
        self._or_keep &= or_keep
        self._note_problem(what)

    def _note_problem(self, what: str) -> None:
        short = what if len(what) <= _LONGEST else f"{what[: _LONGEST - 3]}..."
        self._problems.append(short if self.path == self._named else f"{self.path}: {short}")
        self._named = self.path

    def check_settled(self, paths: Sequence[Path], out: str) -> None:
        """Raise one error that names all that is unclear, with the command that settles it."""
        if not self._problems:
            return
        if self._by_hand and not self._or_keep:
            raise InputError("; ".join(self._problems), fix="correct this in the file")
        options = replace(self.options, keep=self.given.keep or self._by_hand)
        if self._as_json:
            out = str(Path(out).with_suffix(".json"))
        words = ["fedeas", "counts", *map(str, paths), *options.typed(), "--out", out]
        way = "correct the file, or if it is right" if self._by_hand else "if this is right"
        raise UnclearError(self._problems, shlex.join(words), way)
