"""Which kernels a run takes: given, chosen by the model, or the fastest of a few that were timed."""

from __future__ import annotations

from dataclasses import dataclass

from memlane.launch import Target
from memlane.stencils import Code, DirectKernel, Problem, Variant
from memlane.stencils.choice import default_variant


@dataclass(frozen=True)
class Choice:
    """The kernels of a run and why they are these."""

    code: Code
    reason: str


def chosen_code(problem: Problem, target: Target, variant: Variant | str | None, fmad: bool) -> Choice:
    """Return the kernels for a problem on a target."""
    kernels = []
    reasons = []
    for rule in problem.rules:
        single, why = default_variant(problem, rule, target.chip)
        if isinstance(variant, Variant):
            single, why = variant, "given"
        kernels.append(DirectKernel(problem, rule, single, fmad=fmad))
        if problem.reductions and rule.reductions:
            kernels.append(DirectKernel(problem, rule, single, fmad=fmad, reduces=True))
        reasons.append(f"{rule.name}: {single} ({why})")
    return Choice(Code(problem, tuple(kernels)), "\n".join(reasons))
