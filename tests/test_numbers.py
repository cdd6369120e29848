"""Every figure that README and the main pages state is recomputed here from a record.

A claim is a function that returns the words of a page with the figures put in from a record, so a
figure that is wrong, or averaged over something else than the words say, is not found on the page.
What is left of README and of the home page without these words has no number but those listed.
"""

import csv
import importlib
import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from scipy.stats import t as student

from fedeas import FedEAS, LabelCounts, Plan
from fedeas.data import load_images
from fedeas.planning.beta import admissible_betas
from fedeas_lab.cli.demo import _base
from fedeas_lab.demo import find_scene
from fedeas_lab.resolve import partition_data
from fedeas_lab.results import Mean
from reproduction.claims import all_claims
from reproduction.study import RECORD, difference, means, primary, read_rows

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "data"
RECORDED = ROOT / "reproduction" / "recorded"
NUMBER = re.compile(r"\d[\d,.]*")

BySeed = dict[int, float]


def bodies(name: str) -> list[dict]:
    lines = (RECORDED / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["body"] for line in lines]


def recorded(name: str, policy: str, field: str, scale: float = 1) -> BySeed:
    """Return what the runs of a policy at a matched budget have in a field, by seed."""
    return {
        body["entry"]["seed"]: scale * body["result"][field]
        for body in bodies(name)
        if body["entry"]["grid"] == "policies" and body["entry"]["policy"].split("(")[0] == policy
    }


def averaged(name: str, policy: str) -> BySeed:
    """Return the accuracy over the last rounds, in per cent."""
    return recorded(name, policy, "accuracy_last", 100)


def table(record: str) -> list[dict[str, str]]:
    with (DATA / record).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def listed(values: list[str]) -> str:
    return f"{', '.join(values[:-1])} and {values[-1]}"


def own_study(setting: str, way: str, column: str = "accuracy") -> BySeed:
    return studied("own-federated.csv", setting, way, column)


def studied(record: str, setting: str, way: str, column: str = "accuracy") -> BySeed:
    """Return a column of a study, in per cent, of every seed of a way to train."""
    with (DATA / record).open(newline="", encoding="utf-8") as file:
        return {
            int(row["seed"]): 100 * float(row[column])
            for row in csv.DictReader(file)
            if (row["setting"], row["way"]) == (setting, way)
        }


def after_round(way: str, number: int) -> BySeed:
    """Return the accuracy after a round of the federation's own images, in per cent."""
    with (DATA / "own-fashion.csv").open(newline="", encoding="utf-8") as file:
        return {
            int(row["seed"]): 100 * float(row["accuracy"])
            for row in csv.DictReader(file)
            if (row["way"], int(row["round"])) == (way, number)
        }


def mean(values: BySeed) -> float:
    return statistics.mean(values.values())


def lead(values: BySeed, other: BySeed) -> Mean:
    """Return how far one way is ahead of another, seed by seed, over the seeds of both."""
    return Mean.of([values[seed] - other[seed] for seed in sorted(values.keys() & other.keys())])


def plus_minus(values: BySeed, other: BySeed, sign: str = "") -> str:
    found = lead(values, other)
    return f"{found.value:{sign}.1f} ± {found.half:.1f}"


def on_table(setting: str, *ways: str) -> list[BySeed]:
    return [studied("tables-study.csv", setting, way) for way in ways]


def the_generator() -> str:
    held = re.search(
        r"N = ([\d,]+) training images on 20 clients, ([\d,]+) held out",
        bodies("fashion")[0]["result"]["data"],
    )
    clients, rest = (int(number.replace(",", "")) for number in held.groups())
    return (
        f"The diffusion model was trained in one place on all {clients + rest:,} training images; "
        f"the clients hold {clients:,} of them."
    )


def in_study(data: str, other: str, digits: int = 1) -> str:
    """Return FedEAS minus another way in the study, with its interval."""
    found = difference(read_rows(RECORD), data, "fedeas", other)
    return f"{found.mean:.{digits}f} ± {found.half:.{digits}f}"


def how_sure_it_is() -> str:
    behind, forest = over_uniform("loans-sites"), in_study("forest", "uniform")
    settled = [
        f"{found.mean:.1f} ± {found.half:.1f} on {found.data} "
        + ("(open)" if verdict == "open" else f"(corrected p = {p:.2f})")
        for found, p, verdict in primary(read_rows(RECORD))
    ]
    return (
        "FedEAS with a generator that the sites make from private sums is "
        f"{in_study('forest', 'none')} points ahead of real samples alone with as many training "
        f"steps, and {in_study('forest', 'copies')} ahead of copies at the same learning rate "
        "(ten seeds). "
        "*Where* samples go matters little so far: FedEAS minus `uniform` is "
        f"{listed([f'{forest} there', *settled])}; earlier runs had "
        f"{behind.value:.1f} ± {behind.half:.1f} on loans by state"
    )


