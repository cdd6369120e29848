"""Files that are hostile rather than damaged: small ones that claim gigabytes, pipes, forgeries.

Each test holds two things: that the file is refused in one line, and, as a control, that the
attack works on code that reads it without looking first.
"""

import io
import json
import os
import random
import re
import subprocess
import sys
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from fedeas import FedEAS, FedeasError, InputError, LabelCounts, Partition, Plan
from fedeas._internal.files import read_json, read_text, read_toml, sealed, unsealed
from fedeas.data import Dataset, load_images
from fedeas.data.labels import read_labels
from fedeas.lab.results import find_runs
from fedeas.lab.tables import make_tables
from fedeas.partition import IID
from fedeas.planning.stream import plan_stream
from fedeas.plots import page
from fedeas.train.tensors import load_tensors, save_tensors, tensors_digest
from helpers.image_sets import encoded, shapes
from helpers.limited_process import attempt
from reproduction.claims import RECORDED

DEEP = "[" * 100_000 + "]" * 100_000


def one_line(text: str) -> bool:
    return text.startswith("InputError ") and len(text.splitlines()) == 1 and len(text) < 500


# Memory


def npz(path: Path, count: int, content: int, **head: object) -> None:
    """Write a partition whose list of samples is `count` zeros, by its header, and packs well."""
    about = {"format": "partition/1", "labels_hash": "x", "size": 10, "classes": 2}
    about |= {"recipe": "iid@1", "settings": {}} | head
    text = np.frombuffer(json.dumps(about).encode(), np.uint8)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in (("head", text), ("train_offsets", np.array([0, count]))):
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array)
        with archive.open("train.npy", "w", force_zip64=True) as file:
            described = {"descr": "<i8", "fortran_order": False, "shape": (count,)}
            np.lib.format.write_array_header_1_0(file, described)
            for _ in range(content >> 20):
                file.write(bytes(1 << 20))


def test_an_archive_that_unpacks_to_gigabytes_is_measured_first(tmp_path):
    """A partition of a few kilobytes whose arrays are larger than its data set can be."""
    unpack = "np.load(argument[0])['train']"
    load = "Partition.load(argument[0])"
    bomb, liar, large = (tmp_path / f"{name}.npz" for name in ("bomb", "liar", "large"))
    npz(bomb, 60_000_000, 480_000_000)  # 2 MB that unpack to 480
    npz(liar, 10**9, 0)  # a header and nothing behind it
    npz(large, 10**9, 0, size=10**9)  # as large as its data set, and too large for memory
    for path, reason in (
        (bomb, "at most 10"),
        (liar, "at most 1"),
        (large, "set FEDEAS_MAX_CELLS to raise the limit"),
    ):
        assert path.stat().st_size < 3 << 20
        assert attempt(unpack, path) == "MemoryError"
        said = attempt(load, path)
        assert one_line(said)
        assert reason in said


def test_lists_that_are_widened_when_they_are_read_are_counted_together(tmp_path):
    """Four lists of single bytes, each below the limit: 8 bytes a number once they are read."""
    path, count = tmp_path / "wide.npz", 60_000_000
    about = {"format": "partition/1", "labels_hash": "x", "size": count, "classes": 2}
    about |= {"recipe": "iid@1", "settings": {}}
    text = np.frombuffer(json.dumps(about).encode(), np.uint8)
    names = ("train", "train_offsets", "test", "test_offsets")
    np.savez_compressed(path, head=text, **dict.fromkeys(names, np.zeros(count, np.uint8)))
    said = attempt("Partition.load(argument[0])", path)
    assert one_line(said)
    assert "FEDEAS_MAX_CELLS" in said


