"""What may leave a site of a federation, and at what price: private sums, their noise, a ledger.

Experimental: the protocol has not been reviewed by a third party.
"""

from typing import TYPE_CHECKING

from fedeas._internal.optional import lazy_names

if TYPE_CHECKING:
    from fedeas.private.flower.queries import (
        QueryContext,
        answer_queries,
        class_prior,
    )
    from fedeas.private.generator.classifier import PrivateClassifier
    from fedeas.private.generator.make import make_private
    from fedeas.private.ledger import Ledger
    from fedeas.private.secure_sum.identity import Identity, Members
    from fedeas.private.sums import PrivateSums

__all__ = [
    "Identity",
    "Ledger",
    "Members",
    "PrivateClassifier",
    "PrivateSums",
    "QueryContext",
    "answer_queries",
    "class_prior",
    "make_private",
]

# Imported when they are first used: each needs other libraries.
_WHERE = {
    "QueryContext": "flower.queries",
    "Identity": "secure_sum.identity",
    "Ledger": "ledger",
    "Members": "secure_sum.identity",
    "PrivateClassifier": "generator.classifier",
    "PrivateSums": "sums",
    "answer_queries": "flower.queries",
    "class_prior": "flower.queries",
    "make_private": "generator.make",
}
__getattr__ = lazy_names(__name__, _WHERE)


def __dir__() -> list[str]:
    """List what can be imported here."""
    return sorted({*globals(), *__all__})