def the_study_of_forest() -> str:
    rows = read_rows(RECORD)
    assert difference(rows, "forest", "fedeas", "none").seeds == 10
    forest = means(rows)["forest"]
    assert min(forest, key=lambda way: forest[way].value) == "class weights"
    return (
        "On forest cover by area and zone FedEAS, with the federation's own private generator at "
        f"epsilon 1, is {in_study('forest', 'none')} points above real samples alone with as many "
        f"steps, {in_study('forest', 'copies')} above copies and "
        f"{in_study('forest', 'class weights')} above class weights, which are the worst of all "
        "ways"
    )


def private_in_the_study() -> str:
    rows = read_rows(RECORD)

    def lead(data: str, way: str, other: str) -> str:
        found = difference(rows, data, way, other)
        return f"{found.mean:.1f} ± {found.half:.1f}"

    behind = {
        epsilon: " and ".join(
            in_study(data, f"fedeas private {epsilon}") for data in ("letter", "satimage")
        )
        for epsilon in (1, 10)
    }
    copies = " and ".join(lead(d, "fedeas private 1", "copies") for d in ("letter", "satimage"))
    more = {e: lead("forest", f"fedeas private {e}", "fedeas") for e in (3, 10)}
    return (
        f"In the study, on letter and satimage, it is {behind[1]} points behind that generator at "
        f"epsilon 1, {behind[10]} at 10, and {copies} above copies at epsilon 1. On forest epsilon "
        f"3 adds {more[3]} points to what epsilon 1 reaches, and 10 {more[10]}"
    )


def where_in_the_study() -> str:
    rows = read_rows(RECORD)
    water = {
        data: "{0.mean:.2f} ± {0.half:.2f}".format(difference(rows, data, "waterfill", "fedeas"))
        for data in ("satimage", "letter")
    }
    return (
        f"FedEAS minus uniform is {in_study('forest', 'uniform')} points, minus the same number "
        f"placed at random {in_study('forest', 'random')}, minus water-filling "
        f"{in_study('forest', 'waterfill')}. On satimage FedEAS is "
        f"{in_study('satimage', 'uniform', 2)} points ahead of uniform, which holds after the "
        f"correction, on letter {in_study('letter', 'uniform', 2)}, which does not; minus random "
        f"it is {in_study('satimage', 'random')} and {in_study('letter', 'random')}. Water-filling "
        f"is another {water['satimage']} and {water['letter']} ahead of FedEAS"
    )


def letter_in_the_study() -> str:
    return (
        f"On letter it is {in_study('letter', 'none')} points above none at equal steps and "
        f"{in_study('letter', 'copies')} above copies (20 seeds)"
    )


def images_in_the_study() -> str:
    return (
        "On Fashion-MNIST, with the federation's own private generator at epsilon 10, it is "
        f"{in_study('Fashion-MNIST', 'none')} points above none at equal steps and "
        f"{in_study('Fashion-MNIST', 'copies')} above copies, which five seeds do not settle"
    )


def over_uniform(setting: str) -> Mean:
    ours, even = (studied("tables-study.csv", setting, way) for way in ("fedeas", "uniform"))
    return lead(ours, even)


def example() -> tuple[LabelCounts, Plan]:
    counts = LabelCounts.load(ROOT / "examples" / "cifar10.csv")
    return counts, FedEAS(beta=12).plan(counts)


def the_plan() -> str:
    return repr(example()[1])


def a_row_of_the_plan() -> str:
    counts, plan = example()
    row, column = counts.client_names.index("client-06"), counts.class_names.index("airplane")
    return f"np.int64({plan.samples[row, column]})"


def what_copies_cannot_make() -> str:
    counts, plan = example()
    lacking = plan.samples[counts.n < 1].sum() / plan.total
    return f"{lacking:.0%} of the samples planned above are of such classes".replace("%", " %")


def the_demo() -> str:
    counts = LabelCounts.load(DATA / "demo-counts.csv")
    plan = FedEAS(beta=admissible_betas(counts).choice).plan(counts)
    assert counts.K == 10
    return (
        f"trains ten skewed clients on {counts.total:,} images of clothes, without and with "
        f"{plan.total} images from a small diffusion model, which was trained on all "
        f"{NUMBER.findall(the_generator())[0]} training images"
    )