def repeated_rows(path: Path, rows: int, times: int, **columns: object) -> None:
    """Write a Parquet file whose footer lists the same row group many times."""
    table = pa.table({name: pa.array([value] * rows) for name, value in columns.items()})
    pq.write_table(table, path)
    footer = pq.read_metadata(path)
    for _ in range(times - 1):
        footer.append_row_groups(pq.read_metadata(path))
    content = path.read_bytes()
    footer.write_metadata_file(path.with_suffix(".footer"))
    data = content[: -8 - int.from_bytes(content[-8:-4], "little")]
    path.write_bytes(data + path.with_suffix(".footer").read_bytes()[4:])
    assert pq.read_metadata(path).num_rows == rows * times


def test_a_table_of_too_many_cells_is_refused_from_its_footer(tmp_path):
    """A Parquet file of a few hundred kilobytes with 200 million rows."""
    path = tmp_path / "counts.parquet"
    repeated_rows(path, 1_000_000, 200, a=1, b=2)
    assert path.stat().st_size < 1 << 20
    assert attempt("pq.read_table(argument[0])", path) == "MemoryError"
    said = attempt("LabelCounts.load(argument[0])", path)
    assert one_line(said)
    assert "at most 134,217,728" in said
    assert "stream" in said
    assert "FEDEAS_MAX_CELLS" in said
    labels = tmp_path / "labels.parquet"
    repeated_rows(labels, 1_000_000, 200, label=1)
    assert "FEDEAS_MAX_CELLS" in attempt("read_labels(argument)", labels)


def test_what_is_too_large_for_memory_is_still_streamed(tmp_path, monkeypatch):
    path = tmp_path / "counts.parquet"
    repeated_rows(path, 10_000, 20, client="x", a=1, b=2)
    repeated_rows(tmp_path / "unnamed.parquet", 10_000, 20, a=1, b=2)
    monkeypatch.setenv("FEDEAS_MAX_CELLS", "100000")
    for given in (path, tmp_path / "unnamed.parquet"):
        with pytest.raises(InputError, match="stream"):
            LabelCounts.load(given)
        assert plan_stream(given, FedEAS(beta=2)).clients == 200_000
    monkeypatch.setenv("FEDEAS_MAX_CELLS", "400000")
    assert LabelCounts.load(tmp_path / "unnamed.parquet").K == 200_000
    monkeypatch.setenv("FEDEAS_MAX_CELLS", "many")
    with pytest.raises(InputError, match="FEDEAS_MAX_CELLS is not a number"):
        LabelCounts.load(path)


def test_a_long_name_that_is_stored_once_is_not_copied_a_million_times(tmp_path):
    """A megabyte as the name of every client: stored once, and repeated by number."""
    path = tmp_path / "counts.parquet"
    repeated_rows(path, 50, 100, client="x" * 10**6, a=1, b=2)
    assert path.stat().st_size < 1 << 20
    assert attempt("pq.read_table(argument[0])", path) == "MemoryError"
    for code in (
        "LabelCounts.load(argument[0])",
        "plan_stream(Path(argument[0]), FedEAS(), Path(argument[1]))",
        "list(arrow.value_rows(Path(argument[0]), ['client', 'a']))",
    ):
        said = attempt(code, path, tmp_path / "plan.parquet")
        assert one_line(said), said
        assert "a name of 1,000,000 bytes" in said


def test_many_clients_times_many_labels_are_counted_before_a_table_is_made():
    """A short list of samples, each of its own client and label, asks for a square of cells."""
    each = "np.arange(30_000)"
    make = f"np.bincount({each} * 30_000 + {each}, minlength=30_000**2)"
    assert attempt(make) == "MemoryError"
    assert one_line(attempt(f"LabelCounts.from_labels({each}, {each})"))
    labels = [0, 1] * 500
    claimed = replace(IID(clients=1000).partition(labels), classes=10**6)
    with pytest.raises(InputError, match="FEDEAS_MAX_CELLS"):
        claimed.counts(labels)


