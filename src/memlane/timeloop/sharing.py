"""Choose how several devices share a grid: the subdomain of each, the steps between exchanges, the kernels, and the transport.

A model of the chip (`stencils.scaling`) chooses options that are not given.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from memlane.errors import DeviceError, NetworkError, StencilError
from memlane.launch import Target
from memlane.stencils import Decomposition, Grid, Problem, Variant, cannot_fuse, decomposed
from memlane.stencils.choice import beside_border, estimates
from memlane.stencils.scaling import Prediction, best_exchange
from memlane.stencils.scaling.regions import divisions

RANKS_BY = ("mpi", "mpi-cuda", "nccl")
"""Transports between the ranks of an MPI program."""
TRANSPORTS = ("peer", "flags", "persistent", "host", *RANKS_BY)
_LINKS = {"host": "host", "mpi": "host", **{name: name for name in ("flags", "persistent", "mpi-cuda", "nccl")}}
"""Links of the chip's file by transport. For the others its first link counts."""


def check_targets(targets: Sequence[Target]) -> None:
    """Raise StencilError for targets that cannot share a grid."""
    if len({id(target) for target in targets}) < len(targets):
        raise StencilError("a target is named twice: pass different devices, as ml.devices('cuda', 2) gives them")
    if len({target.modelled for target in targets}) > 1:
        names = ", ".join(target.name for target in targets)
        raise StencilError(f"emulated devices and GPUs cannot share a grid, and {names} were given: pass devices of one kind")


def copy_rate(target: Target) -> float:
    """Return the rate at which a target copies its memory; slabs are sized in proportion to it."""
    return target.chip.copy_gb_per_s or target.chip.dram_gb_per_s


@dataclass(frozen=True)
class Choice:
    """Choice of the kernels' variant and of the steps between exchanges."""

    variant: Variant | None
    exchange_every: int
    overlap: bool
    reason: str
    way: int = 0
    """Index of the chosen decomposition among the candidates."""
    in_tiles: bool = False
    """Whether a persistent kernel keeps the cells of the devices on the multiprocessors."""


def check_one_part(grid: Grid, given: Sequence[int] | str | None) -> None:
    """Raise StencilError if a decomposition cuts a grid on a single device."""
    if given is not None and not isinstance(given, str):
        decomposed(grid, [1.0], given)


def decompositions(grid: Grid, speeds: Sequence[float], given: Sequence[int] | str | None) -> list[Decomposition]:
    """Return the candidate decompositions of a grid: the given one, for `"auto"` all that leave rows whole (or all, if none does), for None
    slabs along the first axis. Raise StencilError if there is none."""
    if given != "auto":
        assert not isinstance(given, str)
        return [decomposed(grid, speeds, given)]
    all_ = [parts for axes in range(1, grid.dimensions + 1) for parts in divisions(grid.shape, len(speeds), axes)]
    # Cut rows are not aligned for vectors, which the model does not know: on two H200s they took 1.0 to 2.3 times what slabs took.
    with_rows = [parts for parts in all_ if parts[-1] == 1] if grid.dimensions > 1 else []
    return [decomposed(grid, speeds, parts) for parts in with_rows or all_] or [decomposed(grid, speeds)]


