"""`fedeas check` tells a site's mistakes before a run, one line each, with what to do."""

from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Context, Message, RecordDict

from fedeas.private.flower import client_app
from fedeas.private.flower.deployed import open_site
from fedeas.private.ledger import Ledger
from fedeas.private.secure_sum.identity import Members, make_identity
from fedeas.private.secure_sum.keys import identity_of
from fedeas.train.flower import records
from fedeas.train.flower.backends import InlineGrid
from fedeas.train.flower.deployed import REFUSAL
from fedeas.train.models import make_model
from fedeas.train.samples import Task
from fedeas.train.settings import Local, ModelSettings
from helpers.deployed_sites import COUNTS, NAMES, config, settings
from helpers.site_files import NOISY, node_config, site_toml, written, wrong


def test_a_site_that_is_ready_is_told_what_it_is(sites, tmp_path, fedeas):
    before = sorted(tmp_path.rglob("*"))
    path = site_toml(sites, tmp_path)
    run = written(tmp_path / "run.toml", settings(sites, tmp_path / "run", **NOISY))
    done = fedeas("check", path, "--run", run)
    assert (done.code, wrong(done.out)) == (0, {}), done.out
    assert "32 samples" in done.out and "2 of 3 classes" in done.out
    assert Members.load(sites / "members.toml").fingerprint in done.out
    # Whoever looks may be another user than the site: no folder of the site's is made.
    assert sorted(set(tmp_path.rglob("*")) - set(before)) == [run, path]


def another_list(sites: Path, folder: Path) -> str:
    keys = {f"other-{k}": identity_of(make_identity(folder / f"other-{k}.key")) for k in range(3)}
    path = folder / "others.toml"
    path.write_text(Members.of(keys).to_toml())
    return str(path)


@pytest.mark.parametrize(
    ("changed", "what", "said"),
    [
        ({"data": "/nowhere"}, "data", "/nowhere"),
        ({"classes": "dots, bar, frame"}, "data", "dot"),
        ({"classes": "one"}, "classes", "one"),
        ({"identity-key": "/no.key"}, "members", "fedeas keys new-key"),
        ({"identity-key": ""}, "members", "identity-key"),
        ({"members": "OTHERS"}, "members", "not among the members"),
        ({"generator": "difusion(model=x)"}, "generator", "diffusion"),
        ({"generator": "helpers.small_federations:Animals"}, "generator", "classes"),
        ({"generator": "helpers.small_federations:Nobody"}, "generator", "Nobody"),
        ({"state": "/etc/passwd/site"}, "state", "/etc/passwd/site"),
        ({"allow": "clas-totals"}, "allow", "class-totals"),
        ({"methods": "fedavg fedporx"}, "methods", "fedprox"),
        ({"device": "cuda:7"}, "device", "cuda"),
    ],
)
def test_a_mistake_is_one_line_with_its_fix(sites, tmp_path, fedeas, changed, what, said):
    if changed.get("members") == "OTHERS":
        changed = {"members": another_list(sites, tmp_path)}
    done = fedeas("check", site_toml(sites, tmp_path, **changed))
    assert done.code == 2
    assert said in wrong(done.out)[what]
    assert "Traceback" not in done.out + done.err


def test_all_mistakes_are_told_at_once(sites, tmp_path, fedeas):
    done = fedeas(
        "check", site_toml(sites, tmp_path, **{"data": "/nowhere", "identity-key": "/no.key"})
    )
    assert done.code == 2
    assert set(wrong(done.out)) == {"data", "members"}
    assert "2 problems" in done.err


def test_an_unknown_setting_is_told(sites, tmp_path, fedeas):
    done = fedeas("check", site_toml(sites, tmp_path, epsilom=1.0))
    assert done.code == 2
    assert "epsilom" in done.err


def test_a_spent_budget_is_told(sites, tmp_path, fedeas):
    own = config(sites, tmp_path, 0)
    Path(own.state).mkdir(mode=0o700)
    ledger = Ledger.open(own.ledger_folder, own.epsilon, own.delta)
    ledger.enter("class-totals", ledger.left, server="1", run="1", key=b"a")
    done = fedeas("check", site_toml(sites, tmp_path))
    assert done.code == 2
    assert set(wrong(done.out)) == {"budget"}


