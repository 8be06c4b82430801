"""What does an asynchronous copy (`cp.async`) cost, by the addresses of its lanes, and does the rule of `memlane.chip.copies` give it?

Kernels of 128 copies, each with a pattern of addresses of its own (`copy_patterns.many`), run once under Nsight Compute, which says of
each instruction how many wavefronts and sectors it took.

    python benchmarks/copy_costs.py

Prediction, from 562 patterns of a first run: the rule gives all of them that the profiler sees. It does not see a copy whose guard or
operand is predicate 0: of copies without a source size it has no wavefront and no sector then, of others numbers of other lanes. That is
a fault of the profiler, not of the chip: the same copy has the right numbers under any other predicate. Other accesses under predicate 0
are seen rightly; `counts.py` compares many.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from copy_patterns import CopyPattern, many
from harness import Row, show, store
from ncu import LABELS, Counted, report
from running import machine, parser
from wgmma import FAR_BYTES, IDEAL, SECTORS, WAVEFRONTS
from wgmma_kernels import TILE_BYTES

from memlane.chip.copies import CopyCost, copy_cost
from memlane.lab.profiler import find
from memlane.launch import Target
from memlane.ptx import parse as parse_ptx
from memlane.targets import target as named_target

SOURCES = [
    "src/memlane/chip/copies.py",
    "src/memlane/lab/profiler.py",
    "benchmarks/copy_costs.py",
    "benchmarks/copy_patterns.py",
    "benchmarks/ncu.py",
]

AT_ONCE, ROW_BYTES = 128, 128
COSTS, UNSEEN, GUARDED = (
    "patterns that the rule gives otherwise",
    "seen otherwise under predicate 0",
    "accesses seen otherwise under predicate 0",
)


@dataclass(frozen=True)
class Form:
    """One form of `cp.async`."""

    nbytes: int
    cache: str
    masked: bool

    @property
    def name(self) -> str:
        return f"cp.async.{self.cache}, {self.nbytes} bytes{', with a source size' * self.masked}"

    def cost(self, one: CopyPattern) -> CopyCost:
        """Return the cost by the rule."""
        near, far, reads = one.shared(self.nbytes), one.far(self.nbytes), one.reads & one.mask
        return copy_cost(named_target("emulator:h200").chip, far, near, one.mask, self.nbytes, reads, self.cache == "cg", ~one.parts)

    def kernels(self, quick: bool) -> Iterator[tuple[str, list[CopyPattern]]]:
        """Yield names of kernels, each with the patterns of its copies."""
        left = iter(list(many(self.nbytes, self.cache, self.masked))[:: 16 if quick else 1])
        number = 0
        while some := list(islice(left, AT_ONCE)):
            yield f"copies_{self.cache}_{self.nbytes}{'_masked' * self.masked}_{number}", some
            number += 1


FORMS = [Form(nbytes, cache, masked) for nbytes, cache in ((4, "ca"), (8, "ca"), (16, "ca"), (16, "cg")) for masked in (False, True)]


# -- kernels -------------------------------------------------------------------------------------------------------------------------


def copies_text(name: str, form: Form, number: int) -> str:
    """Return a kernel `(in, table)` that copies so many times: by copy and lane the words of `CopyPattern.rows`."""
    size = f"{form.nbytes}, %n" if form.masked else f"{form.nbytes}"
    words = ("%s", "%g", "%n", "%f")
    copies = "".join(
        f"""\
{"".join(f"ld.volatile.global.u32 {word}, [%table+{4 * ROW_BYTES * one + ROW_BYTES * at}]; " for at, word in enumerate(words))}
setp.ne.u32 %p, %f, 0; cvt.u64.u32 %from, %g; add.u64 %from, %in, %from; add.u32 %s, %s, %base;
@%p cp.async.{form.cache}.shared.global [%s], [%from], {size};
"""
        for one in range(number)
    )
    return f"""
.visible .entry {name}(.param .u64 in, .param .u64 table) {{
    .reg .b32 %t, %s, %g, %n, %f, %base; .reg .b64 %in, %table, %from; .reg .pred %p;
    .shared .align 1024 .b8 tile[{TILE_BYTES}];
    ld.param.u64 %in, [in]; ld.param.u64 %table, [table]; mov.u32 %t, %tid.x; mul.wide.u32 %from, %t, 4; add.u64 %table, %table, %from;
    mov.u32 %base, tile;
{copies}    cp.async.wait_all;
    bar.warp.sync -1;
    ret;
}}
"""


def launch(target: Target, quick: bool) -> None:
    """Launch the kernels for the profiler."""
    kernels = [(name, form, some) for form in FORMS for name, some in form.kernels(quick)]
    texts = [*(copies_text(name, form, len(some)) for name, form, some in kernels)]
    loaded = target.load(parse_ptx(f".version 7.8\n.target sm_90\n.address_size 64\n{''.join(texts)}", "copies.ptx"))
    where = target.zeros(FAR_BYTES, np.uint8)
    for name, form, some in kernels:
        loaded[name][1, 32](where, target.array(np.stack([one.rows(form.nbytes) for one in some])))
        target.sync()


# -- rows ----------------------------------------------------------------------------------------------------------------------------


def of_zero(one: Counted) -> bool:
    """Return whether the copy depends on predicate 0."""
    return "P0" in one.text.replace(",", " ").replace("!", " ").replace("@", " ").split()


def form_rows(form: Form, seen: list[tuple[CopyPattern, Counted]]) -> Iterator[Row]:
    """Yield the number of patterns that differ from the rule, with the profiler's counts, and the number that it did not see."""
    peer: dict[str, float] = {}
    others, unseen = [], 0
    for pattern, made in seen:
        cost, found = form.cost(pattern), (made.metrics[SECTORS], made.metrics[WAVEFRONTS], made.metrics[IDEAL])
        same = found == (cost.sectors, cost.wavefronts, cost.ideal_wavefronts)
        if of_zero(made):
            unseen += not same
            continue
        peer |= {pattern.name: found[1], f"{pattern.name}: sectors": found[0], f"{pattern.name}: ideal": found[2]}
        if not same:
            others.append(f"{pattern.name}: {cost.sectors, cost.wavefronts, cost.ideal_wavefronts}, profiler {found}")
    note = "; ".join(others[:20])
    yield Row(form.name, COSTS, float(len(others)), f"of {len(peer) // 3} patterns", 0.0, peer=peer, note=note)
    hidden = {"under predicate 0": float(len(seen) - len(peer) // 3)}
    yield Row(form.name, UNSEEN, float(unseen), "patterns", peer=hidden)


def rows(options: argparse.Namespace) -> list[Row]:
    """Compare the profiler's counts with the rule. Raises RuntimeError without a profiler."""
    program = find()
    script = [sys.executable, sys.argv[0], "--target", options.target, "--plain", *(["--quick"] if options.quick else [])]
    seen = iter(report(program, list(LABELS), script, dict(os.environ), options.limit).disassembled)
    found: list[Row] = []
    for form in FORMS:
        pairs: list[tuple[CopyPattern, Counted]] = []
        for _, some in form.kernels(options.quick):
            made = [one for one in next(seen).instructions if one.opcode.startswith("LDGSTS")]
            pairs += zip(some, made, strict=True)
        found += form_rows(form, pairs)
    return found


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.plain:
        launch(named_target(given.target), given.quick)
        return
    found = rows(given)
    store("copy_costs", found, **machine(given))
    show(found)


if __name__ == "__main__":
    main()
