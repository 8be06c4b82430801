"""Measure parts of the benchmark of stencils on several devices: exchanges alone, steps of MPI ranks, and the rule with another tool."""

# mypy: ignore-errors

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path

from harness import ROOT, Row
from stencil_scaling_cases import CASES, GAINS

from memlane.errors import MemlaneError
from memlane.lab.result import NOT_MEASURED
from memlane.lab.stencil.cases import Case
from memlane.launch import Target
from memlane.plan import Plan, PlanBuilder
from memlane.stencils import Grid, Problem
from memlane.stencils.published import published_rule
from memlane.targets import BoundPlan
from memlane.timeloop.shared import SharedRun

FACES = "exchange of faces"
CALLS = "calls of steps"
_CALLS = (12, 60, 300, 1200)
"""Steps of a call, on 7-point 512^3."""
_FACE_KIB = (64, 256, 1024)
_THIN = 4
"""Planes of a slab that does nearly nothing but exchange."""
_FEW, _MANY, _ROUNDS = 200, 1000, 7
_REACH = {256: 3.5}
"""Times in us for both faces between two devices that are to be reached, by KiB of a face."""


# -- exchanges ---------------------------------------------------------------------------------------------------------------------


def exchange_rows(title: str, targets: Sequence[Target], transports: Sequence[str], quick: bool) -> Iterator[Row]:
    """Yield what an exchange takes with neighbours in a row: as copies alone, and as steps of slabs of few planes, by each transport."""
    several = [one for one in transports if one != "persistent" or not targets[0].modelled]
    for kib in (1, 4) if quick else _FACE_KIB:
        side = 16 * int(kib**0.5)  # a plane of 4 bytes a cell is a face
        for transport in several:
            case = f"{title}, {kib} KiB, {transport}"
            try:
                if transport in ("peer", "host"):
                    us = _turn_us(lambda turns, kib=kib, host=transport == "host": _copies(targets, kib << 10, turns, host), targets, quick)
                    yield Row(case, "copies alone, calls of a graph", round(us, 3), "us")
                if transport == "flags":
                    us = _turn_us(lambda turns, kib=kib: _puts(targets, kib << 10, turns), targets, quick)
                    reach = reach_of(kib, targets)
                    note = "" if reach is None or us <= reach else "a put and a wait are launches"
                    yield Row(case, "puts and waits alone, a graph for each device", round(us, 3), "us", reach, note=note)
                alone, shared = _thin_us(targets[:1], side, "auto"), _thin_us(targets, side, transport)
            except MemlaneError as error:
                yield Row(case, NOT_MEASURED, None, "", note=str(error)[:300])
                continue
            reach = reach_of(kib, targets)
            us = round(shared - alone, 3)
            missed = (
                "a launch, a put and a wait follow each other" if transport == "flags" else "copies and events between devices, not flags"
            )
            note = "" if reach is None or us <= reach else missed
            peer = {"step, us": round(shared, 3), "step of one device, us": round(alone, 3)}
            yield Row(case, f"step of {_THIN} planes a device over one device's", us, "us", reach, peer=peer, note=note)


def call_us(run: SharedRun, steps: int, rounds: int) -> float:
    """Return the time of a step in calls of so many: the median of some rounds."""
    run.steps(steps).steps(steps)  # the second time plans are those of all that follow
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        run.steps(steps)
        times.append(1e6 * (time.perf_counter() - began) / steps)
    return statistics.median(times)


