"""How a federation trains: its rounds, the model, and a client's own training."""

from typing import Annotated, Literal

from msgspec import Meta

from fedeas._internal.settings import (
    NOT_IDENTITY,
    Count,
    Natural,
    Settings,
    Share,
)
from fedeas.errors import InputError

Fraction = Annotated[float, Meta(gt=0, le=1)]
Rate = Annotated[float, Meta(gt=0, lt=1e3)]
Seconds = Annotated[float, Meta(gt=0, lt=1e9), NOT_IDENTITY]
MaxInFlight = Annotated[int, Meta(ge=1), NOT_IDENTITY]
BatchSize = Annotated[int, Meta(ge=2)]  # batch norm needs two
Steps = Annotated[int, Meta(ge=0)]
EmaDecay = Annotated[float, Meta(ge=0, lt=1)]
ReplyFraction = Share
EvalEvery = Count
_PLAIN_LOSS = ("fedavg", "fedprox", "scaffold")


class ModelSettings(Settings, frozen=True):
    """Which model: one of ours, of an installed package, or `package.module:factory`.

    A factory takes the `Task` and returns an `nn.Module` from normalised samples to logits.
    `stem` and `norm` are a ResNet's, `projection` is a head before the last layer. MOON compares
    what leaves the head, or the features where there is none. Its authors give every method of a
    comparison the head; so should a sweep. `unet` is a diffusion model, for a generator.
    """

    name: str = "cnn"  # or resnet18, mlp, unet, package.module:factory; "" is the data's default
    norm: str = "batch"  # or group
    stem: str = "cifar"  # or imagenet
    projection: Natural = 0  # width of MOON's head: 256, or 0 for none
    weights: str = ""  # a safetensors file, or the folder of a private generator

    @property
    def is_generator(self) -> bool:
        """Whether this is a diffusion model, which draws samples instead of classifying them."""
        return self.name.split("(")[0].strip() == "unet"


class Local(Settings, frozen=True):
    """How a client trains: with a fresh optimiser each time."""

    epochs: Count = 2  # over the client's samples, in a round
    batch: BatchSize = 64  # samples of a step
    learning_rate: Rate = 0.02
    momentum: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Meta(ge=0, lt=1e3)] = 0.0
    precision: Literal["float32", "bfloat16"] = "float32"  # of forward passes
    compile: bool = False  # with torch.compile, which promises no equal bits
    optimizer: str = "sgd"  # by torch's name, with its settings: adamw, rmsprop(alpha=0.9)
    steps: Steps = 0  # in a round, instead of epochs; 0: as many as the epochs have


class Federated(Settings, frozen=True):
    """How a federation trains."""

    rounds: Count = 40  # of communication
    fraction: Fraction = 0.5  # of the clients in a round
    method: str = "fedavg"  # or fedprox(mu=0.01), class-weights, fedlc, ...: docs/training.md
    model: ModelSettings = ModelSettings()
    local: Local = Local()
    threads: Count = 1  # of a client's training
    min_reply_fraction: ReplyFraction = 1.0  # of a cohort: whose replies must be good
    timeout: Seconds = 3600.0  # seconds that a round may take
    max_in_flight: MaxInFlight = 16  # messages in flight at a time
    eval_every: EvalEvery = 1  # rounds between tests of the server's model
    ema_decay: EmaDecay = 0.0  # of a moving average of the weights, tested and kept; 0: none

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = ", ".join(_PLAIN_LOSS)
        if self.method.split("(")[0] not in _PLAIN_LOSS:
            if self.local.compile:
                raise InputError(
                    "only a plain loss can be compiled", got=self.method, allowed=allowed
                )
            if self.model.is_generator:
                raise InputError(
                    "this method needs a classifier, not a diffusion model",
                    got=self.method,
                    allowed=allowed,
                )
        if self.local.compile and self.model.is_generator:
            raise InputError("a diffusion model cannot be compiled", allowed="compile = false")
