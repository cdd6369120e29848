"""`private`: a generator that a federation makes from noisy sums over its samples.

Nobody's samples leave their site, and nothing but the sums is needed: the server makes the
generator from them, at no further cost in privacy.
"""

from fedeas._internal.optional import import_extra
from fedeas.errors import InputError
from fedeas.generators import Generator


def private(model: str = "", **settings: object) -> Generator:
    """Open a generator that a federation made from noisy sums, by its folder: `private(model=...)`.

    Parameters
    ----------
    model : str
        The generator's folder.
    settings
        How a run makes one of its clients: `epsilon` and others. There are no clients here.
    """
    if not model:
        raise InputError(
            "private(epsilon=...) is made of the clients of a run, and there are none here",
            fix="write it into a run's config; or make it, fedeas generator private CONFIG --out "
            "generator, and open it, private(model=generator)",
        )
    if settings:
        raise InputError(
            "private(model=...) has no other settings", allowed="private(model=FOLDER)"
        )
    make = import_extra("fedeas.private.generator.make", "the generator 'private'", "train")
    generator: Generator = make.open_private(model)
    return generator
