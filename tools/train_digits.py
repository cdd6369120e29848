"""Train the small diffusion model of digits that comes with fedeas: minutes on a CPU.

python tools/train_digits.py WORK     WORK: a folder for data and checkpoints
"""

import shutil
import sys
from pathlib import Path

from fedeas.data import load_images
from fedeas.generators.train import Training, train
from fedeas.training.models.unet import UNetConfig
from fedeas_lab.demo import write_digits

MODEL = (
    Path(__file__).parents[1]
    / "packages"
    / "fedeas-lab"
    / "src"
    / "fedeas_lab"
    / "models"
    / "digits"
)
TRAINING = Training(
    UNetConfig((32, 64), 1, (False, True), prediction="v_prediction"),
    steps=3_000, batch=64, learning_rate=1e-3, warmup=100, decay=True, average=0.998, drop=0.15,
    precision="bfloat16",
)  # fmt: skip


def main(work: Path) -> None:
    """Train, or go on, and put the model where it ships from."""
    write_digits(work / "set")
    folder = train(
        load_images("digits", work / "set"),
        work / "training",
        TRAINING,
        device="cpu",
        report=lambda moment: sys.stderr.write(f"\r{moment}"),
    )
    shutil.copytree(folder, MODEL, dirs_exist_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
