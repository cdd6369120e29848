"""Forest cover by area and zone: a federation of 14 real sites from scikit-learn's covertype data.

A row is a patch of forest of 30 x 30 m in one of four wilderness areas; its label is one of seven
kinds of forest. A site is an area and the climatic zone of the patch's soil type: the first digit
of the code that the US Forest Service gives the soil. Of the file, its first 15,120 rows are used,
2,160 of each class, so that all skew is between sites. Sites with fewer than 100 rows are left out.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.files import atomic_write, make_folder
from fedeas._internal.optional import import_extra
from fedeas.data import is_local
from fedeas.errors import InputError, MissingExtraError
from fedeas.lab.config import Augment, Config, Data, PartitionConfig
from fedeas.train.settings import Federated, Local, ModelSettings

NAME = "natural/covertype_areas"  # below FEDEAS_DATA
POLICY = "fedeas(beta=10, quality=1)"
ROUNDS = 30
# For each of the ways its own best rate of one grid, or level with it: validation rows, ten seeds
# (reproduction/configs/cpu/demo_rates.toml, reproduction/recorded/demo-rates.csv).
RATE = 1.0
GRID = (0.1, 0.3, 1.0, 3.0)
# The soil type names the zone, and the area half of a site: neither is learnt from.
_NOT_FEATURES = ("soil_type", "area", "label_name", "split")

_ROWS = 15_120
_LEAST = 100  # rows of a site
_TEST = 0.2  # of the rows of every site and class
_NUMBERS = (
    "elevation", "aspect", "slope", "h_dist_hydrology", "v_dist_hydrology", "h_dist_roadways",
    "hillshade_9am", "hillshade_noon", "hillshade_3pm", "h_dist_fire_points",
)  # fmt: skip
_AREAS = np.array(["rawah", "neota", "comanche", "poudre"])
_ZONES = np.repeat([2, 3, 4, 5, 6, 7, 8], [6, 2, 5, 2, 3, 16, 6])  # of the soil types, in order
_CLASSES = (
    "spruce_fir", "lodgepole_pine", "ponderosa_pine", "cottonwood_willow", "aspen", "douglas_fir",
    "krummholz",
)  # fmt: skip


def forest_configs(out: Path, data: Path | None = None) -> dict[str, Config]:
    """Return the configs of the ways to train: `none`, `copies` and `fedeas`, at equal steps.

    The data are in the folder `data`, below FEDEAS_DATA, or else fetched by scikit-learn and
    written below `out`.
    """
    folder = data or _local_folder() or write_forest(out / "forest")
    source = Data(NAME, str(folder), drop_columns=_columns_to_drop(folder))

    def config(policy: str, generator: str) -> Config:
        return Config(
            data=source,
            partition=PartitionConfig("column(site)"),
            augment=Augment(
                policy, generator, cache=str(out / "cache"), batch=4096, steps_as=POLICY
            ),
            federated=Federated(
                rounds=ROUNDS, fraction=1.0, model=ModelSettings("mlp"), local=Local(2, 64, RATE)
            ),
            seed=1,
            device="cpu",
        )

    return {
        "none": config("none", ""),
        "copies": config("copies", "copies"),
        "fedeas": config(POLICY, "private(epsilon=1)"),
    }


def _local_folder() -> Path | None:
    """Return the folder below FEDEAS_DATA, if there is one."""
    return Path(os.environ["FEDEAS_DATA"]) / NAME if is_local(NAME) else None


def _columns_to_drop(folder: Path) -> tuple[str, ...]:
    """Return the columns of the training file that are not learnt from."""
    file = folder / "train.parquet"
    if not file.exists():
        raise InputError(
            "no forest cover data", got=str(folder), allowed="train.parquet and test.parquet",
            fix="leave --data out: scikit-learn fetches them",
        )  # fmt: skip
    schema = import_extra("pyarrow.parquet", "a Parquet file", "train").read_schema(file)
    return tuple(name for name in _NOT_FEATURES if name in schema.names)


def write_forest(folder: Path) -> Path:
    """Fetch the covertype data by scikit-learn and write the sites' rows as Parquet files."""
    files = {part: folder / f"{part}.parquet" for part in ("train", "test")}
    if all(file.exists() for file in files.values()):
        return folder
    try:
        from sklearn.datasets import fetch_covtype
    except ModuleNotFoundError:
        raise MissingExtraError("the demo", "lab") from None
    try:
        values, labels = fetch_covtype(return_X_y=True)
    except OSError as error:
        raise InputError(
            "scikit-learn could not fetch the covertype data",
            got=str(error),
            fix="run `sklearn.datasets.fetch_covtype()` where there is a network and copy its "
            "folder scikit_learn_data here, or give `--data FOLDER` with train.parquet and "
            "test.parquet (columns: site, label, numbers)",
        ) from None
    columns = site_rows(values, labels)
    test = choose_test(columns["site"], columns["label"])
    make_folder(folder)
    pyarrow = import_extra("pyarrow", "a Parquet file", "train")
    parquet = import_extra("pyarrow.parquet", "a Parquet file", "train")
    features = {"label": {"names": _CLASSES, "_type": "ClassLabel"}}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    for part, rows in (("train", ~test), ("test", test)):
        table = pyarrow.table({name: column[rows] for name, column in columns.items()})
        table = table.replace_schema_metadata(metadata)
        with atomic_write(files[part]) as temporary:
            parquet.write_table(table, temporary)
    return folder


def site_rows(values: NDArray[Any], labels: NDArray[Any]) -> Mapping[str, NDArray[Any]]:
    """Return columns of the federation's rows from the columns of `fetch_covtype`, in its order.

    Those are ten numbers, one column for each of four areas, one for each of forty soil types;
    labels are 1 to 7 there, and 0 to 6 here.
    """
    values, labels = values[:_ROWS].astype(np.int64), labels[:_ROWS]
    numbers, areas, soils = np.split(values, [len(_NUMBERS), len(_NUMBERS) + len(_AREAS)], axis=1)
    area, soil = _AREAS[areas.argmax(axis=1)], soils.argmax(axis=1)
    site = np.char.add(np.char.add(area, "_zone"), _ZONES[soil].astype(str))
    _, of_row, sizes = np.unique(site, return_inverse=True, return_counts=True)
    kept = sizes[of_row] >= _LEAST
    columns: dict[str, NDArray[Any]] = dict(zip(_NUMBERS, numbers.T, strict=True))
    columns |= {"soil_type": soil + 1, "area": area, "site": site, "label": labels - 1}
    return {name: column[kept] for name, column in columns.items()}


def choose_test(sites: NDArray[Any], labels: NDArray[Any], seed: int = 20260101) -> NDArray[Any]:
    """Return which rows are tested on: a fifth of every site and class."""
    rng = np.random.default_rng(seed)
    test = np.zeros(len(sites), bool)
    for site, label in sorted({*zip(sites.tolist(), labels.tolist(), strict=True)}):
        cell = np.flatnonzero((sites == site) & (labels == label))
        test[rng.permutation(cell)[: round(_TEST * len(cell))]] = True
    return test
