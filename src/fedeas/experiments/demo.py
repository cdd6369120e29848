"""The demo's federation: real images that are at hand, and a model that draws more of them."""

import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedeas.data import ImageData, load_images
from fedeas.errors import InputError, MissingExtraError

_TEST = 360  # of the 1,797 digits, as the last of the file


@dataclass(frozen=True)
class Scene:
    """What the demo plays with: data, a model for them, and sizes for minutes on two cores."""

    data: str
    folder: str | None
    about: str
    generator: str
    hold_out: int  # images of every class that nobody gets, so that clients have few
    clients: int
    rounds: int
    epochs: int
    batch: int


def find_scene(folder: Path) -> tuple[Scene, ImageData]:
    """Return Fashion-MNIST where it is at hand, otherwise scikit-learn's digits.

    `folder` is where the digits are written.
    """
    fashion = Scene(
        "fashion_mnist", None, "Fashion-MNIST",
        "diffusion(model=fashion_mnist, steps=8, precision=bfloat16)",
        hold_out=5600, clients=10, rounds=10, epochs=2, batch=32,
    )  # fmt: skip
    try:
        return fashion, load_images(fashion.data)
    except (InputError, MissingExtraError):
        pass  # not here, and no hub
    write_digits(folder)
    digits = Scene(
        "digits", str(folder), "scikit-learn's digits", "diffusion(model=digits)",
        hold_out=60, clients=10, rounds=20, epochs=2, batch=16,
    )  # fmt: skip
    return digits, load_images(digits.data, folder)


def write_digits(folder: Path) -> None:
    """Write scikit-learn's 1,797 handwritten digits as Parquet, as data sets of the hub are."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
        from PIL import Image
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtraError("the demo", "demo") from None
    images, labels = load_digits(return_X_y=True)
    pixels = np.clip(images.reshape(-1, 8, 8) * 16, 0, 255).astype(np.uint8)
    features = {"label": {"names": [str(n) for n in range(10)], "_type": "ClassLabel"}}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in (("train", slice(0, -_TEST)), ("test", slice(-_TEST, None))):
        encoded = []
        for image in pixels[rows]:
            buffer = io.BytesIO()
            Image.fromarray(image).save(buffer, "PNG")
            encoded.append({"bytes": buffer.getvalue(), "path": None})
        table = pa.table({"image": encoded, "label": labels[rows].astype(np.int64)})
        pq.write_table(
            table.replace_schema_metadata(metadata), folder / f"{part}-00000-of-00001.parquet"
        )
