"""Measuring: trace, count and time launches, on whatever target they are for.

memory <- apart                             save and restore what a launch may change; one measurement in a program under observation
twin <- probed, plan, readout <- arena      a module with probes; the memory that they write, and what of a launch finds room there
probed <- judging <- widened                what the assembled code says of it; what it made of several accesses, counted
observed, join, runs, examples <- assemble <- tracer, viewer
                                            from records to a trace
steps <- watching <- tracer, viewer, counter, checker
                                            steps of plans; what the observers share
timing
prediction <- plan_prediction               how long launches, and plans, would take on other chips
"""

from memlane.measure.checker import Checker, check
from memlane.measure.counter import Counter, count
from memlane.measure.plan import LaunchPlan
from memlane.measure.plan_prediction import PlanPrediction, predict
from memlane.measure.steps import PlanResult, StepResult
from memlane.measure.timing import Timing, time
from memlane.measure.tracer import Tracer, gone, trace
from memlane.measure.viewer import Viewer
from memlane.measure.watching import FailedLaunch, Watching

__all__ = [
    "Checker",
    "Counter",
    "FailedLaunch",
    "LaunchPlan",
    "PlanPrediction",
    "PlanResult",
    "StepResult",
    "Timing",
    "Tracer",
    "Viewer",
    "Watching",
    "check",
    "count",
    "gone",
    "predict",
    "time",
    "trace",
]
