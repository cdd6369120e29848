"""The one family of errors: what is wrong, what was given, what is allowed, what to do."""


class FedeasError(Exception):
    """Base of every error that fedeas raises on purpose.

    >>> str(FedeasError("beta is not positive", got=-1, allowed="a number above 0"))
    'beta is not positive; got -1; allowed: a number above 0'
    """

    def __init__(
        self, what: str, *, got: object = None, allowed: str | None = None, fix: str | None = None
    ) -> None:
        self.what, self.got, self.allowed, self.fix = what, got, allowed, fix
        parts = [what]
        if got is not None:
            # repr() also escapes line breaks and terminal control codes of a hostile file.
            text = repr(got)
            parts.append(f"got {text if len(text) <= 80 else text[:77] + '...'}")
        if allowed is not None:
            parts.append(f"allowed: {allowed}")
        if fix is not None:
            parts.append(fix)
        super().__init__("; ".join(parts))


class InputError(FedeasError):
    """What was given cannot be used: a bad file, value or name."""


class InfeasibleError(FedeasError):
    """What was given is well formed, but nothing satisfies it."""


class MissingExtraError(FedeasError):
    """An optional package is needed and not installed."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(
            f"{purpose} needs an optional package",
            fix=f'install it with: pip install "fedeas[{extra}]"',
        )


def first_line(error: Exception) -> str:
    """Return the first line of what another library says, or the kind of its error."""
    return (str(error).splitlines() or [type(error).__name__])[0]
