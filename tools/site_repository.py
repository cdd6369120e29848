"""A hook of mkdocs: the site links to the repository that it is built from."""

import os
import subprocess
from typing import Any


def on_config(config: Any) -> Any:
    """Give the site its repository's address, unless it cannot be known."""
    if address := address_of(os.environ, _origin()):
        config.repo_url = address
        config.repo_name = address.removeprefix("https://").partition("/")[2]
        config.edit_uri = "edit/main/docs/"
    return config


def address_of(environment: Any, origin: str) -> str:
    """Return the address of a repository's page, or nothing.

    >>> address_of({}, "git@example.org:team/fedeas.git")
    'https://example.org/team/fedeas'
    >>> address_of({"GITHUB_REPOSITORY": "team/fedeas"}, "")
    'https://github.com/team/fedeas'
    """
    if name := environment.get("GITHUB_REPOSITORY"):
        return f"{environment.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}"
    if origin.startswith("git@"):
        origin = "https://" + origin.removeprefix("git@").replace(":", "/", 1)
    return origin.removesuffix(".git") if origin.startswith("https://") else ""


def _origin() -> str:
    command = ["git", "config", "--get", "remote.origin.url"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""  # no git: an unpacked archive
