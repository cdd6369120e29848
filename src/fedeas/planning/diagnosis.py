"""What kind of skew a federation has, and whether generating samples is worth it.

The rules of the advice are in `_advise`, in the order in which they apply.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedeas._internal.frames import html_lines, record_frame
from fedeas.counts.label_counts import CountsLike, LabelCounts
from fedeas.planning import skew
from fedeas.planning.beta import CLOSE
from fedeas.planning.targets import TargetLike, aim_shares, target_name

GENERATE, COPIES, NOTHING, UNCLEAR = "generate", "copies", "nothing", "unclear"
# How far the recorded studies support these numbers is in docs/findings.md.
LITTLE = 0.10  # part of the imbalance between clients below which it is the federation's own
_CHANCE = 2.0  # times what clients of one distribution would differ by
_LACKING = 0.70  # part of what is missing, in classes that a client hardly has
_NONE = 0.005  # a skew that is shown as 0.00
_EXACT = 1e-12  # a score below it is 0 but for rounding
WRONG_ADVICE = (8, 22)  # settings with the wrong advice, and all, of docs/data/advice.csv
FEW = 6  # samples of a class below which there is too little to copy: SMOTE takes six


@dataclass(frozen=True)
class Diagnosis:
    """What kind of skew there is, and what to do about it.

    Parameters
    ----------
    target : str
        What the counts are measured against.
    clients, classes : int
        Clients with samples, and classes of the target.
    score : float
        The imbalance score.
    between : float
        The part of it that lies between clients; the rest is the federation's own distance from
        the target.
    empty_pairs, pairs : int
        Pairs of a client and a class without samples, and all pairs.
    label_skew, size_skew : float
        From 0 to 1: how much of the label a client's name gives away (mutual information over
        log C), and 1 - H(p) / log K of the clients' sizes.
    lacking : float
        The part of what clients are short of, to have the target's shares at their size, that is
        in classes of which they have fewer than six samples: too few for copies to teach much.
    scarce_classes : int
        Classes of the target of which all clients together have fewer than six samples.
    chance : float
        The score that would lie between clients of these sizes if they differed only by chance.
    advice : str
        'generate', 'copies', 'nothing' or 'unclear'.
    advice_text : str
        The same in a sentence.

    >>> print(diagnose([[90, 10, 0], [0, 40, 30]]).advice)
    generate
    """

    target: str
    clients: int
    classes: int
    score: float
    between: float
    empty_pairs: int
    pairs: int
    label_skew: float
    size_skew: float
    lacking: float
    scarce_classes: int
    chance: float
    advice: str = ""
    advice_text: str = ""

    @property
    def dominant(self) -> str:
        """Which skew is larger, of labels or of sizes; 'no' where there is neither."""
        if max(self.label_skew, self.size_skew) < _NONE:
            return "no"
        return "label" if self.label_skew >= self.size_skew else "size"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {**asdict(self), "dominant": self.dominant}

    def to_pandas(self) -> Any:
        """Return a pandas data frame of one row."""
        return record_frame([self.to_dict()])

    def _repr_html_(self) -> str:
        return html_lines(f"Diagnosis: {self.advice}", self.lines())

    def __str__(self) -> str:
        return "\n".join(f"{head:<17}{text}" for head, text in self.lines())

    def lines(self) -> list[tuple[str, str]]:
        """Return a few lines of text, each with a heading."""
        rest = f"{100 * (1 - self.between):.1f} %"
        overall = f"{rest} is the federation's own"
        if self.target != "uniform":
            overall = f"{rest} lies between all of them and the target"
        between = f"{100 * self.between:.1f} % of the imbalance; {overall}"
        differ = f"in labels {self.label_skew:.2f}, in sizes {self.size_skew:.2f}"
        skew = "no skew" if self.dominant == "no" else f"{differ}: {self.dominant} skew dominates"
        return [
            ("between clients", between if self.score >= _EXACT else "there is no imbalance"),
            ("empty pairs", f"{self.empty_pairs:,} of {self.pairs:,} client-class pairs"),
            ("clients differ", skew),
            ("advice", self.advice_text),
        ]


def diagnose(counts: CountsLike, target: TargetLike = None) -> Diagnosis:
    """Return what kind of skew the counts have, and whether generating is worth it.

    Parameters
    ----------
    counts : LabelCounts or array_like
        Whole numbers, clients x classes.
    target : Target, str, path, mapping or sequence, optional
        What clients should come closer to, uniform by default.
    """
    table = LabelCounts.of(counts)
    t = aim_shares(target, table)
    n = table.n[:, t > 0].astype(np.float64)
    n, t = n[n.any(axis=1)], t[t > 0]
    K, C = n.shape
    N = n.sum(axis=1)
    p = N / N.sum()
    parts = skew.split(n, target=t.tolist())
    score = parts.cross_client + parts.overall
    mean = p @ (n / N[:, np.newaxis])
    short = np.maximum(N[:, np.newaxis] * t - n, 0.0)
    missing = float(short.sum())
    diagnosis = Diagnosis(
        target_name(target),
        K,
        C,
        score,
        parts.cross_client / score if score > 0 else 0.0,
        int((n == 0).sum()),
        n.size,
        skew.mutual_information(n),
        float(skew.skewness(N)) if K > 1 else 0.0,
        float(short[n < FEW].sum()) / missing if missing > 1e-9 else 0.0,
        int((n.sum(axis=0) < FEW).sum()),
        (K - 1) * (1.0 - float(mean @ mean)) / float(N.sum()),
    )
    advice, text = _advise(diagnosis)
    return Diagnosis(**{**vars(diagnosis), "advice": advice, "advice_text": text})


def _advise(diagnosis: Diagnosis) -> tuple[str, str]:
    """Return the advice and its sentence; the first rule that applies wins."""
    between = diagnosis.score * diagnosis.between
    part = f"{100 * diagnosis.between:.1f} %"
    if diagnosis.clients < 2:
        return UNCLEAR, "a single client: nothing can lie between clients"
    if diagnosis.score < CLOSE:
        return NOTHING, "nothing to gain: the clients are close to the target already"
    if between < _CHANCE * diagnosis.chance and diagnosis.between >= LITTLE:
        return UNCLEAR, (
            "too few samples to tell: clients of this size would differ about as much by chance"
        )
    scarce = (
        f"{diagnosis.scarce_classes} of {diagnosis.classes} classes have fewer than {FEW} samples "
        "in the whole federation"
    )
    if diagnosis.between < LITTLE and diagnosis.scarce_classes:
        return GENERATE, (
            f"only a generator from elsewhere helps: {scarce}, too few to copy or to learn from. A "
            "target with share 0 leaves a class out"
        )
    if diagnosis.between < LITTLE:
        other = "; --target federation plans for that part alone"
        hint = "" if diagnosis.target == "federation" else other
        return COPIES, (
            f"little to gain by generating: only {part} lies between clients. Class weights or "
            f"copies generate nothing, but may cost accuracy{hint}"
        )
    if diagnosis.lacking < _LACKING:
        return COPIES, (
            f"copies may do: only {100 * diagnosis.lacking:.0f} % of what clients are short of is "
            f"in classes with fewer than {FEW} samples"
        )
    return GENERATE, (
        f"generating may be worth it: {100 * diagnosis.lacking:.0f} % of what clients are short of "
        f"is in classes with fewer than {FEW} samples, too few for copies to teach much"
        + (f"; {scarce}" if diagnosis.scarce_classes else "")
    )
