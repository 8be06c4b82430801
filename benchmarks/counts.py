"""Are the transactions that memlane counts those that the hardware counts?

All launches of the examples and of a corpus of 100 small kernels, good and bad ones (`corpus*.py`), three ways: under memlane's counter on
the GPU (kernels that reduce the addresses of their accesses themselves), on the emulator, and plain under Nsight Compute, all of them in
one process. They are compared

- site by site: the active lanes, the sectors of global memory and the wavefronts of shared memory of each instruction of the PTX with what
  the profiler counted for the instructions that the assembler made of it. Where the assembled code has the accesses of the PTX, the site is
  `exact`, and all three must be equal. Sites that the assembler merged into a wider access, and those that are a hint for another reason,
  stand there with the reason if they differ.
- launch by launch, with the hardware's own counters of sectors and requests, which see atomics as the units that add for themselves serve
  them. Where no atomics take part, what they have more or less must be what the sites have more or less: nothing is accessed beside these.
- and the two ways of memlane with each other, in all fields of each site, but for those at which the lanes of a warp may be apart: there
  each kernel has its own groups of them, the one with memlane's counter too.

Prediction. Of the examples, written before the first run: all sectors equal; shared wavefronts equal for the transposes, the reductions and
the chase; the matrix product is equal too if the assembler leaves its loads alone (ptxas 13.0 has been seen to read four neighbours of a
row of the first tile at once); histograms in shared memory differ, as ptxas has an instruction of its own for counting.
Of the corpus, and of single sites, written before the first run: nine sites of ten are exact. Lanes, sectors and wavefronts of every exact
site are equal, those of atomics too, by the rules that `shared_rule.py` found. Hints that differ: additions of floats in shared memory,
counters that a warp adds to at once, local tables. Loops that the assembler unrolls and splits may show sites that are called exact and are
not (`csr_scalar`, of which the totals differed). Of `kernels/ways.cu`, written before it was measured: sites of loops that the assembler
unrolled and lanes leave apart, stores on the way out of a loop and cases entered from two sides are hints, and those of `ragged` differ;
all others are exact and equal, those behind an `else` with two entrances, the search and the half empty warps too. The ideal sectors are
equal; the ideal wavefronts are where neither lanes are idle nor addresses equal.
Of matrices and copies, written before they were measured: `ldmatrix` and `stmatrix` go eight rows of 16 bytes at a time, as 16-byte
accesses of as many lanes do, so rows 64 bytes apart take four times the wavefronts of packed ones; `cp.async` has the sectors of its load
and the wavefronts of its store at one instruction.
Of totals, written after three of `kernels/ways.cu` had other sums at as many requests (before, they were to be equal wherever the
requests are): taken out what the profiler has more at the hints, nothing is left of `ragged`, `ragged_thrice` and launches whose loads were
merged or made loops. Of `left_early` 632 sectors are, as the profiler reads sites in a run of its own, where lanes part otherwise.
Of `kernels/divergence.cu`, written before it was measured: the stores of `pointer`, `pointer_twice`, `pointer_in_turns`,
`pointer_in_function`, `method` and `recursion` have more executions and sectors than on the emulator, up to twice as many where two
functions are called. `__syncthreads` brings lanes together, as the assembler omits the convergence barrier before it (`turns_by_thread`);
`__syncwarp` and the shuffle too, perhaps. All exact sites are equal; those of `two_back_edges` as well, of which the compiler makes a loop
with one way back. The loads of `two_entrances` are fewer, as the assembler has the first one's value already for lanes that enter in the
middle.
Of `kernels/hopper.cu` and `kernels/today`, written before they were measured: all exact sites are equal, copies that may fill with zeros
among them; 436 of the 440 of Triton are exact, and the other four are equal too. Loads behind a loop that waits for a barrier are hints
and are equal: all lanes find the barrier in the same state. Bulk copies have no site that counts, so totals of `doubled_boxes`,
`ring_of_chunks` and `added_by_the_bulk` are equal beside the sites, if the profiler counts none of their bytes as accesses of lanes.
Found by that run: `sleeps` and `lock` have lanes apart behind a `BSYNC` that all of them come to, in as many groups as lanes in `lock`. In
both some lanes `YIELD` or sleep while others wait there: then these go on. `__syncwarp` and the shuffle do not bring lanes together.
Totals of `out_through_store`, `two_back_edges` and `sleeps` differ beyond their sites as those of `left_early` do: where lanes part depends
on time, and the profiler reads sites and totals in runs of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from assembled import GROUPS, SPACES, Instructions, describe, disassemble, group_of, in_ptx, in_sass
from harness import Row
from ncu import LABELS, Counted, Disassembled, Profiled, Report, report
from running import failed, measure, parser
from sitewise import COMPARED, IDEALS, Code, Compared
from workload import ABOUT, NAMES, labels, launch_all

from memlane.audit.grouping import AHEAD
from memlane.audit.reconvergence import MAY_NOT_RECONVERGE
from memlane.compile import architecture, assemble
from memlane.lab.profiler import find
from memlane.launch import Launch, LoadedModule, plain_name, suspend_observers
from memlane.measure import Counter
from memlane.measure.device_counters import DeviceCounters
from memlane.record import Counts, SiteCounts

SOURCES = [
    "src/memlane/audit",
    "src/memlane/instrument",
    "src/memlane/emulate",
    "src/memlane/chip",
    "src/memlane/lab/profiler.py",
    "src/memlane/measure",
    "examples",
    "benchmarks/assembled.py",
    "benchmarks/corpus.py",
    "benchmarks/corpus_atomics.py",
    "benchmarks/corpus_blocks.py",
    "benchmarks/corpus_copies.py",
    "benchmarks/corpus_divergence.py",
    "benchmarks/corpus_hopper.py",
    "benchmarks/corpus_tiles.py",
    "benchmarks/corpus_today.py",
    "benchmarks/corpus_ways.py",
    "benchmarks/counts.py",
    "benchmarks/kernels",
    "benchmarks/ncu.py",
    "benchmarks/sitewise.py",
    "benchmarks/workload.py",
]

_GLOBAL = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
_SHARED_WAVEFRONTS = "memory_l1_wavefronts_shared"
_SHARED_REQUESTS = tuple(f"smsp__inst_executed_op_shared_{op}.sum" for op in ("ld", "st"))
BY_LAUNCH = (
    *_SHARED_REQUESTS,
    *(_GLOBAL.format(what, op) for what in ("sectors", "requests") for op in ("ld", "st", "red", "atom")),
)
"""Counters of the hardware. The others, `ncu.LABELS`, the profiler has for each instruction."""


ROADS, SITES = "sites counted otherwise by the emulator", "exact sites that differ from the profiler"


# -- what was counted ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Totals:
    """Requests and transactions of one launch by group of `assembled.GROUPS`."""

    requests: dict[str, float] = field(default_factory=dict)
    transactions: dict[str, float] = field(default_factory=dict)


def of_memlane(counts: Counts) -> Totals:
    """Sum the transactions over the sites: sectors in global memory, wavefronts in shared memory."""
    totals = Totals(dict.fromkeys(GROUPS, 0.0), dict.fromkeys(GROUPS, 0.0))
    for entry in counts.sites:
        if entry.site.space in SPACES:
            group = group_of(entry.site.space, entry.site.kind)
            totals.requests[group] += entry.requests if entry.site.kind != "product" else 0  # The profiler counts those elsewhere.
            totals.transactions[group] += (entry.wavefronts if group == "shared" else entry.sectors) or 0
            if entry.site.kind == "copy":
                totals.transactions["shared"] += entry.wavefronts or 0
    return totals


def of_profiler(metrics: dict[str, float]) -> Totals:
    """Return the transactions of each group from the profiler's metrics. Groups with a missing metric are left out."""
    operations = {"global load": ("ld",), "global store": ("st",), "global atomic": ("red", "atom")}
    totals = Totals()
    for group, ops in operations.items():
        _put(totals.requests, group, metrics, [_GLOBAL.format("requests", op) for op in ops])
        _put(totals.transactions, group, metrics, [_GLOBAL.format("sectors", op) for op in ops])
    _put(totals.requests, "shared", metrics, _SHARED_REQUESTS)
    _put(totals.transactions, "shared", metrics, [_SHARED_WAVEFRONTS])
    return totals


