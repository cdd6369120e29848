"""How docstrings become pages: doctests are examples, also where no heading says so.

A docstring here is a sentence, its parameters and a doctest. The numpy style takes what follows a
section for a part of it, and Markdown takes the prompt for a quotation. This extension of griffe
gives every doctest the heading `Examples` that both need.
"""

import re
from typing import Any

import griffe

_HEADING = "Examples\n--------\n"
_PROMPT = re.compile(r"^>>> ", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts the heading of an example before the first prompt of every docstring."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change one object's docstring."""
        if obj.docstring:
            obj.docstring.value = with_heading(obj.docstring.value)


def with_heading(docstring: str) -> str:
    r"""Return a docstring whose doctest has a heading.

    >>> with_heading("Add one.\n\n>>> add(1)\n2")
    'Add one.\n\nExamples\n--------\n>>> add(1)\n2'
    """
    found = _PROMPT.search(docstring)
    if not found or _HEADING in docstring:
        return docstring
    return docstring[: found.start()] + _HEADING + docstring[found.start() :]
