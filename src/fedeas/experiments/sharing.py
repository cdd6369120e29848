"""The data of a config: opened, and shared out to its clients."""

from dataclasses import fields

from fedeas.data import Dataset, Federation, TableOptions, federate, load_data
from fedeas.errors import InputError
from fedeas.partition import make_recipe, site_column
from fedeas.settings.config import Config, PartitionConfig


def table_options(config: Config) -> TableOptions:
    """Return what a config says about the columns of a table."""
    column, site = site_column(config.partition.recipe), config.data.site
    if column and site and column != site:
        raise InputError(
            "the recipe and [data] name different columns of sites",
            got=(column, site),
            fix="leave `site` out: the recipe is enough",
        )
    known = {f.name: getattr(config.data, f.name) for f in fields(TableOptions)}
    return TableOptions(**{**known, "site": column or site})


def open_data(config: Config) -> Dataset:
    """Open the data of a config."""
    return load_data(config.data.name, config.data.folder, table_options(config))


def share_out(config: Config) -> Federation:
    """Share out the data as a config says."""
    data = open_data(config)
    cut = {k: v for k, v in config.partition.to_dict().items() if k != "recipe"}
    if site_column(config.partition.recipe):  # the sites decide: only what was set is refused
        plain = PartitionConfig().to_dict()
        cut = {key: value for key, value in cut.items() if value != plain[key]}
        return federate(
            data, make_recipe(config.partition.recipe, **cut), config.data.protocol,
            config.data.hold_out, seed=config.seed,
        )  # fmt: skip
    recipe = make_recipe(config.partition.recipe, **cut, seed=config.seed)
    return federate(data, recipe, config.data.protocol, config.data.hold_out, seed=config.seed)
