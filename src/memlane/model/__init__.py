"""Model the times of plans before they run: launches and copies on given chips, along one clock over all devices."""

from memlane.model.costs import copy_work, fixed_work, launches_of, missing_number, predicted, roofline_ns
from memlane.model.engine import Resources, Work, advance, simulate

__all__ = [
    "Resources",
    "Work",
    "advance",
    "copy_work",
    "fixed_work",
    "launches_of",
    "missing_number",
    "predicted",
    "roofline_ns",
    "simulate",
]