@pytest.mark.parametrize(
    ("site", "run", "said"),
    [
        ({}, {"classes": NAMES.replace("bar", "bars")}, "bars"),
        ({"allow": "class-totals"}, {}, "rounds = 0"),
        ({"allow": ""}, {}, 'updates"'),
        ({"allow": "image-moments image-products"}, {"generator-epsilon": 1.0}, 'updates"'),
        ({}, {"batch": 4096}, "4096"),
        ({"methods": "fedavg"}, {"method": "moon"}, "moon"),
        ({"generator": ""}, {}, "fedeas(beta=12)"),
        ({}, {"members": "OTHERS"}, "another list of members"),
        ({}, {"policy": "waterfill(total=5)"}, "not a policy for a site alone"),
        ({"generator": "private"}, {}, "has not come to this site"),
        # What the owner does not allow
        ({"allow": "class-totals"}, NOISY, "'image-moments image-products'"),
        (
            {"allow": "class-totals"},
            {"generator-epsilon": 1.0, "generator-classifier": True},
            "feature-means",
        ),
        ({"allow": ""}, {"policy": "fedeas(beta=12, target=federation)"}, "class-totals"),
        # What the budget of epsilon 3 does not pay for
        ({}, {"generator-epsilon": 50.0}, "privacy budget"),
        ({}, {**NOISY, "generator-epsilon": 8.0, "policy": "none"}, "privacy budget"),
        ({}, {"policy": "fedeas(beta=1, target=federation)", "prior-epsilon": 4.0}, "privacy bud"),
        (
            {},
            {
                "policy": "fedeas(beta=1, target=federation)",
                "prior-epsilon": 2.5,
                "generator-epsilon": 2.0,
            },
            "privacy budget",
        ),
        # What does not go together
        ({"partition-id": 9}, {}, "got 9"),
        ({"partition-id": 4}, {}, "0 to 3"),
        ({}, {**NOISY, "members": ""}, "list of members"),
        ({"identity-key": "", "members": ""}, NOISY, "identity-key"),
    ],
)
def test_a_run_that_the_site_would_refuse_is_told(
    sites, tmp_path, fedeas, site, run, said
):  # fmt: skip
    if run.get("members") == "OTHERS":
        run = {"members": another_list(sites, tmp_path)}
    path = written(tmp_path / "run.toml", settings(sites, tmp_path / "run") | run)
    done = fedeas("check", site_toml(sites, tmp_path, **site), "--run", path)
    assert done.code == 2
    assert said in wrong(done.out)["run"]


@pytest.mark.parametrize(
    ("site", "run", "said"),
    [
        ({}, {**NOISY, "generator-epsilon": 3.0}, "image-products: epsilon 3 of 3"),
        ({"allow": "image-moments image-products"}, NOISY, "does not train"),
        ({"allow": "updates"}, {}, "asks for no sums"),
    ],
)
def test_a_run_that_the_site_can_pay_for_is_not_doubted(sites, tmp_path, fedeas, site, run, said):
    path = written(tmp_path / "run.toml", settings(sites, tmp_path / "run", **run))
    done = fedeas("check", site_toml(sites, tmp_path, **site), "--run", path)
    assert (done.code, wrong(done.out)) == (0, {})
    assert said in done.out


def test_a_run_is_paid_from_what_is_left(sites, tmp_path, fedeas):
    own = config(sites, tmp_path, 0)
    path = written(tmp_path / "run.toml", settings(sites, tmp_path / "run", **NOISY))
    Path(own.state).mkdir(mode=0o700)
    ledger = Ledger.open(own.ledger_folder, own.epsilon, own.delta)
    ledger.enter("class-totals", 0.95 * ledger.left, server="1", run="1", key=b"a")
    done = fedeas("check", site_toml(sites, tmp_path), "--run", path)
    assert done.code == 2
    assert f"{ledger.left:.4g} is left" in wrong(done.out)["run"]


