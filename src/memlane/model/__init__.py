"""Times of plans before they run: what launches and copies take on given chips, and one clock over all devices."""

from memlane.model.engine import Work, simulate

__all__ = ["Work", "simulate"]
