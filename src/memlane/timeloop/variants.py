"""Which kernels a run takes: given, chosen by the model, or the fastest of a few that were timed."""

from __future__ import annotations

from dataclasses import dataclass

from memlane.errors import StencilError
from memlane.launch import Target
from memlane.stencils import Code, DirectKernel, FusedKernel, Problem, Variant, cannot_fuse
from memlane.stencils.choice import default_variant


@dataclass(frozen=True)
class Choice:
    """The kernels of a run and why they are these."""

    code: Code
    reason: str


def chosen_code(problem: Problem, target: Target, variant: Variant | str | None, fmad: bool) -> Choice:
    """Return the kernels for a problem on a target."""
    given = variant if isinstance(variant, Variant) else None
    kernels: list[DirectKernel | FusedKernel] = []
    reasons = []
    for rule in problem.rules:
        single, why = default_variant(problem, rule, target.chip)
        if given is not None and given.steps == 1:
            single, why = given, "given"
        kernels.append(DirectKernel(problem, rule, single, fmad=fmad))
        if rule.reductions:
            kernels.append(DirectKernel(problem, rule, single, fmad=fmad, reduces=True))
        reasons.append(f"{rule.name}: {single} ({why})")
    if given is not None and given.steps > 1:
        kernels.append(_fused(problem, given, fmad))
        reasons.append(f"{problem.rules[0].name}: {given} (given)")
    return Choice(Code(problem, tuple(kernels)), "\n".join(reasons))


def _fused(problem: Problem, variant: Variant, fmad: bool) -> FusedKernel:
    """Return the kernel of a variant of several steps. Raises StencilError where there is none."""
    if why := cannot_fuse(problem, variant.steps):
        raise StencilError(f"{variant.steps} steps cannot share a launch here, because {why}: leave out `variant`")
    kernel = FusedKernel(problem, problem.rules[0], variant, fmad=fmad)
    if not kernel.is_possible:
        raise StencilError(
            f"a tile of {variant} has no cells left for results, or does not fit in shared memory: take more rows or fewer steps"
        )
    return kernel
