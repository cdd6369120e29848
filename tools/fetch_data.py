"""Fetch the data sets of the tests, as Parquet: `python tools/fetch_data.py FOLDER`.

Point the environment variable FEDEAS_DATA to that folder. The files are those of the public Hugging
Face data sets, under the names that the tests expect.
"""

import shutil
import sys
from pathlib import Path

from huggingface_hub import hf_hub_download

SETS = {
    "cifar10": ("uoft-cs/cifar10", "plain_text"),
    "fashion_mnist": ("zalando-datasets/fashion_mnist", "fashion_mnist"),
}


def main(folder: Path) -> None:
    """Download the training and test files of every set that is not there yet."""
    for name, (repository, subfolder) in SETS.items():
        for part in ("train", "test"):
            file = f"{part}-00000-of-00001.parquet"
            target = folder / name / file
            if not target.exists():
                found = hf_hub_download(repository, f"{subfolder}/{file}", repo_type="dataset")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
