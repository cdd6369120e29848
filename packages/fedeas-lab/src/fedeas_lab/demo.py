"""The demo's federation: real images on this machine, and a model that draws more of them."""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedeas.data import is_local
from fedeas.data.parquet import write_images
from fedeas.errors import MissingExtraError

_TEST = 360  # of the 1,797 digits, as the last of the file


@dataclass(frozen=True)
class Scene:
    """The demo's data and generator, and sizes that take minutes on two cores."""

    data: str
    folder: str | None
    about: str
    generator: str  # trained in one place, on all training images of the data
    pool_per_class: int  # images per class that no client gets, so that clients have few
    clients: int
    rounds: int
    epochs: int
    batch: int


def find_scene(folder: Path) -> Scene:
    """Return Fashion-MNIST if it is on this machine, otherwise scikit-learn's digits.

    `folder` is where the digits are written.
    """
    if is_local("fashion_mnist"):
        return Scene(
            "fashion_mnist", None, "Fashion-MNIST",
            "diffusion(model=fashion_mnist, steps=8, precision=bfloat16)",
            pool_per_class=5800, clients=10, rounds=10, epochs=2, batch=32,
        )  # fmt: skip
    write_digits(folder)
    return Scene(
        "digits", str(folder), "scikit-learn's digits", "diffusion(model=digits, steps=10)",
        pool_per_class=60, clients=10, rounds=20, epochs=2, batch=16,
    )  # fmt: skip


def write_digits(folder: Path) -> None:
    """Write scikit-learn's 1,797 handwritten digits as Parquet, as on the Hugging Face hub."""
    try:
        from PIL import Image
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise MissingExtraError("the demo", "demo") from None
    images, labels = load_digits(return_X_y=True)
    pixels = np.clip(images.reshape(-1, 8, 8) * 16, 0, 255).astype(np.uint8)
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in (("train", slice(0, -_TEST)), ("test", slice(-_TEST, None))):
        encoded = []
        for image in pixels[rows]:
            buffer = io.BytesIO()
            Image.fromarray(image).save(buffer, "PNG")
            encoded.append(buffer.getvalue())
        path = folder / f"{part}-00000-of-00001.parquet"
        write_images(path, encoded, labels[rows].tolist(), [str(n) for n in range(10)])
