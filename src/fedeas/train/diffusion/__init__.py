"""Diffusion models of images: training them, drawing samples, judging samples."""

from fedeas._internal.optional import import_extra
from fedeas.data import load_images
from fedeas.generators import Generator


def open_diffusion(
    model: str,
    sampler: str = "dpm",
    steps: int | None = None,
    guidance: float = 2.0,
    precision: str = "float32",
    device: str = "auto",
) -> Generator:
    """Open a diffusion model by its folder: the generator `diffusion(model=...)`."""
    module = import_extra("fedeas.train.diffusion.sample", "the generator 'diffusion'", "generate")
    generator: Generator = module.Diffusion.load(
        model,
        sampler=sampler,
        steps=steps,
        guidance=guidance,
        precision_name=precision,
        device=device,
    )
    return generator


def open_turbo(
    model: str,
    data: str,
    folder: str | None = None,
    prompt: str = "a photo of a {}",
    steps: int = 1,
    precision: str = "float32",
    device: str = "auto",
) -> Generator:
    """Open an SD-turbo pipeline that draws the classes of a data set at its size."""
    module = import_extra("fedeas.train.diffusion.turbo", "the generator 'turbo'", "generate")
    images = load_images(data, folder)
    generator: Generator = module.Turbo(
        model, images.classes, images.samples.shape[1:], prompt, steps, precision, device
    )
    return generator
