"""`augment`: one function for images and tables, in any of the usual libraries."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedeas._internal import defaults
from fedeas._internal.optional import import_extra
from fedeas._internal.scalars import integer
from fedeas._internal.seeds import check_seed
from fedeas.augmentation.examples import note_lengths
from fedeas.augmentation.synthetic import augment_arrays, augment_hugging_face
from fedeas.augmentation.tables import augment_table, is_rows
from fedeas.cache import ClientSamples
from fedeas.cache.storage import samples_place
from fedeas.errors import InputError
from fedeas.generators import Classes, Generator
from fedeas.planning.plan import ClientPlan, Plan
from fedeas.planning.policies import EqualReduction, FedEAS, LocalPolicy
from fedeas.planning.targets import FEDERATION, UNIFORM, TargetLike, inline_target, make_target

MAX_SAMPLES = 50_000


def augment(
    dataset: Any,
    *,
    generator: str | Generator | None = None,
    samples: Path | str | None = None,
    beta: float | None = None,
    reduction: float | None = None,
    plan: Plan | Path | str | None = None,
    target: TargetLike = None,
    client: str | int | None = None,
    labels: Any = None,
    classes: Classes | None = None,
    transform: Callable[[Any], Any] | None = None,
    cache: Path | str | None = None,
    seed: int = defaults.SEED,
    batch_size: int = 64,
    max_samples: int = MAX_SAMPLES,
    progress: bool = True,
) -> Any:
    """Return a client's training set with its synthetic samples, generated once, at the end.

    How many samples of which class is said by exactly one of `beta`, `reduction` and `plan`. They
    are kept on disk, keyed by the generator's fingerprint, the classes, the client and the seed,
    and every later round, process and run reuses them. With more real samples or another beta, only
    missing samples are generated. Samples that are damaged on disk are generated again.

    Parameters
    ----------
    dataset : torch Dataset, datasets.Dataset, numpy.ndarray or data frame
        The client's training samples, never test samples.

        - A torch `Dataset` with a length and items (image, label). A synthetic sample is a PIL
          image that goes through `transform`, and a label that goes through
          `dataset.target_transform`.
        - A Hugging Face `Dataset` of an Image column and a ClassLabel column. Features and format
          are kept: `with_transform`, before or after, applies to all rows.
        - A NumPy array of uint8 images; the result is a pair (images, labels).
        - A frame of pandas or polars, or a NumPy array of rows; the result is a pair (rows, labels)
          of the same types, with categories, whole numbers and gaps as in the frame.
    generator : str or Generator
        A spec such as `"diffusion(model=fashion_mnist)"`, or an object with `fingerprint` and
        `sample`. Write it in your own code or configuration, and never take it from a server: a
        dotted path, `"my_module:MyGenerator"`, is imported. For rows, `"gaussian"` without settings
        learns from the client's own rows, and makes the classes that are among them.
    samples : path or str, optional
        In the place of a generator, samples that were generated elsewhere: a cache, its folder or
        an address such as "s3://bucket/cache"; or a folder of images by class, of any program's
        making, of which the client's name decides which are taken. Too few are an error.
    beta : float, optional
        The paper's rule, `FedEAS(beta)`. The right size depends on the size of the data:
        `fedeas plan` chooses one for the counts of all clients.
    reduction : float, optional
        Our own rule, `EqualReduction(reduction)`: the client removes this part of its own
        imbalance, above 0 and below 1. It needs nothing but the client's own counts.
    plan : Plan, path or str, optional
        A plan for all clients, or the file of one: the client generates exactly its row.
    target : Target, mapping, sequence, str or path, optional
        With beta or reduction: the class distribution to aim at, uniform by default. A client does
        not know the
        federation's own; the server has to tell it. Text may come from a server, so it is
        'uniform' or shares such as '0.6:0.3:0.1'; pass a file of your own as a `pathlib.Path`.
    client : str or int
        Its name, or better its partition-id. Clients that share a cache need different names to
        get different samples, and `report_real_num_examples` recognises a node by its partition-id.
    labels : sequence of int, optional
        The labels of all samples. NumPy arrays and frames need them, and labels of rows may be
        names; a torch data set has them in `dataset.targets` or `dataset.labels`, also through
        `Subset`.
    classes : sequence of str or int, optional
        Their names or their number; needed only if neither data set nor generator has them.
    transform : callable, optional
        For torch only, from a PIL image to what the data set returns for one; by default
        `dataset.transform`. Pass it if real images go through more than that: only type, shape and
        dtype are compared.
    cache : path, optional
        Folder of the samples; by default `samples` in FEDEAS_STORE, or in .cache/fedeas in the home
        folder, where `fedeas fill` keeps them too; or an address such as "s3://bucket/prefix". Only
        the current user can read what is created in a folder.
    seed : int
        Seed of the samples, by default 42, as on the command line.
    batch_size : int
        Batch size of the generator.
    max_samples : int
        Generate at most so many, by default 50,000; every class is cut in proportion, with a
        warning. A beta of the wrong size, or one that a server sent, can ask for millions.
    progress : bool
        Show on standard error how many samples are generated and how long the rest will take: a
        bar on a terminal, a line every ten seconds elsewhere.

    Returns
    -------
    a data set like `dataset`
        Real samples come first; `num_real` is their number N_k, the client's weight.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> class Grey:
    ...     fingerprint, classes = "grey-1", ("cat", "dog", "bird")
    ...     def sample(self, labels, seeds):
    ...         return np.full((len(labels), 8, 8, 1), 128, np.uint8)
    >>> images, labels = np.zeros((100, 8, 8), np.uint8), np.repeat([0, 1], [90, 10])
    >>> with TemporaryDirectory() as folder:
    ...     more = augment(
    ...         images, labels=labels, generator=Grey(), beta=12, client="north", cache=folder
    ...     )
    >>> more.num_real, np.bincount(more[1])
    (100, array([90, 48, 48]))

    """
    if (generator is None) == (samples is None):
        raise InputError(
            "give a generator, or samples that were generated elsewhere",
            got=(generator, samples),
            fix='such as generator="my_module:MyGenerator", or samples="cache"',
        )
    source = ClientSamples(
        _name(client),
        _how_much(beta, reduction, plan, target, _name(client)),
        generator or "",
        samples_place(cache),
        check_seed(seed),
        batch_size,
        integer(max_samples, "not a number of samples", "a whole number from 0", low=0),
        show_progress=progress,
        stored=samples,
    )
    result = _of_its_kind(dataset, labels, source, classes, transform)
    total = len(result[0]) if isinstance(result, tuple) else len(result)
    note_lengths(source.client, total, result.num_real)
    return result


def _of_its_kind(
    dataset: Any, labels: Any, samples: ClientSamples, classes: Classes | None, transform: Any
) -> Any:
    # If its library is not loaded, it is not a data set of that library.
    hugging_face = sys.modules.get("datasets")
    if hugging_face is not None and isinstance(dataset, hugging_face.Dataset):
        if labels is not None or transform is not None:
            raise InputError(
                "a Hugging Face data set has its own labels and transform",
                fix="use dataset.with_transform(...), and a column of the feature ClassLabel",
            )
        return augment_hugging_face(dataset, samples, classes)
    if is_rows(dataset) or isinstance(dataset, np.ndarray):
        if labels is None or transform is not None:
            raise InputError(
                "an array or a frame takes labels, and no transform",
                fix="pass labels=..., one per sample, and apply transforms to what is returned",
            )
        if is_rows(dataset):
            return augment_table(dataset, labels, samples, classes)
        return augment_arrays(dataset, np.asarray(labels), samples, classes)
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        if hasattr(dataset, "keys"):
            raise InputError("several data sets", got=list(dataset.keys()), fix="pass one of them")
        torch_set = import_extra("fedeas.augmentation.torch_set", "a torch data set", "train")
        return torch_set.augment_torch(dataset, labels, samples, classes, transform)
    raise InputError(
        "unsupported type of data set",
        got=type(dataset).__name__,
        allowed="a torch Dataset with a length, a Hugging Face Dataset, a data frame, or a NumPy "
        "array",
    )


def _how_much(
    beta: float | None,
    reduction: float | None,
    plan: Plan | Path | str | None,
    target: TargetLike,
    client: str,
) -> LocalPolicy | ClientPlan:
    """Return the rule or the plan that says how much to generate; one has to be given."""
    given = {"beta": beta, "reduction": reduction, "plan": plan}
    if sum(value is not None for value in given.values()) != 1:
        raise InputError(
            "give exactly one of beta, reduction and plan",
            got=", ".join(name for name, value in given.items() if value is not None) or None,
            fix='such as reduction=0.5, or plan="plan.csv" as `fedeas plan --out` writes it',
        )
    if plan is not None:
        if target is not None:
            raise InputError("a plan has a target already", got=target, fix="leave target out")
        return plan.row(client) if isinstance(plan, Plan) else ClientPlan.load(plan, client)
    if isinstance(target, str) and not _is_target_text(target):
        raise InputError(
            "a target as text may come from a server, and names no file",
            allowed="uniform, or shares in the order of the classes such as 0.6:0.3:0.1",
            fix="pass a file of your own as pathlib.Path",
        )
    aim = make_target(target)
    if aim is not None and aim.shares is None:
        raise InputError(
            "one client does not know the federation's class distribution",
            fix="pass target=[...], a share per class, as the server tells it",
        )
    if beta is not None:
        return FedEAS(beta=beta, target=aim)
    return EqualReduction(reduction=reduction, target=aim)  # type: ignore[arg-type]


def _is_target_text(text: str) -> bool:
    """Tell whether text is a target by itself; 'federation' is refused later, with its reason."""
    return text in (UNIFORM, FEDERATION) or inline_target(text) is not None


def _name(client: str | int | None) -> str:
    if isinstance(client, bool) or not isinstance(client, str | int) or client == "":
        raise InputError(
            "augment needs the client: clients of one name get the same samples",
            got=client,
            allowed="a name or a partition's number",
            fix="pass client=partition_id",
        )
    return str(client)
