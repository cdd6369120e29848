"""What 0.2 called things, and what to write now: the tables of docs/upgrading.md."""

from collections.abc import Sequence

_PRIVATE = "Ledger Identity Members answer_queries class_prior negotiate_beta negotiate_price"
_CLEAN = "make a clean table first: fedeas counts FILE --out counts.csv"
_READING = "layout by client label count drop-column drop-row transpose thousands blank suppressed "
_READING += "delimiter encoding sheet keep"

# Names in `fedeas`.
NAMES = {
    **{name: f"fedeas_lab.{name}" for name in ("run", "Config", "read_config")},
    **{name: f"fedeas_private.{name}" for name in _PRIVATE.split()},
    "Holding": "fedeas_private.QueryContext",
    "make_deployed_app": "fedeas_private.flower.client_app",
    "serve": "fedeas_private.flower.run_server",
    "make_plan": "fedeas.plan(counts, policy)",
    "beta_for_total": "fedeas.choose_beta(counts, total=total).beta",
    "admissible_betas": "fedeas.choose_beta(counts).interval",
    "BetaInterval": "fedeas.choose_beta(counts).interval",
    "plan_stream": "fedeas.planning.stream.plan_stream",
    "Columns": "fedeas.read_counts(path, client=, label=)",
    "Greedy": "fedeas.WaterFill",
    "real_examples_mod": "fedeas.report_real_num_examples",
    "make_recipe": "fedeas.make_partition",
    "SiteColumn": "fedeas.NaturalId",
    "from_partitioner": "fedeas.Partition.from_flwr(p, data)",
    "to_partitioner": "partition.to_flwr()",
    "SiteCosts": "fedeas.Cost.load(file, clients)",
    "Task": "fedeas.training.samples.Task",
    "FileAccessError": "fedeas.errors.FileAccessError",
}
_COMMANDS = {
    **dict.fromkeys(("run", "sweep", "report", "demo"), 'install it: pip install "fedeas[lab]"'),
    **dict.fromkeys(("check", "keys", "ledger"), 'install it: pip install "fedeas[private]"'),
    "generator private": 'install it: pip install "fedeas[private]"',
    "select": "write fedeas plan COUNTS --betas 4,8,12",
    "paper": "write python -m reproduction, in a checkout",
    "members": "write fedeas keys",
    "privacy": "write fedeas ledger",
    "new": "write fedeas init",
    "generator own": "write fedeas generator private",
    "generator judge": "write fedeas generator sample GENERATOR --judge DATA",
    "generator bench": "write fedeas fill PLAN --generator GENERATOR --dry-run",
    "cache verify": "write fedeas cache list --check",
}
_OPTIONS = {
    **{
        f"{command} --{name}": _CLEAN
        for command in ("plan", "compare")
        for name in _READING.split()
    },
    "plan --metrics": "it is gone; see docs/upgrading.md",
    "plan --site-costs": "write --cost FILE",
    **dict.fromkeys(
        ("generator --way", "generator --method"), "leave it out: there is one method for images"
    ),
    "generator --federated": "write fedeas generator federated CONFIG",
    "generator --report": "write fedeas generator report",
    "partition --column": "write --label",
    "run --grid": "write --backend",
    "run --track": "write --tensorboard",
    "report --paper": "write python -m reproduction report, in a checkout",
}


def advise(unknown: str, arguments: Sequence[str]) -> str | None:
    """Return what to do about a command or an option that there is not.

    >>> advise("--site-costs", ["plan", "counts.csv", "--site-costs", "costs.csv"])
    'write --cost FILE'
    """
    command = next(iter(arguments), "")
    if unknown.startswith("-"):
        return _OPTIONS.get(f"{command} {unknown}")
    return _COMMANDS.get(unknown if unknown == command else f"{command} {unknown}")