def choose(
    problem: Problem,
    ways: Sequence[Decomposition],
    target: Target,
    variant: Variant | str | None,
    exchange_every: int | str,
    transport: str,
    overlap: bool | str,
) -> Choice:
    """Choose the decomposition, the kernels' variant and the steps between exchanges that the model expects to be fastest, for one or more
    candidate decompositions. Raise StencilError for options that are incompatible."""
    if isinstance(variant, str):
        raise StencilError(
            f"a variant for several devices is a Variant or None, not {variant!r}: time variants on one device, and pass the `variant` of "
            "that run"
        )
    given = exchange_every if isinstance(exchange_every, int) else None
    if variant is not None and given is not None and given % variant.steps:
        raise StencilError(
            f"devices exchange planes every {given} steps, and each launch of {variant} makes {variant.steps}: "
            f"exchange after a multiple of {variant.steps}"
        )
    found: list[tuple[Prediction, Choice]] = []
    for way, decomposition in enumerate(ways):
        is_single = variant is not None or target.modelled or transport == "persistent"
        several = {} if is_single else _several_steps(problem, decomposition, target)
        for steps, one in {1 if variant is None else variant.steps: variant, **several}.items():
            every = [given] if given is not None else [steps * turns for turns in range(1, max(1, _MOST_STEPS // steps) + 1)]
            for overlaps in (True, False) if overlap == "auto" else (bool(overlap),):
                with suppress(StencilError):  # if nothing is left, subdomains are too thin; the error is raised when they get halos
                    best = _predicted(problem, decomposition, target, transport, every, steps, overlaps)
                    reason = f"{best.step_us:,.1f} us a step expected, bound by {best.bound}, by the model of {target.chip.name}"
                    cut = _beside_borders(problem, decomposition, one, target) if overlaps and steps > 1 and not is_single else one
                    found.append((best, Choice(cut, best.exchange_every, overlaps, reason, way, best.tile is not None)))
    if not found:
        return Choice(variant, given or (1 if variant is None else variant.steps), overlap is not False, "not predicted")
    best, choice = min(found, key=lambda one: one[0].step_us)
    if transport == "auto" and variant is None and given in (None, 1):
        return replace(choice, reason=choice.reason + _if_staying(problem, ways[choice.way], target, best))
    return choice


_MOST_STEPS = 16
"""Most steps between two exchanges to consider."""
_WORTH_SAYING = 0.9
"""Share of the expected time below which the time of another transport is mentioned."""


def _if_staying(problem: Problem, decomposition: Decomposition, target: Target, best: Prediction) -> str:
    """Describe the expected time of kernels that keep the cells on the multiprocessors, if it is clearly less; else empty."""
    with suppress(StencilError):
        found = _predicted(problem, decomposition, target, "persistent", [1], 1, True)
        if found.tile is not None and found.step_us < _WORTH_SAYING * best.step_us:
            return f"; {found.step_us:,.1f} us with transport='persistent'"
    return ""


def _thinnest(problem: Problem, decomposition: Decomposition) -> Grid:
    """Return a grid with as few cells along each axis as any part has."""
    grid = problem.grid
    shape = (min(subdomain.spans[axis].cells for subdomain in decomposition.subdomains) for axis in range(grid.dimensions))
    around = tuple("fixed" if axis in decomposition.cut else pair for axis, pair in enumerate(grid.conditions))
    return Grid(tuple(shape), grid.dtype, around)


def _beside_borders(problem: Problem, decomposition: Decomposition, variant: Variant | None, target: Target) -> Variant | None:
    """Return a variant for the cells between borders, adjusted if there are two slabs with one border each."""
    if variant is None or decomposition.cut != (0,) or len(decomposition.neighbours) != 1:
        return variant
    return beside_border(replace(problem, grid=_thinnest(problem, decomposition)), problem.rules[0], variant, target.chip)


def _several_steps(problem: Problem, decomposition: Decomposition, target: Target) -> dict[int, Variant | None]:
    """Return the fastest variant by the model for a subdomain, for each number of steps that can share a launch."""
    (rule, *more) = problem.rules
    if more or not problem.swap:
        return {}
    like = replace(problem, grid=_thinnest(problem, decomposition))
    found: dict[int, Variant | None] = {}
    for one in estimates(like, rule, target.chip):
        if one.variant.steps > 1 and not cannot_fuse(problem, one.variant.steps):
            found.setdefault(one.variant.steps, one.variant)
    return found


def _predicted(
    problem: Problem, decomposition: Decomposition, target: Target, transport: str, every: Sequence[int], steps: int, overlap: bool
) -> Prediction:
    """Return the fastest prediction. The machine's network is not known here, so the links in the chip's file are used."""
    predict = partial(
        best_exchange,
        problem,
        len(decomposition.subdomains),
        chip=target.chip,
        candidates=every,
        steps_per_launch=steps,
        overlap=overlap,
        decomposition=decomposition.process_grid,
    )
    try:
        return predict(transport=_LINKS.get(transport, ""))
    except NetworkError:  # the file has only links between peers
        return predict()


def transport_of(decomposition: Decomposition, targets: Sequence[Target], asked: str) -> tuple[str, str]:
    """Return the transport of planes, and its description. Raise StencilError if devices cannot reach each other that way."""
    if asked == "host":
        return "host", "copies through pinned memory of the host"
    chips = {target.chip.name: target.chip for target in targets if target.modelled}
    unlinked = next((name for name, chip in chips.items() if chip.links.peer_us is None or chip.links.peer_gb_per_s is None), None)
    if unlinked is not None and asked == "auto":
        return "host", f"copies through pinned memory of the host, because the chip file of {unlinked} has no links between devices"
    try:
        for lower, upper in decomposition.neighbours:
            targets[lower.device].enable_peer(targets[upper.device])
            targets[upper.device].enable_peer(targets[lower.device])
    except DeviceError as error:
        if asked != "auto":
            verb = "copy to each other" if asked == "peer" else "reach each other's memory"
            raise StencilError(f"devices cannot {verb}: {error}; leave out transport, or pass transport='host'") from None
        return "host", f"copies through pinned memory of the host, because {error}"
    if asked == "persistent":
        return "persistent", "kernels that stay on their devices, store into the neighbours' halos and signal each other by flags"
    if asked == "flags":
        return "flags", "stores into the neighbours' halos, with flags by which devices signal each other"
    return "peer", "copies from device to device"