def what_three_seeds_settle() -> str:
    ours, even = averaged("cifar10", "fedeas"), averaged("cifar10", "uniform")
    spread = statistics.stdev(ours[seed] - even[seed] for seed in ours)
    leads = {n: student.ppf(1 - 0.025 / 70, n - 1) / math.sqrt(n) for n in (3, 5, 10)}
    return (
        f"Among 70 of them, the first to pass has to lead by {leads[3]:.1f} standard deviations of "
        f"its difference between seeds. At the {spread:.2f} points that FedEAS over Uniform had on "
        f"the reduced CIFAR-10, that is a lead of {leads[3] * spread:.0f} points; with five seeds "
        f"{leads[5] * spread:.1f} would do, with ten {leads[10] * spread:.1f}."
    )


def own_images_after_five_rounds() -> str:
    none, copies, ours = (after_round(way, 5) for way in ("none", "copies", "own-1"))
    return (
        f"reached {mean(ours):.1f} % after five rounds, {plus_minus(ours, copies)} points more "
        f"than with copies and {plus_minus(ours, none)} more than with nothing"
    )


def five_sites_killed() -> str:
    lines = (DATA / "own-superlink.jsonl").read_text(encoding="utf-8").splitlines()
    runs = [json.loads(line) for line in lines]
    assert len(runs) == 5
    assert all(run["right"] and run["ledgers_agree"] and run["caches_whole"] for run in runs)
    return "All five runs ended correctly"


def that_samples_help() -> str:
    gain = plus_minus(averaged("cifar10", "fedeas"), averaged("cifar10", "none"))
    fashion = plus_minus(averaged("fashion", "fedeas"), averaged("fashion", "none"))
    all_images, clients = NUMBER.findall(the_generator())
    return (
        f"FedEAS is {gain} points above FedAvg (three seeds). On Fashion-MNIST with a "
        f"diffusion model it is {fashion}, which three seeds do not settle; that model was trained "
        f"on all {all_images} training images, of which the clients hold {clients}."
    )


def what_costs_nothing() -> str:
    letter = [
        plus_minus(*on_table(f"letter-{alpha}", "fedeas", "copies"))
        for alpha in ("0_05", "0_1", "0_3")
    ]
    losses = [-float(w) for row in table("advice.csv") if (w := row["weights - none"])]
    on_tables = [loss for loss in losses if loss > 0]
    assert len(on_tables) == len(losses) - 2
    return (
        f"On letter FedEAS is ahead of copies by {letter[0]} points at alpha 0.05 and {letter[1]} "
        f"at 0.1; at 0.3 it is at {letter[2]}. Class weights cost "
        f"{min(on_tables):.1f} to {max(on_tables):.1f} points on tables; on images they gain."
    )


def on_real_sites() -> str:
    ours, none = on_table("loans-sites", "fedeas", "none")
    classes = [
        studied("tables-study.csv", "loans-sites", way, "class mean") for way in ("fedeas", "none")
    ]
    return (
        f"FedEAS is {plus_minus(none, ours)} points *behind* no samples at all. It buys the rare "
        f"classes there: the mean over classes rises by {plus_minus(*classes)}."
    )


def the_advice() -> str:
    rows = table("advice.csv")
    ahead = [r for r in rows if r["half"] and float(r["generated - copies"]) > float(r["half"])]
    advised = [r for r in rows if r["advice"] == "generate"]
    assert [r for r in ahead if r not in advised] == []
    wrong = [
        r for r in rows if (r in advised) != (float(r["generated - copies"]) >= 0.5)
    ]  # fmt: skip
    without = {r["setting"].split("-")[0]: 100 * float(r["threshold"]) for r in rows}
    return (
        f"Of {len(rows)} recorded settings ([data/advice.csv](data/advice.csv)) generating is "
        f"ahead of copies with its whole interval in {len(ahead)}; the advice is to generate in "
        f"all {len(ahead)}, and in {len(advised) - len(ahead)} more. **It was wrong in "
        f"{len(wrong)}**, if half a point is worth generating. It is little data: {len(without)} "
        f"data sets, none with less than {100 * min(float(r['lacking']) for r in rows):.0f} % "
        f"lacking. The threshold would be {without['fashion_mnist']:.0f} % without Fashion-MNIST "
        f"and {without['satimage']:.0f} % without satimage."
    )


