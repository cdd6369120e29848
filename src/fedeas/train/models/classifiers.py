"""Classifiers: what training and methods need of a model, an adapter, and three networks.

`cnn` is a small network for images, `mlp` one for rows of a table, and `resnet18` is of
    He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, 2016.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import nn
from torch.nn import functional

from fedeas._internal.names import choice
from fedeas.data import Schema
from fedeas.errors import InputError
from fedeas.train.samples import Task

Norm = Callable[[int], nn.Module]
_NORMS: dict[str, Norm] = {
    "batch": nn.BatchNorm2d,
    "group": lambda width: nn.GroupNorm(8, width),
}
_STEMS = ("cifar", "imagenet")
_WIDEST = 32  # numbers that stand for a category


class Normalise(nn.Module):
    """Turn samples, as data sets hold them, into what the first layer of a network sees.

    An image (height x width x channels, bytes) becomes channels x height x width of floats. A row
    of a table becomes its numbers, standardised, 0 for a gap; a 1 for every number that is a gap;
    and its categories one-hot, a gap being one category more: `Task.width` entries in this order.
    Any other sample keeps its shape. Mean and std are constants of the data, not weights: they
    are neither saved nor averaged.
    """

    mean: torch.Tensor
    std: torch.Tensor
    numbers: torch.Tensor  # places of columns
    categorical: torch.Tensor
    starts: torch.Tensor  # where the entries of a column of categories begin
    gap_codes: torch.Tensor  # of every column

    def __init__(self, task: Task, channels_last: bool) -> None:
        super().__init__()
        self._of_table, self._width = task.schema is not None, task.width
        if task.schema is not None:
            self._place_columns(task.schema)
        self._is_image, self._channels_last = task.kind == "image", channels_last
        for name, values in (("mean", task.mean), ("std", task.std)):
            shaped = torch.tensor(values, dtype=torch.float32)
            shaped = shaped.view(1, -1, 1, 1) if self._is_image else shaped
            self.register_buffer(name, shaped, persistent=False)

    def _place_columns(self, schema: Schema) -> None:
        sizes = torch.tensor([len(column.categories) for column in schema.columns])
        numbers, categorical = (
            torch.from_numpy(places.astype("int64"))
            for places in (schema.numbers, schema.categorical)
        )
        taken = sizes[categorical] + 1  # a gap is one more
        starts = 2 * len(numbers) + taken.cumsum(0) - taken
        for name, values in (
            ("numbers", numbers), ("categorical", categorical), ("starts", starts),
            ("gap_codes", sizes.float()),
        ):  # fmt: skip
            self.register_buffer(name, values, persistent=False)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Return what the first layer sees."""
        if self._of_table:
            return self._row(samples)
        if not self._is_image:
            return (samples.float() - self.mean) / self.std
        x = samples.permute(0, 3, 1, 2)
        # The bytes are already channels last: that layout is free, the other needs a copy.
        x = x.float() if self._channels_last else x.float().contiguous()
        return (x / 255 - self.mean) / self.std

    def _row(self, rows: torch.Tensor) -> torch.Tensor:
        """Return what the first layer sees of rows."""
        gaps = rows.isnan()
        scaled = ((rows - self.mean) / self.std).masked_fill(gaps, 0.0)
        if not len(self.categorical):  # nothing to sort, which would take most of the time
            return torch.cat([scaled, gaps], 1)
        x = scaled.new_zeros(len(rows), self._width)
        count = len(self.numbers)
        x[:, :count] = scaled[:, self.numbers]
        x[:, count : 2 * count] = gaps[:, self.numbers]
        codes = torch.where(gaps, self.gap_codes, rows)[:, self.categorical].long()
        return x.scatter_(1, codes + self.starts, 1.0)


