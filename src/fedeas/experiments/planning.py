"""What a run generates: its policy's plan, less what its generator cannot make."""

from fedeas.counts import LabelCounts
from fedeas.plan import Plan
from fedeas.policies import copyable, make_plan, make_policy
from fedeas.policy_settings import settle
from fedeas.settings.config import Config
from fedeas.specs import parse


def plan_run(config: Config, counts: LabelCounts) -> Plan:
    """Return the plan of a run; copies leave out the classes that a client lacks."""
    policy = make_policy(config.augment.policy)
    plan = make_plan(policy, counts)
    if not makes_copies(config):
        return plan
    return Plan.of(counts, copyable(plan.samples, counts.n), settle(policy, counts))


def makes_copies(config: Config) -> bool:
    """Whether a run copies its clients' own samples, instead of generating any."""
    spec = config.augment.generator
    return bool(spec) and parse(spec, "generator")[0] == "copies"
