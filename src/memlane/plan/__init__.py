"""Represent work as data: plans of launches, copies, calls and signals over several devices, without addresses or targets.

`buffers` and `actions` are the vocabulary, `plan` combines steps and repeats, `builder` writes them, `order` derives dependencies and
buffer lifetimes, `races` finds unordered conflicting steps, `segments` cuts a plan into pieces for graphs, `json` serialises a plan, and
`timeline` holds when its steps ran.
"""

from memlane.plan.actions import (
    Action,
    Copy,
    DeviceCall,
    HostCall,
    KernelRef,
    Launch,
    Put,
    Scalar,
    Together,
    Touch,
    Wait,
    raised_flags,
    signals,
)
from memlane.plan.buffers import Buffer, Home, View
from memlane.plan.builder import PlanBuilder, StepRef, planned
from memlane.plan.json import from_json, to_json
from memlane.plan.order import Execution, Lifetime, Queue, ancestors, executions, lifetimes
from memlane.plan.plan import Plan, Repeat, Step, all_repeats, all_steps
from memlane.plan.races import Race, check, races
from memlane.plan.segments import EarlyEnds, Segment, replayed_turns, segments
from memlane.plan.timeline import Span, Timeline

__all__ = [
    "Action",
    "Buffer",
    "Copy",
    "DeviceCall",
    "EarlyEnds",
    "Execution",
    "Home",
    "HostCall",
    "KernelRef",
    "Launch",
    "Lifetime",
    "Plan",
    "PlanBuilder",
    "Put",
    "Queue",
    "Race",
    "Repeat",
    "Scalar",
    "Segment",
    "Span",
    "Step",
    "StepRef",
    "Timeline",
    "Together",
    "Touch",
    "View",
    "Wait",
    "all_repeats",
    "all_steps",
    "ancestors",
    "check",
    "executions",
    "from_json",
    "lifetimes",
    "planned",
    "races",
    "raised_flags",
    "replayed_turns",
    "segments",
    "signals",
    "to_json",
]