def more_samples_buy_more() -> str:
    rows = [
        row
        for row in table("cifar10.csv")
        if row["grid"] == "budget" and row["policy"].startswith("fedeas")
    ]
    betas = [re.search(r"[\d.]+", row["policy"])[0] for row in rows]
    reached = [f"{100 * float(row['accuracy']):.1f}" for row in rows]
    return f"beta {listed(betas)} reach {listed(reached)} %."


def full_balance() -> str:
    letter = on_table("letter-0_05", "full-balance", "none")
    rows = [
        mean(studied("tables-study.csv", "letter-0_05", way, "generated"))
        for way in ("full-balance", "fedeas")
    ]
    none, ours, full = (averaged("cifar10", way) for way in ("none", "fedeas", "full-balance"))
    loans = on_table("loans-sites", "none", "full-balance")
    assert len(letter[0]) == len(full) == len(loans[1]) == 3
    part = (mean(ours) - mean(none)) / (mean(full) - mean(none))
    spent = [mean(recorded("cifar10", way, "generated")) for way in ("fedeas", "full-balance")]
    return (
        f"With three seeds it gains {plus_minus(*letter)} points on letter at alpha 0.05, with "
        f"{rows[0] / rows[1]:.0f} times as many rows as FedEAS, and {plus_minus(full, none)} on "
        f"CIFAR-10; on loans it costs {plus_minus(*loans)}. FedEAS has {100 * part:.0f} % of the "
        f"gain on CIFAR-10 with {100 * spent[0] / spent[1]:.1f} % of the samples."
    )


def where_earlier_runs_put_them() -> str:
    ours, even = (averaged("cifar10", way) for way in ("fedeas", "uniform"))
    loans = on_table("loans-sites", "uniform", "fedeas")
    return (
        f"FedEAS is ahead of uniform by {plus_minus(ours, even)} points on CIFAR-10, which does "
        f"not survive a correction for all comparisons. On loans it is {plus_minus(*loans)} points "
        "behind uniform, which does."
    )


def private_rows() -> str:
    tables = ("letter", "penbased", "satimage")
    gaps = [
        abs(mean(own_study(name, way)) - mean(own_study(name, "central")))
        for name in tables
        for way in ("own-10", "own-inf")
    ]
    parts = [
        mean(own_study(name, "own-1", "generated"))
        / mean(own_study(name, "own-1-all", "generated"))
        for name in tables
    ]
    return (
        f"There the mean of `private` is within {max(gaps):.1f} points of a generator that saw "
        "every row. **At epsilon 1 it is about level with copies** where rows of a class are few. "
        f"Planning with its card's quality saves {100 * (1 - max(parts)):.0f} to "
        f"{100 * (1 - min(parts)):.0f} % of the rows."
    )


def private_images() -> str:
    over = [
        plus_minus(own_study("fashion_mnist", "own-1"), own_study("fashion_mnist", other))
        for other in ("none", "copies")
    ]
    last = [
        plus_minus(after_round("own-1", 5), after_round(other, 5)) for other in ("none", "copies")
    ]
    more = mean(own_study("fashion_mnist", "own-1", "generated")) / 60_000
    return (
        f"it is {over[0]} points over none and {over[1]} over copies, as means of the first five "
        f"rounds. After the fifth, {last[0]} and {last[1]} are left, and no way has converged. It "
        f"also trains on {more:.0f} % more samples than none."
    )


def minutes() -> str:
    rows = {row["policy"].split("(")[0]: row for row in table("fashion.csv")}
    made, generating, training = (
        [float(rows[way][name]) for way in ("fedeas", "full-balance")]
        for name in ("generated", "generation_seconds", "training_seconds")
    )
    return (
        f"FedEAS's {made[0]:,.0f} images of Fashion-MNIST took {generating[0] / 60:.0f} minutes, "
        f"at 10 steps each, and 20 rounds of training {training[0] / 60:.0f}; full balance, "
        f"{made[1]:,.0f} images, took {generating[1] / 60:.0f} minutes and "
        f"{training[1] / 60:.0f}."
    )


def states_of_claims() -> str:
    states = Counter(claim.state for claim in all_claims())
    gpu = states.pop("needs a GPU")
    return (
        f"{gpu} of its claims need a GPU and were not run ([recipe](howto/gpu.md)). Of the "
        f"{states.total()} others, {states['exact']} are exact and {states['constant inferred']} "
        f"rest on an inferred constant; {states['agrees at reduced size']} agree at reduced size, "
        f"{states['cannot tell']} are open, and {states['disagrees']} disagree: four numbers"
    )


