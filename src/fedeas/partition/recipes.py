"""Recipes by name and version, so that a split can be reproduced years later."""

import inspect
import re
from collections.abc import Callable

from fedeas.errors import InputError
from fedeas.partition.dirichlet import Dirichlet
from fedeas.partition.even import IID, Shards
from fedeas.partition.flbench import FLBench
from fedeas.partition.partition import Recipe
from fedeas.partition.sites import SiteColumn

# A recipe whose output changes gets a new version here; the old one stays.
_RECIPES: dict[str, Callable[..., Recipe]] = {
    f"{recipe.name}@{recipe.version}": recipe
    for recipe in (FLBench, Dirichlet, IID, Shards, SiteColumn)
}
_COLUMN = re.compile(r"(column(?:@\d+)?)\((.*)\)")


def make_recipe(name: str, **offered: object) -> Recipe:
    """Make a recipe from 'name' (its newest version) or 'name@version' and its settings.

    Settings that are None count as not given.

    Parameters
    ----------
    name : str
        The recipe's name, with `@version` for an older one; `column(NAME)` has a client for every
        site that a column of the data names.
    **offered : object
        Its settings.

    >>> make_recipe("iid", clients=5, alpha=None)
    IID(clients=5, seed=42)
    """
    if column := site_column(name):
        name, offered = name.partition("(")[0].strip(), {**offered, "column": column}
    versions = [known for known in _RECIPES if name in (known, known.partition("@")[0])]
    if not versions:
        raise InputError("unknown recipe", got=name, allowed=", ".join(_RECIPES))
    factory = _RECIPES[versions[-1]]
    parameters = inspect.signature(factory).parameters
    settings = {k: v for k, v in offered.items() if v is not None}
    if unknown := [key for key in settings if key not in parameters]:
        raise InputError(
            f"recipe {versions[-1]} has no setting {unknown[0]!r}", allowed=", ".join(parameters)
        )
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in settings:
            raise InputError(f"recipe {versions[-1]} needs {key!r}", fix=f"pass --{key}")
    return factory(**settings)


def site_column(name: str) -> str:
    """Return the column that a recipe takes clients from; none for other recipes.

    >>> site_column("column(state)"), site_column("iid")
    ('state', '')
    """
    found = _COLUMN.fullmatch(name.strip())
    if found is None and name.strip() in ("column", "column@1"):
        raise InputError("the recipe column needs the name of one", fix="write column(NAME)")
    return found[2].strip() if found else ""
