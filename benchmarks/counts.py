"""Are the transactions that memlane counts those that the hardware counts?

Every example script runs three times: under memlane's counter on the GPU (kernels that reduce the addresses of their accesses
themselves), on the emulator, and plain under Nsight Compute. For each launch and kind of access the sectors of global memory and the
wavefronts of shared memory are compared, with the requests beside them. They must be equal wherever the assembled code has the same
accesses as the PTX that memlane counts: the profiler sees what ptxas made of it, which may merge neighbouring loads into a wider one or
drop one of two that are alike. Whether it did is decided by the requests (equal requests are the same accesses) and by the memory
instructions of the disassembled kernel; where they differ both numbers stand there with the instructions and no reach. Neither have
atomics, whose transactions are the choice of units that add for themselves.

Prediction: all sectors equal; shared wavefronts equal for the transposes, the reductions and the chase; the matrix product
is equal too if the assembler leaves its loads alone (ptxas 13.0 has been seen to read four neighbours of a row of the first tile at
once); histograms in shared memory differ, as ptxas has an instruction of its own for counting.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from assembled import GROUPS, Instructions, describe, disassemble, group_of, in_ptx, in_sass, same
from harness import Row
from ncu import Profiled, find, profile, usable
from running import EXAMPLES, example, example_arguments, failed, measure, parser

from memlane.cli.programs import run_script
from memlane.launch import Launch, LoadedModule, plain_name, unobserved
from memlane.measure import Counter
from memlane.measure.tallied import Tally
from memlane.record import Counts
from memlane.record.site import kernel_label

SOURCES = [
    "src/memlane/instrument",
    "src/memlane/emulate",
    "src/memlane/chip",
    "src/memlane/measure",
    "examples",
    "benchmarks/counts.py",
    "benchmarks/assembled.py",
    "benchmarks/ncu.py",
]

_GLOBAL = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
_SHARED_WAVEFRONTS = "memory_l1_wavefronts_shared"
_SHARED_FALLBACK = tuple(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st"))
_SHARED_REQUESTS = tuple(f"smsp__inst_executed_op_shared_{op}.sum" for op in ("ld", "st"))
REQUIRED = [_GLOBAL.format(what, op) for what in ("sectors", "requests") for op in ("ld", "st")]
OPTIONAL = [
    _SHARED_WAVEFRONTS,
    "memory_l1_wavefronts_shared_ideal",
    *_SHARED_FALLBACK,
    *_SHARED_REQUESTS,
    *(_GLOBAL.format(what, op) for what in ("sectors", "requests") for op in ("red", "atom")),
]


# -- what was counted ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Totals:
    """Requests and transactions of one launch by group of `assembled.GROUPS`."""

    requests: dict[str, float] = field(default_factory=dict)
    transactions: dict[str, float] = field(default_factory=dict)


def of_memlane(counts: Counts) -> Totals:
    """Sums over the sites: sectors in global memory, wavefronts in shared memory."""
    totals = Totals(dict.fromkeys(GROUPS, 0.0), dict.fromkeys(GROUPS, 0.0))
    for entry in counts.sites:
        if entry.site.space in ("global", "generic", "shared"):
            group = group_of(entry.site.space, entry.site.kind)
            totals.requests[group] += entry.requests
            totals.transactions[group] += (entry.wavefronts if group == "shared" else entry.sectors) or 0
    return totals


def of_profiler(metrics: dict[str, float]) -> Totals:
    """The same from the profiler's metrics; groups for which one is missing are left out."""
    operations = {"global load": ("ld",), "global store": ("st",), "global atomic": ("red", "atom")}
    totals = Totals()
    for group, ops in operations.items():
        _put(totals.requests, group, metrics, [_GLOBAL.format("requests", op) for op in ops])
        _put(totals.transactions, group, metrics, [_GLOBAL.format("sectors", op) for op in ops])
    _put(totals.requests, "shared", metrics, _SHARED_REQUESTS)
    if not _put(totals.transactions, "shared", metrics, [_SHARED_WAVEFRONTS]):
        _put(totals.transactions, "shared", metrics, _SHARED_FALLBACK)
    return totals


def _put(table: dict[str, float], group: str, metrics: dict[str, float], names: Sequence[str]) -> bool:
    if not all(name in metrics for name in names):
        return False
    table[group] = sum(metrics[name] for name in names)
    return True


def matched(kernels: Sequence[str], profiled: Sequence[Profiled]) -> list[Profiled | None]:
    """For each launch by memlane, in order, the one that the profiler saw; it may have seen others in between."""
    found: list[Profiled | None] = []
    position = 0
    for kernel in kernels:
        name = plain_name(kernel)
        place = next((i for i in range(position, len(profiled)) if name in profiled[i].kernel), None)
        found.append(None if place is None else profiled[place])
        position = position if place is None else place + 1
    return found


# -- comparing -----------------------------------------------------------------------------------------------------------------


