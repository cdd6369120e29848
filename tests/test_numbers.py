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
from collections.abc import Callable
from pathlib import Path

import pytest
from scipy.stats import t as student
from scipy.stats import ttest_1samp

from fedeas import FedEAS, LabelCounts, Plan
from fedeas.data import load_images
from fedeas.planning.beta import admissible_betas
from fedeas_lab.cli.demo import _base
from fedeas_lab.demo import find_scene
from fedeas_lab.resolve import partition_data
from fedeas_lab.results import Mean
from reproduction.evidence import holm

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


def chance(values: BySeed, other: BySeed) -> float:
    """Return the p of Student's t, seed by seed."""
    differences = [values[seed] - other[seed] for seed in values.keys() & other.keys()]
    return float(ttest_1samp(differences, 0.0).pvalue)


def p_of(values: BySeed, other: BySeed, digits: int = 3) -> str:
    return f"{chance(values, other):.{digits}f}".removeprefix("0")


def on_table(setting: str, *ways: str) -> list[BySeed]:
    return [studied("tables-study.csv", setting, way) for way in ways]


TABLES = [f"{t}-{a}" for t in ("letter", "penbased", "satimage") for a in ("0_05", "0_1", "0_3")]


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


def how_sure_it_is() -> str:
    ahead = plus_minus(averaged("cifar10", "fedeas"), averaged("cifar10", "uniform"))
    leads = [over_uniform(setting).value for setting in TABLES]
    behind = over_uniform("loans-sites")
    return (
        f"FedEAS is ahead of `uniform` by {ahead} points on CIFAR-10, where an oracle draws real "
        f"images, by {min(leads):.1f} to {max(leads):.1f} on three tables, and behind by "
        f"{-behind.value:.1f} ± {behind.half:.1f} on the only real sites"
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


def that_samples_help() -> str:
    gain = plus_minus(averaged("cifar10", "fedeas"), averaged("cifar10", "none"))
    letter = on_table("letter-0_05", "fedeas", "none")
    assert len(letter[0]) == len(letter[1]) == 10
    fashion = plus_minus(averaged("fashion", "fedeas"), averaged("fashion", "none"))
    all_images, clients = NUMBER.findall(the_generator())
    return (
        f"FedEAS is {gain} points above FedAvg (three seeds); on letter, a table, "
        f"{plus_minus(*letter)} at alpha 0.05 (ten seeds). On Fashion-MNIST with a diffusion model "
        f"it is {fashion}, which three seeds do not settle; that model was trained on all "
        f"{all_images} training images, of which the clients hold {clients}."
    )


def where_they_go() -> str:
    ahead = plus_minus(averaged("cifar10", "fedeas"), averaged("cifar10", "uniform"))
    leads = [over_uniform(setting).value for setting in TABLES]
    return (
        f"FedEAS is ahead of Uniform by {ahead} points on CIFAR-10 and by {min(leads):.1f} to "
        f"{max(leads):.1f} on nine settings of three tables"
    )


def on_real_sites() -> str:
    ours, even, none = on_table("loans-sites", "fedeas", "uniform", "none")
    return (
        f"On loans from 50 states FedEAS is {plus_minus(even, ours)} points behind Uniform and "
        f"{plus_minus(none, ours)} behind no samples at all."
    )


def what_costs_nothing() -> str:
    with (DATA / "free.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    gain = {
        (row["method"], row["policy"], row["setting"].rpartition("=")[2]): float(row["gain"] or 0)
        for row in rows
    }
    copies = gain["fedavg", "copies", "copies"]
    weights = gain["class-weights", "none", "pool"]
    ours = gain["fedavg", "fedeas(beta=8)", "pool"]
    return (
        f"copies and class weights give {100 * copies:.1f} and {100 * weights:.1f} points where "
        f"FedEAS with the oracle gives {100 * ours:.1f}."
    )


def twice_the_same_seed() -> str:
    with (DATA / "free.csv").open(newline="", encoding="utf-8") as file:
        later = {
            row["policy"].split("(")[0]: 100 * float(row["accuracy"])
            for row in csv.DictReader(file)
            if (row["method"], row["setting"]) == ("fedavg", "augment.generator=pool")
        }
    earlier = {policy: averaged("cifar10", policy)[42] for policy in later}
    assert later["none"] == pytest.approx(earlier["none"], abs=1e-9)
    most = max(abs(later[policy] - earlier[policy]) for policy in later)
    return (
        f"Uniform is at {earlier['uniform']:.1f} there and {later['uniform']:.1f} here, FedEAS at "
        f"{earlier['fedeas']:.1f} and {later['fedeas']:.1f}, water-filling at "
        f"{earlier['waterfill']:.1f} and {later['waterfill']:.1f}. FedAvg without samples is equal "
        "to the last digit, so it is the samples, or their order, that differ. Differences of up "
        f"to {most:.1f} points"
    )


def where_the_rows_go() -> str:
    strong, weak, loans = (
        on_table(setting, "fedeas", "uniform")
        for setting in ("letter-0_05", "letter-0_1", "loans-sites")
    )
    return (
        f"FedEAS is {plus_minus(*strong)} points above uniform on letter at alpha 0.05 (p "
        f"{p_of(*strong, 4)}) and {plus_minus(*weak)} at 0.1 (p {p_of(*weak)}), and ahead in all "
        f"nine settings with drawn sites, by {min(over_uniform(s).value for s in TABLES):.1f} at "
        f"least. On loans, the only real sites, it is {plus_minus(*reversed(loans))} points "
        f"*below* uniform (p {p_of(*loans, 4)})."
    )


def the_family_of_ten() -> str:
    settings = [*TABLES, "loans-sites"]
    held = holm([chance(*on_table(setting, "fedeas", "uniform")) for setting in settings])
    stand = [setting for setting, holds in zip(settings, held, strict=True) if holds]
    assert stand == ["letter-0_05", "letter-0_1", "penbased-0_3", "satimage-0_1", "loans-sites"]
    return (
        "the loss and four of the gains would stand (letter at 0.05 and 0.1, penbased at 0.3, "
        "satimage at 0.1)"
    )


def own_images() -> str:
    lines = []
    for other in ("none", "copies", "class-weights"):
        over = [studied("own-federated.csv", "fashion_mnist", way) for way in ("own-1", other)]
        last = [after_round(way, 5) for way in ("own-1", other)]
        p = p_of(*last, 2 if chance(*last) > 0.1 else 3)
        lines.append(
            f"| {other} | {plus_minus(*over)} | {p_of(*over)} | {plus_minus(*last)} | {p} |"
        )
    return "\n".join(lines)


def more_samples() -> str:
    copies, ours = (
        mean(studied("own-federated.csv", "fashion_mnist", way, "generated")) / 100
        for way in ("copies", "own-1")
    )
    return f"train on {100 * ours / 60_000:.0f} to {100 * copies / 60_000:.0f} % more samples"


def the_diffusion_model() -> str:
    none, ours, even = (averaged("fashion", policy) for policy in ("none", "fedeas", "uniform"))
    last = [mean(recorded("fashion", policy, "accuracy", 100)) for policy in ("none", "fedeas")]
    passes = [1 + made / 10_000 for made in recorded("fashion", "fedeas", "generated").values()]
    return (
        f"The gain of FedEAS over FedAvg is {plus_minus(ours, none)} points (p "
        f"{p_of(ours, none, 2)}): with three seeds it is not shown to be above zero. Over Uniform "
        f"it is {plus_minus(ours, even)} (p {p_of(ours, even)} alone). FedAvg is still climbing at "
        f"round 20 ({last[0]:.1f} %, and {last[1]:.1f} % with FedEAS), and FedEAS trains on "
        f"{min(passes):.1f} to {max(passes):.1f} times as many samples."
    )


def policies_on_cifar10() -> str:
    ours, even, missing = (
        averaged("cifar10", policy) for policy in ("fedeas", "uniform", "missing-only")
    )
    made = mean(recorded("cifar10", "fedeas", "generated"))
    return (
        f"At the same {made:,.0f} samples FedEAS is {plus_minus(ours, even)} points ahead of "
        f"Uniform (p {p_of(ours, even)}) and {plus_minus(ours, missing)} ahead of Missing-only (p "
        f"{p_of(ours, missing)});"
    )


def water_filling() -> str:
    water, ours = averaged("cifar10", "waterfill"), averaged("cifar10", "fedeas")
    return f"is another {plus_minus(water, ours)} points ahead of FedEAS (p {p_of(water, ours)})"


def on_letter() -> str:
    strong, weak = (
        on_table(setting, "fedeas", "none", "copies") for setting in ("letter-0_05", "letter-0_1")
    )
    return (
        f"On letter at alpha 0.05 FedEAS gains {plus_minus(*strong[:2])} points over none and "
        f"{plus_minus(strong[0], strong[2])} over copies, at 0.1 {plus_minus(*weak[:2])} and "
        f"{plus_minus(weak[0], weak[2])}."
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


def what_others_published() -> str:
    with (DATA / "published.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    ((source, date),) = {(row["source"], row["date"]) for row in rows}
    assert f"{source.rpartition(' ')[2]}, {date}" in (ROOT / "docs" / "generators.md").read_text()
    names = ("method", "epsilon 1", "epsilon 10", "one sample is")
    return "\n".join(f"| {' | '.join(row[name] for name in names)} |" for row in rows)


def quality() -> dict:
    return json.loads((DATA / "fashion-quality.json").read_text(encoding="utf-8"))


def what_a_judge_says() -> str:
    found = quality()
    return (
        f"right on {100 * found['judge_accuracy']:.1f} % of the real test images) assigns "
        f"{100 * found['agreement_mean']:.1f} % of {found['images']:,} samples"
    )


def what_a_judge_says_of_classes() -> str:
    shares = [
        f"{name.replace(' - ', '-')} | {100 * share:.0f} %"
        for name, share in quality()["agreement"].items()
    ]
    return "\n".join(
        f"| {left} | {right} |" for left, right in zip(shares[:5], shares[5:], strict=True)
    )


def what_it_remembers() -> str:
    found = quality()
    near = found["memorisation"]
    assert near["share"] == 0
    return (
        f"None of the {found['images']:,} samples is closer to a training image than "
        f"{100 * near['quantile']:.0f} % of unseen real images are, so there is no sign of "
        "memorised images; their median distance to the nearest training image is "
        f"{near['median']:.1f} (of 255), that of real test images {near['real_median']:.1f}."
    )


def made(setting: str, way: str) -> float:
    return mean(studied("own-federated.csv", setting, way, "generated"))


def quality_of_own_rows() -> str:
    parts = [made(s, "own-1") / made(s, "own-1-all") for s in ("letter", "penbased", "satimage")]
    return (
        f"as quality: {parts[0]:.2f} on average for letter (rows made by `own-1` in those of "
        f"`own-1-all`), {parts[1]:.2f} for penbased, {parts[2]:.2f} for satimage. **Planning with "
        f"that quality** saves {100 * (1 - max(parts)):.0f} to {100 * (1 - min(parts)):.0f} % of "
        "the rows."
    )


def own_rows_without_noise() -> str:
    gaps = [
        abs(mean(studied("own-federated.csv", table, way)) - mean(central))
        for table in ("letter", "penbased", "satimage")
        for central in [studied("own-federated.csv", table, "central")]
        for way in ("own-10", "own-inf")
    ]
    return f"the mean of `own` is within {max(gaps):.1f} points of a generator that saw every row"


def own_rows_at_epsilon_1() -> str:
    none, copies, ours, central = (
        studied("own-federated.csv", "letter", way)
        for way in ("none", "copies", "own-1", "central")
    )
    return (
        f"clearly so on letter: {plus_minus(ours, none)} points over none, where copies gain "
        f"{mean(copies) - mean(none):.1f} for free. More than a point over both was not to be had "
        f"on these tables: the central generator is {plus_minus(central, copies)} over copies"
    )


def the_share_that_is_recovered() -> str:
    none, ours, full = (averaged("fashion", p) for p in ("none", "fedeas", "full-balance"))
    (best,) = full.values()
    parts = [100 * (ours[seed] - none[seed]) / (best - none[seed]) for seed in (42, 43, 44)]
    return (
        f"FedEAS recovers {parts[0]:.0f} % of Full-Balance's gain on seed 42, the only one that "
        "Full-Balance ran on, and the one on which FedAvg is worst; if Full-Balance reached its "
        f"{best:.1f} % on the others too, it would be {parts[1]:.0f} and {parts[2]:.0f} % there."
    )


def one_run_of_the_example() -> str:
    lines = []
    for name in ("fedavg", "fedeas"):
        text = (DATA / "cifar10-pool" / f"{name}.jsonl").read_text(encoding="utf-8")
        rounds = [json.loads(line) for line in text.splitlines()]
        accuracy = [100 * each["accuracy"] for each in rounds]
        drift = statistics.median(each["drift"] for each in rounds)
        minutes = sum(each["seconds"] for each in rounds) / 60
        lines.append(
            f"{statistics.mean(accuracy[-10:]):.1f} % | {max(accuracy):.1f} % | {drift:.2f} | "
            f"{minutes:.0f} |"
        )
    return f"| FedAvg | 0 | {lines[0]}\n| FedAvg + FedEAS (beta 12) | 11,464 | {lines[1]}"


def five_sites_killed() -> str:
    lines = (DATA / "own-superlink.jsonl").read_text(encoding="utf-8").splitlines()
    runs = [json.loads(line) for line in lines]
    assert len(runs) == 5
    assert all(run["right"] and run["ledgers_agree"] and run["caches_whole"] for run in runs)
    return "All five runs ended correctly"


def the_table_of_what_costs_nothing() -> str:
    with (DATA / "free.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    none = float(rows[0]["accuracy"])
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    table = page.split("| method | policy | generator | accuracy |")[1].split("\n\n")[0]
    shown = [line.split("|")[1:-1] for line in table.splitlines()[2:]]
    lines = []
    for cells, row in zip(shown, rows, strict=True):
        method = {"fedavg": "FedAvg", "fedlc": "FedLC", "fedrs": "FedRS", "fedvls": "FedVLS"}
        assert cells[0].strip() == method.get(row["method"], "class weights")
        assert cells[1].strip().lower().startswith(row["policy"][:5].replace("copie", "water"))
        accuracy = 100 * float(row["accuracy"])
        gain = f"{accuracy - 100 * none:+.1f}" if row is not rows[0] else ""
        bold = "**" if accuracy == max(100 * float(r["accuracy"]) for r in rows) else ""
        end = f" {bold}{accuracy:.1f}{bold} | {gain} | {int(float(row['generated'])):,} "
        lines.append("|".join(["", *cells[:3], end, ""]))
    return "\n".join(lines)


def drift_by_phase() -> str:
    def drift(policy: str, first: int, last: int) -> float:
        return statistics.mean(
            statistics.mean(body["result"]["curves"]["drift"][first - 1 : last])
            for body in bodies("cifar10")
            if body["entry"]["grid"] == "policies"
            and body["entry"]["policy"].split("(")[0] == policy
        )

    policies = ("none", "uniform", "fedeas", "full-balance")
    return "\n".join(
        f"| {first} to {last} | {' | '.join(f'{drift(p, first, last):.2f}' for p in policies)} |"
        for first, last in ((1, 3), (4, 10), (11, 25))
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
    "docs/generators.md": (
        what_others_published,
        what_a_judge_says,
        what_a_judge_says_of_classes,
        what_it_remembers,
    ),
    "docs/howto/private_generator.md": (own_images_after_five_rounds, five_sites_killed),
    "docs/training.md": (one_run_of_the_example,),
    "docs/howto/gpu.md": (what_three_seeds_settle,),
    "docs/results.md": (
        that_samples_help,
        where_they_go,
        on_real_sites,
        what_costs_nothing,
        twice_the_same_seed,
        where_the_rows_go,
        the_family_of_ten,
        on_letter,
        own_images,
        more_samples,
        the_diffusion_model,
        policies_on_cifar10,
        water_filling,
        the_table_of_what_costs_nothing,
        drift_by_phase,
        quality_of_own_rows,
        own_rows_without_noise,
        own_rows_at_epsilon_1,
        the_share_that_is_recovered,
    ),
}
# Numbers that say nothing about a result: names, settings and versions.
NO_FIGURES = {
    "README.md": (
        "beta=12,", "--epsilon 1", "examples/cifar10.csv", "CIFAR-10", "client-06",
        "± is a 95 % interval", "Apache-2.0",
    ),
    "docs/index.md": ("Python 3.11 or later", "CIFAR-10", "± is a 95 % interval"),
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
