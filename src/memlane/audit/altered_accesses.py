"""Which accesses tracing changed: what the assembled code makes of a site in the original and in the traced module."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from memlane.audit.assembled import Assembled, program_of
from memlane.instrument.tracing import Traced
from memlane.number_format import percent
from memlane.ptx import Module, inline_calls
from memlane.record import Site
from memlane.sass import Program


@dataclass(frozen=True, slots=True)
class SiteChange:
    """A site whose accesses are others in the traced code than in the original."""

    site: int
    original: str
    """What the original code makes of it, for example `1 x 16 B`, or `none`."""
    traced: str

    def __str__(self) -> str:
        return f"{self.original} in the original, {self.traced} traced"


def changes(module: Module, original: bytes | Program, traced: Traced, assembled: bytes | Program) -> tuple[SiteChange, ...]:
    """The timed sites whose accesses tracing changed: those that the assembler merges in the original and cannot merge around probes, or
    unrolls less often. Of a wait for products of a warpgroup: those that had others under way.

    `original`: the cubin of `module`; `assembled`: that of `traced.module`. Raises as `exactness`.
    """
    before, after = Assembled(module, program_of(original)), Assembled(traced.module, program_of(assembled))
    inlined, found = inline_calls(module), []
    for kernel, positions in traced.positions.items():
        products: tuple[Fraction, ...] = ()
        for number, position in positions.items():
            site = traced.sites[number]
            origin = inlined.origin(kernel, site.instruction)
            if origin.calls and before.is_elsewhere(origin.function):
                continue
            was = _described(before, origin.function, origin.instruction, site)
            now = _described(after, kernel, position, site)
            if site.op.startswith("wgmma"):
                products = products or tuple(_waited_products(code, kernel) for code in (before, after))
                if products[1] > products[0]:
                    was, now = (f"a wait after {percent(float(share))} of the products" for share in products)
            if was != now:
                found.append(SiteChange(number, was, now))
    return tuple(sorted(found, key=lambda change: change.site))


def _described(code: Assembled, function: str, instruction: int, site: Site) -> str:
    """What was made of an instruction: how many accesses of which width, and of an atomic or a reduction who does them."""
    counted = Counter(access.nbytes for access in code.accesses(function, instruction, site.space).values())
    text = " + ".join(f"{count} x {nbytes} B" for nbytes, count in sorted(counted.items())) or "none"
    if not (site.is_atomic and code.is_combined(function, instruction)):
        return text
    return f"{text} by one lane for all" if counted.total() == 1 else f"{text}, one of them by one lane for all"


def _waited_products(code: Assembled, kernel: str) -> Fraction:
    """The share of products of a warpgroup that are waited for before the next one in the text: all of them where the assembler found no
    way to let them follow each other. The last one of the text is waited for in any case."""
    nodes = [code.flow.nodes[node] for node in code.flow.nodes_of(kernel)]
    # It ends a kernel that it has treated so with a product that no thread takes part in.
    steps = [one for one in nodes if (one.opcode.endswith("GMMA") and "!UPT" not in one.text) or one.opcode == "WARPGROUP"]
    products = [at for at, one in enumerate(steps) if one.opcode != "WARPGROUP"]
    gaps = [steps[at + 1 : after] for at, after in pairwise(products)]
    waited = sum(any("DEPBAR" in one.modifiers and one.operands[-1].value == 0 for one in gap) for gap in gaps)
    return Fraction(waited, max(1, len(gaps)))
