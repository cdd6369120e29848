"""What the paper's tables print, for a look beside ours."""

# Table 1, accuracy of the last 20 rounds in %: K = 20 and K = 100, in the order of _COLUMNS.
_COLUMNS = (
    ("cifar10", 20, 0.05), ("cifar10", 20, 0.1), ("cifar10", 20, 0.3), ("cifar100", 20, 0.1),
    ("cifar10", 100, 0.05), ("cifar10", 100, 0.1), ("cifar10", 100, 0.3), ("cifar100", 100, 0.1),
)  # fmt: skip
_TABLE_1: dict[tuple[str, str], tuple[float | None, ...]] = {
    ("fedavg", "none"): (39.16, 55.52, 67.47, 42.83, 43.41, 50.18, 65.11, 41.11),
    ("fedprox", "none"): (39.16, 56.40, 67.53, 42.46, 43.44, 50.63, 64.65, 41.04),
    ("scaffold", "none"): (38.39, 60.16, 75.28, 45.92, 30.16, 51.04, 67.32, 43.48),
    ("moon", "none"): (37.08, 58.05, 69.24, 41.79, 36.75, 43.08, 60.09, 38.83),
    ("fedgen", "none"): (32.53, 52.07, 67.84, 37.87, 39.06, 47.49, 65.00, 38.38),
    ("fedmix", "none"): (35.81, 52.42, 67.59, 40.95, 36.05, 50.16, 48.00, 40.28),
    ("fedavg", "uniform"): (54.97, 64.43, 71.27, 45.97, 51.59, 58.81, 67.56, 43.72),
    ("fedavg", "missing-only"): (66.58, 70.16, 73.50, 51.69, 65.37, 70.18, 71.87, 51.71),
    ("fedavg", "full-balance"): (None, 79.91, None, 59.12, None, 79.33, None, 57.47),
    ("fedavg", "fedeas"): (68.25, 71.65, 73.08, 51.13, 70.41, 72.55, 72.83, 52.04),
}
_COMBINED = 78.18  # FedEAS with SCAFFOLD, CIFAR-10, K = 20, alpha = 0.3


def printed(data: str, clients: int, alpha: float | None, method: str, policy: str) -> float | None:
    """Return the accuracy that Table 1 prints for a method with a policy, if it prints one.

    >>> printed("cifar10", 20, 0.1, "fedavg", "fedeas(beta=12)")
    71.65
    """
    names = method.split("(", maxsplit=1)[0], policy.split("(", maxsplit=1)[0]
    column = (data, clients, alpha)
    if names == ("scaffold", "fedeas") and column == ("cifar10", 20, 0.3):
        return _COMBINED
    if names not in _TABLE_1 or column not in _COLUMNS:
        return None
    return _TABLE_1[names][_COLUMNS.index(column)]
