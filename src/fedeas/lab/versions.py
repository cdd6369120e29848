"""The versions that a run's numbers come from: those of fedeas and of what it computes with."""

from importlib.metadata import PackageNotFoundError, version

_LIBRARIES = ("numpy", "scipy", "torch", "flwr", "diffusers")


def versions() -> str:
    """Return the versions of fedeas and of the libraries that decide a run's numbers, as text."""
    from fedeas import __version__

    listed = [f"fedeas {__version__}"]
    listed += [f"{name} {library_version(name)}" for name in _LIBRARIES]
    return ", ".join(listed)


def library_version(name: str) -> str:
    """Return the version of an installed package, or a dash."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "-"
