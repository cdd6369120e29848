"""The long series: slow tests, a federation on this machine, and every benchmark once.

    python tools/nightly.py [--only WORD ...]

All steps run, whatever the ones before gave. At the end stands a line for each: how long it took
and whether it passed. The exit code is 1 when one did not. Benchmarks compare two things in one
run; a miss on a busy machine is worth a second look before it is believed.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
STEPS = {
    "slow tests": ["-m", "pytest", "-q", "-m", "slow"],
    "properties": ["-m", "pytest", "-q", "-m", "hypothesis", "--hypothesis-profile", "nightly"],
    "deployment tests": ["-m", "pytest", "-q", "-m", "deployment"],
    "pages": ["tools/page_blocks.py"],
    "plan": ["benchmarks/plan.py"],
    "label_sets": ["benchmarks/label_sets.py"],
    "label_sets_federation": ["benchmarks/label_sets_federation.py", "--quick"],
    "two_rules": ["benchmarks/two_rules.py"],
    "fill": ["benchmarks/fill.py"],
    "fill_cache": ["benchmarks/fill_cache.py"],
    "fill_workers": ["benchmarks/fill_workers.py", "--rounds", "1"],
    "fill_rows": ["benchmarks/fill_rows.py"],
    "row_quality": ["benchmarks/row_quality.py"],
    "busy_fill": ["benchmarks/busy_fill.py"],
    "rounds": ["benchmarks/rounds.py"],
    "tables": ["benchmarks/tables.py"],
    "secure_sum": ["benchmarks/secure_sum.py"],
    "noise": ["benchmarks/noise.py"],
    "ledger": ["benchmarks/ledger.py"],
    "advice": ["benchmarks/advice.py"],
    "private_generator": ["benchmarks/private_generator.py"],
    "private_classifier": [
        "benchmarks/private_classifier.py", "--data", "fashion", "letter", "satimage", "loans",
    ],
    "person_unit": ["benchmarks/person_unit.py", "--quick"],
    "membership": ["benchmarks/membership.py", "--repeats", "1", "--diffusion"],
    "private_superlink": ["benchmarks/private_superlink.py"],
    "tables_study": ["benchmarks/tables_study.py", "--seeds", "2"],
    "private_federated": [
        "benchmarks/private_federated.py", "--seeds", "2", "--data", "letter", "satimage",
    ],
    "private_start": ["benchmarks/private_start.py", "--seeds", "1", "--data", "satimage"],
    "superlink": ["benchmarks/superlink.py"],
    "scale": ["benchmarks/scale.py"],
    "faults": ["benchmarks/faults.py", "--moments", "1"],
}  # fmt: skip


def main() -> int:
    """Run the steps and sum up."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", nargs="+", default=[], help="steps whose names hold a word")
    words = parser.parse_args().only
    lines = []
    for name, command in STEPS.items():
        if words and not any(word in name for word in words):
            continue
        print(f"== {name}", flush=True)
        begun = time.monotonic()
        code = subprocess.run([sys.executable, *command], cwd=ROOT, check=False).returncode
        verdict = "passed" if code == 0 else f"exit code {code}"
        lines.append(f"{name:<24} {time.monotonic() - begun:7.0f} s  {verdict}")
    print("", *lines, sep="\n")
    return int(any("passed" not in line for line in lines))


if __name__ == "__main__":
    sys.exit(main())
