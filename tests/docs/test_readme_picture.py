"""The README's picture: heat maps alone, and with the curves of a record."""

import itertools
import subprocess
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[2]


def draw(out, curves):
    tool = [sys.executable, ROOT / "tools" / "picture.py", "--out", out, "--curves", curves]
    return subprocess.run(tool, capture_output=True, text=True)


def test_the_picture_is_drawn_with_and_without_a_record(tmp_path):
    record = tmp_path / "curves.csv"
    alone = draw(tmp_path / "alone.png", record)
    assert alone.returncode == 0, alone.stderr
    lines = ["way,round,seed,accuracy"]
    for way, seed, at in itertools.product(("none", "copies", "fedeas"), range(3), range(1, 31)):
        lines.append(f"{way},{at},{seed},{0.5 + 0.01 * at - 0.01 * seed}")
    record.write_text("\n".join(lines) + "\n")
    both = draw(tmp_path / "both.png", record)
    assert both.returncode == 0, both.stderr
    with Image.open(tmp_path / "alone.png") as maps, Image.open(tmp_path / "both.png") as whole:
        assert whole.height > maps.height + 300
    record.write_text("way,round,seed,accuracy\nmagic,1,1,0.5\n")
    wrong = draw(tmp_path / "wrong.png", record)
    assert wrong.returncode
    assert "magic" in wrong.stderr
