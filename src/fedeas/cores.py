"""The cores of this process: how many it may use, and how threads wait on them."""

import os


def usable_cores() -> int:
    """Return how many cores this process may use: a container or `taskset` may allow fewer."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def wait_without_spinning() -> None:
    """Let OpenMP's threads sleep while they wait, unless the user says otherwise.

    PyTorch's threads otherwise spin at every barrier. Next to other work they spin while the thread
    they wait for has no core: a fill on a busy machine took five times as long. The setting has an
    effect only before PyTorch is loaded.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
