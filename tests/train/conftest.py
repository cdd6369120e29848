"""What tests of training share."""

from pathlib import Path

import pytest

from helpers.deployed_sites import write_sites
from helpers.tiny_turbo import write_pipeline


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four sites with images in folders by class, and the server's test images."""
    return write_sites(tmp_path_factory.mktemp("sites"))


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Stable Diffusion pipeline with random weights."""
    return write_pipeline(tmp_path_factory.mktemp("turbo"))
