"""Tables that people have, as a table of counts: the reader behind `fedeas counts`.

What has one reading is read: encodings with a mark, delimiters, titles above the heading. Wherever
two readings are possible the likely one is tried, so that everything that is unclear is named at
once, together with the whole command that reads the table in this way.
"""

import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.files import check_regular, parse_json, read_text
from fedeas._internal.scalars import LARGEST
from fedeas.counts import nvflare
from fedeas.counts.cells import LEFT_OUT, CellReader, is_number, kind_of_column
from fedeas.counts.files import READABLE, Table, people_out, table_of_pairs
from fedeas.counts.grids import Grid, json_grid, pandas, parquet_grid, sheet_grid, text_grid
from fedeas.counts.label_set_files import holds_label_sets
from fedeas.counts.options import Choices, Options, UnclearError
from fedeas.counts.plausibility import (
    LABEL_SETS,
    PERIODS,
    SAMPLES,
    SPELLINGS,
    are_clients,
    find_doubts,
    heading_problem,
    names_clients,
    names_labels,
    periods_problem,
    same_but_for_spelling,
    words_of,
)
from fedeas.errors import InputError

Ints = NDArray[np.int64]
# Words in headings, which only ever lead to a suggestion.
_COUNTS = frozenset({
    "count", "counts", "n", "number", "anzahl", "patients", "patienten", "cases", "samples",
    "images", "freq", "frequency",
})  # fmt: skip
# Words of columns that describe a row, and last words of those that number the rows.
_DESCRIBES = frozenset({
    "age", "alter", "edad", "eta", "id", "year", "jahr", "annee", "month", "monat", "week", "kw",
    "zip", "plz", "fold", "dossier",
})  # fmt: skip
_AGES = frozenset(("age", "alter", "edad", "eta"))  # of a person: rows are samples
_NUMBERS = frozenset(("no", "nr", "number", "nummer", "rank", "index"))
_PATIENTS = _COUNTS - {"n", "number", "anzahl"}  # these may also number the rows
_EVERYBODY = frozenset(("all", "alle", "total", "gesamt", "both"))
_LOOKED_AT = 20_000  # rows that tell what a column holds
_NOTHING = Table(np.zeros((1, 2), np.int64), ("",), ("", " "))  # where a file is refused


@dataclass(frozen=True)
class Reading:
    """A table as it was read, and what there is to say about that."""

    table: Table
    notes: tuple[str, ...]


def read_people(paths: Sequence[Path], options: Options, out: str) -> Reading:
    """Read tables that people have into one, or raise one error that names all that is unclear.

    Parameters
    ----------
    paths : sequence of Path
        The files, of one site or of several.
    options : Options
        What was typed.
    out : str
        Where the counts are to be written; part of the command that an error prints.
    """
    if options.client_name is not None and len(paths) > 1:
        raise InputError("--client-name is for one file", got=[str(path) for path in paths])
    reader = _Reader(options)
    tables = [reader.read(path) for path in paths]
    table = reader.join(tables)
    reader.check_dropped()
    if table.values.shape[1] < 2:
        reader.refuse("fewer than two classes are left")
    reader.check_settled(paths, out)
    return Reading(table, tuple(reader.notes))


def advice(path: Path) -> InputError:
    """Return the error for a file that is not in the strict form: the command that reads it."""
    out = people_out(path)
    try:
        read_people([path], Options(), out)
    except InputError as error:
        return error
    command = shlex.join(["fedeas", "counts", str(path), "--out", out])
    return UnclearError([f"{path} is not in the plain form"], command)