def image_rows(folder: Path, images: list[bytes], labels: list[int]) -> Path:
    folder.mkdir(parents=True)
    for part in ("train", "test"):
        rows = [{"bytes": image, "path": None} for image in images]
        pq.write_table(pa.table({"image": rows, "label": labels}), folder / f"{part}-0.parquet")
    return folder


def test_a_label_does_not_name_a_trillion_classes(tmp_path):
    """Classes without names are numbered up to the largest label."""
    grey = encoded(np.zeros((8, 8), np.uint8))
    folder = image_rows(tmp_path / "set", [grey, grey], [0, 2**40])
    assert attempt("tuple(map(str, range(2**40)))") == "MemoryError"
    said = attempt("load_images('x', *argument)", folder, tmp_path / "store")
    assert one_line(said)
    assert "0 to 1,000,000" in said
    for number, labels in enumerate(([0, -5], [0, None], ["cat", None])):
        with pytest.raises(InputError):
            load_images("x", image_rows(tmp_path / f"{number}", [grey, grey], labels), tmp_path)


def blank(side: int, mode: str = "1") -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, (side, side)).save(buffer, "PNG")
    return buffer.getvalue()


def by_class(folder: Path, images: dict[str, bytes]) -> Path:
    for name, content in images.items():
        for label in ("cat", "dog"):
            (folder / label).mkdir(parents=True, exist_ok=True)
            (folder / label / name).write_bytes(content)
    return folder


def test_an_image_is_measured_before_it_is_decoded(tmp_path):
    """A PNG of twenty kilobytes with 169 million pixels, in a folder and in Parquet."""
    bomb = blank(13_000)
    assert len(bomb) < 1 << 16
    folder = by_class(tmp_path / "folder", {f"{n}.png": bomb for n in range(5)})
    decode = "np.asarray(Image.open(argument[0]).convert('RGB'))"
    assert attempt(decode, folder / "cat" / "0.png") == "MemoryError"
    for source in (folder, image_rows(tmp_path / "rows", [bomb] * 4, [0, 1, 0, 1])):
        said = attempt("load_images('x', *argument)", source, tmp_path / "store")
        assert one_line(said)
        assert "at most 67,108,864 pixels" in said
    header = b"IHDR" + (10**5).to_bytes(4, "big") * 2 + bytes([1, 0, 0, 0, 0])
    worse = bomb[:12] + header + zlib.crc32(header).to_bytes(4, "big") + bomb[33:]
    with pytest.raises(InputError, match="too large"):
        load_images("x", by_class(tmp_path / "worse", {f"{n}.png": worse for n in range(5)}))


def test_images_are_decoded_by_pixels_not_by_number(tmp_path):
    """Forty images of four megapixels each, which fit into memory only a few at a time."""
    folder = by_class(tmp_path / "set", {f"{n:02}.png": blank(2048, "L") for n in range(20)})
    together = "np.stack([np.asarray(Image.open(p)) for p in Path(argument[0]).rglob('*.png')])"
    assert attempt(together, folder, limit="at_most(220)") == "MemoryError"
    load = "assert load_images('x', *argument).samples.shape == (40, 2048, 2048, 1)"
    # The finished set is mapped, which counts as address space too.
    assert attempt(load, folder, tmp_path / "store", limit="at_most(400)") == "fine"


def test_one_encoded_image_that_a_file_repeats_is_not_held_hundreds_of_times(tmp_path):
    """Five megabytes that compress to nothing, as the bytes of each of four hundred images."""
    folder = tmp_path / "set"
    folder.mkdir()
    image = {"bytes": bytes(5_000_000), "path": None}
    for part in ("train", "test"):
        repeated_rows(folder / f"{part}-0.parquet", 4, 100, image=image, label=1)
    path = folder / "train-0.parquet"
    assert path.stat().st_size < 1 << 20
    assert attempt("pq.read_table(argument[0])", path, limit="at_most(1500)") == "MemoryError"
    said = attempt("load_images('x', *argument)", folder, tmp_path / "store", limit="at_most(1500)")
    assert one_line(said)
    assert "cannot be decoded" in said