def _put(table: dict[str, float], group: str, metrics: dict[str, float], names: Sequence[str]) -> None:
    if all(name in metrics for name in names):
        table[group] = sum(metrics[name] for name in names)


def matched(kernels: Sequence[str], seen: Sequence[str]) -> list[int | None]:
    """Return for each launch by memlane, in order, the position of the same launch in the profile, which may contain further launches."""
    found: list[int | None] = []
    position = 0
    names = [plain_name(one) for one in seen]
    for kernel in kernels:
        name = plain_name(kernel)
        place = next((i for i in range(position, len(names)) if names[i] == name), None)
        found.append(place)
        position = position if place is None else place + 1
    return found


# -- comparing -----------------------------------------------------------------------------------------------------------------


def of_sites(compared: Sequence[Compared]) -> dict[str, float]:
    """Return by group how many more transactions the profiler counted at the sites than memlane."""
    more = dict.fromkeys(GROUPS, 0.0)
    for one in compared:
        if one.space in SPACES:
            group = group_of(one.space, one.kind)
            more[group] += one.excess("wavefronts" if group == "shared" else "sectors")
            if one.kind == "copy":
                more["shared"] += one.excess("wavefronts")
    return more


def compare(case: str, ours: Totals, theirs: Totals, sites: dict[str, float], ptx: Instructions, sass: Instructions | None) -> list[Row]:
    """Return a row for each group with accesses on either side: by what the totals differ beyond the `sites`, compared for themselves."""
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
        peer |= {"Nsight Compute": other, "more at the sites": sites[group]}
        if group in theirs.requests:
            peer |= {"its requests": theirs.requests[group]}
        left = abs(other - mine - sites[group])
        code = f"PTX: {describe(ptx[group])}; SASS: {describe(sass[group]) if sass else 'not disassembled'}"
        note = "" if mine == other else f"memlane {mine:,g}, profiler {other:,g}, {sites[group]:+,g} of it at the sites; {code}"
        rows.append(Row(case, metric, left, "", None if left and has_atomics(ptx[group]) else 0.0, peer=peer, note=note))
    return rows