def call_rows(title: str, case: Case, targets: Sequence[Target]) -> Iterator[Row]:
    """Yield the time of a step in calls of `steps` of different lengths: it contains a share of the start of the call."""
    if targets[0].modelled:
        yield Row(title, NOT_MEASURED, None, "", note="how long an emulator takes to start a call says nothing of a GPU")
        return
    run = SharedRun(case.problem, case.values(), targets=targets, transport="peer" if len(targets) > 1 else "auto")
    unit, took = run.exchange_every * run.problem.period, {}
    for steps in (max(unit, count // unit * unit) for count in _CALLS):
        took[steps] = round(call_us(run, steps, _ROUNDS), 2)
    longest = max(took)
    peer = {f"{steps} steps": us for steps, us in took.items()}
    note = f"{'peer, ' if len(targets) > 1 else ''}k = {run.exchange_every}, {run.variant.steps} a launch"
    yield Row(title, f"time of a step in calls of {longest:,} steps", took[longest], "us", peer=peer, note=note)


def reach_of(kib: int, targets: Sequence[Target]) -> float | None:
    """Return what is to be reached for faces of so many KiB between these devices."""
    return _REACH.get(kib) if len(targets) == 2 and not targets[0].modelled and targets[0].chip.name == "h200" else None


def _puts(targets: Sequence[Target], nbytes: int, turns: int) -> Plan:
    """Return a plan of exchanges alone: each device stores its face for its neighbours, and waits for theirs."""
    builder, count = PlanBuilder(), len(targets)
    # Two of each halo, because a neighbour that is early stores the next face before this one was looked at.
    sides = ("own", "low", "high", "low 2", "high 2")
    faces = {(at, side): builder.array(f"{side}@{at}", nbytes, "u1", at) for at in range(count) for side in sides}
    pairs = [(of, to) for lower, upper in pairwise(range(count)) for of, to in ((lower, upper), (upper, lower))]
    groups = [(faces[at, side], faces[at, f"{side} 2"]) for at in range(count) for side in ("low", "high")]
    with builder.repeat(turns, rotate=groups) as loop:
        flags = {pair: loop.flag("stored by {} for {}".format(*pair), pair[1]) for pair in pairs}
        puts = {}
        for at in range(count):
            own = [(of, to) for of, to in pairs if of == at]
            copies = [(faces[to, "low" if of < to else "high"], faces[of, "own"]) for of, to in own]
            puts[at] = loop.put(copies, [flags[pair] for pair in own], device=at)
        for at in range(count):
            waited = [pair for pair in pairs if pair[1] == at]
            loop.wait([flags[pair] for pair in waited], device=at, after=[puts[of] for of, _ in waited])
    return builder.plan()


def _copies(targets: Sequence[Target], nbytes: int, turns: int, through_host: bool) -> Plan:
    """Return a plan of exchanges alone: each device gets a face of each neighbour, and sends again when its faces have arrived."""
    builder = PlanBuilder()
    faces = {(at, side): builder.array(f"{side}@{at}", nbytes, "u1", at) for at in range(len(targets)) for side in ("own", "low", "high")}
    with builder.repeat(turns) as loop:
        arrived = {at: [] for at in range(len(targets))}
        first = {at: [] for at in range(len(targets))}
        for lower, upper in pairwise(range(len(targets))):
            for of, to, side, queue in ((lower, upper, "low", 0), (upper, lower, "high", 1)):
                if not through_host:
                    step = loop.copy(faces[to, side], faces[of, "own"], queue=queue)
                    first[of].append(step)
                else:
                    staged = loop.array(f"{of} to {to}", nbytes, "u1", "pinned")
                    sent = loop.copy(staged, faces[of, "own"], queue=queue)
                    step = loop.copy(faces[to, side], staged, queue=2 + queue, after=[sent])
                    first[of].append(sent)
                    loop.carry(step, [sent])
                arrived[to].append(step)
        for at, steps in arrived.items():
            for step in steps:
                loop.carry(step, first[at])
    return builder.plan()


def _bound(plan: Plan, targets: Sequence[Target]) -> BoundPlan:
    own = {one.name: targets[one.home].zeros(one.nbytes, "u1") for one in plan.buffers if one.name.startswith("own")}
    return BoundPlan(plan, own, targets=targets)


def _turn_us(plan_of, targets: Sequence[Target], quick: bool) -> float:
    """Return the time of a turn: of many turns less a few, so that what a call takes does not count."""
    if targets[0].modelled:
        times = [_bound(plan_of(turns), targets).time().elapsed_ns for turns in (2, 4)]
        return (times[1] - times[0]) / 2e3
    took = []
    for turns in (_FEW, _MANY):
        run = _bound(plan_of(turns), targets).run
        times = []
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
        took.append(statistics.median(times[1:]))
    return 1e6 * (took[1] - took[0]) / (_MANY - _FEW)


def _thin_us(targets: Sequence[Target], side: int, transport: str) -> float:
    """Return the time of a step of the 7-point rule on slabs of few planes."""
    import numpy as np

    shape = (_THIN * len(targets), side, side)
    problem = Problem((published_rule("7-point"),), Grid(shape), (("new", "u"),))
    values = {"u": np.random.default_rng(1).random(shape, dtype=np.float32), "a": [0.4, *[0.1] * 6]}
    run = SharedRun(problem, values, targets=targets, exchange_every=1, transport=transport, overlap=False)
    if targets[0].modelled:
        return run.timeline(4).elapsed_ns / 4e3
    run.steps(_MANY).steps(_MANY)
    times = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        run.steps(_MANY)
        times.append(time.perf_counter() - began)
    return 1e6 * statistics.median(times) / _MANY


# -- MPI ---------------------------------------------------------------------------------------------------------------------------


def rank_rows(title: str, count: int, transport: str, options: argparse.Namespace) -> Iterator[Row]:
    """Yield what the steps of as many ranks take by a transport. Where there are fewer GPUs than ranks, they share one."""
    mpiexec = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if mpiexec is None or importlib.util.find_spec("mpi4py") is None:
        yield Row(title, NOT_MEASURED, None, "", note="not run: there is no mpi4py, or no mpiexec: pip install 'memlane[mpi]' mpich")
        return
    of_launchers = ("PMI", "OMPI_COMM_", "OMPI_UNIVERSE_", "SLURM_", "HYDI_")  # of a process that is a rank itself
    environment = {name: value for name, value in os.environ.items() if not name.startswith(of_launchers)}
    for name in list(CASES)[:2]:
        command = [mpiexec, "-n", str(count), sys.executable, str(ROOT / "benchmarks" / "stencil_scaling_ranks.py"), options.target, name]
        command += ["--transport", transport, *(["--quick"] if options.quick else [])]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=0.45 * options.limit, env=environment)
            lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            said = [line for line in done.stderr.splitlines() if line.strip(" -=")]  # launchers frame what they say
            errors = [line for line in said if "Error: " in line]
            failure = "" if done.returncode == 0 else (errors or said or ["no message"])[-1]
        except subprocess.TimeoutExpired as error:
            text = error.stdout or b""
            lines = [json.loads(line) for line in text.decode().splitlines() if line.startswith("{") and line.endswith("}")]
            failure = "the time was spent"
        yield from _of_ranks(f"{name}, {title}", name, count, transport, lines, failure)


def _of_ranks(case: str, name: str, count: int, transport: str, lines: Sequence[dict[str, float]], failure: str) -> Iterator[Row]:
    us = {(int(line["k"]), bool(line["overlap"])): line["us"] for line in lines}
    if not us:
        yield Row(case, NOT_MEASURED, None, "", note=failure[:300])
        return
    best = min(us, key=lambda one: us[one])
    shared = "; ranks share a GPU" if lines[0]["gpus"] < count else "; seconds of the emulator" if lines[0]["modelled"] else ""
    note = f"k = {best[0]}{'' if best[1] else ', not overlapped'}{shared}" + (f"; {failure}" if failure else "")
    peer = {f"k = {k}{'' if overlap else ', not overlapped'}": round(one, 2) for (k, overlap), one in us.items()}
    yield Row(
        case,
        f"time of a step, best k, {'through the host' if transport == 'mpi' else transport}",
        round(us[best], 2),
        "us",
        peer=peer,
        note=note[:300],
    )
    first = min((us[one] for one in us if one[0] == 1), default=None)
    if first is not None:
        wanted = None if shared or lines[0]["modelled"] or transport != "mpi" else GAINS.get((name, count, "host"))
        gain = round(first / us[best], 4)
        note = "" if wanted is None or gain >= wanted else f"k = 1 takes {first:.1f} us"
        yield Row(case, "gain of the best k over k = 1", gain, "", wanted, "higher", note=note)


# -- another tool ------------------------------------------------------------------------------------------------------------------


def peer_times(shape: tuple[int, int, int], count: int) -> dict[str, float]:
    """Return the time of a step of the 7-point rule with PyTorch, an exchange by copies behind each step; nothing where there is none."""
    try:
        torch = import_module("torch")
        if torch.cuda.device_count() < count:
            return {}
        return {"PyTorch slices and copies": _torch_us(torch, shape, count)}
    except Exception as error:  # a tool that does not work on this machine is no peer here
        print(f"PyTorch: left out, {error}", file=sys.stderr)
        return {}


def _torch_us(torch, shape: tuple[int, int, int], count: int, steps: int = 50) -> float:
    planes = shape[0] // count
    fields = [[torch.rand((planes + 2, *shape[1:]), device=f"cuda:{at}") for _ in range(2)] for at in range(count)]
    a, i = [0.4, *[0.1] * 6], slice(1, -1)

    def step() -> None:
        for u, new in fields:
            new[i, i, i] = (a[0] * u[i, i, i] + a[1] * u[:-2, i, i] + a[2] * u[2:, i, i] + a[3] * u[i, :-2, i] + a[4] * u[i, 2:, i]
                            + a[5] * u[i, i, :-2] + a[6] * u[i, i, 2:])  # fmt: skip
        for (_, lower), (_, upper) in pairwise(fields):
            upper[0].copy_(lower[-2], non_blocking=True)
            lower[-1].copy_(upper[1], non_blocking=True)
        for pair in fields:
            pair.reverse()

    times = []
    for _ in range(4):
        for at in range(count):
            torch.cuda.synchronize(at)
        began = time.perf_counter()
        for _ in range(steps):
            step()
        for at in range(count):
            torch.cuda.synchronize(at)
        times.append(1e6 * (time.perf_counter() - began) / steps)
    return statistics.median(times[1:])