class _Reader(Choices):
    """Reads files one after the other, each as a table of counts."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._dropped: set[str] = set()
        self._pd = pandas()

    def read(self, path: Path) -> Table:
        """Read one file."""
        self.path = path
        ending = path.suffix.lower()
        if ending not in READABLE.split(", "):
            raise InputError("unknown kind of file", got=path.name, allowed=READABLE)
        check_regular(path)
        if holds_label_sets(path):
            raise InputError(f"{path} is a table of label sets", fix=f"fedeas plan {path} reads it")
        if ending == ".json":
            content = parse_json(read_text(path), str(path))
            if features := nvflare.features_of(content):
                return self._statistics(content, features)
            return self._table(json_grid(path, content))
        if ending == ".parquet":
            return self._table(parquet_grid(self))
        return self._table(sheet_grid(self) if ending == ".xlsx" else text_grid(self))

    def _statistics(self, content: Any, features: list[str]) -> Table:
        if self.options.label is None and len(features) > 1:
            likely = next(filter(names_labels, features), features[0])
            self.ask(f"has the features {', '.join(features)}", label=likely)
        feature = self.options.label or features[0]
        if feature not in features:
            raise InputError(
                f"{self.path} has no such feature", got=feature, allowed=", ".join(features)
            )
        table, doubts = nvflare.read_statistics(self.path, content, feature)
        if doubts and not self.options.keep:
            self.refuse("; ".join(doubts), or_keep=True)
        self.notes += [f"{self.path}: NVFlare's histograms of {feature!r}", *doubts]
        return self._without_doubts(table)

    # The heading and the rows below it

    def _table(self, grid: Grid) -> Table:
        """Return the table in a frame of text."""
        frame = grid.frame
        frame = frame.map(str.strip) if len(frame) <= _LOOKED_AT else frame
        top = frame.head(100)
        filled = (top != "").sum(axis=1)
        usual = int(filled[filled > 1].mode().max()) if (filled > 1).any() else 1
        widths = zip(filled, top.iloc[:, 0], strict=True)
        fits = [n >= usual or (n == usual - 1 > 1 and (not first or n > 2)) for n, first in widths]
        if not any(fits):
            raise InputError(
                f"{self.path} holds no table", allowed="a heading, and a row per client"
            )
        place = fits.index(True)
        self._check_heading_above(top, place)
        above = [" ".join(filter(None, row)) for row in top.iloc[:place].to_numpy()]
        if titles := [title for title in above if title]:
            self.notes.append(f"{self.path}: left out above the heading: {'; '.join(titles)}")
        head = [re.sub(r"\s*[\r\n]+\s*", " ", str(name)).strip() for name in frame.iloc[place]]
        body = frame.iloc[place + 1 :]
        body = body[(body != "").any(axis=1)]
        heading = grid.lengths[frame.index[place]] if len(grid.lengths) else len(head)
        beyond = body.iloc[:, heading:] != ""
        longer = set(body.index[beyond.any(axis=1)])
        head, body = head[:heading], body.iloc[:, :heading]
        needed = [c for c, name in enumerate(head) if name or (body.iloc[:, c] != "").any()]
        head, body = [head[c] for c in needed], body.iloc[:, needed]
        if not len(body):
            raise InputError(f"{self.path} has a heading and no rows", got=head[:6])
        for name in (self.options.client, self.options.label, self.options.count):
            if name is not None and name not in head:
                allowed = ", ".join(head)
                raise InputError(f"{self.path} has no such column", got=name, allowed=allowed)
        if twice := [name for c, name in enumerate(head) if name in head[:c]]:
            self.refuse(f"column {twice[0]!r} appears twice; rename one")
            head = [f"{name} ({c})" if name in head[:c] else name for c, name in enumerate(head)]
        body = body.set_axis(head, axis=1).apply(_flags_as_digits)
        if len(body) > _LOOKED_AT:
            body = body.apply(lambda column: column.str.strip())
        width = needed[-1] + 1
        short = {line for line, length in enumerate(grid.lengths) if length < width}
        body = self._without_rows(body, short)
        self._check_lengths(body, grid.lengths, short | longer, heading)
        kept = [name for name in head if name not in self.options.drop_columns]
        self._dropped |= set(head) - set(kept)
        return self._by_layout(kept, body[kept])

    def _check_heading_above(self, top: Any, place: int) -> None:
        """Refuse a heading that lacks the name of one column of numbers: it is no title."""
        if place == 0:
            return
        above, below = top.iloc[place - 1].tolist(), top.iloc[place].tolist()
        filled = [name for name in above if name]
        unnamed = [c for c, name in enumerate(above) if below[c] and not name]
        if len(filled) < 2 or len(unnamed) != 1 or any(map(is_number, filled)):
            return
        if is_number(below[unnamed[0]]):
            row = int(top.index[place - 1]) + 1
            raise InputError(
                f"{self.path} row {row} is the heading, and column {unnamed[0] + 1} has no name",
                fix="name the column",
            )

    def _check_lengths(self, body: Any, lengths: Sequence[int], other: set[int], own: int) -> None:
        """Refuse a row that has more or fewer cells than the heading, whose number is given."""
        if wrong := [line for line in body.index if line in other]:
            cells = _cells(lengths[wrong[0]])
            self.refuse(f"row {wrong[0] + 1} has {cells}, the heading has {own}")

    def _without_rows(self, body: Any, short: set[int]) -> Any:
        """Leave out the rows that are to be dropped, and ask about notes below a table.

        A row that holds a number is no note, and neither is a client whose cells are all blank.
        """
        first = (
            body.apply(lambda row: next(filter(None, row)), axis=1)
            if len(body) < 5_000
            else (body.iloc[:, 0])
        )
        if self.options.keep or self.options.label is not None:
            notes = first[[]] if len(first) else first
        else:
            filled = (body != "").sum(axis=1)
            last = max(filled.index[filled > 1], default=-1)
            alone = (filled == 1) & (body.shape[1] > 2)
            likely = body.index[alone | body.index.isin(list(short))]
            notes = first[
                [line for line in likely if _is_note(body.loc[line], line in short, line > last)]
            ]
        new = [name for name in dict.fromkeys(notes) if name not in self.options.drop_rows]
        if new:
            shown = ", ".join(map(repr, new[:3]))
            self.ask(f"has rows that seem to be notes: {shown}", drop_rows=tuple(new))
        named = first.isin(self.options.drop_rows)
        for column in {body.columns[0], self.options.client} - {None}:
            named |= body[column].isin(self.options.drop_rows)
        self._dropped |= set(first[named]) | set(body[body.columns[0]][named])
        if self.options.client is not None:
            self._dropped |= set(body[self.options.client][named])
        return body[~named]

    def _by_layout(self, head: list[str], body: Any) -> Table:
        """Tell records and long tables from wide ones."""
        options = self.options
        kinds = {name: kind_of_column(body[name].head(_LOOKED_AT)) for name in head}
        texts = [name for name in head if kinds[name] == "text"]
        numbers = [name for name in head if kinds[name] == "count"]
        flags = [name for name in numbers if _is_flag(body[name])]
        labels = [name for name in head if names_labels(name)]
        if len(flags) > 1 or len(labels) > 1:  # of several, each is a class
            labels = [name for name in labels if name not in (flags if len(flags) > 1 else numbers)]
        clients = [name for name in head if names_clients(name)]
        if options.label is None and options.client is None and not options.transpose:
            if len(head) == 1 and not labels:
                raise InputError(
                    f"{self.path} holds no table", allowed="a heading, and a row per client"
                )
            if _are_of_one_client(head, labels, body):
                self._ask_own_file(head, labels[0])
            elif (
                labels[:1] == head[:1]
                and texts in ([], labels[:1])
                and (not clients or (len(numbers) > 2 and body[head[0]].is_unique))
            ):
                self.ask(
                    f"the first column is {head[0]!r}: rows seem to be classes",
                    transpose=True,
                )
            elif are_clients(head[1:]):
                self.ask(
                    f"the columns {head[1]!r} to {head[-1]!r} seem to be clients: rows seem "
                    "to be classes",
                    transpose=True,
                )
            elif self._is_records(texts, numbers, labels, clients, body):
                self._ask_columns(head, labels[0] if labels else texts[-1], texts, clients)
            elif label := _label_of_people(head, clients, body):
                self._ask_columns(head, label, texts, clients)
        if self.options.label is not None:
            return self._records(head, kinds, body)
        return self._wide(head, kinds, clients, body)

    @staticmethod
    def _is_records(
        texts: list[str], numbers: list[str], labels: list[str], clients: list[str], body: Any
    ) -> bool:
        """Tell whether rows are samples, or one of the counts of a client."""
        others = set(numbers) - set(labels) - set(clients)
        if labels and (clients or texts):
            return (
                labels[0] in texts
                or len(others) < 2
                or body[(clients or texts)[0]].duplicated().any()
            )
        # Without a word for it, labels are the text that several rows share.
        return len(texts) > 1 and len(others) < 2 and bool(body[texts[-1]].duplicated().any())

    def _ask_own_file(self, head: list[str], label: str) -> None:
        """Ask whether all rows are of one client, who is called as the file is."""
        name = self.path.stem
        counts = [name for name in head if name != label and _COUNTS.intersection(words_of(name))]
        what = f"has no column of clients: all rows seem to be of one client, called {name!r} here"
        self.ask(what, client_name=name, label=label, count=counts[0] if counts else None)

    def _ask_columns(
        self, head: list[str], label: str, texts: list[str], clients: list[str]
    ) -> None:
        client = next((name for name in (*clients, *texts, *head) if name != label), head[0])
        columns = ", ".join(repr(name) for name in head if name not in (client, label))
        others = f" (the other columns are {columns})" if columns else ""
        self.ask(
            f"seems to have a row per sample or count: clients in {client!r}, labels in "
            f"{label!r}{others}",
            client=client,
            label=label,
        )

    # Records and long tables

    def _records(self, head: list[str], kinds: dict[str, str], body: Any) -> Table:
        options = self.options
        label = options.label or ""
        if options.client is None and options.client_name is None:
            likely = [name for name in head if names_clients(name)]
            client = next((name for name in (*likely, *head) if name != label), None)
            if client is None:
                raise InputError(
                    f"{self.path} has no column of clients", fix="give --client-name NAME"
                )
            self.ask(f"clients seem to be in {client!r}", client=client)
        if self.options.client is not None:
            clients = body[self.options.client]
        else:
            clients = self._pd.Series(options.client_name, index=body.index)
        labels = body[label]
        if options.count is None and not options.keep:
            used = (self.options.client, label)
            numbers = [name for name in head if name not in used and kinds[name] == "count"]
            self._ask_count(numbers, body, self._pd.DataFrame({"client": clients, "label": labels}))
        if (clients == "").any():
            row = int(clients.index[(clients == "").argmax()]) + 1
            self.refuse(f"row {row} names no client")
            return _NOTHING
        gaps = [name for name in labels.unique() if name.lower() in LEFT_OUT - {"none"}]
        gaps += [name for name in labels.unique() if name == "-1"]
        if "-1" in gaps and set(labels.unique()) == {"-1", "1"}:
            gaps.remove("-1")
        if (
            new := [name for name in gaps if name not in options.drop_columns]
        ) and not options.keep:
            shown = ", ".join(map(repr, new))
            self.ask(f"has rows whose label is {shown}: none, it seems", drop_columns=tuple(new))
        kept = ~labels.isin(self.options.drop_columns)
        self._dropped |= set(labels[~kept])
        clients, labels, body = clients[kept], labels[kept], body[kept]
        if not self.options.keep:
            self._check_names(labels.unique(), "labels")
            self._check_names(clients.unique(), "clients")
        number = np.ones(len(body), np.int64)
        if self.options.count is not None:
            number = self._numbers(body[[self.options.count]])[:, 0]
            self._ask_repeated(clients, labels, body)
        sums = self._pd.Series(number).groupby([clients.to_numpy(), labels.to_numpy()]).sum()
        table = table_of_pairs(list(sums.index), sums.tolist())
        self.notes.append(f"{self.path}: {len(body):,} rows, classes in {label!r}")
        return self._without_doubts(table) if self.options.count is not None else table

    def _ask_count(self, numbers: list[str], body: Any, pairs: Any) -> None:
        """Ask which column of numbers holds counts, if one may do so."""
        if "" in numbers:
            self.refuse("a column of numbers has no heading: name the column")
            return
        again = bool(pairs.duplicated().any())
        numbers = [name for name in numbers if not _describes_row(name, body[name], again)]
        named = [name for name in numbers if _COUNTS.intersection(words_of(name))]
        if again:  # then a count is called so, and nothing else: not `platelet_count`
            named = [name for name in named if _COUNTS.issuperset(words_of(name))]
        if named or (len(numbers) == 1 and not again):
            count = (named or numbers)[0]
            self.ask(
                f"counts seem to be in {count!r} (--keep instead of --count if every row is a "
                "sample)",
                count=count,
            )
        elif numbers and not again:
            shown = ", ".join(map(repr, numbers))
            self.refuse(
                f"one of the columns {shown} may hold counts: give it as --count, or --keep if "
                "every row is a sample",
                or_keep=True,
            )

    def _ask_repeated(self, clients: Any, labels: Any, body: Any) -> None:
        """Ask whether counts of a class of a client in several rows are to be added up."""
        pairs = self._pd.DataFrame({"client": clients, "label": labels})
        again = pairs.duplicated()
        if not again.any() or self.options.keep:
            return
        used = (self.options.client, self.options.label, self.options.count)
        for name in body.columns:
            values = set(body[name].unique()) if name not in used else set()
            if everybody := [x for x in values if x.lower() in _EVERYBODY]:
                self.refuse(f"rows with {everybody[0]!r} in {name!r} add others up")
                return
        if not self.options.add_up:
            client, label = pairs[again].iloc[0]
            rows = [k + 1 for k in pairs.index[(pairs == [client, label]).all(axis=1)][:2]]
            what = f"class {label!r} of {client!r} is in row {rows[0]} and in row {rows[1]}"
            self.ask(f"{what}: added up", add_up=True)

    def _check_names(self, names: Sequence[str], what: str) -> None:
        """Refuse names in two spellings, and lists of labels."""
        if alike := same_but_for_spelling(names):
            self.refuse(f"{what} {alike} differ in their spelling only", or_keep=True)
            return
        single = set(names)
        for name in names:
            parts = [part.strip() for part in re.split(r"[|;,/+&]", name)]
            if (
                "|" in name
                or name.startswith(("[", "(", "{"))
                or (len(parts) > 1 and single.issuperset(parts))
            ):
                what = f"{what} such as {name!r} are lists (see LabelSetCounts.from_lists)"
                self.refuse(what, or_keep=True)
                return

    # Wide tables

    def _wide(self, head: list[str], kinds: dict[str, str], clients: list[str], body: Any) -> Table:
        client = self._client_column(head, kinds, clients, body)
        columns = self._count_columns(head, kinds, client, body)
        if not columns:
            return _NOTHING
        names = body[client]
        if (unnamed := names == "").any():
            if unnamed.sum() > 1 or self.options.keep:
                self.refuse(f"row {int(names.index[unnamed.argmax()]) + 1} names no client")
            else:
                self.ask("has a row without a name", drop_rows=("",))
            body, names = body[~unnamed], names[~unnamed]
        values = self._numbers(body[columns])
        if self.options.transpose:
            problem = None if self.options.keep else periods_problem(columns)
            if problem:
                self.refuse(f"{problem}, not clients", or_keep=True)
            return self._without_doubts(Table(values.T.copy(), tuple(columns), tuple(names)))
        table = self._without_doubts(Table(values, tuple(names), tuple(columns)))
        self._ask_repeated_clients(table, names)
        return _added_up(table)

    def _client_column(
        self, head: list[str], kinds: dict[str, str], clients: list[str], body: Any
    ) -> str:
        """Return the column of the clients; it is the first one, unless another is called so."""
        if self.options.client is not None or self.options.transpose:
            return self.options.client or head[0]
        if clients:
            client = clients[0]
        elif kinds[head[0]] == "text":
            client = head[0]
        else:
            texts = (name for name in head if kinds[name] == "text" and body[name].is_unique)
            client = next(texts, head[0])
        if client != head[0]:
            self.ask(f"clients seem to be in {client!r}", client=client)
        return client

    def _count_columns(
        self, head: list[str], kinds: dict[str, str], client: str, body: Any
    ) -> list[str]:
        """Return the columns of counts; ask about all others."""
        columns = [name for name in head if name != client]
        decimals = [name for name in columns if kinds[name] == "decimal"]
        if 2 * len(decimals) > len([name for name in columns if kinds[name] != "text"]):
            cell = body[decimals[0]].iloc[0]
            self.refuse(f"column {decimals[0]!r} holds {cell!r}: give whole numbers of samples")
            return []
        # Numbers that differ in every row, in front of the clients: ids, or a rank.
        place = head.index(client)
        others = [
            name
            for name in columns
            if not name
            or kinds[name] != "count"
            or (
                name in head[:place]
                and len(head) - place > 2
                and body[name].is_unique
                and body[name].str.isdecimal().all()
            )
        ]
        if others:
            shown = ", ".join(map(repr, others))
            self.ask(f"columns {shown} hold no counts", drop_columns=tuple(others))
        columns = [name for name in columns if name not in others]
        problem = heading_problem([client, *columns])
        if not self.options.transpose and not self.options.keep and problem:
            self.refuse(problem)
            return []
        return columns

    def _ask_repeated_clients(self, table: Table, names: Any) -> None:
        """Ask whether the rows of a client are to be added up."""
        clients = table.clients or ()
        if len(set(clients)) == len(clients):
            return
        if table.values.max() <= 1 and (table.values.sum(axis=1) > 1).any():
            what = "rows seem to be samples with several labels (see LabelSetCounts.from_columns)"
            if not self.options.keep:
                self.refuse(what, or_keep=True)
        if not self.options.add_up:
            twice = names[names.isin(clients) & names.duplicated()].iloc[0]
            first, second, *_ = (line + 1 for line in names.index[names == twice])
            what = f"client {twice!r} is in row {first} and in row {second}"
            other = "(--label COLUMN instead if every row is a sample)"
            self.ask(f"{what}: added up {other}", add_up=True)

    def _numbers(self, frame: Any) -> Ints:
        """Return the counts in cells of text."""
        texts = frame.to_numpy(dtype=object).ravel().tolist()
        cells = CellReader(texts)
        options = self.options

        def where(text: str) -> str:
            row, column = divmod(texts.index(text), frame.shape[1])
            return f"row {int(frame.index[row]) + 1}, column {frame.columns[column]!r}"

        for text, what in cells.wrong(options.thousands):
            self.refuse(f"{where(text)} holds {text!r}, {what}")
            break
        if (sign := cells.unclear_sign) and options.thousands is None:
            text, whole = cells.grouped
            other = " (--thousands none if it is 1)" if whole else ""
            what = f"{where(text)} holds {text!r}, taken for {cells.value(text, sign)}{other}"
            self.ask(what, thousands=sign)
        if (gaps := cells.blank) and options.blank is None:
            number = _cells(cells.number(gaps))
            what = f"{number} such as {gaps[0]!r} ({where(gaps[0])}) without a number"
            self.ask(f"{what}, taken for 0", blank=0)
        hidden = cells.suppressed
        low, high = cells.suppressed_range if hidden else (0, 0)
        if hidden and low <= high:  # otherwise it is refused above
            if options.suppressed is None:
                middle = (low + high) // 2 if high < LARGEST else low
                allowed = f"any from {low} to {high}" if high < LARGEST else "any number"
                number = _cells(cells.number(hidden))
                what = f"{number} such as {hidden[0]!r} ({where(hidden[0])}), suppressed"
                self.ask(f"{what}, taken for {middle} ({allowed})", suppressed=middle)
            elif not low <= options.suppressed <= high:
                raise InputError(
                    f"--suppressed {options.suppressed} cannot be {hidden[0]!r}",
                    allowed=f"{low} to {high}",
                )
        options = self.options
        return cells.values(options.thousands, options.blank or 0, options.suppressed or 0).reshape(
            frame.shape
        )

    def _without_doubts(self, table: Table) -> Table:
        """Leave out what is to be dropped, and ask about totals, years and the like."""
        row, column = "drop_rows", "drop_columns"
        if self.options.transpose:
            row, column = column, row
        while True:
            table = self._without_names(
                table, getattr(self.options, row), getattr(self.options, column)
            )
            found = find_doubts(table.values, table.clients, table.classes)
            doubts = [doubt for doubt in found if doubt.name]
            whole = {doubt.kind: doubt.what for doubt in found if not doubt.name}
            if LABEL_SETS in whole:
                form = "site,flu,cough,samples: commas, and a column 'samples' at the end"
                self.refuse(f"{whole[LABEL_SETS]}, which have the form {form}")
                return table
            again = len(set(table.clients or ())) < len(table.clients or ())
            if SAMPLES in whole and not again:
                self.refuse(f"{whole[SAMPLES]}; give their clients in a column")
            for kind in (PERIODS, SPELLINGS):
                if kind in whole and not self.options.keep:
                    self.refuse(whole[kind], or_keep=True, as_json=True)
                    return table
            if self.options.keep:
                self.notes += [f"{self.path}: {doubt.what}; kept as it is" for doubt in doubts]
                return table
            if not doubts:
                return table
            for doubt in doubts:
                place = row if doubt.kind == "row" else column
                self.ask(f"{doubt.what}: left out", **{place: (doubt.name,)})

    def _without_names(self, table: Table, rows: Sequence[str], columns: Sequence[str]) -> Table:
        clients, classes = table.clients or (), table.classes or ()
        self._dropped |= (set(clients) & set(rows)) | (set(classes) & set(columns))
        kept = [name not in rows for name in clients], [name not in columns for name in classes]
        if not all(map(any, kept)):
            raise InputError("nothing is left of the table", got=[*rows, *columns])
        return Table(
            table.values[np.ix_(*kept)],
            tuple(name for name, keep in zip(clients, kept[0], strict=True) if keep),
            tuple(name for name, keep in zip(classes, kept[1], strict=True) if keep),
        )

    # All files together

    def join(self, tables: Sequence[Table]) -> Table:
        """Return the tables of several files as one."""
        if len(tables) == 1:
            return tables[0]
        classes = tuple(dict.fromkeys(name for table in tables for name in table.classes or ()))
        clients = [name for table in tables for name in table.clients or ()]
        twice = next((name for name, number in Counter(clients).items() if number > 1), None)
        if twice is not None and not self.options.add_up:
            self.ask(f"client {twice!r} is in several files: added up", add_up=True)
        rows = []
        for table in tables:
            own = table.classes or ()
            if missing := [name for name in classes if name not in own]:
                self.notes.append(f"{', '.join(table.clients or ())}: no {', '.join(missing)}")
            columns = [own.index(name) if name in own else -1 for name in classes]
            padded = np.pad(table.values, ((0, 0), (0, 1)))
            rows.append(padded[:, columns])
        return _added_up(Table(np.concatenate(rows), tuple(clients), classes))

    def check_dropped(self) -> None:
        """Refuse to drop what is in no file."""
        for name in (*self.given.drop_rows, *self.given.drop_columns):
            if name and name not in self._dropped:
                raise InputError("no file has such a row or column to drop", got=name)


def _flags_as_digits(column: Any) -> Any:
    """Return a column of True and False as one of 1 and 0."""
    known = {"true": "1", "false": "0"}
    texts = {text.lower() for text in column.head(_LOOKED_AT).unique()} - {""}
    return column.str.lower().replace(known) if texts and texts <= known.keys() else column


def _is_flag(column: Any) -> bool:
    """Tell whether a column holds 0 and 1: whether a sample is of this class."""
    return set(column.head(_LOOKED_AT)) <= {"0", "1"}


def _are_of_one_client(head: list[str], labels: list[str], body: Any) -> bool:
    """Tell whether a file has labels, and counts of them or a column that numbers its rows."""
    others = [name for name in head if name not in labels]
    if not labels or len(others) > 1 or any(map(names_clients, head)):
        return False
    if not others or _COUNTS.intersection(words_of(others[0])):
        return True
    return bool(body[labels[0]].duplicated().any() and body[others[0]].is_unique)


def _label_of_people(head: list[str], clients: list[str], body: Any) -> str | None:
    """Return the column that seems to hold labels, if rows have an age: they are samples."""
    client = (clients or head)[0]
    ages = [name for name in head if _AGES.intersection(words_of(name))]
    labels = [name for name in head if name not in (client, *ages) and not body[name].is_unique]
    return labels[0] if ages and len(labels) == 1 and body[client].duplicated().any() else None


def _describes_row(name: str, column: Any, again: bool) -> bool:
    """Tell whether a column of numbers is an age, a year or a number of the row, and no count.

    `again` if a client and a label are in several rows: then 1, 2, 3 are hardly their counts.
    """
    plain = unicodedata.normalize("NFKD", name)
    words = words_of("".join(sign for sign in plain if not unicodedata.combining(sign)))
    if _DESCRIBES.intersection(words):
        return True
    if not column.is_unique or _PATIENTS.intersection(words):
        return False
    return again or (len(words) > 1 and words[-1] in _NUMBERS)


def _is_note(row: Any, short: bool, below: bool) -> bool:
    """Tell whether a row of one cell, or of too few, is a remark: never if it holds a number.

    A row with all its cells is a client without numbers, unless several words end the table.
    """
    texts = [text for text in row if text]
    if any(map(is_number, texts)):
        return False
    return short or not row.iloc[0] or (below and " " in texts[0])


def _cells(number: int) -> str:
    return "1 cell" if number == 1 else f"{number:,} cells"


def _added_up(table: Table) -> Table:
    """Add up the rows of each client."""
    clients = table.clients or ()
    if len(set(clients)) == len(clients):
        return table
    place = {name: k for k, name in enumerate(dict.fromkeys(clients))}
    sums = np.zeros((len(place), table.values.shape[1]), np.int64)
    np.add.at(sums, [place[name] for name in clients], table.values)
    return Table(sums, tuple(place), table.classes)