def test_a_file_with_a_hole_is_not_read_whole(tmp_path):
    """Two gigabytes of nothing take no place on a disk."""
    path = tmp_path / "counts.json"
    with path.open("wb") as file:
        file.truncate(2 << 30)
    assert path.stat().st_blocks < 100
    assert attempt("Path(argument[0]).read_text()", path) == "MemoryError"
    said = attempt("LabelCounts.load(argument[0])", path)
    assert one_line(said)
    assert "at most 1,073,741,824 bytes; use Parquet" in said


def test_running_out_of_memory_is_one_line(tmp_path):
    """Not a file: a request that the machine cannot serve."""
    code = (
        "import resource, fedeas.cli.main, numpy\n"
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 30,) * 2)\n"
        "fedeas.cli.main.main()"
    )
    command = [sys.executable, "-c", code, "partition", "balanced:1000x900000", "--clients", "2"]
    done = subprocess.run([*command, "--recipe", "iid"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("fedeas: out of memory")
    assert len(done.stderr.splitlines()) == 1


# What is not a file


def readers(path: Path):
    """Everything that reads a file by its name."""
    yield "json", lambda: read_json(path)
    yield "txt", lambda: read_text(path)
    yield "safetensors", lambda: load_tensors(path)
    yield "npz", lambda: Partition.load(path)
    for ending in ("csv", "tsv", "json", "parquet"):
        yield ending, lambda: LabelCounts.load(path)
        if ending in ("json", "parquet"):
            yield ending, lambda: Plan.load(path)
    for ending in ("csv", "npy", "parquet"):
        yield ending, lambda: read_labels([str(path)])
    yield "parquet", lambda: plan_stream(path, FedEAS())


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_only_regular_files_are_read(tmp_path, kind, fedeas):
    """A pipe waits for ever, and a link to /dev/zero never ends."""
    for number in range(len([*readers(tmp_path)])):
        ending = [*readers(tmp_path)][number][0]
        path = tmp_path / f"{number}.{ending}"
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "device":
            path.symlink_to("/dev/zero")
        else:
            path.mkdir()
        with pytest.raises(InputError, match=r"is a (folder|pipe)"):
            [*readers(path)][number][1]()
        if ending in ("csv", "json"):
            assert fedeas("plan", path).code == 2
    if kind == "pipe":
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run([sys.executable, "-c", f"open({str(path)!r})"], timeout=1)
    elif kind == "device":
        assert attempt("Path(argument[0]).read_bytes()", path) == "MemoryError"


def test_an_image_folder_may_hold_links_but_no_pipes_and_devices(tmp_path):
    folder = by_class(tmp_path / "set", {f"{n}.png": blank(8, "L") for n in range(5)})
    (tmp_path / "elsewhere.png").write_bytes(blank(8, "L"))
    (folder / "cat" / "9.png").symlink_to(tmp_path / "elsewhere.png")
    assert len(load_images("x", folder, tmp_path / "store").labels) == 11
    (folder / "cat" / "9.png").unlink()
    odd = folder / "cat" / "8.png"
    for make, undo in (
        (lambda: os.mkfifo(odd), odd.unlink),
        (lambda: odd.symlink_to("/dev/zero"), odd.unlink),
        (lambda: odd.symlink_to(tmp_path / "nowhere"), odd.unlink),
        (odd.mkdir, odd.rmdir),
    ):
        make()
        with pytest.raises(InputError, match=r"8\.png"):
            load_images("x", folder, tmp_path / "store")
        undo()


def test_pillow_starts_no_other_program(tmp_path, monkeypatch):
    """An EPS file called a PNG: Pillow would hand it to Ghostscript, or what is called so."""
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path / 'started'}\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)  # not looked for yet
    folder = by_class(tmp_path / "set", {f"{n}.png": eps for n in range(5)})
    with pytest.raises(InputError, match="cannot be decoded"):
        load_images("x", folder, tmp_path / "store")
    assert not (tmp_path / "started").exists()
    with pytest.raises(OSError, match="cannot"):
        Image.open(io.BytesIO(eps)).load()
    assert (tmp_path / "started").exists()


