"""`PrivateStart`: first weights of any model, from a private generator.

Before the first round the server trains the model on samples of the generator, classes as frequent
as its card says. Nothing else is looked at: the weights cost no further privacy.
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedeas._internal.files import content_hash
from fedeas._internal.seeds import child_rng
from fedeas.data.dataset import Dataset
from fedeas.errors import InfeasibleError, InputError
from fedeas.generators import check_fits
from fedeas.private.generator.base import PrivateGenerator
from fedeas.private.generator.card import FINGERPRINT
from fedeas.private.generator.make import open_private
from fedeas.train.loop import fit, use_threads
from fedeas.train.models import make_model
from fedeas.train.samples import Samples, Task
from fedeas.train.settings import Federated
from fedeas.train.tensors import (
    check_values,
    choose_device,
    load_tensors,
    save_tensors,
    torch_seed,
)

FILE = "start.safetensors"  # of first weights, in a run's folder
_SAMPLES, _STEPS = 20_000, 1000
_BATCH = 2000  # samples drawn at a time
_MOST = 2.0**53  # samples of a class


@dataclass(frozen=True, eq=False)
class PrivateStart:
    """A private generator that a model learns from first."""

    generator: PrivateGenerator

    @classmethod
    def load(cls, folder: Path | str) -> "PrivateStart":
        """Load the folder of a generator.

        Parameters
        ----------
        folder : Path or str
            As `fedeas generator private` writes it.
        """
        generator = open_private(str(folder))
        counts = np.array(generator.card.counts)
        if counts.shape != (len(generator.classes),) or not (counts < _MOST).all():
            raise InputError(f"the card in {folder} does not say how many samples a class has")
        return cls(generator)

    def check(self, data: Dataset, federated: Federated) -> None:
        """Refuse data and models that the first weights cannot be for."""
        if federated.model.is_generator:
            raise InputError("a private start is for a classifier", got=federated.model.name)
        check_fits(data, self.generator)
        if data.samples.shape[1:] != self.generator.card.shape:
            raise InputError(
                "the private generator is for samples of another shape",
                got=data.samples.shape[1:],
                allowed=str(self.generator.card.shape),
            )

    @property
    def fingerprint(self) -> str:
        """Identify what first weights depend on, besides the model and the seed."""
        return content_hash([self.generator.fingerprint, _SAMPLES, _STEPS])

    def __str__(self) -> str:
        card = self.generator.card
        guarantee = "" if card.privacy is None else f"; {card.guarantee}"
        return f"{self.generator.training_data}{guarantee}"

    def write(
        self, out: Path, data: Dataset, federated: Federated, seed: int, device: str = "cpu"
    ) -> None:
        """Train the model of a federation, with its optimiser, and write its weights.

        Parameters
        ----------
        out : Path
            The file; one of the same start, model and seed is left as it is.
        data : Dataset
            Names the classes and the shape of a sample; its samples are not looked at.
        federated : Federated
            The model, and how it is trained.
        seed : int
            Of the model's weights, as without a start, of samples and of their order.
        device : str
            Where it is trained.
        """
        settings, local = federated.model.replace(weights=""), federated.local
        about = {
            "start": self.fingerprint, "generator": self.generator.fingerprint,
            "model": settings.to_dict(), "local": local.to_dict(), "seed": seed,
            "made_of": str(self),
        }  # fmt: skip
        key = content_hash(about)
        with suppress(InputError, KeyError, TypeError):  # not there, or damaged
            if load_tensors(out)[1]["key"] == key:
                return
        use_threads(federated.threads)
        rng = child_rng(seed, "start")
        shares = np.maximum(self.generator.card.counts, 1)
        labels = rng.choice(len(shares), _SAMPLES, p=shares / shares.sum())
        seeds = rng.integers(2**63, size=_SAMPLES).astype(np.uint64)
        at = range(0, _SAMPLES, _BATCH)
        drawn = [self.generator.sample(labels[k : k + _BATCH], seeds[k : k + _BATCH]) for k in at]
        samples = np.concatenate(drawn)
        task = Task.of(data, samples)  # normalised by what may be seen
        model = make_model(settings, task, torch_seed(seed, "weights"))
        model.to(choose_device(device))
        real = np.empty(0, np.int64)
        training = Samples.of(data, real, samples, labels)
        fit(model, training, local.replace(steps=_STEPS), rng)
        try:
            check_values(model.state_dict())
        except InputError:
            raise InfeasibleError(
                "training on the samples of the private generator diverged",
                got=f"learning rate {local.learning_rate}",
                fix="lower the learning rate",
            ) from None
        save_tensors(out, model.state_dict(), {**about, "key": key})


def learnt_from(path: Path) -> str:
    """Return the generator whose samples a file of weights was learnt from; '' of other weights."""
    with suppress(InputError):  # weights of other programs
        about = load_tensors(path)[1]
        if isinstance(about, dict) and "start" in about:  # earlier versions did not say of which
            return str(about.get("generator", "unknown"))
    return ""


def check_budget(first: str, fingerprint: str) -> None:
    """Refuse a private generator that clients pay for beside the one that a run starts from.

    Parameters
    ----------
    first, fingerprint : str
        What identifies the generator of the first weights, and that of the run's samples.
    """
    if fingerprint.startswith(FINGERPRINT) and fingerprint != first:
        raise InputError(
            "the run's private generator is not the one that it starts from: two budgets",
            fix="name the start's folder in [augment]: generator = 'private(model=FOLDER)'",
        )
