"""Find the accesses that tracing changed, by comparing the machine code of a site in the original and in the traced module."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from memlane.audit.assembled_module import AssembledModule, program_of
from memlane.instrument.tracing import Traced
from memlane.number_format import percent
from memlane.ptx import Module, inline_calls
from memlane.record import Site
from memlane.sass import Program


@dataclass(frozen=True, slots=True)
class SiteChange:
    """A site whose accesses differ between the traced and the original machine code."""

    site: int
    original: str
    """Accesses of the site in the original machine code, for example `1 x 16 B`, or `none`."""
    traced: str

    def __str__(self) -> str:
        return f"{self.original} in the original, {self.traced} traced"


def access_changes(module: Module, original: bytes | Program, traced: Traced, assembled: bytes | Program) -> tuple[SiteChange, ...]:
    """Return the timed sites whose accesses tracing changed, in the order of their numbers.

    Changed are accesses that ptxas merges in the original and cannot merge around probes, or whose loops it unrolls less often, and waits
    for products of a warpgroup that overlapped other products. `original`: the cubin of `module`; `assembled`: that of `traced.module`.
    Raises the errors of `exactness`.
    """
    before, after = AssembledModule(module, program_of(original)), AssembledModule(traced.module, program_of(assembled))
    inlined, found = inline_calls(module), []
    for kernel, positions in traced.positions.items():
        products: tuple[Fraction, ...] = ()
        for number, position in positions.items():
            site = traced.sites[number]
            origin = inlined.origin(kernel, site.instruction)
            if origin.calls and before.is_inlined(origin.function):
                continue
            was = _described(before, origin.function, origin.instruction, site)
            now = _described(after, kernel, position, site)
            if site.op.startswith("wgmma"):
                products = products or tuple(_serialized_products(code, kernel) for code in (before, after))
                if products[1] > products[0]:
                    was, now = (f"a wait after {percent(float(share))} of the products" for share in products)
            if was != now:
                found.append(SiteChange(number, was, now))
    return tuple(sorted(found, key=lambda change: change.site))


def _described(code: AssembledModule, function: str, instruction: int, site: Site) -> str:
    """Describe the accesses made of an instruction by number and width, and, for atomics, whether a leader performs them."""
    counted = Counter(access.nbytes for access in code.accesses(function, instruction, site.space).values())
    text = " + ".join(f"{count} x {nbytes} B" for nbytes, count in sorted(counted.items())) or "none"
    if not (site.is_atomic and code.is_combined(function, instruction)):
        return text
    return f"{text} by one lane for all" if counted.total() == 1 else f"{text}, one of them by one lane for all"


def _serialized_products(code: AssembledModule, kernel: str) -> Fraction:
    """Return the share of warpgroup products that are waited for before the next product in the code.

    It is 1 where ptxas found no way to let them overlap. The last product is not counted: it is waited for in any case.
    """
    nodes = [code.flow.nodes[node] for node in code.flow.nodes_of(kernel)]
    # ptxas ends a kernel whose products it serialised with a product in which no thread takes part.
    steps = [one for one in nodes if (one.opcode.endswith("GMMA") and "!UPT" not in one.text) or one.opcode == "WARPGROUP"]
    products = [at for at, one in enumerate(steps) if one.opcode != "WARPGROUP"]
    gaps = [steps[at + 1 : after] for at, after in pairwise(products)]
    waited = sum(any("DEPBAR" in one.modifiers and one.operands[-1].value == 0 for one in gap) for gap in gaps)
    return Fraction(waited, max(1, len(gaps)))