def the_drift() -> str:
    (claim,) = (c for c in all_claims() if c.what.startswith("drift removed by Uniform"))
    assert claim.state == "disagrees"
    ours, paper = (
        sorted(int(part) for part in re.findall(r"(\d+) %", text))
        for text in (claim.ours, claim.paper)
    )
    return f"remove {ours[0]} to {ours[-1]} % here and {paper[0]} to {paper[-1]} % there."


def what_others_published() -> str:
    rows = table("published.csv")
    ((source, date),) = {(row["source"], row["date"]) for row in rows}
    figures = ", ".join(f"{r['method']} {r['epsilon 1']} and {r['epsilon 10']}" for r in rows)
    return (
        f"README at {source.rpartition(' ')[2]}, {date}; [data/published.csv](data/published.csv)),"
        f" at epsilon 1 and 10: {figures}."
    )


def what_sums_alone_are_worth() -> str:
    rows = {(r["data"], r["what"], r["epsilon"]): r for r in table("private-classifier.csv")}
    names = {
        ("fashion", "alone"): "Fashion-MNIST",
        ("cifar10", "alone"): "CIFAR-10",
        ("letter", "alone"): "letter",
        ("satimage", "alone"): "satimage",
        ("loans", "alone"): "loans",
    }
    lines = ["| % of test samples at epsilon | 1 | 3 | 10 | seeds | core seconds |"]
    lines.append("|---|---|---|---|---|---|")
    for (data, what), name in names.items():
        cells = [rows.get((data, what, e)) for e in ("1", "3", "10")]
        if not any(cells):
            continue
        figures = ["" if c is None else f"{float(c['accuracy']):.1f}" for c in cells]
        known = next(c for c in cells if c)
        seconds = known["seconds"] and f"{float(known['seconds']):.0f}"
        lines.append(
            f"| {' | '.join([name, *figures])} | {len(known['seeds'].split())} | {seconds} |"
        )
    return "\n".join(lines)


def rounds_that_a_start_saves() -> str:
    rows = table("private-start.csv")
    nothing = {"none": "", "copies": "", "fedeas": "10"}  # epsilon of the generator, if any

    def of(way: str, epsilon: str, start: str, column: str) -> BySeed:
        """Return a column by seed; of a run that never arrives, all rounds count."""
        found = {
            int(r["seed"]): float(r[column].replace("never", "40"))
            for r in rows
            if (r["way"], r["epsilon"], r["start"]) == (way, epsilon, start)
        }
        assert len(found) == 5
        return found

    def last(way: str, epsilon: str, start: str) -> str:
        return Mean.of([*of(way, epsilon, start, "accuracy_last").values()]).points()

    def cell(way: str, epsilon: str) -> str:
        saved = plus_minus(
            of("none", "", "nothing", "rounds"), of(way, epsilon, "private", "rounds")
        )
        return f"{last(way, epsilon, 'private')}, {saved}"

    lines = [
        ("from nothing", *(last(way, epsilon, "nothing") for way, epsilon in nothing.items())),
        *(
            (f"from the start, epsilon {e}", *(cell(way, e) for way in nothing))
            for e in ("1", "10")
        ),
    ]
    alone = [last("classifier", epsilon, "alone") for epsilon in ("1", "10")]
    return (
        "| satimage: last, %, and rounds saved | none | copies | FedEAS |\n|---|---|---|---|\n"
        + "".join(f"| {' | '.join(line)} |\n" for line in lines)
        + "\nFive seeds, 40 rounds. Saved: of the rounds that `none` from nothing takes to its "
        f"last accuracy; at epsilon 1 nothing is settled. The classifier alone has {alone[0]} and "
        f"{alone[1]}"
    )


def what_a_judge_says() -> str:
    quality = json.loads((DATA / "fashion-quality.json").read_text(encoding="utf-8"))
    worst = min(quality["agreement"], key=quality["agreement"].get)
    near = quality["memorisation"]
    assert (worst, near["share"]) == ("Shirt", 0)
    return (
        f"A judge (right on {100 * quality['judge_accuracy']:.1f} % of the real test images) "
        f"assigns {100 * quality['agreement_mean']:.1f} % of {quality['images']:,} samples to the "
        f"requested class, least often for shirts ({100 * quality['agreement'][worst]:.0f} %). "
        f"None of the {quality['images']:,} samples is closer to a training image than "
        f"{100 * near['quantile']:.0f} % of unseen real images are"
    )


