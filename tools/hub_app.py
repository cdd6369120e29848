"""Make the quick start with fedeas in it, as a Flower Hub app.

    python tools/hub_app.py OUT
    flwr app publish OUT/fedeas-quickstart

Afterwards `flwr new @fedeas/fedeas-quickstart` starts from it.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAME = "fedeas-quickstart"
# The Hub shows the licence's file, and which versions of Flower an app is for, from format 1 on.
EDITS = {
    'name = "quickstart"': f'name = "{NAME}"',
    "with Flower and PyTorch": "with Flower, PyTorch and synthetic images for skewed labels",
    'license = "Apache-2.0"': 'license = { file = "LICENSE" }',
    'publisher = "fedeas"': 'publisher = "fedeas"\nfab-format-version = 1\n'
    'flwr-version-target = "1.41.0"',
}
README = """# Skewed labels, repaired

Flower's PyTorch quick start on Fashion-MNIST, with two more lines: `fedeas.augment` adds synthetic
images to the training set of each client, as many as its label counts ask for, and
`fedeas.report_real_num_examples` keeps clients weighted by their real images.

```bash
flwr new @fedeas/fedeas-quickstart && cd fedeas-quickstart
pip install -e .
FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 \\
  flwr run . --stream --federation-config num-supernodes=10
```

Without a GPU, install PyTorch's CPU build first. The same app runs on SuperNodes: give each one
`--node-config "partition-id=0 num-partitions=10"` with its own number. See docs/howto/flower.md in
fedeas.
"""


def make_app(out: Path) -> Path:
    """Write the app and return its folder."""
    app = out / NAME
    shutil.copytree(
        ROOT / "examples" / "quickstart", app, ignore=shutil.ignore_patterns("__pycache__")
    )
    patch = app / "fedeas.patch"
    with patch.open() as content:
        subprocess.run(["patch", "-s", "-p1"], stdin=content, cwd=app, check=True)
    patch.unlink()
    settings = app / "pyproject.toml"
    text = settings.read_text(encoding="utf-8")
    for before, after in EDITS.items():
        if text.count(before) != 1:
            raise SystemExit(f"{settings} does not have {before!r} once")
        text = text.replace(before, after)
    settings.write_text(text, encoding="utf-8")
    (app / "README.md").write_text(README, encoding="utf-8")
    shutil.copy(ROOT / "LICENSE", app)
    return app


if __name__ == "__main__":
    print(make_app(Path(sys.argv[1])))
