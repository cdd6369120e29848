"""Columns that name a row, such as a patient's number: nothing is learnt from them.

Whoever copies or imitates such a column gives real people's names to synthetic rows. A text names
its row if few other rows have it: a patient may have several rows. Whole numbers do if they are all
different and follow each other without a gap: an income may be all different too. A column that is
called so, `patient_id`, names rows if it has more than a few values, however often each.
"""

import re

import numpy as np
from numpy.typing import NDArray

from fedeas.data.schema import all_whole

_FEW = 20  # texts that are never too many, and rows below which numbers tell nothing
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAMES = {
    "account", "case", "customer", "encounter", "fall", "guid", "id", "identifier", "ids", "index",
    "key", "mrn", "patient", "person", "pid", "record", "ssn", "subject", "uid", "user", "uuid",
}  # fmt: skip

_NUMBERS = {"no", "nr", "num", "number"}


def texts_name_rows(name: str, distinct: int, present: int) -> bool:
    """Tell whether texts name their rows, from how many different ones how many rows have.

    >>> [texts_name_rows("code", distinct, 200) for distinct in (200, 100, 30)]
    [True, True, False]
    >>> texts_name_rows("patient", 30, 200), texts_name_rows("patient", 3, 200)
    (True, False)
    """
    if 0 < distinct == present or distinct > max(_FEW, present / 4):
        return True
    return distinct > _FEW and _is_called_so(name)


def numbers_name_rows(name: str, numbers: NDArray[np.float64]) -> bool:
    """Tell whether the numbers of a column name their rows; NaN are gaps.

    >>> numbers_name_rows("visit", np.arange(1000.0, 1200.0))
    True
    >>> squares = np.arange(30.0) ** 2
    >>> numbers_name_rows("area", squares), numbers_name_rows("patientId", squares)
    (False, True)
    """
    present = np.unique(numbers[~np.isnan(numbers)])
    if present.size <= _FEW or not all_whole(present):
        return False
    different = present.size == np.count_nonzero(~np.isnan(numbers))
    follow = bool(present[-1] - present[0] == present.size - 1)
    return (different and follow) or _is_called_so(name)


def _is_called_so(name: str) -> bool:
    """Tell whether a column is called as names of rows are: by the last word of its name.

    >>> [_is_called_so(name) for name in ("patientid", "Fall-Nr", "account", "account_balance")]
    [True, True, True, False]
    """
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 1 and words[-1] in _NUMBERS:
        words.pop()
    return bool(words) and (words[-1] in _NAMES or words[-1].removesuffix("id") in _NAMES)
