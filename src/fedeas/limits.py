"""How much of a file is held in memory at once.

A file of a few kilobytes can claim, or decompress to, many gigabytes. Its own header says how many
before anything is read, and what is above these limits is refused there.
"""

import os

from fedeas.errors import InputError

LARGEST_LABEL = 10**6  # classes are numbered from 0
MAX_PIXELS = 1 << 26  # of one image: 8192 x 8192
MAX_TEXT = 1 << 30  # bytes of a text or JSON file
_MAX_CELLS = 1 << 27  # whole numbers of eight bytes: 1 GiB
_VARIABLE = "FEDEAS_MAX_CELLS"


def max_cells() -> int:
    """Return how many numbers of one table may be in memory: FEDEAS_MAX_CELLS, or 2**27.

    >>> max_cells()
    134217728
    """
    given = os.environ.get(_VARIABLE, "")
    if not given:
        return _MAX_CELLS
    if not (given.isascii() and given.isdigit() and 0 < len(given) <= 15):
        raise InputError(f"{_VARIABLE} is not a number of cells", got=given, allowed="1000000000")
    return int(given)


def check_cells(cells: int, what: str, avoid: str | None = None) -> None:
    """Refuse a table that is too large for memory, before memory is allocated.

    Parameters
    ----------
    cells : int
        How many numbers it holds.
    what : str
        What holds them, as the subject of a sentence.
    avoid : str, optional
        What to do instead of raising the limit.
    """
    if cells > (most := max_cells()):
        raise InputError(
            f"{what} holds {cells:,} numbers, more than are read into memory",
            allowed=f"at most {most:,}",
            fix=f"{f'{avoid}, or ' if avoid else ''}set {_VARIABLE} to raise the limit",
        )
