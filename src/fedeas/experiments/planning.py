"""What a run generates: its policy's plan, less what its generator cannot make."""

from collections.abc import Sequence

from fedeas.counts import LabelCounts
from fedeas.generators import own_sample_generator
from fedeas.plan import Plan
from fedeas.policies import make_plan, make_policy
from fedeas.policy_settings import settle
from fedeas.settings.config import Config


def plan_run(config: Config, counts: LabelCounts, quality: Sequence[float] | None = None) -> Plan:
    """Return the plan of a run, without what its generator cannot make of clients' own samples.

    Parameters
    ----------
    config : Config
        The run's settings.
    counts : LabelCounts
        The clients' counts.
    quality : sequence of float, optional
        What samples of each class are worth, for a policy that takes it and names none itself.
    """
    policy = make_policy(config.augment.policy, quality=quality)
    plan = make_plan(policy, counts)
    generator = own_sample_generator(config.augment.generator) if plan.total else None
    if generator is None:
        return plan
    return Plan.of(counts, generator.feasible(plan.samples, counts.n), settle(policy, counts))


def describe_cut(asked: Plan, plan: Plan) -> str:
    """Say how much of what the policy asks for the generator's quality leaves; '' if all of it."""
    if plan.total == asked.total:
        return ""
    lost = [
        name
        for name, before, after in zip(
            plan.class_names, asked.samples.sum(axis=0), plan.samples.sum(axis=0), strict=True
        )
        if before and not after
    ]
    never = f"; never made: {', '.join(lost)}" if lost else ""
    return (
        f"by the generator's quality {plan.total:,} of the {asked.total:,} samples that the policy "
        f"asks for are made{never}"
    )


def uses_own_samples(config: Config) -> bool:
    """Whether a run makes samples of its clients' own ones, at every turn, and caches none."""
    return own_sample_generator(config.augment.generator) is not None


def cache_seed(config: Config) -> int:
    """Return the seed of generated samples: runs of other seeds are repetitions, and share none."""
    return config.seed + config.augment.seed
