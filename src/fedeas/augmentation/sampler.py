"""`FedEASSampler`: FedEAS as a sampler of imbalanced-learn, for one client's rows."""

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from imblearn.base import BaseSampler
from imblearn.utils import check_sampling_strategy, check_target_type
from imblearn.utils._validation import ArraysTransformer
from numpy.typing import NDArray
from sklearn.preprocessing import label_binarize
from sklearn.utils import check_array, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from fedeas._internal.files import check_cells
from fedeas._internal.frames import is_frame
from fedeas.augmentation.tables import (
    Frame,
    LabelNames,
    known_classes,
    refuse_missing,
    tabular,
)
from fedeas.errors import InputError
from fedeas.generators import (
    Classes,
    Generator,
    LocalArrays,
    Resampler,
    check_classes,
    make_generator,
)
from fedeas.planning.policies import EqualReduction, FedEAS
from fedeas.planning.targets import TargetLike

Ints = NDArray[np.int64]


class FedEASSampler(BaseSampler):  # type: ignore[misc]
    """Add synthetic rows to one client's rows, as many of which class as a rule says.

    Parameters
    ----------
    reduction : float
        The part of its own imbalance that the client removes, by `EqualReduction`.
    beta : float, optional
        The paper's rule, `FedEAS(beta)`, in its place.
    generator : str or Generator
        'gaussian' learns from the rows that it is given, and makes the classes that are among
        them; so do 'smote' and 'copies'. A generator that was fitted to the rows of a federation,
        as `fedeas.generators.Gaussian.load(folder)` or 'gaussian(model=folder)', makes all
        classes of the federation.
    sampling_strategy : str, dict, float or callable
        'auto' leaves it to `reduction` or `beta`. A dict says how many samples of every class there
        shall be in all, as `plan.sampling_strategy(client)` does; other values are
        imbalanced-learn's.
    classes : sequence or int, optional
        All classes of the federation, in their order: those of the generator, or of y, by default.
    target : Target, mapping, sequence, str or path, optional
        The class distribution to aim at, uniform by default.
    random_state : int, RandomState instance or None
        Decides which rows are drawn.

    Attributes
    ----------
    sampling_strategy_ : dict
        The number of rows that were made of every class.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : array of str
        Their names, if X has any.

    Examples
    --------
    >>> from fedeas import FedEASSampler
    >>> rows = np.random.default_rng(0).normal(size=(100, 2))
    >>> labels = np.repeat([0, 1], [90, 10])
    >>> X, y = FedEASSampler(beta=8, random_state=0).fit_resample(rows, labels)
    >>> np.bincount(y)
    array([90, 30])
    """

    _sampling_type = "over-sampling"
    _parameter_constraints: ClassVar[dict[str, Any]] = dict.fromkeys(
        (
            "reduction",
            "beta",
            "generator",
            "sampling_strategy",
            "classes",
            "target",
            "random_state",
        ),
        "no_validation",  # the policy and the generator check theirs
    )

    def __init__(
        self,
        reduction: float = 0.5,
        *,
        beta: float | None = None,
        generator: str | Generator = "gaussian",
        sampling_strategy: Any = "auto",
        classes: Classes | None = None,
        target: TargetLike = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(sampling_strategy=sampling_strategy)
        self.reduction = reduction
        self.beta = beta
        self.generator = generator
        self.classes = classes
        self.target = target
        self.random_state = random_state

    def fit_resample(self, X: Any, y: Any, **params: Any) -> Any:
        """Return the rows and labels with synthetic ones at their end, of the types of X and y.

        Parameters
        ----------
        X : array or frame of pandas or polars
            A row per sample: numbers, categories, gaps.
        y : array of shape (n_samples,)
            The label of every row.
        **params : dict
            Not used.
        """
        refuse_missing(y)
        check_classification_targets(y)
        rows, labels, one_vs_all = self._check_X_y(X, y)
        resampled, new_labels = self._fit_resample(rows, labels)
        if one_vs_all:
            new_labels = label_binarize(new_labels, classes=np.unique(labels))
        if is_frame(X) and not hasattr(X, "iloc"):  # imbalanced-learn knows frames of pandas
            is_series = hasattr(y, "to_list") and hasattr(y, "name")
            return resampled, type(y)(
                y.name, new_labels.tolist(), dtype=y.dtype
            ) if is_series else new_labels
        return ArraysTransformer(X, y).transform(resampled, new_labels)

    def _check_X_y(self, X: Any, y: Any) -> tuple[Any, NDArray[Any], bool]:  # noqa: N802
        labels, one_vs_all = check_target_type(y, indicate_one_vs_all=True)
        rows = X if is_frame(X) else check_array(X, dtype=None, ensure_all_finite="allow-nan")
        validate_data(self, X=rows, y=labels, reset=True, skip_check_array=True)
        return rows, np.asarray(labels), one_vs_all

    def _fit_resample(self, X: Any, y: NDArray[Any], **params: Any) -> tuple[Any, NDArray[Any]]:
        generator = tabular(self.generator)
        model = make_generator(generator) if isinstance(generator, str) else generator
        names = LabelNames.of(y, known_classes(self.classes, model))
        if len(names.classes) < 2:
            raise ValueError(
                f"The target 'y' needs to have more than 1 class. Got {len(names.classes)} class "
                "instead"
            )
        if not isinstance(model, Resampler):
            check_classes([str(name) for name in names.classes], model)
        labels = names.encode(y)
        frame = Frame.of(X, getattr(model, "schema", None))
        n = np.bincount(labels, minlength=len(names.classes))
        wanted = self._possible(model, self._wanted(y, names, n), n, names)
        self.sampling_strategy_: dict[Any, int] = {
            names.classes[c]: int(wanted[c]) for c in np.flatnonzero(wanted).tolist()
        }
        if not wanted.any():
            return X, y
        more = int(wanted.sum())
        check_cells(
            more * len(frame.schema),
            f"a table of {more:,} synthetic rows",
            "lower reduction, or beta",
        )
        drawn = np.repeat(np.arange(len(wanted)), wanted)
        random = check_random_state(self.random_state)
        seeds = random.randint(0, 2**62, drawn.size, dtype=np.int64).astype(np.uint64)
        if isinstance(model, Resampler):
            rows = model.sample_from(LocalArrays(frame.rows, labels, frame.schema), drawn, seeds)
        else:
            rows = model.sample(drawn, seeds)
        return frame.with_rows(rows), np.concatenate([y, names.decode(drawn, y)])

    def _wanted(self, y: NDArray[Any], names: LabelNames, n: Ints) -> Ints:
        """Return how many samples of every class to make."""
        given = self.sampling_strategy
        if given == "auto":
            rule = (
                EqualReduction(reduction=self.reduction, target=self.target)
                if self.beta is None
                else FedEAS(beta=self.beta, target=self.target)
            )
            return rule.local(n, [str(name) for name in names.classes])
        if isinstance(given, Mapping):
            totals = {str(label): count for label, count in given.items()}
            present = {str(name): int(n[at]) for at, name in enumerate(names.classes)}
            total = np.array([totals.pop(name, count) for name, count in present.items()], np.int64)
            if totals or (total < n).any():
                raise InputError(
                    "sampling_strategy names an unknown class, or fewer samples than there are",
                    got=given,
                    allowed=f"at least {present}",
                    fix="say classes= if there are more",
                )
            return total - n
        more = check_sampling_strategy(given, y, self._sampling_type)
        return np.array([more.get(name, 0) for name in names.classes], np.int64)

    def _possible(
        self, generator: Generator, wanted: Ints, n: Ints, names: LabelNames
    ) -> Ints:  # fmt: skip
        """Return what the generator can make of what is wanted; warn of what it cannot."""
        if not isinstance(generator, Resampler):
            return wanted
        possible = generator.feasible(wanted, n)
        if lost := [str(names.classes[c]) for c in np.flatnonzero(wanted > possible).tolist()]:
            warnings.warn(
                f"{int((wanted - possible).sum())} samples of {', '.join(lost)} are not made: "
                f"they lack {generator.lacks}; a generator of the federation's rows has them",
                UserWarning,
                stacklevel=4,
            )
        return possible

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.sparse = False
        return tags
