"""`augment`: one function for images and tables, in any of the usual libraries."""

import functools
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from fedeas.cache import ClientSamples
from fedeas.dropin.arrays import augment_arrays
from fedeas.dropin.examples import note_lengths
from fedeas.dropin.frames import is_rows
from fedeas.dropin.hugging_face import augment_hugging_face
from fedeas.dropin.synthetic import Order
from fedeas.dropin.tables import augment_table
from fedeas.errors import InputError
from fedeas.files import store_folder
from fedeas.generators import Classes, Generator
from fedeas.generators.generator import heavy
from fedeas.policies import FedEAS, LocalPolicy, make_policy
from fedeas.seeds import check_seed
from fedeas.targets import TargetLike, make_target

_F = TypeVar("_F", bound=Callable[..., Any])


def _accept_positions(function: _F) -> _F:
    """Take labels and generator by position, as 0.1 did, with a warning."""

    @functools.wraps(function)
    def wrapper(dataset: Any, *old: Any, **named: Any) -> Any:
        if len(old) not in (1, 2):
            return function(dataset, *old, **named)
        labels = "label_column" if isinstance(old[0], str) else "labels"
        warnings.warn(
            f"augment takes labels and generator by name: {labels}=..., generator=...; "
            "by position they are accepted until fedeas 0.3",
            FutureWarning,
            stacklevel=2,
        )
        return function(dataset, **dict(zip((labels, "generator"), old, strict=False)), **named)

    return cast(_F, wrapper)


@_accept_positions
def augment(
    dataset: Any,
    *,
    generator: str | Generator,
    beta: float | None = None,
    policy: str | LocalPolicy | None = None,
    target: TargetLike = None,
    client: str | int = "client",
    labels: Any = None,
    label_column: str | None = None,
    classes: Classes | None = None,
    transform: Callable[[Any], Any] | None = None,
    cache: Path | str | None = None,
    seed: int = 0,
    batch_size: int = 64,
    progress: bool = True,
) -> Any:
    """Return a client's training set with its synthetic samples, generated once, at the end.

    The policy decides from the client's own label counts how many samples of which class to
    generate. They are kept on disk, keyed by the generator's fingerprint, the classes, the client
    and the seed, and every later round, process and run reuses them. With more real samples or
    another beta, only missing samples are generated. Samples that are damaged on
    disk are generated again.

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
        `sample`. For rows, `"gaussian"` without settings learns from the client's own rows, and
        makes the classes that are among them.
    beta : float, optional
        The strength of FedEAS. Either this or `policy`.
    policy : str or LocalPolicy, optional
        Any policy that needs only the client's own counts, by name or as an object: a negotiated
        `"waterfill(price=0.003)"`, for example.
    target : Target, mapping, sequence, str or path, optional
        With beta: the class distribution to aim at, uniform by default. A client does not know the
        federation's own; the server has to tell it.
    client : str or int
        Its name, or better its partition-id. Clients that share a cache need different names to
        get different samples, and `real_examples_mod` recognises a node by its partition-id.
    labels : sequence of int, optional
        The labels of all samples. NumPy arrays and frames need them, and labels of rows may be
        names; a torch data set has them in `dataset.targets` or `dataset.labels`, also through
        `Subset`.
    label_column : str, optional
        The label column of a Hugging Face data set with several ClassLabel columns.
    classes : sequence of str or int, optional
        Their names or their number; needed only if neither data set nor generator has them.
    transform : callable, optional
        For torch only, from a PIL image to what the data set returns for one; by default
        `dataset.transform`. Pass it if real images go through more than that: only type, shape and
        dtype are compared.
    cache : path, optional
        Folder of the samples; by default `images` in FEDEAS_STORE, or in .cache/fedeas in the home
        folder. Only the current user can read what is created in it.
    seed : int
        Seed of the samples.
    batch_size : int
        Batch size of the generator.
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
    samples = ClientSamples(
        _name(client),
        _policy(beta, policy, target),
        generator,
        Path(cache) if cache is not None else store_folder() / "images",
        check_seed(seed),
        batch_size,
        show_progress=progress,
    )
    order = Order(samples, classes)
    result = _of_its_kind(dataset, labels, label_column, order, transform)
    total = len(result[0]) if isinstance(result, tuple) else len(result)
    note_lengths(samples.client, total, result.num_real)
    return result


def _of_its_kind(
    dataset: Any, labels: Any, label_column: str | None, order: Order, transform: Any
) -> Any:
    # If its library is not loaded, it is not a data set of that library.
    hugging_face = sys.modules.get("datasets")
    if hugging_face is not None and isinstance(dataset, hugging_face.Dataset):
        if transform is not None:
            raise InputError(
                "a Hugging Face data set takes no transform=", fix="use dataset.with_transform(...)"
            )
        if labels is not None:
            raise InputError(
                "a Hugging Face data set has its labels in a column", fix="pass label_column=..."
            )
        return augment_hugging_face(dataset, label_column, order)
    if label_column is not None:
        raise InputError(
            "label_column is for Hugging Face data sets",
            got=type(dataset).__name__,
            fix="pass labels=..., one for each sample",
        )
    if is_rows(dataset):
        if labels is None or transform is not None:
            raise InputError("rows take labels, and no transform", fix="pass labels=y")
        return augment_table(dataset, labels, order)
    if isinstance(dataset, np.ndarray):
        if labels is None or transform is not None:
            raise InputError(
                "an array of images takes an array of labels, and no transform",
                fix="apply transforms to the returned images",
            )
        return augment_arrays(dataset, np.asarray(labels), order)
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        if hasattr(dataset, "keys"):
            raise InputError("several data sets", got=list(dataset.keys()), fix="pass one of them")
        torch_set = heavy("fedeas.dropin.torch_set", "a torch data set", "torch")
        return torch_set.augment_torch(dataset, labels, order, transform)
    raise InputError(
        "unsupported type of data set",
        got=type(dataset).__name__,
        allowed="a torch Dataset with a length, a Hugging Face Dataset, a data frame, or a NumPy "
        "array",
    )


def _policy(
    beta: float | None, policy: str | LocalPolicy | None, target: TargetLike
) -> LocalPolicy:
    """Return the requested policy: one that needs the client's own counts alone."""
    if (beta is None) == (policy is None):
        raise InputError(
            "pass either beta or policy", got=(beta, policy), fix='beta=8, policy="fedeas(beta=8)"'
        )
    if beta is not None:
        return _known(FedEAS(beta=beta, target=target))
    if target is not None:
        raise InputError("target goes with beta", got=policy, fix="put the target into the policy")
    made = make_policy(policy) if isinstance(policy, str) else policy
    if not isinstance(made, LocalPolicy):
        raise InputError(
            "not a policy for one client alone",
            got=policy,
            allowed="a local policy, such as fedeas",
        )
    return _known(made)


def _known(policy: LocalPolicy) -> LocalPolicy:
    """Refuse the federation's distribution: one client does not know it."""
    target = make_target(getattr(policy, "target", None))
    if target is not None and target.shares is None:
        raise InputError(
            "one client does not know the federation's class distribution",
            fix="pass target=[...], a share per class, as the server tells it",
        )
    return policy


def _name(client: str | int) -> str:
    if isinstance(client, bool) or not isinstance(client, str | int) or client == "":
        raise InputError("invalid client", got=client, allowed="a name or a partition's number")
    return str(client)
