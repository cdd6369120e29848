"""`fedeas members`: the keys of a federation's sites, and the list of them."""

from pathlib import Path

import typer

from fedeas.cli import show

members = typer.Typer(
    no_args_is_help=True,
    help="Keys of the sites of a federation, for sums that the server cannot read.",
)


@members.command("new-key")
def new_key(
    key: Path = typer.Argument(..., metavar="KEY", help="File for the private key; keep it."),
    name: str = typer.Option(..., "--name", help="The site's name in the list of members."),
) -> None:
    """Draw a site's private key, and print the line of it that belongs in members.toml.

    Example: `fedeas members new-key identity.key --name north`
    """
    from fedeas.generators.generator import heavy

    identity = heavy("fedeas.privacy.secure_sum.identity", "a site's key", "privacy")
    identity.check_name(name)
    public: bytes = identity.identity_of(identity.make_identity(key))
    typer.echo(f'"{name}" = "{public.hex()}"')
    show.note(f"wrote the private key to {key}; send the line above to the other sites")


@members.command("show")
def show_members(
    members: Path = typer.Argument(..., metavar="MEMBERS", help="The list, members.toml."),
    key: Path | None = typer.Option(None, "--key", help="A private key that should be in it."),
    as_json: bool = show.json_option(),
) -> None:
    """Show the members of a federation, and the fingerprint to compare, not through the server.

    Example: `fedeas members show members.toml --key identity.key`
    """
    from fedeas.generators.generator import heavy

    identity = heavy("fedeas.privacy.secure_sum.identity", "a list of members", "privacy")
    graph = heavy("fedeas.privacy.secure_sum.graph", "a list of members", "privacy")
    found = identity.Members.load(members)
    own = ""
    if key is not None:
        own = found.names[identity.Identity.of(identity.load_identity(key), found).place]
    needed = graph.quorum(len(found))
    if as_json:
        show.print_json(
            {
                "members": dict(
                    sorted((n, k.hex()) for n, k in zip(found.names, found.keys, strict=True))
                ),
                "fingerprint": found.fingerprint,
                "needed": needed,
                "colluding": found.colluding,
                "own": own or None,
            }
        )
        return
    for name, public in sorted(zip(found.names, found.keys, strict=True)):
        typer.echo(f"{name}  {public.hex()}{'  (this site)' if name == own else ''}")
    typer.echo(f"fingerprint: {found.fingerprint}")
    typer.echo(
        f"{len(found)} members; a sum needs {needed} of them to the end, and up to "
        f"{found.colluding} may work with the server"
    )
