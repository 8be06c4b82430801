"""Run the lab: its predictions and measurements in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from memlane.lab.interface import Cases, Lab, Request
from memlane.lab.result import NOT_MEASURED, Result, Row, reached_on
from memlane.lab.stencil.cases import Case, Settings, counts
from memlane.lab.stencil.claims import claims
from memlane.lab.stencil.measure import Effort, Kernel, Measured, measure, measure_kernel
from memlane.lab.stencil.plots import figures
from memlane.lab.stencil.predict import MODELS, Scaling, predict
from memlane.lab.stencil.tables import rows, tables
from memlane.launch import Target

SOURCES = [
    "src/memlane/lab/stencil",
    "src/memlane/stencils",
    "src/memlane/timeloop",
    "src/memlane/network",
]
CASES = ("scaling", "measured", "kernel")
RESULT = "lab_stencil"
"""Name in result files: `stencil` is a benchmark."""
TRANSPORTS = ("peer", "flags", "host")
"""Transports between devices of one process."""


def run(target: Target, request: Request) -> Result:
    """Run with the lab's own sizes and devices."""
    return run_with(target, request, Settings())


def run_with(target: Target, request: Request, settings: Settings) -> Result:
    """Predict and measure the chosen cases.

    `scaling` predicts figures 7 to 9 on the published machine, `measured` gives figures 8 and 10 to 13 on the available devices, `kernel`
    gives figure 14.
    """
    chosen = request.chosen(CASES)
    effort = Effort.of(request.quick, target.modelled)
    devices = settings.targets(target)
    predicted: list[Scaling] = []
    measured: list[Measured] = []
    kernels: list[Kernel] = []
    cases = Cases()
    for case in cases.each(settings.predicted() if "scaling" in chosen else ()):
        with cases.measuring(f"{case.title}, both models"):
            request.tell(f"{case.title}, both models")
            predicted += [predict(case, model) for model in MODELS]
    for case in cases.each(settings.measured(target, request.quick) if "measured" in chosen else ()):
        measured += _measured(case, devices, effort, request, cases)
    for case in cases.each(settings.sliced(target, request.quick) if "kernel" in chosen else ()):
        kernels += _kernels(case, target, effort, request, cases)
    clock = "modelled" if target.modelled else "measured"
    said = claims(predicted, measured, kernels, target.modelled)
    made = reached_on("h200", target, rows(predicted, measured, kernels, said, clock))
    written, drawn = tables(predicted, measured, kernels, said, clock), figures(predicted, measured, kernels, clock)
    return Result(RESULT, (*made, *cases.failed), written, drawn, interrupted=cases.interrupted)


STENCIL = Lab(
    "stencil",
    "How many time steps a stencil on several devices should make between two exchanges, compared with a paper of 2012.",
    CASES,
    run,
)


def _measured(case: Case, devices: Sequence[Target], effort: Effort, request: Request, cases: Cases) -> list[Measured]:
    """Run a case over each transport of the devices; a single device has none."""
    found = []
    for transport in cases.each(_transports(devices)[: 1 if request.quick or len(devices) == 1 else None]):
        with cases.measuring(f"{case.title}, {transport}"):
            request.tell(f"{case.title}, {len(devices)} devices, {transport}")
            found.append(measure(case, devices, counts(len(devices)), transport, effort))
    if len(devices) == 1:
        note = f"not run: an exchange needs 2 devices, and {devices[0].name} is alone"
        cases.failed.append(Row(f"{case.title}, 2 devices", NOT_MEASURED, None, "", note=note))
    return found


def _transports(devices: Sequence[Target]) -> tuple[str, ...]:
    """Return the transports to try: on emulated devices those with times in the chip file."""
    links = devices[0].chip.links
    there = {"peer": links.peer_us, "flags": links.flag_us, "host": links.host_us}
    return tuple(one for one in TRANSPORTS if not devices[0].modelled or there[one] is not None) or TRANSPORTS


def _kernels(case: Case, target: Target, effort: Effort, request: Request, cases: Cases) -> list[Kernel]:
    found = []
    for cut, planes in cases.each(product(effort.cuts, effort.planes)):
        slab = replace(case, shape=(planes, *case.shape[1:]))
        with cases.measuring(f"{slab.title}, {cut}"):
            if planes == effort.planes[0]:
                request.tell(f"{case.title}, kernels over the planes, {cut}")
            found.append(measure_kernel(slab, target, cut, effort))
    return found
