"""Where programs that tests start find modules."""

import os
from pathlib import Path


def python_path(*folders: Path) -> str:
    """Return a PYTHONPATH with some folders first, then what there was."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])