class Classifier(nn.Module):
    """Samples, as data sets hold them, to a logit per class, or per label where they have several.

    A model of ours has a `body` (normalised samples to features) and a last layer `fc`.
    """

    fc: nn.Module
    channels_last = False
    label_sets: torch.Tensor | None  # label sets x labels, where a sample has several labels

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.normalise = Normalise(task, self.channels_last)
        sets = None
        if task.label_sets:
            sets = torch.zeros(len(task.label_sets), task.classes)
            for row, labels in zip(sets, task.label_sets, strict=True):
                row[list(labels)] = 1.0
        self.register_buffer("label_sets", sets, persistent=False)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        """Return one feature vector per normalised sample."""
        raise NotImplementedError

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Return one logit per normalised sample and class."""
        logits: torch.Tensor = self.fc(self.body(x))
        return logits

    def features(self, samples: torch.Tensor) -> torch.Tensor:
        """Return one feature vector per sample."""
        return self.body(self.normalise(samples))

    @staticmethod
    def batch_loss(
        model: "Classifier", samples: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Return what plain training makes small; `model` is this one, or its compiled form."""
        return model.label_loss(model(samples), labels)

    def label_loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the cross-entropy of logits: of classes, or of each label of a label set."""
        if self.label_sets is None:
            return functional.cross_entropy(logits, labels)
        return functional.binary_cross_entropy_with_logits(logits, self.label_sets[labels])

    @property
    def last(self) -> nn.Linear:
        """The linear layer that gives the logits, behind a projection head if there is one."""
        layer = self.fc[-1] if isinstance(self.fc, nn.Sequential) else self.fc
        return cast(nn.Linear, layer)

    def represent(self, samples: torch.Tensor) -> torch.Tensor:
        """Return what the last layer sees: the projection head's output, or the features."""
        features = self.features(samples)
        return self.fc[:-1](features) if isinstance(self.fc, nn.Sequential) else features

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Return one logit per sample and class."""
        return self.logits(self.normalise(samples))


class Wrapped(Classifier):
    """Adapter for a user-supplied network, from normalised samples to logits.

    MOON and FedGen look at features: for them the network has a method `features`, from normalised
    samples to the vectors that its last `nn.Linear` turns into logits.
    """

    def __init__(self, task: Task, network: nn.Module) -> None:
        super().__init__(task)
        self.network = network
        self._classes = task.classes

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Return one logit per normalised sample and class."""
        logits: torch.Tensor = self.network(x)
        return logits

    def body(self, x: torch.Tensor) -> torch.Tensor:
        """Return one feature vector per normalised sample."""
        features = getattr(self.network, "features", None)
        if features is None:
            raise InputError(
                "this method compares features, and the model has no method `features`",
                got=type(self.network).__name__,
                fix="add `features(x)`, what the last nn.Linear is given; or use another method",
            )
        vectors: torch.Tensor = features(x)
        return vectors

    @property
    def last(self) -> nn.Linear:
        """The last linear layer."""
        layers = [m for m in self.network.modules() if isinstance(m, nn.Linear)]
        if not layers or layers[-1].out_features != self._classes:
            raise InputError(
                "this method needs a model whose last nn.Linear gives the logits",
                got=type(self.network).__name__,
                allowed=f"nn.Linear(..., {self._classes})",
            )
        return layers[-1]

    def represent(self, samples: torch.Tensor) -> torch.Tensor:
        """Return what the last layer sees."""
        return self.features(samples)


def _head(width: int, projection: int, classes: int) -> nn.Module:
    """Return the last layer, behind MOON's two-layer projection where one is asked for."""
    if not projection:
        return nn.Linear(width, classes)
    return nn.Sequential(
        nn.Linear(width, width), nn.ReLU(), nn.Linear(width, projection),
        nn.Linear(projection, classes),
    )  # fmt: skip


def _check_image_size(task: Task) -> None:
    """Refuse what a network for images cannot take."""
    if task.kind != "image":
        raise InputError("this model is for images", got=task.kind, fix='name = "mlp"')
    if min(task.shape[:2]) < 8:
        raise InputError("images too small for a model", got=task.shape, allowed="8 x 8 and more")