README = (
    how_sure_it_is,
    the_plan,
    a_row_of_the_plan,
    what_copies_cannot_make,
)
CLAIMS: dict[str, tuple[Callable[[], str], ...]] = {
    "README.md": README,
    "docs/index.md": (how_sure_it_is,),
    "docs/tutorial.md": (the_demo,),
    "docs/generators.md": (what_others_published, what_a_judge_says, what_sums_alone_are_worth),
    "docs/howto/private_generator.md": (
        own_images_after_five_rounds,
        five_sites_killed,
        rounds_that_a_start_saves,
    ),
    "docs/howto/gpu.md": (what_three_seeds_settle,),
    "docs/findings.md": (
        the_study_of_forest,
        where_in_the_study,
        letter_in_the_study,
        private_in_the_study,
        images_in_the_study,
        that_samples_help,
        what_costs_nothing,
        on_real_sites,
        the_advice,
        more_samples_buy_more,
        full_balance,
        where_earlier_runs_put_them,
        private_rows,
        private_images,
        minutes,
        states_of_claims,
        the_drift,
    ),
}
# Numbers that say nothing about a result: names, settings and versions.
NO_FIGURES = {
    "README.md": (
        "beta=12,", "--epsilon 1", "examples/cifar10.csv", "client-06",
        "± is a 95 % interval", "Apache-2.0",
    ),
    "docs/index.md": ("Python 3.11 or later", "± is a 95 % interval", 'width="560"'),
}  # fmt: skip


def words(text: str) -> str:
    return " ".join(text.replace("\N{NO-BREAK SPACE}", " ").split())


def unexplained(page: str, text: str) -> list[str]:
    """Return the numbers of a page that are in no claim and not listed."""
    rest = words(text)
    for explained in (*(words(claim()) for claim in CLAIMS[page]), *NO_FIGURES[page]):
        rest = rest.replace(explained, " ")
    return NUMBER.findall(rest)


@pytest.mark.parametrize(
    ("page", "claim"), [(page, claim) for page, claims in CLAIMS.items() for claim in claims]
)
def test_a_claim_is_what_its_record_says(page, claim):
    assert words(claim()) in words((ROOT / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", NO_FIGURES)
def test_a_page_has_no_other_numbers(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert unexplained(page, text) == []
    assert unexplained(page, f"{text} 72 % without, 82 % with.") == ["72", "82"]
    assert [listed for listed in NO_FIGURES[page] if listed not in words(text)] == []


@pytest.mark.parametrize(
    "page", sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
)
def test_what_a_benchmark_measured_has_a_record_or_says_that_it_has_none(page):
    """In the paragraph that names the benchmark, or in the next one."""
    paragraphs = (ROOT / page).read_text(encoding="utf-8").split("\n\n")
    for paragraph, following in zip(paragraphs, [*paragraphs[1:], ""], strict=True):
        _, benchmark, rest = paragraph.partition("benchmarks/")
        if benchmark and NUMBER.search(rest.partition("`")[2]):
            assert re.search(r"data/[\w-]+\.|no\s+record", paragraph + following), paragraph


def test_only_the_loss_on_real_sites_survives_the_correction(monkeypatch):
    """As the studies correct: all comparisons of the three tables, of loans, of the paper."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    study = importlib.import_module("tables_study")
    scores = study.read_record(DATA / "tables-study.csv", "accuracy")
    held = study.held_gains(scores, ["none", "copies", "uniform"])
    stands = [
        where for where, *ways in held if ways == ["fedeas", "uniform"] and held[where, *ways]
    ]
    assert stands == ["loans-sites"]


@pytest.mark.slow
def test_the_demo_shares_out_what_its_record_says(data, tmp_path):
    scene = find_scene(tmp_path)
    counts = partition_data(_base(scene, tmp_path)).counts
    assert (counts.n == LabelCounts.load(DATA / "demo-counts.csv").n).all()


def test_the_generator_that_comes_along_saw_all_training_images(data):
    """So the words on it are true: its metadata names the whole data set."""
    model = (
        ROOT
        / "packages"
        / "fedeas-lab"
        / "src"
        / "fedeas_lab"
        / "models"
        / "fashion_mnist"
        / "generator.json"
    )
    images = load_images("fashion_mnist")
    assert json.loads(model.read_text())["training"]["data"] == images.fingerprint
    assert f"{images.train_size:,} training images" in the_generator()