def compare(case: str, ours: Totals, theirs: Totals, ptx: Instructions, sass: Instructions | None) -> list[Row]:
    """A row for each group with accesses on either side."""
    rows = []
    for group in GROUPS:
        mine, other = ours.transactions[group], theirs.transactions.get(group)
        if not mine and not other:
            continue
        metric = f"{group}, {'wavefronts' if group == 'shared' else 'sectors'}: difference"
        peer = {"memlane": mine, "requests": ours.requests[group]}
        if other is None:
            rows.append(Row(case, metric, None, "", peer=peer, note="this profiler has no such metric"))
            continue
        peer |= {"Nsight Compute": other}
        if group in theirs.requests:
            peer |= {"its requests": theirs.requests[group]}
        expected = mine == other or must_agree(group, ours.requests[group] == theirs.requests.get(group), ptx, sass)
        note = "" if mine == other else f"PTX: {describe(ptx[group])}; SASS: {describe(sass[group]) if sass else 'not disassembled'}"
        rows.append(Row(case, metric, abs(mine - other), "", 0.0 if expected else None, peer=peer, note=note))
    return rows


def must_agree(group: str, same_requests: bool, ptx: Instructions, sass: Instructions | None) -> bool:
    """Whether the assembled code has the accesses of the PTX, none of them atomic."""
    if any(op.startswith(("atom", "red")) for op in ptx[group]):
        return False
    return same_requests or (sass is not None and same(ptx[group], sass[group]))


def compare_roads(case: str, device: Counts, emulated: Counts) -> Row:
    """Counted on the device against counted by the emulator, site by site."""
    fields = ("requests", "lanes", "bytes", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts")
    one, other = ({entry.site.id: entry for entry in counts.sites if entry.requests} for counts in (device, emulated))
    differing = sum(
        site not in one or site not in other or any(getattr(one[site], name) != getattr(other[site], name) for name in fields)
        for site in one.keys() | other.keys()
    )
    return Row(case, "sites counted otherwise by the emulator", float(differing), "sites", 0.0, peer={"sites": float(len(other))})


class OnDevice:
    """An observer that sends every launch out with the instructions that count, also on a target that could see for itself."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self._tallies: dict[LoadedModule, Tally] = {}

    def launching(self, launch: Launch) -> Launch:
        with unobserved():
            loaded = launch.kernel.loaded
            if loaded not in self._tallies:
                self._tallies[loaded] = Tally(loaded)
            counting = self._tallies[loaded].counting(len(self.launches), launch)
        self.launches.append(launch)
        return counting

    def finish(self) -> list[Counts]:
        """What each launch cost, in their order."""
        self.launches[0].kernel.target.sync()
        counted = [pair for tally in self._tallies.values() for pair in tally.collect()]
        return [counts for _, counts in sorted(counted, key=lambda pair: pair[0])]


def run_case(name: str, options: argparse.Namespace) -> list[Row]:
    """All launches of one example."""
    script, arguments = example(name), example_arguments(name, options.quick)
    device, emulator = OnDevice(), Counter()
    run_script(script, arguments, options.target, device)
    run_script(script, arguments, "emulator", emulator)
    pairs = list(zip(device.launches, device.finish(), emulator.finish(), strict=True))
    cases = [f"{name} {number}: {kernel_label(launch.kernel.title)}" for number, (launch, _, _) in enumerate(pairs)]
    rows = [compare_roads(case, counted, emulated) for case, (_, counted, emulated) in zip(cases, pairs, strict=True)]
    program = find() if options.target.startswith("cuda") else None
    if program is None:
        return rows
    try:
        seen = profile(program, options.metrics.split(","), command(name, options), environment(options), options.limit / 2)
    except Exception as error:
        return [*rows, failed(f"{name}, Nsight Compute", f"{type(error).__name__}: {error}")]
    for case, (launch, counted, _), profiled in zip(cases, pairs, matched([p[0].kernel.title for p in pairs], seen), strict=True):
        if profiled is None:
            rows.append(failed(case, "the profiler did not see this launch"))
        else:
            rows += compare(case, of_memlane(counted), of_profiler(profiled.metrics), *instructions(launch))
    return rows


def instructions(launch: Launch) -> tuple[Instructions, Instructions | None]:
    """The memory instructions of a kernel in PTX, and in SASS where it can be disassembled."""
    module, kernel = launch.kernel.module, launch.kernel.name
    major, minor = launch.kernel.target.chip.compute_capability
    try:
        sass = in_sass(disassemble(module, f"sm_{major}{minor}")).get(kernel)
    except Exception as error:
        print(f"{kernel} is not disassembled: {error}", file=sys.stderr)
        sass = None
    return in_ptx(module, kernel), sass


def command(name: str, options: argparse.Namespace) -> list[str]:
    return [sys.executable, str(example(name)), *example_arguments(name, options.quick)]


def environment(options: argparse.Namespace) -> dict[str, str]:
    return {**os.environ, "MEMLANE_TARGET": options.target}


def main() -> None:
    arguments = parser(__doc__)
    arguments.set_defaults(limit=120.0)
    arguments.add_argument("--metrics", default="", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    program = find() if options.target.startswith("cuda") else None
    if program and not options.metrics:
        options.metrics = ",".join(usable(program, REQUIRED, OPTIONAL, command("matmul", options), environment(options)))
    forward = ["--metrics", options.metrics] if options.metrics else []
    measure("counts", EXAMPLES, run_case, options, forward)


if __name__ == "__main__":
    main()
