"""Is the end of a load read when its value has arrived? Shown on the assembled code of many kernels, without a GPU.

The kernels are those of the examples and of the tests of the Numba and the Triton front end, all their sites traced by `dependent` and
assembled for sm_90. A load counts as complete if the proof (`instrument/proof.py`) holds for every copy that the assembler made of it.
What the proof is worth is asked by changing the assembled code: a wait cleared, an instruction moved or removed, another scoreboard.
Every such change, one of each kind for each example, has to be caught. So do changes of atomics that one lane does for its warp: another
lane, a hand-over that does not wait or is gone, each of each kind in kernels for each shape of them.

The loads are also traced by `exposed`, which follows them to their consumers. Of each that it follows it is to be shown that nothing takes
its value before the clock read that begins the wait. The assembler may well do that, for it knows nothing of our clock reads; then the
site is labelled.

The share of exact sites says of how many accesses the counts on PTX are those of the hardware; nothing was to be reached there.

Prediction: all loads of the examples, 99 % of all loads, and every change; 95 % of the loads that are followed to their consumers.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from harness import ROOT, Row
from running import EXAMPLES, measure, parser

from memlane.audit import SiteProof, access_changes, exactness, prove
from memlane.compile import architecture, assemble
from memlane.instrument import Traced, TraceOptions, trace
from memlane.ptx import Module, parse
from memlane.record import COMPLETE, EXACT, ISSUE_ONLY
from memlane.sass import disassemble

sys.path.insert(0, str(ROOT))
from tests.audit import aggregates
from tests.audit.mutations import mutations
from tests.compile.numba_cases import CASES as NUMBA
from tests.compile.triton_cases import CASES as TRITON
from tests.sass.code import mutated

SOURCES = [
    "src/memlane/ptx",
    "src/memlane/sass",
    "src/memlane/compile",
    "src/memlane/audit",
    "src/memlane/instrument",
    "examples",
    "tests/compile",
    "tests/audit/mutations.py",
    "tests/audit/aggregates.py",
    "benchmarks/proof.py",
]
CAPABILITY = (9, 0)
REACH = 0.99
FOLLOWED = 0.95


def modules(group: str) -> Mapping[str, Module]:
    """Return the modules of a group by name."""
    if group == "examples":
        paths = {name: ROOT / "examples" / "ptx" / f"{name}.ptx" for name in EXAMPLES}
        return {name: parse(path.read_text(), path.name) for name, path in paths.items()}
    return {name: make().module for name, make in (NUMBA if group == "Numba" else TRITON).items()}


def assembled(module: Module) -> bytes:
    return assemble(module, arch=architecture(module, CAPABILITY)).data


def proofs_of(module: Module) -> tuple[Traced, bytes, tuple[SiteProof, ...]]:
    traced = trace(module)
    code = assembled(traced.module)
    return traced, code, prove(traced, code)


@dataclass
class Tally:
    """Sums over kernels."""

    loads: int = 0
    sites: int = 0
    exact: int = 0
    changed: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """Why loads are not complete."""

    def add(self, other: Tally) -> None:
        self.loads += other.loads
        self.sites += other.sites
        self.exact += other.exact
        self.changed += other.changed
        self.reasons += other.reasons

    def row(self, case: str, reach: float | None) -> Row:
        note = "; ".join(f"{amount} x {reason}" for reason, amount in self.reasons.most_common(4))
        peer = {"loads": self.loads, "sites": self.sites, "exact sites": self.exact, "sites changed by tracing": self.changed}
        share = 1 - self.reasons.total() / self.loads
        return Row(case, "loads proved complete", share, "share", reach, "higher", {key: float(value) for key, value in peer.items()}, note)


def tally(module: Module) -> Tally:
    """Tally the verdicts of one module."""
    traced, code, proofs = proofs_of(module)
    plain = assembled(module)
    verdicts = exactness(module, plain)
    loads = [proof for proof in proofs if traced.sites[proof.site].kind == "load"]
    return Tally(
        len(loads),
        len(verdicts),
        sum(verdict.verdict == EXACT for verdict in verdicts),
        len(access_changes(module, plain, traced, code)),
        Counter(_without_places(proof.reason) for proof in loads if proof.completeness != COMPLETE),
    )


def prove_kernels() -> list[Row]:
    """Return one row for each kernel that loads, one for each group, and one for all of them."""
    rows, everything = [], Tally()
    for group in ("examples", "Numba", "Triton"):
        together = Tally()
        for name, module in modules(group).items():
            found = tally(module)
            together.add(found)
            if found.loads:
                rows.append(found.row(f"{group}, {name}", None))
        rows.append(together.row(f"all of {group}", None))
        everything.add(together)
    return [*rows, everything.row("all kernels", REACH)]


def prove_consumers() -> list[Row]:
    """Return a row for each group of kernels, and one for all, of loads that are followed to their consumers."""
    rows, everything = [], (0, 0, 0, Counter[str]())
    for group in ("examples", "Numba", "Triton"):
        loads = followed = shared = 0
        reasons: Counter[str] = Counter()
        for module in modules(group).values():
            traced = trace(module, TraceOptions("exposed"))
            of_consumers = {site for found in traced.probes.values() for site, lines in found.items() if lines.window_ends}
            found = prove(traced, assembled(traced.module))
            loads += sum(site.kind in ("load", "atomic") and bool(site.scheme) for site in traced.sites)
            followed += len(of_consumers)
            shared += sum(bool(one.shared_waits) for one in found)
            reasons.update(_without_places(one.reason) for one in found if one.site in of_consumers and one.completeness != COMPLETE)
        rows.append(_consumers_row(f"all of {group}", loads, followed, shared, reasons, None))
        everything = (everything[0] + loads, everything[1] + followed, everything[2] + shared, everything[3] + reasons)
    return [*rows, _consumers_row("all kernels", *everything, FOLLOWED)]


def _consumers_row(case: str, loads: int, followed: int, shared: int, reasons: Counter[str], reach: float | None) -> Row:
    note = "; ".join(f"{amount} x {reason}" for reason, amount in reasons.most_common(4))
    peer = {"loads": float(loads), "followed": float(followed), "awaited with another": float(shared)}
    return Row(case, "waits of consumers proved", 1 - reasons.total() / followed, "share", reach, "higher", peer, note)


def change_group() -> list[Row]:
    """Return how many changes of the examples' assembled code, the first of each kind, the proof does not catch."""
    rows = []
    for name, module in modules("examples").items():
        traced, code, _ = proofs_of(module)
        functions = disassemble(code).functions
        first = {mutation.name: mutation for mutation in reversed(list(mutations(traced, code)))}
        survived = []
        for kind, mutation in first.items():
            proofs = prove(traced, mutated(code, functions[mutation.kernel], mutation.changed))
            if next(proof for proof in proofs if proof.site == mutation.site).completeness != ISSUE_ONLY:
                survived.append(kind)
        rows.append(
            Row(
                f"changes of {name}",
                "not caught",
                float(len(survived)),
                "changes",
                0.0,
                peer={"changes": float(len(first))},
                note="; ".join(survived),
            )
        )
    return [*rows, change_aggregates()]


