"""Write the gallery of real count tables: a page, and a picture for every table.

The tables are in FEDEAS_DATA/sites and are not part of the repository; the page says where each is
from.

python tools/gallery.py          rewrite the page and its pictures
python tools/gallery.py --check  fail when the page is not what the tables give
"""

import io
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

import fedeas
from fedeas import FedEAS, FullBalance, InfeasibleError, LabelCounts, Plan, WaterFill
from fedeas.planning import skew
from fedeas.planning.beta import admissible_betas
from fedeas.plots.canvas import file_content
from fedeas.plots.heatmap import label_heatmap

DOCS = Path(__file__).parents[1] / "docs"
SHARE = 0.25  # of all samples, that plans stay below
_ROWS = 6  # clients of a printed plan
_COLOURS = 160  # of a picture: charts need few, and few make small files


@dataclass(frozen=True)
class Site:
    """A table of the gallery."""

    file: str
    title: str
    about: str
    source: str


SITES = (
    Site(
        "xray", "Chest X-rays of three archives",
        "Images with exactly one of eight findings, in three public archives: few sites, each "
        "large, none without a class.",
        "label tables of NIH ChestX-ray14, CheXpert and PadChest, as packaged with TorchXRayVision",
    ),
    Site(
        "covid", "COVID-19 tests of one hospital",
        "Results by the clinic that ordered the test. Almost all are negative; most clinics never "
        "saw a positive or an invalid one.",
        "`covid_testing` of the R package medicaldata",
    ),
    Site(
        "loans", "Peer-to-peer loans by state",
        "Loans by grade, A to G. The states are alike; what is scarce, the grades F and G, is "
        "scarce everywhere.",
        "`loans_full_schema` of the R package openintro",
    ),
    Site(
        "birds", "Bird strikes by airline",
        "Reports by phase of flight. A few airlines have hundreds or thousands, most have three or "
        "fewer: the long tail of a real federation.",
        "`birds` of the R package openintro",
    ),
)  # fmt: skip


def page(folder: Path) -> str:
    """Return the page; the numbers are those of the tables."""
    lines = [
        "# Gallery",
        "",
        "What fedeas plans for label counts of real sites, from counts alone. Each table has a row",
        "per site and a column per class, and one command makes the plan. Every plan stays below a",
        "quarter of synthetic samples. The tables themselves are not part of fedeas; each section",
        "names its source.",
        "",
        "| table | sites x classes | samples | median skew | plan | removed | full balance |",
        "|---|---|---|---|---|---|---|",
    ]
    sections = []
    for site in SITES:
        counts = LabelCounts.load(folder / f"{site.file}.csv")
        plan, command, why = choose(counts, site.file)
        full = FullBalance().plan(counts)
        lines.append(
            f"| [{site.title}](#{site.title.lower().replace(' ', '-')}) | {counts.K} x {counts.C} "
            f"| {counts.total:,} | {np.median(skew.skewness(counts)):.2f} "
            f"| {plan.policy}, {plan.total:,} samples | {100 * plan.reduction:.0f} % "
            f"| {full.total:,} samples |"
        )
        sections += [
            f"## {site.title}", "", f"{site.about} {_numbers(counts)}", "",
            f"```\n$ fedeas plan {site.file}.csv\n{_printed(folder / site.file)}\n```", "",
            "```", command, "```", "", why, "",
            f"![Samples of every site and class, before and after the plan]"
            f"(img/gallery-{site.file}.png){{ width=\"520\" }}", "",
            f"Source: {site.source}.", "",
        ]  # fmt: skip
    return "\n".join([*lines, "", *sections]).rstrip() + "\n"


def choose(counts: LabelCounts, name: str) -> tuple[Plan, str, str]:
    """Return the plan of a table, the command that makes it, and a sentence on why this one."""
    try:
        found = admissible_betas(counts)
    except InfeasibleError:
        most = int(counts.total * SHARE / (1 - SHARE))
        most -= most % 100
        plan = WaterFill(total=most).plan(counts)
        rule = FedEAS(beta=fedeas.choose_beta(counts, total=most).beta).plan(counts)
        return (
            plan,
            f"fedeas plan {name}.csv --policy waterfill --total {most} --plot {name}.png",
            f"With this many small sites the FedEAS rule removes {100 * rule.reduction:.0f} % of "
            f"the imbalance with up to {most:,} samples, and `fedeas plan` says that no beta "
            "removes half of it. Water-filling places them where they remove most: "
            f"{100 * plan.reduction:.0f} %. It needs all counts in one place, or a price that the "
            "sites [negotiate](deployment.md).",
        )
    plan = FedEAS(beta=found.choice).plan(counts)
    low, high = found.rounded()
    return (
        plan,
        f"fedeas plan {name}.csv --beta {found.choice:g} --plot {name}.png",
        f"`fedeas plan {name}.csv` chose beta = {found.choice:g}: from {low:g} to {high:g}, at "
        "least half of the imbalance is removed while fewer than a quarter of all samples are "
        f"synthetic. {plan.total:,} samples remove {100 * plan.reduction:.0f} %.",
    )


def _printed(table: Path) -> str:
    """Return what `fedeas plan` prints for a table, without options but for the rows shown."""
    done = subprocess.run(
        [sys.executable, "-m", "fedeas", "plan", f"{table}.csv", "--rows", str(_ROWS)],
        env=os.environ | {"COLUMNS": "80", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


def _numbers(counts: LabelCounts) -> str:
    absent = int((counts.n == 0).sum())
    pairs = f" {absent:,} of {counts.n.size:,} site-class pairs are empty." if absent else ""
    low, middle, high = counts.sizes.min(), np.median(counts.sizes), counts.sizes.max()
    return f"A site has {low:,} to {high:,} samples, {middle:,.0f} in the median.{pairs}"


def pictures(folder: Path) -> dict[str, bytes]:
    """Return the pictures of all tables by name."""
    made = {}
    for site in SITES:
        counts = LabelCounts.load(folder / f"{site.file}.csv")
        plan, *_ = choose(counts, site.file)
        figure = label_heatmap(counts, plan)
        made[f"gallery-{site.file}.png"] = _small(file_content(figure, "png"))
    return made


def _small(png: bytes) -> bytes:
    content = io.BytesIO()
    image = Image.open(io.BytesIO(png)).convert("RGB")
    image.quantize(_COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        content, "PNG", optimize=True
    )
    return content.getvalue()


def main(check: bool) -> int:
    """Write the page and its pictures, or tell that the page is out of date."""
    data = os.environ.get("FEDEAS_DATA")
    if not data:
        sys.stderr.write("set FEDEAS_DATA to a folder with sites/*.csv\n")
        return 2
    text = page(Path(data) / "sites")
    path = DOCS / "gallery.md"
    if check:
        return int(path.read_text(encoding="utf-8") != text)
    path.write_text(text, encoding="utf-8")
    for name, content in pictures(Path(data) / "sites").items():
        (DOCS / "img" / name).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
