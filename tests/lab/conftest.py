"""What tests of runs, sweeps and reports share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Stable Diffusion pipeline with random weights."""
    from helpers.tiny_turbo import write_pipeline  # needs torch: test_paper.py does without

    return write_pipeline(tmp_path_factory.mktemp("turbo"))
