"""The guide to a federation of real sites: a federation starts by its blocks alone."""

import os
import re
import shutil
import signal
import subprocess
import tomllib
from pathlib import Path

import msgspec
import pytest

from fedeas._internal.files import read_toml
from fedeas._internal.settings import read_settings
from fedeas.private.flower.site_config import RunConfig, SiteConfig
from helpers.checkout import ROOT
from helpers.deployed_sites import COUNTS, NAMES, load_example

# With the files that the page includes.
PAGE = re.sub(
    r'^--8<-- "(.+)"\n',
    lambda named: (ROOT / named[1]).read_text(),
    (ROOT / "docs" / "security.md").read_text(),
    flags=re.M,
)
GUIDE = PAGE.partition("## On real machines")[2].partition("\n## ")[0]
# Language, the comment that says where a block belongs, and all of it.
BLOCKS = re.findall(r"^```(bash|toml)\n(# ([^\n]*)\n.*?)^```$", GUIDE, re.S | re.M)
COMMANDS = [(where, text) for kind, text, where in BLOCKS if kind == "bash"]
FILES = {name: text for kind, text, name in BLOCKS if kind == "toml"}


def test_the_guide_has_every_step_in_full():
    assert set(FILES) == {"config.toml", "site.toml", "run.toml", "run.toml, for private sums"}
    all_of_it = "\n".join(text for _, text, _ in BLOCKS)
    for step in (
        "openssl req -x509", "subjectAltName", "flower-superlink", "ssh-keygen",
        "flwr supernode register", "flower-supernode", "flwr run",
    ):  # fmt: skip
        assert step in all_of_it, step
    assert "..." not in all_of_it and "NAME" not in all_of_it
    assert re.findall(r"^```(\w*)$", GUIDE, re.M).count("text") == 0


@pytest.mark.parametrize(("where", "text"), COMMANDS)
def test_the_commands_of_the_guide_are_commands(where, text):
    assert where.startswith(("at the server", "at a site"))
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_every_setting_of_a_run_can_be_given_to_flower():
    """Flower refuses a run that sets what the app's configuration does not name."""
    app = read_toml(ROOT / "examples" / "federation" / "pyproject.toml")
    fields = {field.encode_name for field in msgspec.structs.fields(RunConfig)}
    assert app["tool"]["flwr"]["app"]["config"].keys() == fields


def test_the_files_of_the_guide_are_read():
    site = read_settings(SiteConfig, tomllib.loads(FILES["site.toml"]), "site.toml")
    app = read_toml(ROOT / "examples" / "federation" / "pyproject.toml")
    usual = app["tool"]["flwr"]["app"]["config"]
    run = {**usual, **tomllib.loads(FILES["run.toml"])}
    assert read_settings(RunConfig, run, "run.toml").classes == site.classes
    private = {**run, **tomllib.loads(FILES["run.toml, for private sums"])}
    assert read_settings(RunConfig, private, "run.toml").members == site.members
    found = tomllib.loads(FILES["config.toml"])["superlink"]
    names = set(re.findall(r"flwr (?:run|supernode \w+)(?: \S+\.pub| examples\S+)? (\w+)", GUIDE))
    assert names == {found["default"]} == set(found) - {"default"}


@pytest.mark.deployment
def test_a_federation_starts_by_the_guide_alone(sites, tmp_path):
    """Its commands with other places and ports, as a server and two sites would type them."""
    loopback, _ = load_example()
    own = loopback.Loopback(tmp_path)
    port, *others = loopback.free_ports(3)
    server, members = tmp_path / "server", [tmp_path / str(k) for k in range(2)]
    for folder in (server, *members, tmp_path / "flwr", tmp_path / "tmp"):
        folder.mkdir()
    changes = [
        ("superlink.example.org", "localhost"), ("0.0.0.0", "127.0.0.1"), (":8000", f":{port}"),
        ("--port 8000", f"--port {port}"), ("/etc/fedeas", str(server)),
        ("examples/federation", str(ROOT / "examples" / "federation")),
    ]  # fmt: skip

    def told(text: str, *more: tuple[str, str]) -> str:
        for old, new in (*changes, *more):
            text = text.replace(old, new)
        return text

    def block(word: str) -> str:
        (found,) = [text for _, text in COMMANDS if word in text]
        return found

    def done(text: str, folder: Path) -> None:
        given = own.environment()
        subprocess.run(["bash", "-ec", text], cwd=folder, env=given, check=True, timeout=600)

    def kept(text: str, folder: Path) -> subprocess.Popen:
        with (folder / "log").open("wb") as log:
            return subprocess.Popen(
                ["bash", "-ec", text], cwd=folder, env=own.environment(f"flwr-{folder.name}"),
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def change(name: str, path: Path, **changed: object) -> None:
        values = tomllib.loads(told(FILES[name])) | changed
        own.write_toml(path, values)

    started = []
    try:
        done(told(block("openssl req -x509")), server)
        started.append(kept(told(block("flower-superlink")), server))
        (tmp_path / "flwr" / "config.toml").write_text(told(FILES["config.toml"]))
        (tmp_path / "certificates").symlink_to(server)
        (tmp_path / "ports.json").write_text(f'{{"body": [{port}]}}')
        own.wait_for_link()
        for k, folder in enumerate(members):
            done(told(block("ssh-keygen")), folder)
            shutil.copy(server / "ca.crt", folder)
            shutil.copy(folder / "site.pub", server)
            done(told(block("supernode register"), ("north", f"site-{k}")), server)
            change(
                "site.toml", folder / "site.toml",
                **{
                    "partition-id": k, "classes": NAMES, "data": str(sites / str(k) / "data"),
                    "state": str(folder / "state"), "cache": str(folder / "cache"),
                    "allow": "updates", "identity-key": "", "members": "", "generator": "smote",
                    "device": "cpu",
                },
            )  # fmt: skip
            done("fedeas check site.toml", folder)
            started.append(kept(told(block("flower-supernode"), ("9094", str(others[k]))), folder))
        change(
            "run.toml", server / "run.toml",
            **{
                "sites": 2, "classes": NAMES, "out": str(server / "run"), "rounds": 1,
                "test-data": str(sites / "test"), "timeout": 300.0, "policy": "none", "batch": 8,
            },
        )  # fmt: skip
        done(told(block("flwr run")), server)
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGTERM)
        own.stop()
        for process in started:
            process.wait(30)
    assert (server / "run" / "model.safetensors").exists()
    (line,) = (server / "run" / "log.jsonl").read_text().splitlines()
    assert f'"samples": {COUNTS[:2].sum()}' in line