class SmallCNN(Classifier):
    """Three convolutions and a hidden layer: enough to tell methods apart on a CPU."""

    channels_last = True  # 1.6 times as fast on the CPUs that we measured

    def __init__(self, task: Task, projection: int = 0) -> None:
        _check_image_size(task)
        super().__init__(task)
        self.conv1 = nn.Conv2d(task.shape[2], 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv3 = nn.Conv2d(64, 64, 3, padding=1)
        self.hidden = nn.Linear(64 * (task.shape[0] // 8) * (task.shape[1] // 8), 128)
        self.fc = _head(128, projection, task.classes)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        """Return one feature vector per normalised image."""
        for convolution in (self.conv1, self.conv2, self.conv3):
            x = functional.max_pool2d(functional.relu(convolution(x)), 2)
        return functional.relu(self.hidden(x.flatten(1)))


class MLP(Classifier):
    """Two hidden layers; images are taken as long rows.

    A category of a table becomes a short vector that is learnt, half as many numbers as the column
    has categories, 32 at most.
    """

    def __init__(self, task: Task, width: int = 128, projection: int = 0) -> None:
        super().__init__(task)
        size = task.width
        self.embeddings = nn.ParameterList()
        if task.schema is not None:
            for column in task.schema.columns:
                if column.categories:
                    values = len(column.categories) + 1  # a missing value is one more
                    vectors = torch.randn(values, min(_WIDEST, (values + 1) // 2))
                    self.embeddings.append(nn.Parameter(vectors))
            size += sum(v.shape[1] - v.shape[0] for v in self.embeddings)
        self.hidden1 = nn.Linear(size, width)
        self.hidden2 = nn.Linear(width, width)
        self.fc = _head(width, projection, task.classes)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        """Return one feature vector per normalised sample."""
        x = x.flatten(1)
        if len(self.embeddings):
            sizes = [len(vectors) for vectors in self.embeddings]
            numbers, *categories = torch.split(x, [x.shape[1] - sum(sizes), *sizes], 1)
            pairs = zip(categories, self.embeddings, strict=True)
            x = torch.cat([numbers, *(codes @ vectors for codes, vectors in pairs)], 1)
        x = functional.relu(self.hidden1(x))
        return functional.relu(self.hidden2(x))


class BasicBlock(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, before: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.bn1 = norm(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = norm(width)
        self.downsample: nn.Module | None = None
        if stride != 1 or before != width:
            self.downsample = nn.Sequential(
                nn.Conv2d(before, width, 1, stride, bias=False), norm(width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(x)) + shortcut)


class ResNet18(Classifier):
    """He et al. 2016, with torchvision's parameter names.

    The `imagenet` stem (7 x 7, stride 2, pooling) is torchvision's and the paper's; the `cifar` one
    (3 x 3, stride 1) keeps small images large, and is some ten points better on them.
    """

    def __init__(
        self, task: Task, norm: str = "batch", stem: str = "cifar", projection: int = 0
    ) -> None:
        _check_image_size(task)
        super().__init__(task)
        choice(stem, "stem", _STEMS)
        norm_layer = _NORMS[choice(norm, "norm", _NORMS)]
        colours = task.shape[2]
        self._pooled = stem == "imagenet"
        size, stride, padding = (7, 2, 3) if self._pooled else (3, 1, 1)
        self.conv1 = nn.Conv2d(colours, 64, size, stride, padding, bias=False)
        self.bn1 = norm_layer(64)
        before = 64
        for number, (width, step) in enumerate(((64, 1), (128, 2), (256, 2), (512, 2)), start=1):
            first = BasicBlock(before, width, step, norm_layer)
            second = BasicBlock(width, width, 1, norm_layer)
            setattr(self, f"layer{number}", nn.Sequential(first, second))
            before = width
        self.fc = _head(512, projection, task.classes)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        """Return one feature vector per normalised image."""
        x = functional.relu(self.bn1(self.conv1(x)))
        if self._pooled:
            x = functional.max_pool2d(x, 3, 2, 1)
        for number in range(1, 5):
            x = getattr(self, f"layer{number}")(x)
        return x.mean((2, 3))
