"""Records of benchmarks as CSV files: every row says by which commit, when and how it was made."""

import csv
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

Key = tuple[str, ...]


def read_record(path: Path, keys: Sequence[str]) -> dict[Key, dict[str, str]]:
    """Return a record's rows, keyed by the given columns; a missing file has none."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {_key(row, keys): row for row in csv.DictReader(file)}


def update_record(
    path: Path, keys: Sequence[str], rows: Iterable[Mapping[str, object]], command: str
) -> None:
    """Put rows in the place of those of a record that have the same cells in some columns."""
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()
    about = {"commit": commit, "date": datetime.now(UTC).date().isoformat(), "command": command}
    measured = [{**row, **about} for row in rows]
    known: dict[Key, Mapping[str, object]] = {
        **read_record(path, keys),
        **{_key(row, keys): row for row in measured},
    }
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(measured[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(known.values())


def _key(row: Mapping[str, object], keys: Sequence[str]) -> Key:
    return tuple(str(row[key]) for key in keys)
