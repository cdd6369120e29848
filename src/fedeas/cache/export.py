"""Samples of a cache as other programs have them: folders of images by class, or WebDataset."""

import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from fedeas._internal.files import atomic_write
from fedeas._internal.names import choice
from fedeas.cache.shards import read_shard
from fedeas.cache.storage import plain_name
from fedeas.cache.store import About, Cache, about_of
from fedeas.data import Dataset
from fedeas.data.decode import encode_png
from fedeas.data.kinds import Array
from fedeas.errors import InputError

Form = Literal["folder", "webdataset"]
_TAR_BYTES = 256 << 20  # of a WebDataset file
_REAL = "real"


@dataclass(frozen=True)
class Exported:
    """How many images were written: synthetic and real ones."""

    synthetic: int
    real: int
    folder: Path


@dataclass(frozen=True)
class _Picture:
    name: str  # of a file, without its ending
    label: int
    image: Array
    client: str


def export(
    cache: Cache,
    out: Path | str,
    form: Form = "folder",
    client: str | None = None,
    real: Dataset | None = None,
) -> Exported:
    """Write the images of a cache, of all clients or of one, with a card that says what they are.

    Parameters
    ----------
    cache : Cache
        Where the samples are.
    out : Path or str
        A folder that does not exist yet.
    form : 'folder' or 'webdataset'
        A folder of PNG files for each class, or tar files for WebDataset.
    client : str, optional
        The client whose samples are written.
    real : Dataset, optional
        Real images that are written as well: its training part.
    """
    out, about = Path(out), about_of(cache.root)
    if len(about.form.shape) != 3 or about.form.shape[2] not in (1, 3) or about.form.dtype != "|u1":
        raise InputError(
            "only images are exported",
            got=f"samples of {about.form}",
            fix="read the Parquet files of the cache as they are",
        )
    if out.exists():
        raise InputError(f"{out} exists already", fix="name a new folder")
    if real is not None and real.samples.shape[1:] != about.form.shape:
        raise InputError(
            "the real images have another shape than the synthetic ones",
            got=real.samples.shape[1:],
            allowed=str(about.form.shape),
        )
    if client is not None and not cache.all_entries(client):
        held = dict.fromkeys(name for entry in cache.all_entries() for name in entry.segments.names)
        choice(client, "client", tuple(held))
    names = _class_names(about, real)
    pictures = _synthetic(cache, about, client)
    write = _write_folder if form == "folder" else _write_tars
    synthetic = write(out, names, pictures)
    count = 0 if real is None else write(out, names, _real(real))
    (out / "README.md").write_text(_card(about, client, synthetic, count), encoding="utf-8")
    return Exported(synthetic, count, out)


def _synthetic(cache: Cache, about: About, client: str | None) -> Iterator[_Picture]:
    """Yield each sample once: of one that stands twice, that of the smallest shard's name."""
    seen: set[tuple[str, int, int]] = set()
    for entry in cache.all_entries(client):
        for name, rows in read_shard(entry, about.form, client):
            for label, index, image in zip(
                rows.labels.tolist(), rows.indices.tolist(), rows.samples, strict=True
            ):
                if (name, label, index) not in seen:
                    seen.add((name, label, index))
                    yield _Picture(f"{plain_name(name)}-{label}-{index:06}", label, image, name)


def _real(data: Dataset) -> Iterator[_Picture]:
    labels = np.asarray(data.labels[: data.train_size])
    for place, label in enumerate(labels.tolist()):
        yield _Picture(f"{_REAL}-{place:06}", label, np.asarray(data.samples[place]), _REAL)


def _class_names(about: About, real: Dataset | None) -> list[str]:
    if real is not None:
        return [plain_name(name) for name in real.classes]
    if about.names:
        return [plain_name(name) for name in about.names]
    return []


def _folder_of(names: list[str], label: int) -> str:
    return names[label] if label < len(names) else f"{label}"


def _write_folder(out: Path, names: list[str], pictures: Iterator[_Picture]) -> int:
    count = 0
    for picture in pictures:
        folder = out / _folder_of(names, picture.label)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{picture.name}.png").write_bytes(encode_png(picture.image))
        count += 1
    return count


def _write_tars(out: Path, names: list[str], pictures: Iterator[_Picture]) -> int:
    """Write tar files of image, label and origin, a few hundred megabytes each."""
    out.mkdir(parents=True, exist_ok=True)
    count, done = 0, False
    while not done:
        number, size = len(list(out.glob("*.tar"))), 0
        place = out / f"{number:06}.tar"
        with atomic_write(place) as temporary, tarfile.open(temporary, "w") as tar:
            for picture in pictures:
                about = {"class": _folder_of(names, picture.label), "client": picture.client}
                members = {
                    "png": encode_png(picture.image),
                    "cls": str(picture.label).encode(),
                    "json": json.dumps(about).encode(),
                }
                for ending, content in members.items():
                    header = tarfile.TarInfo(f"{picture.name}.{ending}")
                    header.size = len(content)
                    tar.addfile(header, io.BytesIO(content))
                    size += len(content)
                count += 1
                if size > _TAR_BYTES:
                    break
            else:
                done = True
    return count


def _card(about: About, client: str | None, synthetic: int, real: int) -> str:
    whose = f" of client {client}" if client else ""
    return (
        f"# {synthetic:,} synthetic images{whose}"
        f"{f' and {real:,} real ones' if real else ''}\n\n"
        f"- Generated by: {about.generator}\n"
        f"- The generator was trained on: {about.trained_on or 'not stated'}\n"
        f"- Seed: {about.seed}\n"
        f"- Images: {about.form}\n\n"
        "Synthetic images can resemble those that the generator was trained on. Files whose name "
        f"begins with `{_REAL}-` are real images.\n"
    )
