"""Launches with probes, as the labs have them."""

from memlane.lab.probing import ProbedLaunch, recorded

__all__ = ["ProbedLaunch", "recorded"]
