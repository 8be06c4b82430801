"""Resolve names to targets, such as `target("cuda:1")` and `target("emulator:h200")`, run plans on them, and describe this machine.

Order inside: names <- doctor; binding <- bound_actions <- plan_graphs <- plans.
"""

from memlane.targets.doctor import Condition, describe
from memlane.targets.names import ENVIRONMENT, devices, override, target, target_of_process
from memlane.targets.plan_graphs import PlanGraph
from memlane.targets.plans import BoundPlan, PlanRun, run

__all__ = [
    "ENVIRONMENT",
    "BoundPlan",
    "Condition",
    "PlanGraph",
    "PlanRun",
    "describe",
    "devices",
    "override",
    "run",
    "target",
    "target_of_process",
]
