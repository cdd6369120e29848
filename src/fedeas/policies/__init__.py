"""Who generates how much: the FedEAS rule and the policies that it is compared with."""

from fedeas.policies.balance import FillToMean, FullBalance, NoGeneration
from fedeas.policies.copies import OwnClasses, copyable, reachable_reduction
from fedeas.policies.fedeas import FedEAS
from fedeas.policies.greedy import Greedy
from fedeas.policies.matched import MissingOnly, Uniform
from fedeas.policies.policy import LocalPolicy, Policy, make_plan
from fedeas.policies.registry import make_policy, policy_names, settled_spec, with_target
from fedeas.policies.waterfill import WaterFill, price_for_total

__all__ = [
    "FedEAS",
    "FillToMean",
    "FullBalance",
    "Greedy",
    "LocalPolicy",
    "MissingOnly",
    "NoGeneration",
    "OwnClasses",
    "Policy",
    "Uniform",
    "WaterFill",
    "copyable",
    "make_plan",
    "make_policy",
    "policy_names",
    "price_for_total",
    "reachable_reduction",
    "settled_spec",
    "with_target",
]
