"""What is wrong with the accesses of a kernel, and what it costs. Order inside: rule <- one module per rule, finding <- rules."""

from memlane.diagnose.finding import Finding
from memlane.diagnose.rule import KernelTotals, Rule, Verdict
from memlane.diagnose.rules import RULES, clean_kernels, explain, uncounted_launches

__all__ = ["RULES", "Finding", "KernelTotals", "Rule", "Verdict", "clean_kernels", "explain", "uncounted_launches"]
