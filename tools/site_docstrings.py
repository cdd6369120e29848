"""How docstrings become pages: doctests are examples, and every class shows its constructor.

A docstring here is a sentence, its parameters and a doctest. The numpy style takes what follows a
section for a part of it, and Markdown takes the prompt for a quotation. This extension of griffe
gives every doctest the heading `Examples` that both need. A constructor that is written by a base
class is invisible to a tool that reads sources: the fields of the class are its parameters.
"""

import re
from typing import Any

import griffe

_HEADING = "Examples\n--------\n"
_PROMPT = re.compile(r"^>>> ", re.MULTILINE)


_BASES = ("NamedTuple", "Settings")  # they make a constructor of their fields


class Docstrings(griffe.Extension):
    """Gives doctests their heading, and classes of fields their constructor."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change one object's docstring."""
        if obj.docstring:
            obj.docstring.value = with_heading(obj.docstring.value)

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Add the constructor that a base class writes."""
        if "__init__" not in cls.members and any(str(base) in _BASES for base in cls.bases):
            cls.set_member("__init__", _constructor(cls))


def _constructor(cls: griffe.Class) -> griffe.Function:
    kind = griffe.ParameterKind.positional_or_keyword
    parameters = [
        griffe.Parameter(name, annotation=field.annotation, kind=kind, default=field.value)
        for name, field in cls.attributes.items()
        # Not properties, and not what a class has once (ClassVar).
        if "property" not in field.labels and "instance-attribute" in field.labels
    ]
    own = griffe.Parameter("self", kind=kind)
    return griffe.Function("__init__", parameters=griffe.Parameters(own, *parameters))


def with_heading(docstring: str) -> str:
    r"""Return a docstring whose doctest has a heading.

    >>> with_heading("Add one.\n\n>>> add(1)\n2")
    'Add one.\n\nExamples\n--------\n>>> add(1)\n2'
    """
    found = _PROMPT.search(docstring)
    if not found or _HEADING in docstring:
        return docstring
    return docstring[: found.start()] + _HEADING + docstring[found.start() :]
