"""What the project says about itself holds: its gates, the versions it names, its public names."""

import doctest
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import fedeas

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in GITHUB.glob("workflows/*")}
JOBS = {
    f"{name}/{job}": content
    for name, flow in WORKFLOWS.items()
    for job, content in flow["jobs"].items()
}
STEPS = [(job, step) for job, content in JOBS.items() for step in content["steps"]]
COMMANDS = [(job, step["run"]) for job, step in STEPS if "run" in step]
CHECK = JOBS["ci/check"]["strategy"]["matrix"]
# What `.ci/run` may be asked for.
TARGETS = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.fixture
def tools(monkeypatch):
    """The folder of tools, as Python sees it when it runs one of them."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    yield ROOT / "tools"
    sys.modules.pop("release", None)


def test_the_workflows_are_those_that_we_know():
    assert set(WORKFLOWS) == {"ci", "docs", "nightly", "release"}


def test_the_public_workflow_runs_the_same_gate():
    assert ("ci/check", ".ci/run") in COMMANDS
    assert 'make "${1:-check}"' in (ROOT / ".ci" / "run").read_text()
    # what the gate does is written down once
    assert not any(re.search(r"\bmake\b(?! dist)", command) for _, command in COMMANDS)


def missing(command: str) -> list[str]:
    """Return what a command calls that is not there: targets, scripts, lists, example files."""
    targets = re.findall(r"\.ci/run (\w+)", command)
    files = re.findall(r"(?:^|[\s@\"])((?:\.ci|docker|examples|tests|tools)/[\w./-]+)", command)
    files += re.findall(r"--constraint (\S+)", command)
    extras = [name for found in re.findall(r'"\.\[(.*)\]"', command) for name in found.split(",")]
    gone = [target for target in targets if target not in TARGETS]
    gone += [file for file in files if not (ROOT / file).is_file()]
    return gone + [extra for extra in extras if extra not in PROJECT["optional-dependencies"]]


@pytest.mark.parametrize(("job", "command"), COMMANDS, ids=[job for job, _ in COMMANDS])
def test_what_a_workflow_calls_is_there(job, command):
    assert missing(command) == []


def test_the_check_of_commands_sees_what_is_gone():
    commands = ".ci/run coverige\npython tools/no.py\npytest @tests/no.txt"
    assert missing(commands) == ["coverige", "tools/no.py", "tests/no.txt"]
    assert missing('pip install ".[dev,pandsa]"') == ["pandsa"]


def test_actions_are_pinned_by_their_commits():
    """A tag can be moved; the comment says which release a commit is, for those who read it."""
    lines = [
        line.strip(" -") for path in (GITHUB / "workflows").iterdir()
        for line in path.read_text().splitlines() if "uses:" in line
    ]  # fmt: skip
    assert len(lines) > 10
    for line in lines:
        assert re.fullmatch(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line
    commits: dict[str, set[str]] = {}
    for line in lines:
        commits.setdefault(line.partition("@")[0], set()).add(line)
    assert all(len(used) == 1 for used in commits.values())


def test_what_builds_a_release_is_pinned():
    pins = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().split()}
    (installed,) = [line for _, c in COMMANDS for line in c.splitlines() if " twine" in line]
    assert "--constraint constraints.txt" in installed
    assert {"build", "twine", "hatchling"} <= pins


def test_workflows_get_no_more_rights_than_they_need():
    for flow in WORKFLOWS.values():
        assert flow["permissions"] == {"contents": "read"}
    rights = {job: content.get("permissions", {}) for job, content in JOBS.items()}
    writers = {job for job, given in rights.items() if "write" in given.values()}
    assert writers == {"docs/deploy", "release/publish", "release/image"}
    assert not any("secrets." in path.read_text() for path in GITHUB.rglob("*.yml"))


def test_every_python_that_is_tested_is_named_and_no_other():
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert CHECK["python"] == named
    assert PROJECT["requires-python"] == f">={named[0]}"
    assert set(JOBS["ci/core"]["strategy"]["matrix"]["python"]) <= set(named)


def test_every_system_that_is_tested_is_named_and_no_other():
    systems = {"ubuntu": "POSIX :: Linux", "macos": "MacOS", "windows": "Microsoft :: Windows"}
    tested = [JOBS["ci/check"]["runs-on"], *JOBS["ci/core"]["strategy"]["matrix"]["os"]]
    named = [line for line in PROJECT["classifiers"] if line.startswith("Operating System")]
    assert named == [f"Operating System :: {systems[name.split('-')[0]]}" for name in tested]


def test_every_flower_that_is_allowed_is_tested():
    pinned = re.search(r"^flwr==(1\.\d+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    assert CHECK["flwr"] == [""]
    tested = {pinned, *(row["flwr"].rpartition(".")[0] for row in CHECK["include"])}
    (allowed,) = [
        re.search(r"flwr\[simulation\]>=1\.(\d+),<1\.(\d+)", line).groups()
        for line in PROJECT["optional-dependencies"]["train"]
        if line.startswith("flwr")
    ]
    assert tested == {f"1.{minor}" for minor in range(*map(int, allowed))}
    supported = (ROOT / "docs" / "index.md").read_text()
    assert f"| Flower | {', '.join(sorted(tested))} |" in supported
    assert f"| Python | {', '.join(CHECK['python'])} |" in supported


def test_the_tests_of_the_core_are_there_and_need_no_torch():
    listed = (ROOT / "tests" / "core.txt").read_text().split()
    names = ("planning/test_plan", "counts/test_count_files", "planning/test_policies")
    assert {f"tests/{name}.py" for name in names} <= set(listed)
    for name in listed:
        text = (ROOT / name).read_text()
        assert not re.search(r"^(import|from) (torch|flwr|diffusers|datasets)\b", text, re.M), name


def test_the_release_is_published_without_a_token_and_only_after_it_was_tried():
    publish, image = JOBS["release/publish"], JOBS["release/image"]
    assert publish["needs"] == "build"
    assert image["needs"] == "publish"
    assert publish["permissions"] == {"id-token": "write"}
    tried = next(command for job, command in COMMANDS if "tools/release.py" in command)
    words = tried.partition("tools/release.py work ")[2].split()
    assert set(words) - {"core"} <= set(PROJECT["optional-dependencies"])
    assert WORKFLOWS["release"][True] == {"push": {"tags": ["v*"]}}  # YAML reads `on` as true


def test_the_release_compares_the_tag_with_the_version():
    (line,) = [command for _, command in COMMANDS if "__version__ = " in command]
    assert "GITHUB_REF_NAME" in line
    text = (ROOT / "src" / "fedeas" / "__init__.py").read_text().splitlines()
    assert f'__version__ = "{fedeas.__version__}"' in text


def test_every_extra_is_tried(tools):
    import release

    assert set(release.TRIALS) == {"core", *PROJECT["optional-dependencies"]} - {"dev"}
    assert doctest.testmod(release).failed == 0
    assert "torch" in release.needs("lab")
    assert "torch" not in release.needs("counts")


def test_the_image_is_built_from_the_wheel_by_another_user_than_root():
    lines = (ROOT / "docker" / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    (copied,) = [line.split()[1:-1] for line in lines if line.startswith("COPY")]
    assert copied == ["constraints.txt", "dist/*.whl"]
    assert (ROOT / "constraints.txt").is_file()
    admitted = (ROOT / ".dockerignore").read_text().split()
    assert admitted == ["*", *(f"!{name}" for name in copied)]
    (wanted,) = re.findall(r"fedeas\[([\w,]+)\]\"", "\n".join(lines))
    assert set(wanted.split(",")) <= set(PROJECT["optional-dependencies"])
    guide = (ROOT / "docs" / "security.md").read_text()
    told = {extra for each in re.findall(r"fedeas\[([\w,]+)\]", guide) for extra in each.split(",")}
    assert {"train", "private"} <= told  # `lab` has both
    assert wanted == "lab"
    (user,) = [line.split()[1] for line in lines if line.startswith("USER")]
    assert any(line.startswith("RUN useradd") and line.endswith(user) for line in lines)
    python = re.search(r"^FROM python:(3\.\d+)-slim$", lines[4])[1]
    assert python in CHECK["python"]


def test_an_image_is_built_and_tried_before_it_is_pushed():
    """In every change, and once more by the workflow that pushes it."""
    assert ("ci/image", "docker/try fedeas") in COMMANDS
    (pushed,) = [command for _, command in COMMANDS if "docker push" in command]
    assert pushed.index("docker/try") < pushed.index("docker push")
    trial = (ROOT / "docker" / "try").read_text()
    assert trial.startswith("#!/usr/bin/env bash\n") and "set -euo pipefail" in trial
    assert os.access(ROOT / "docker" / "try", os.X_OK)
    subprocess.run(["bash", "-n", ROOT / "docker" / "try"], check=True)


@pytest.mark.slow
def test_the_program_that_tries_an_image_runs_here():
    trial = (ROOT / "docker" / "try").read_text()
    tried = re.search(r'python -c "(.*?)"$', trial, re.S | re.M)[1]
    program = tried.replace("os.getuid() != 0 and ", "")
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)


def test_services_are_limited_as_systemd_limits_them():
    deploy = ROOT / "examples" / "federation" / "deploy"
    services = yaml.safe_load((deploy / "compose.yaml").read_text())["services"]
    for name, service in services.items():
        unit = (deploy / f"fedeas-{name}.service").read_text()
        memory = re.search(r"^MemoryMax=(\d+)G$", unit, re.M)[1]
        assert service["mem_limit"] == f"${{FEDEAS_MEMORY:-{memory}g}}"
        assert service["pids_limit"] == int(re.search(r"^TasksMax=(\d+)$", unit, re.M)[1])
        assert "NoNewPrivileges=yes" in unit
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["cap_drop"] == ["ALL"]


def test_compose_builds_that_image():
    deploy = ROOT / "examples" / "federation" / "deploy"
    services = yaml.safe_load((deploy / "compose.yaml").read_text())["services"]
    for service in services.values():
        context = deploy / service["build"]["context"]
        assert context.resolve() == ROOT
        assert (context / service["build"]["dockerfile"]).is_file()


def test_the_citation_names_this_version_and_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == fedeas.__version__
    assert citation["license"] == PROJECT["license"]
    dated = f"## [{fedeas.__version__}] - {citation['date-released']}"
    assert dated in (ROOT / "CHANGELOG.md").read_text()
    paper = citation["preferred-citation"]
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert paper["title"] in readme
    for author in paper["authors"]:
        assert f"{author['given-names'][0]}. {author['family-names']}" in readme


@pytest.mark.parametrize("name", ["bug", "feature", "question"])
def test_issue_forms_are_complete(name):
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml").read_text())
    assert {"name", "description", "body"} <= set(form)
    asked = [field for field in form["body"] if field["type"] != "markdown"]
    assert all(field["id"] and field["attributes"]["label"] for field in asked)
    assert any(field.get("validations", {}).get("required") for field in asked)


def test_dependabot_looks_after_packages_and_actions():
    found = yaml.safe_load((GITHUB / "dependabot.yml").read_text())
    assert {each["package-ecosystem"] for each in found["updates"]} == {"pip", "github-actions"}


@pytest.mark.parametrize("name", ["SECURITY", "CODE_OF_CONDUCT", "CONTRIBUTING"])
def test_links_of_the_projects_pages_lead_somewhere(name):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / f"{name}.md").read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []
