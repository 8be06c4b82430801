"""Choose the kernels of a run: a given variant, the best by the model, or the fastest of a few timed ones."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from memlane.emulate.code.store import Entry, Sources, digest, keep, present_store
from memlane.errors import LaunchError, StencilError
from memlane.launch import DeviceArray, Target
from memlane.stencils import Code, DirectKernel, FusedKernel, Problem, Stage, Variant, cannot_fuse
from memlane.stencils.choice import default_variant, direct_variants, estimates
from memlane.stencils.stages import scalar_type, scalars_shape
from memlane.timeloop.engine import Engine

_PROBED = 4
"""Number of variants of several steps to time: those that the model expects to be fastest."""
_ROUNDS = 7
_GENERATING = Sources("stencils", "compile", "timeloop/variants.py")
"""Modules of memlane whose code affects the speed of a variant: another version may generate other kernels."""


@dataclass(frozen=True)
class Choice:
    """Kernels of a run, and the reason for their choice."""

    code: Code
    reason: str


def chosen_code(problem: Problem, target: Target, variant: Variant | str | None, fmad: bool, arrays: dict[str, DeviceArray]) -> Choice:
    """Return the kernels for a problem on a target: those of a given variant, with `"timed"` the fastest of a few that are timed, else
    what the model expects to be fastest. Raises StencilError for a variant that is impossible."""
    if isinstance(variant, str) and variant != "timed":
        raise StencilError(f"a variant is a Variant, 'timed', or None for the one that the model chooses, not {variant!r}")
    if isinstance(variant, Variant):
        return Choice(code_of(problem, variant, fmad), f"{variant} (given)")
    if len(problem.rules) > 1 or not problem.swap:
        why = "a step of several rules has a launch for each" if len(problem.rules) > 1 else "no fields change places"
        return Choice(code_of(problem, None, fmad), f"launches of one step, because {why}")
    if target.modelled:
        return Choice(code_of(problem, None, fmad), f"launches of one step: times on {target.name} are modelled")
    if variant == "timed":
        return _timed(problem, target, fmad, arrays)
    best = estimates(problem, problem.rules[0], target.chip)[0]
    return Choice(code_of(problem, best.variant, fmad), f"{best}, by the model of {target.chip.name}")


def code_of(problem: Problem, variant: Variant | None, fmad: bool) -> Code:
    """Return the kernels of a problem: for each rule that of one step and the one that reduces, and that of several steps, if asked."""
    kernels: list[DirectKernel | FusedKernel] = []
    for rule in problem.rules:
        single = variant if variant is not None and variant.steps == 1 else default_variant(problem, rule)
        kernels.append(DirectKernel(problem, rule, single, fmad=fmad))
        if rule.reductions:
            kernels.append(DirectKernel(problem, rule, single, fmad=fmad, reduces=True))
    if variant is not None and variant.steps > 1:
        kernels.append(_fused(problem, variant, fmad))
    return Code(problem, tuple(kernels))


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


# -- a few timed launches ----------------------------------------------------------------------------------------------------------


def _timed(problem: Problem, target: Target, fmad: bool, arrays: dict[str, DeviceArray]) -> Choice:
    """Return the fastest of a few variants: that of an earlier process, for the same chip, rule, grid and version of memlane,
    or one that is timed now."""
    rule = problem.rules[0]
    about = repr(rule.body), repr(problem.grid), repr(problem.dtypes), str(fmad)
    key = digest("stencil variant", _GENERATING.digest, target.chip.name, target.driver, *about)
    store = present_store() if _GENERATING.digest else None
    entry = store.get(key) if store is not None else None
    if entry is not None:
        facts: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.facts["variant"].items()}
        return Choice(code_of(problem, Variant(**facts), fmad), f"{Variant(**facts)}, timed before: {entry.facts['reason']}")
    expected = estimates(problem, rule, target.chip)
    candidates = [one.variant for one in expected if one.variant.steps > 1][:_PROBED] + direct_variants(problem, rule)
    measured = [(_cells_per_s(problem, target, one, fmad, arrays), one) for one in candidates]
    rate, best = max(measured, key=lambda one: one[0])
    others = ", ".join(f"{one / 1e9:,.1f} ({variant})" for one, variant in measured if variant != best)
    reason = f"{rate / 1e9:,.1f} Gcell/s, the fastest of {len(measured)}; others: {others or 'none'}"
    keep(key, Entry({"variant": asdict(best), "reason": reason}, b""), _GENERATING)
    return Choice(code_of(problem, best, fmad), f"{best}, timed: {reason}")


def _cells_per_s(problem: Problem, target: Target, variant: Variant, fmad: bool, arrays: dict[str, DeviceArray]) -> float:
    """Measure the speed of launches of a variant; 0 if it cannot be launched. They write only fields that the first step overwrites."""
    code = code_of(problem, variant, fmad)
    kernels = tuple(kernel for kernel in code.kernels if kernel.variant == variant and not kernel.reductions)
    try:
        engine = Engine(problem, code, target, dict(arrays))
        scalars = target.zeros(scalars_shape(problem, 1), scalar_type(problem))
        bound = engine.bound(Stage(problem, kernels, 1), scalars, {})
        seconds = _median(bound.run)
    except LaunchError:
        return 0.0
    return problem.grid.cells * variant.steps / seconds


def _median(run: Callable[[], object]) -> float:
    """Return the median time of some runs in seconds, without the first."""
    times = []
    for _ in range(_ROUNDS + 1):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])
