"""Compare ways of training a label-skewed federation: runs, sweeps, results, reports."""

from typing import TYPE_CHECKING

from fedeas._internal.optional import lazy_names

if TYPE_CHECKING:
    from fedeas.lab.config import Config, read_config
    from fedeas.lab.experiment import run

__all__ = [
    "Config",
    "read_config",
    "run",
]

# Imported when they are first used: each needs other libraries.
_WHERE = {
    "Config": "config",
    "read_config": "config",
    "run": "experiment",
}
__getattr__ = lazy_names(__name__, _WHERE)


def __dir__() -> list[str]:
    """List what can be imported here."""
    return sorted({*globals(), *__all__})