@pytest.mark.parametrize(
    ("changed", "what", "said"),
    [
        ({"delta": 0.005}, "data", "1 / 32"),
        ({"allow": "class-totals updates"}, "allow", "exact label counts"),
        ({"cache": "cache"}, "paths", "RELATIVE"),
    ],
)
def test_what_an_owner_may_not_mean_is_noted(
    sites, tmp_path, fedeas, monkeypatch, changed, what, said
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    said = said.replace("RELATIVE", f"here {tmp_path}")
    done = fedeas("check", site_toml(sites, tmp_path, **{"allow": "class-totals", **changed}))
    lines = [line.split(maxsplit=2) for line in done.out.splitlines()]
    noted = {line[1]: line[2] for line in lines if line[0] == "note"}
    assert done.code == 0
    assert set(noted) == {what}
    assert said in noted[what]


def test_a_delta_that_promises_nothing_is_refused(sites, tmp_path, fedeas):
    done = fedeas("check", site_toml(sites, tmp_path, delta=0.5))
    assert done.code == 2
    assert "delta" in done.err and "0.5" in done.err


def plain_update(sites: Path, folder: Path, k: int, **changed: object) -> Message:
    """Ask a site for one plain update of a model of zeros, one step over all its samples."""
    node = node_config(config(sites, folder, k, **changed))
    context = Context(1, 2, node, RecordDict(), {"classes": NAMES})
    grid = InlineGrid(client_app(), 1)
    grid._contexts = {2: context}
    task = Task.of(open_site(config(sites, folder, k)).real.data)
    weights = make_model(ModelSettings("mlp"), task, 0).state_dict()
    zeros = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    local = Local(epochs=1, batch=1024, learning_rate=1.0)
    asked = {
        "seed": 1, "method": "fedavg", "model": ModelSettings("mlp").to_dict(),
        "local": local.to_dict(), "task": task.to_dict(), "threads": 1, "experiment": "x",
        "policy": "none", "round": 1, "last": 0,
    }  # fmt: skip
    content = records.pack({"weights": zeros, "method": {}}, asked)
    (number,) = grid.push_messages([Message(content, 2, "train")])
    (reply,) = grid.pull_messages([number])
    return reply


def counts_told(reply: Message) -> list[int]:
    """Read label counts off the last bias of a model that was zeros, after one step of rate 1."""
    bias = records.tensors(reply.content, "weights")["fc.bias"].double().numpy()
    size = records.whole(reply.content, "num-examples")
    return np.rint((bias + 1 / len(COUNTS[0])) * size).astype(int).tolist()


@pytest.mark.parametrize("k", range(4))
def test_a_site_with_members_gives_no_server_a_plain_update(sites, tmp_path, fedeas, k):
    """The run promises epsilon, the site has the defaults, the server asks in the clear."""
    run = written(tmp_path / "run.toml", settings(sites, tmp_path / "run", **NOISY))
    path = tmp_path / "default.toml"
    default = written(path, node_config(config(sites, tmp_path, 0, allow=None)))
    done = fedeas("check", default, "--run", run)
    assert (done.code, wrong(done.out)) == (0, {})
    reply = plain_update(sites, tmp_path / "default", k, allow=None)
    assert reply.has_error()
    assert reply.error.reason == REFUSAL
    # The control: whose owner allows it gives exact counts away, and `check` says so.
    given = plain_update(sites, tmp_path / "control", k, allow="updates")
    assert counts_told(given) == COUNTS[k].tolist()
    allowing = site_toml(sites, tmp_path, allow="updates")
    done = fedeas("check", allowing, "--run", run)
    assert "exact label counts" in next(x for x in done.out.splitlines() if " allow " in x)


def test_a_site_without_members_is_there_to_train(sites, tmp_path):
    own = config(sites, tmp_path, 0, allow=None, members="", identity_key="")
    assert own.allowed == ("updates",)
    assert not plain_update(
        sites, tmp_path / "x", 0, allow=None, members="", identity_key=""
    ).has_error()
    # One that lost its list of members is not taken for such a site.
    assert plain_update(sites, tmp_path / "z", 0, allow=None, members="").has_error()
    # What its owner wrote is obeyed there, too.
    for allow in ("", "class-totals"):
        refused = plain_update(sites, tmp_path / "y", 0, allow=allow, members="", identity_key="")
        assert refused.has_error()


@pytest.mark.parametrize("method", ["fedmix", "fedgen"])
def test_a_site_with_members_tells_nothing_before_the_first_round(sites, tmp_path, method):
    """FedMix sends averages of samples with their labels when it introduces itself."""
    methods = f"fedavg {method}"

    def hello(**changed: object) -> Message:
        node = node_config(config(sites, tmp_path, 0, methods=methods, **changed))
        grid = InlineGrid(client_app(), 1)
        grid._contexts = {2: Context(1, 2, node, RecordDict(), {"classes": NAMES})}
        content = records.pack({}, {"seed": 1, "method": method})
        (number,) = grid.push_messages([Message(content, 2, "query.hello")])
        (reply,) = grid.pull_messages([number])
        return reply

    silent = hello(allow=None)
    assert not silent.has_error()
    assert not silent.content.array_records
    told = hello(allow="updates")  # the control
    assert not told.has_error()
    assert bool(told.content.array_records) == (method == "fedmix")
