"""What tests of private sums and what is made from them share."""

from pathlib import Path

import pytest

from helpers.deployed_sites import write_sites


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four sites with images in folders by class, and the server's test images."""
    return write_sites(tmp_path_factory.mktemp("sites"))
