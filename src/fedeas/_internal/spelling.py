"""Names that people write in more than one way."""

import unicodedata


def one_spelling(name: str) -> str:
    """Return an id of a person as everybody writes it: spelt in two ways, somebody counts twice.

    >>> one_spelling(" P  07") == one_spelling("p 07")
    True
    """
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())
