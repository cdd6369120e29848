"""`augment`: one verb for three kinds of data sets."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedeas.cache import ClientSamples
from fedeas.dropin.arrays import augment_arrays
from fedeas.dropin.examples import note_lengths
from fedeas.dropin.hugging_face import augment_hugging_face
from fedeas.dropin.synthetic import Order
from fedeas.errors import InputError
from fedeas.files import store_folder
from fedeas.generators import Classes, Generator
from fedeas.generators.generator import heavy
from fedeas.policies import FedEAS, LocalPolicy, make_policy
from fedeas.seeds import check_seed


def augment(
    dataset: Any,
    *,
    generator: str | Generator,
    beta: float | None = None,
    policy: str | LocalPolicy | None = None,
    client: str | int = "client",
    labels: Any = None,
    label_column: str | None = None,
    classes: Classes | None = None,
    transform: Callable[[Any], Any] | None = None,
    cache: Path | str | None = None,
    seed: int = 0,
    batch_size: int = 64,
) -> Any:
    """Return a client's training set with its synthetic samples, generated once, at the end.

    The client's own label counts decide: the policy says how many of which class. Images are kept
    on disk under the generator's fingerprint, the classes, the client and the seed, so every later
    round, process and run reads them. With more real samples or another beta only those that are
    missing are generated. Samples that are damaged on disk are generated again.

    Parameters
    ----------
    dataset : torch Dataset, datasets.Dataset or numpy.ndarray
        The samples that the client trains on, never those that you test on.

        - A torch `Dataset` with a length and items (image, label). A synthetic sample is a PIL
          image that goes through `transform`, and a label that goes through
          `dataset.target_transform`.
        - A Hugging Face `Dataset` of an Image column and a ClassLabel column. Features stay, and so
          does its format: `with_transform`, before or after, holds for all rows.
        - A NumPy array of uint8 images; the result is a pair (images, labels).
    generator : str or Generator
        A spec such as `"diffusion(model=fashion_mnist)"`, or an object with `fingerprint` and
        `sample`.
    beta : float, optional
        The strength of FedEAS. Either this or `policy`.
    policy : str or LocalPolicy, optional
        Any policy that needs only the client's own counts, by name or as an object: a negotiated
        `"waterfill(price=0.003)"`, for example.
    client : str or int
        Its name, or better its partition-id: clients that share a folder of images have images of
        their own only under names of their own, and `real_examples_mod` knows a node by it.
    labels : sequence of int, optional
        The labels of all samples. NumPy arrays need them; a torch data set has them in
        `dataset.targets` or `dataset.labels`, also through `Subset`.
    label_column : str, optional
        Of a Hugging Face data set with several ClassLabel columns.
    classes : sequence of str or int, optional
        Their names, or how many there are; needed only where neither data set nor generator knows.
    transform : callable, optional
        For torch alone, from a picture to what the data set returns for one; by default
        `dataset.transform`. Say it if real images pass more than that: only kind, shape and type
        of numbers are compared.
    cache : path, optional
        Folder of the images; by default `images` in FEDEAS_STORE, or in .cache/fedeas in the home
        folder. What is made in it can be read by the present user alone.
    seed : int
        Another seed gives other images.
    batch_size : int
        Images that are generated at a time.

    Returns
    -------
    of the kind of `dataset`
        Real samples come first, and `num_real` says how many they are: N_k, the weight of the
        client.

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
        _policy(beta, policy),
        generator,
        Path(cache) if cache is not None else store_folder() / "images",
        check_seed(seed),
        batch_size,
    )
    order = Order(samples, classes)
    result = _of_its_kind(dataset, labels, label_column, order, transform)
    total = len(result[0]) if isinstance(result, tuple) else len(result)
    note_lengths(samples.client, total, result.num_real)
    return result


def _of_its_kind(
    dataset: Any, labels: Any, label_column: str | None, order: Order, transform: Any
) -> Any:
    # Nobody has a data set of a library that is not loaded.
    hugging_face = sys.modules.get("datasets")
    if hugging_face is not None and isinstance(dataset, hugging_face.Dataset):
        if transform is not None:
            raise InputError(
                "a transform beside the data set's own", fix="use dataset.with_transform(...)"
            )
        if labels is not None:
            raise InputError(
                "a Hugging Face data set has its labels in a column", fix="say label_column=..."
            )
        return augment_hugging_face(dataset, label_column, order)
    if label_column is not None:
        raise InputError(
            "label_column is for Hugging Face data sets",
            got=type(dataset).__name__,
            fix="say labels=..., one for each sample",
        )
    if isinstance(dataset, np.ndarray):
        if labels is None or transform is not None:
            raise InputError(
                "an array of images takes an array of labels, and no transform",
                fix="apply transforms to the images that come back",
            )
        return augment_arrays(dataset, np.asarray(labels), order)
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        if hasattr(dataset, "keys"):
            raise InputError("several data sets", got=list(dataset.keys()), fix="give one of them")
        torch_set = heavy("fedeas.dropin.torch_set", "a torch data set", "torch")
        return torch_set.augment_torch(dataset, labels, order, transform)
    raise InputError(
        "not a data set",
        got=type(dataset).__name__,
        allowed="a torch Dataset with a length, a Hugging Face Dataset, or a NumPy array of images",
    )


def _policy(beta: float | None, policy: str | LocalPolicy | None) -> LocalPolicy:
    """Return the policy that is asked for: one that needs the client's own counts alone."""
    if (beta is None) == (policy is None):
        raise InputError(
            "say either beta or policy", got=(beta, policy), fix='beta=8, policy="fedeas(beta=8)"'
        )
    if beta is not None:
        return FedEAS(beta=beta)
    made = make_policy(policy) if isinstance(policy, str) else policy
    if not isinstance(made, LocalPolicy):
        raise InputError(
            "not a policy for one client alone",
            got=policy,
            allowed="a local policy, such as fedeas",
        )
    return made


def _name(client: str | int) -> str:
    if isinstance(client, bool) or not isinstance(client, str | int) or client == "":
        raise InputError("not a client", got=client, allowed="a name or a partition's number")
    return str(client)
