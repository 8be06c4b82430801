"""Times of plans before they run: what launches and copies take on given chips, and one clock over all devices."""

from memlane.model.costs import copy_work, predicted, work_of
from memlane.model.engine import Work, simulate

__all__ = ["Work", "copy_work", "predicted", "simulate", "work_of"]
