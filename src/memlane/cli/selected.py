"""Check that `--line`, `--space` and `--kind` select some access of the launched kernels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from memlane.errors import CommandError
from memlane.instrument import Selection, site_table
from memlane.launch import Kernel, Launch
from memlane.measure import LaunchObserver, LaunchPlan
from memlane.number_format import plural
from memlane.record import Site, kernel_label

_LINES_SHOWN = 20


class LaunchedKernels(LaunchObserver):
    """Launch observer that collects the launched kernels and changes no launch."""

    def __init__(self, only_launch: int | None = None) -> None:
        super().__init__(only_launch)
        self._kernels: dict[tuple[object, str], Kernel] = {}

    def _replacement(self, number: int, launch: Launch) -> Launch:
        self._kernels.setdefault((launch.kernel.loaded, launch.kernel.name), launch.kernel)
        return launch

    def check(self, selection: Selection) -> None:
        """Raise CommandError, listing the existing accesses, if `selection` excludes all of them."""
        sites = [(kernel, site) for kernel in self._kernels.values() for site in site_table(kernel.module).of_kernel[kernel.name].values()]
        if not sites or any(selection.takes(site, kernel.name) for kernel, site in sites):
            return
        names = ", ".join(dict.fromkeys(kernel_label(kernel.title) for kernel, _ in sites))
        raise CommandError(
            f"no access of {names} is {_asked(selection)}; its accesses are: {_listed([site for _, site in sites])}", exit_code=1
        )


def check_plans(plans: Sequence[LaunchPlan]) -> None:
    """Raise CommandError, with the numbers of blocks and warps, if no warp of any launch was selected for tracing."""
    if not plans or any(plan.chosen for plan in plans):
        return
    blocks, warps = max(plan.blocks for plan in plans), max(plan.warps_per_block for plan in plans)
    raise CommandError(
        f"no warp of {plural(len(plans), 'launch')} is in {plans[0].sample}; blocks are numbered 0 to {blocks - 1} and warps 0 to "
        f"{warps - 1}",
        exit_code=1,
    )


def _asked(selection: Selection) -> str:
    options: dict[str, Sequence[object]] = {
        "--line": sorted(line for _, line in selection.lines or ()),
        "--space": sorted(selection.spaces or ()),
        "--kind": sorted(selection.kinds or ()),
    }
    return " and ".join(" or ".join(f"{option} {value}" for value in values) for option, values in options.items() if values)


def _listed(sites: list[Site]) -> str:
    """Return the accesses by source line, `transpose.cu:17 (global load, global store), ...`, in source order."""
    kinds: dict[tuple[str, int], dict[str, None]] = {}
    for site in sorted(sites, key=lambda site: (site.file, site.line)):
        kinds.setdefault((PurePath(site.file).name, site.line), {})[f"{site.space} {site.kind}"] = None
    places = [f"{file}:{line} ({', '.join(found)})" for (file, line), found in kinds.items()]
    more = [f"and {plural(len(places) - _LINES_SHOWN, 'more line')}"] if len(places) > _LINES_SHOWN else []
    return ", ".join([*places[:_LINES_SHOWN], *more])
