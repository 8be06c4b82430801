"""Diagnose inefficient memory accesses of a kernel, and estimate the cost of each.

Order inside: evidence <- cost <- rule <- one module per rule, finding <- rules <- limits. Comparison of two traces: side, spread <-
matching <- comparison.
"""

from memlane.diagnose.comparison import compare
from memlane.diagnose.finding import CYCLES, Finding
from memlane.diagnose.rule import Rule, Verdict
from memlane.diagnose.rules import RULES, Findings, Unexamined, clean_kernels, examine, explain, uncounted_launches

__all__ = [
    "CYCLES",
    "RULES",
    "Finding",
    "Findings",
    "Rule",
    "Unexamined",
    "Verdict",
    "clean_kernels",
    "compare",
    "examine",
    "explain",
    "uncounted_launches",
]
