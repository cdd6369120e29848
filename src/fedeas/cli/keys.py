"""`fedeas keys`: the keys of a federation's sites, and the list of them."""

from pathlib import Path

import typer

from fedeas.cli import show

keys = typer.Typer(
    no_args_is_help=True,
    help="Keys of the sites of a federation, for sums that the server cannot read.",
)


@keys.command("new-key")
def new_key(
    key: Path = typer.Argument(..., metavar="KEY", help="File for the private key; keep it."),
    name: str = typer.Option(..., "--name", help="The site's name in the list of members."),
) -> None:
    """Generate a site's private key, and print its line for the list of members.

    The line goes below `[members]` in members.toml.

    Example: `fedeas keys new-key identity.key --name north`
    """
    from fedeas._internal.optional import import_extra

    identity = import_extra("fedeas.private.secure_sum.identity", "a site's key", "private")
    identity.check_name(name)
    public: bytes = identity.identity_of(identity.make_identity(key))
    typer.echo(f'"{name}" = "{public.hex()}"')
    show.note(
        f"wrote the private key to {key}; the line above goes below [members] in members.toml, "
        "which is the same at every site"
    )


@keys.command("show")
def show_members(
    members: Path = typer.Argument(..., metavar="MEMBERS", help="The list, members.toml."),
    key: Path | None = typer.Option(None, "--key", help="A private key that should be in it."),
    as_json: bool = show.json_option(),
) -> None:
    """Show the members of a federation, and the fingerprint to compare out of band.

    Example: `fedeas keys show members.toml --key identity.key`
    """
    from fedeas._internal.optional import import_extra

    identity = import_extra("fedeas.private.secure_sum.identity", "a list of members", "private")
    listed = identity.Members.load(members)
    this_site = ""
    if key is not None:
        this_site = listed.names[identity.Identity.of(identity.load_identity(key), listed).place]
    needed = identity.quorum(len(listed))
    if as_json:
        show.print_json(
            {
                "members": dict(
                    sorted((n, k.hex()) for n, k in zip(listed.names, listed.keys, strict=True))
                ),
                "fingerprint": listed.fingerprint,
                "needed": needed,
                "colluding": listed.colluding,
                "own": this_site or None,
            }
        )
        return
    for name, public in sorted(zip(listed.names, listed.keys, strict=True)):
        typer.echo(f"{name}  {public.hex()}{'  (this site)' if name == this_site else ''}")
    typer.echo(f"fingerprint: {listed.fingerprint}")
    colluding = show.count_of(listed.colluding, "colluding member")
    typer.echo(f"{needed} of {len(listed)} must stay online; tolerates {colluding}")
