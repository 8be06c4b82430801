"""Launch kernels with probes, as the labs do."""

from memlane.lab.probing import ProbedLaunch, recorded

__all__ = ["ProbedLaunch", "recorded"]