# What is written inside


def test_deep_nesting_is_refused_wherever_it_is_read(tmp_path):
    """JSON or TOML nested a hundred thousand times exhausts the stack of whoever follows it."""
    with pytest.raises(RecursionError):
        json.loads(DEEP)
    (tmp_path / "sealed.json").write_text(f'{{"sha256": "{"0" * 64}", "body": {DEEP}}}\n')
    (tmp_path / "deep.toml").write_text("a=" + DEEP)
    (tmp_path / "plan.json").write_text(f"# fedeas {DEEP}\nclient,a,b\nx,1,2\n")
    table = pa.table({"a": [1, 2], "b": [3, 4]})
    for key in ("fedeas", "pandas"):
        with_meta = table.replace_schema_metadata({key: DEEP})
        pq.write_table(with_meta, tmp_path / f"{key}.parquet")
    tensors = {"a": torch.ones(2)}
    about = {"about": DEEP, "sha256": tensors_digest(tensors, DEEP)}
    save_file(tensors, tmp_path / "deep.safetensors", about)
    content = np.frombuffer(DEEP.encode(), np.uint8)
    np.savez(tmp_path / "deep.npz", head=content, train=[0, 1], train_offsets=[0, 1, 2])
    shapes(tmp_path / "set")
    (tmp_path / "set" / "meta.json").write_text(f'{{"sha256": "", "body": {DEEP}}}')
    for read in (
        lambda: read_json(tmp_path / "sealed.json"),
        lambda: read_toml(tmp_path / "deep.toml"),
        lambda: Plan.load(tmp_path / "plan.json"),
        lambda: LabelCounts.load(tmp_path / "fedeas.parquet"),
        lambda: load_tensors(tmp_path / "deep.safetensors"),
        lambda: Partition.load(tmp_path / "deep.npz"),
        lambda: Dataset.open(tmp_path / "set"),
    ):
        with pytest.raises(InputError):
            read()
    assert LabelCounts.load(tmp_path / "pandas.parquet").K == 2  # no index that could be read
    grey = encoded(np.zeros((8, 8), np.uint8))
    folder = image_rows(tmp_path / "images", [grey, grey], [0, 1])
    for path in folder.iterdir():
        pq.write_table(pq.read_table(path).replace_schema_metadata({"huggingface": DEEP}), path)
    assert load_images("x", folder, tmp_path / "store").classes == ("0", "1")


def test_a_damaged_checkpoint_says_what_to_do(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    save_tensors(path, {"a": torch.ones(300)}, {"round": 1})
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="remove it to start again"):
        load_tensors(path)


VALUES = (None, True, -1, 0.5, 1e308, 10**30, "x", "\x1b[2J", [], {}, [[]], "../../x", ["a"])


def changed(rng: random.Random, value: object) -> object:
    """Change a random place of a JSON value."""
    if isinstance(value, dict | list) and value and rng.random() < 0.85:
        key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        match rng.randrange(4):
            case 0:
                value[key] = rng.choice(VALUES)
            case 1:
                del value[key]
            case _:
                value[key] = changed(rng, value[key])
        return value
    return rng.choice(VALUES)