def change_aggregates() -> Row:
    """Return how many changes of warp-aggregated atomics the proof does not catch."""
    traced = trace(aggregates.module())
    code = assembled(traced.module)
    kernels = {site: kernel for kernel, positions in traced.positions.items() for site in positions if traced.sites[site].kind == "atomic"}
    survived, made = [], 0
    for names, changed in aggregates.changed(traced, code, set()):
        found = {kernels[proof.site]: proof.completeness for proof in prove(traced, changed) if proof.site in kernels}
        survived.extend(f"{kind} of {name}" for name, kind in names.items() if found[name] != ISSUE_ONLY)
        made += len(names)
    changes_made = {"changes": float(made)}
    case = "changes of atomics that one lane does"
    return Row(case, "not caught", float(len(survived)), "changes", 0.0, peer=changes_made, note="; ".join(survived))


def _without_places(reason: str) -> str:
    """Return a reason without registers and addresses, so that similar reasons become equal."""
    return " ".join("..." if word.startswith("0x") else word for word in reason.replace(",", "").split())


def run_case(name: str, options: argparse.Namespace) -> list[Row]:
    return {"kernels": prove_kernels, "changes": change_group, "consumers": prove_consumers}[name]()


def main() -> None:
    arguments = parser(__doc__, "emulator:h200")
    arguments.set_defaults(limit=600.0)
    measure("proof", ("kernels", "changes", "consumers"), run_case, arguments.parse_args())


if __name__ == "__main__":
    main()