def has_atomics(ptx: Iterable[str]) -> bool:
    """Return whether the group contains atomics. The hardware counts each lane of an atomic at one address separately."""
    return any(op.startswith(("atom", "red")) for op in ptx)


ROAD_FIELDS = ("requests", "lanes", "bytes", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts")


def compare_roads(case: str, device: Counts, emulated: Counts, code: Code) -> Row:
    """Return the number of sites that the device and the emulator count differently. Sites at which lanes may diverge are only in the note.

    Copies of boxes have no verdict: the emulator alone counts them.
    """
    one, other = (
        {entry.site.id: entry for entry in counts.sites if entry.requests and entry.site.id in code.verdicts}
        for counts in (device, emulated)
    )
    differing = {site: said for site in sorted(one.keys() | other.keys()) if (said := _roads(one.get(site), other.get(site)))}
    apart = {site for site in differing if any(one in code.verdicts[site].reason for one in (MAY_NOT_RECONVERGE, AHEAD))}
    notes = [f"lanes may be apart: {said}" if site in apart else said for site, said in differing.items()]
    peer = {"sites": float(len(other)), "apart": float(len(apart))}
    return Row(case, ROADS, float(len(differing) - len(apart)), "sites", 0.0, peer=peer, note="; ".join(notes))


def _roads(device: SiteCounts | None, emulated: SiteCounts | None) -> str:
    """Describe how the counts of a site differ between the device and the emulator; empty if they agree."""
    entry = device or emulated
    assert entry is not None
    pairs = [(name, *(getattr(one, name) if one else 0 for one in (device, emulated))) for name in ROAD_FIELDS]
    differing = [f"{name} {here}, emulator {there}" for name, here, there in pairs if here != there]
    return f"line {entry.site.line}, {entry.site.op}: {', '.join(differing)}" if differing else ""


def compare_sites(case: str, compared: list[Compared]) -> Row:
    """Return the number of exact sites that differ from the profiler. The note lists other sites that differ, with the reason. Copies that
    the profiler misreads are set aside."""
    exact = [one for one in compared if one.verdict == "exact"]
    off = [one for one in exact if one.differing() and not one.misread]
    misread = [one for one in exact if one.differing() and one.misread]
    others = [one for one in compared if one.verdict != "exact" and one.differing()]
    peer = {"sites": sum(one.sites for one in compared)}
    peer |= {verdict: sum(one.sites for one in compared if one.verdict == verdict) for verdict in ("exact", "merged", "hint")}
    peer |= {"others that differ": sum(one.sites for one in others), "misread by the profiler": sum(one.sites for one in misread)}
    peer |= {f"exact with other {name}": sum(bool(one.differing([name])) for one in exact) for name in IDEALS}
    for name in COMPARED[1:]:
        peer |= {name: sum(one.ours.get(name, 0) for one in exact), f"{name}, profiler": sum(int(one.theirs.get(name, 0)) for one in exact)}
    notes = [f"exact: {one}: {one.split() or 'not explained'}" for one in off]
    notes += [f"{one.verdict}: {one}: {one.reason}" for one in others]
    notes += [f"set aside: {one}: the profiler misreads copies under predicate 0" for one in misread]
    about = f"{ABOUT[case]}. " if case in ABOUT else ""
    return Row(case, SITES, float(len(off)), "sites", 0.0, peer={k: float(v) for k, v in peer.items()}, note=about + "; ".join(notes))


# -- running -------------------------------------------------------------------------------------------------------------------


class OnDevice:
    """An observer that sends every launch out with the instructions that count, also on a target that could see for itself."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self._device_counters: dict[LoadedModule, DeviceCounters] = {}

    def launching(self, launch: Launch) -> Launch:
        with suspend_observers():
            loaded = launch.kernel.loaded
            if loaded not in self._device_counters:
                self._device_counters[loaded] = DeviceCounters(loaded)
            counting_launch = self._device_counters[loaded].counting_launch(len(self.launches), launch)
        self.launches.append(launch)
        return counting_launch

    def finish(self) -> list[Counts]:
        """Return the transactions of each launch, in order."""
        self.launches[0].kernel.target.sync()
        counted = [pair for tally in self._device_counters.values() for pair in tally.collect()]
        return [counts for _, counts in sorted(counted, key=lambda pair: pair[0])]


class Log:
    """An observer that writes down which launches were made."""

    def __init__(self) -> None:
        self.kernels: list[str] = []

    def launching(self, launch: Launch) -> Launch:
        self.kernels.append(launch.kernel.title)
        return launch


def run_case(name: str, options: argparse.Namespace) -> list[Row]:
    """Run all launches of an example, or of one file of the corpus."""
    device, emulator = OnDevice(), Counter()
    launch_all(name, options.target, device, options.quick)
    launch_all(name, "emulator", emulator, options.quick)
    launches, counted = device.launches, device.finish()
    cases = labels(name, launches)
    codes = {loaded: Code.of(loaded.module, code_of(loaded)) for loaded in dict.fromkeys(launch.kernel.loaded for launch in launches)}
    of_launch = [codes[launch.kernel.loaded] for launch in launches]
    rows = [compare_roads(*one) for one in zip(cases, counted, emulator.finish(), of_launch, strict=True)]
    if options.profile is None:
        return rows
    seen = read_profile(options.profile, name)
    if seen is None:
        return [*rows, failed(f"{name}, Nsight Compute", "the profiler did not come to these launches")]
    for case, launch, counts, code, profiled in zip(cases, launches, counted, of_launch, seen, strict=True):
        if profiled is None:
            rows.append(failed(case, "the profiler did not see this launch"))
            continue
        whole, by_instruction = profiled
        by_site = code.compared(launch.kernel.name, counts.sites, by_instruction)
        rows.append(compare_sites(case, by_site))
        rows += compare(case, of_memlane(counts), of_profiler(whole.metrics), of_sites(by_site), *instructions(launch))
    return rows


def code_of(loaded: LoadedModule) -> bytes:
    """Return the cubin that runs; on the emulator that which would."""
    module, chip = loaded.module, loaded.target.chip
    return loaded.target.assembled(loaded) or assemble(module, arch=architecture(module, chip.compute_capability)).data


def instructions(launch: Launch) -> tuple[Instructions, Instructions | None]:
    """Return the memory instructions of a kernel in PTX, and in SASS where it can be disassembled."""
    module, kernel = launch.kernel.module, launch.kernel.name
    major, minor = launch.kernel.target.chip.compute_capability
    try:
        sass = in_sass(disassemble(module, f"sm_{major}{minor}")).get(kernel)
    except Exception as error:
        print(f"{kernel} is not disassembled: {error}", file=sys.stderr)
        sass = None
    return in_ptx(module, kernel), sass


# -- the profiler's run --------------------------------------------------------------------------------------------------------


def launch_plainly(options: argparse.Namespace) -> None:
    """Launch every case without instrumentation, under the profiler. Writes the kernels' names by case to the file `--plain`."""
    logs: dict[str, list[str]] = {}
    for name in NAMES:
        log = Log()
        try:
            launch_all(name, options.target, log, options.quick)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
        logs[name] = log.kernels
        options.plain.write_text(json.dumps(logs))


def profile(program: str, options: argparse.Namespace, folder: Path) -> Path:
    """Profile every launch in one process and return the report file, for `read_profile`."""
    plain, path = folder / "plain.json", folder / "profile.json"
    script = [sys.executable, sys.argv[0], "--target", options.target, "--plain", str(plain), *(["--quick"] if options.quick else [])]
    seen = report(program, [*LABELS, *BY_LAUNCH], script, dict(os.environ), 180)
    path.write_text(json.dumps(by_case(json.loads(plain.read_text()), seen)))
    return path


def by_case(logs: dict[str, list[str]], seen: Report) -> dict[str, list[object]]:
    """Return the launches of each case with their metrics, as plain data; None for one that the profiler missed."""
    places = iter(matched([kernel for kernels in logs.values() for kernel in kernels], [one.kernel for one in seen.disassembled]))
    found: dict[str, list[object]] = {}
    for name, kernels in logs.items():
        of_case = [next(places) for _ in kernels]
        found[name] = [None if place is None else [asdict(seen.launches[place]), asdict(seen.disassembled[place])] for place in of_case]
    return found


def read_profile(path: Path, name: str) -> list[tuple[Profiled, Disassembled] | None] | None:
    """Return the profile of the launches of a case; None if the profiler did not reach the case."""
    stored = json.loads(path.read_text()).get(name)
    if stored is None:
        return None
    return [None if one is None else (Profiled(**one[0]), _disassembled(one[1])) for one in stored]


def _disassembled(stored: dict[str, object]) -> Disassembled:
    instructions = stored["instructions"]
    assert isinstance(instructions, list)
    return Disassembled(str(stored["kernel"]), tuple(Counted(**one) for one in instructions))


def main() -> None:
    arguments = parser(__doc__)
    arguments.set_defaults(limit=120.0)
    arguments.add_argument("--keep", type=Path, help="file in which to keep what the profiler saw of each instruction, as JSON")
    arguments.add_argument("--plain", type=Path, help=argparse.SUPPRESS)
    arguments.add_argument("--profile", type=Path, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.plain is not None:
        launch_plainly(options)
        return
    program = find() if options.target.startswith("cuda") and options.profile is None else None
    with TemporaryDirectory() as folder:
        if program is not None:
            try:
                options.profile = profile(program, options, Path(folder))
                if options.keep is not None:
                    shutil.copy(options.profile, options.keep)
            except Exception as error:
                print(f"Nsight Compute: {type(error).__name__}: {error}", file=sys.stderr)
        forward = [] if options.profile is None else ["--profile", str(options.profile)]
        measure("counts", NAMES, run_case, options, forward, at_once=4)


if __name__ == "__main__":
    main()