def test_forged_exports_are_refused_or_harmless(tmp_path):
    """Lines with the right checksum and another content, as whoever passes them on can write."""
    lines = (RECORDED / "fashion.jsonl").read_text().splitlines(keepends=True)[:3]
    path = tmp_path / "forged.jsonl"
    rng = random.Random(0)
    outcomes = {"refused": 0, "read": 0}
    for _ in range(400):
        bodies = [unsealed(line, "line") for line in lines]
        bodies[-1] = changed(rng, bodies[-1])
        path.write_text("".join(map(sealed, bodies)))
        assert unsealed(path.read_text().splitlines(keepends=True)[-1], "forged") == bodies[-1]
        try:
            make_tables(find_runs(path)[1])
            outcomes["read"] += 1
        except FedeasError as error:
            outcomes["refused"] += 1
            assert len(str(error).splitlines()) == 1
    assert min(outcomes.values()) > 20


@pytest.mark.parametrize(
    "forge",
    [
        lambda body: {},
        lambda body: [],
        lambda body: body | {"entry": body["entry"] | {"grid": 3}},
        lambda body: body | {"entry": body["entry"] | {"folder": "../../etc"}},
        lambda body: body | {"entry": body["entry"] | {"varied": [["a", [1]]]}},
        lambda body: body | {"result": body["result"] | {"curves": {}}},
        lambda body: body | {"result": body["result"] | {"on": None}},
        lambda body: body | {"result": body["result"] | {"generated": 10**400}},
        lambda body: body | {"result": body["result"] | {"classes": ["\x1b[2J"] * 10}},
    ],
)
def test_a_report_of_a_forged_export_ends_in_one_line(tmp_path, fedeas, forge):
    lines = (RECORDED / "fashion.jsonl").read_text().splitlines(keepends=True)
    path = tmp_path / "forged.jsonl"
    path.write_text("".join([lines[0], sealed(forge(unsealed(lines[1], "line")))]))
    done = fedeas("report", path, "--out", tmp_path / "report")
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "report").exists()


def test_names_in_a_report_are_neither_markup_nor_paths(tmp_path):
    hostile = ["../../x", "a/../../x", "/x", "..", "<script>alert(1)</script>", "a\n# b", "x" * 300]
    links = ["[click](javascript:alert(1))", "![](http://tracker/pixel.png)", "`", "a|b"]
    folder = tmp_path / "deep" / "report"
    assert not (folder / "img" / f"{hostile[0]}.svg").resolve().is_relative_to(folder)
    sections = [
        page.Section(name, [name, page.Grid((name, ""), [(name, "1")]),
                            page.Picture(name, b"<svg/>", name)])
        for name in hostile + links
    ]  # fmt: skip
    page.write_report(folder, "<h1>", sections)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    pictures = [path for path in written if path.parent == folder / "img"]
    assert len(pictures) == len(sections)
    assert {path.parent for path in written} == {folder, folder / "img"}
    text = (folder / "report.md").read_text()
    assert "<" not in text
    assert "\n# b" not in text
    assert "`" not in text.replace("\\`", "")
    links = re.findall(r"(?<!\\)\]\(([^)]*)\)", text)
    assert sorted(links) == sorted(f"img/{path.name}" for path in pictures)


def test_a_class_cannot_send_control_codes_to_the_terminal(tmp_path):
    """Folders are classes, and classes are printed."""
    evil = "evil\x1b[31m"
    folder = by_class(tmp_path / "set", {f"{n}.png": blank(8, "L") for n in range(5)})
    (folder / "cat").rename(folder / evil)
    assert evil in [path.name for path in folder.iterdir()]
    with pytest.raises(InputError, match=r"not a (class|label) name") as refused:
        load_images("x", folder, tmp_path / "store")
    assert "\x1b" not in str(refused.value)
    names = json.dumps({"info": {"features": {"label": {"names": ["cat", evil]}}}})
    grey = encoded(np.zeros((8, 8), np.uint8))
    rows = image_rows(tmp_path / "rows", [grey, grey], [0, 1])
    for path in rows.iterdir():
        pq.write_table(pq.read_table(path).replace_schema_metadata({"huggingface": names}), path)
    with pytest.raises(InputError, match=r"not a (class|label) name"):
        load_images("x", rows, tmp_path / "store")
