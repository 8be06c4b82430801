"""Measure launches on any target: trace, count, check, view, time and predict them.

memory <- isolation     save and restore the memory of a launch; measure once within an observed program
twin <- instrumented_module, plan, readout <- arena
                        instrumented copies of modules; the trace buffer and the capacity that a launch gets in it
instrumented_module <- verdicts <- merged_accesses
                        completeness and exactness by the SASS; counts of accesses that ptxas merged
observed_counts, launch_info, join, runs, examples <- assemble <- tracer, viewer
                        convert records to a trace
steps <- launch_observer <- tracer, viewer, counter, checker
                        steps of plans; the base class of observers
device_counters         counts of kernels that count by themselves, on a GPU
timing                  durations without probes
prediction <- plan_prediction
                        predicted durations of launches and plans on other chips
"""

from memlane.measure.checker import Checker, check
from memlane.measure.counter import Counter, count
from memlane.measure.launch_observer import FailedLaunch, LaunchObserver
from memlane.measure.plan import LaunchPlan
from memlane.measure.plan_prediction import PlanPrediction, predict
from memlane.measure.steps import PlanResult, StepResult
from memlane.measure.timing import Timing, time
from memlane.measure.tracer import Tracer, records_lost, trace
from memlane.measure.viewer import Viewer

__all__ = [
    "Checker",
    "Counter",
    "FailedLaunch",
    "LaunchObserver",
    "LaunchPlan",
    "PlanPrediction",
    "PlanResult",
    "StepResult",
    "Timing",
    "Tracer",
    "Viewer",
    "check",
    "count",
    "predict",
    "records_lost",
    "time",
    "trace",
]
