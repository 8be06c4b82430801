"""Which sites the assembled code accesses exactly as the PTX does, so that what is counted on PTX is what the hardware does.

The assembler merges neighbouring accesses, drops those whose value it has, splits, unrolls, turns atomics into loops. A site is `exact` if
the assembled code accesses memory for it in the same number, width and kind, whenever its basic block is executed:

- at least one instruction was made from it, each with the kind and the width of the site;
- as many as from any other site of its basic block, so that no copy of an unrolled block lacks it;
- no loop of the assembled code goes through its basic block without one of them, and none has left a loop;
- it was not moved behind a branch that comes later in the PTX, and stands under no condition of its own;
- the lanes do not first combine what they have, as for an addition of a constant to one address;
- and they come to it in the same groups (`grouping`).

All else is a hint, with the reason; of that, sites which the assembler made one wider access of are called `merged`. Local memory
is always a hint: what of it is kept in registers is the assembler's choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

from memlane.instrument.assembled import Assembled
from memlane.instrument.grouping import Apart, Grouping, is_guarded
from memlane.instrument.sites import site_table
from memlane.instrument.tracing import Traced
from memlane.ptx import (
    Address,
    ControlFlow,
    Function,
    Instruction,
    Module,
    Register,
    flatten_scopes,
    inline_calls,
    memory_accesses,
    registers_written,
)
from memlane.record import EXACT, HINT, MERGED, Site
from memlane.sass import Access, Program, disassemble
from memlane.walks import reachable

_COMBINES = frozenset({"VOTE", "VOTEU", "REDUX", "POPC", "UPOPC", "UFLO", "FLO", "MATCH", "SHFL"})
"""What the lanes of a warp agree with on who accesses for all, and what gives them the result."""


Calls = tuple[tuple[str, int], ...]
"""The calls that lead to a function, each by who calls and the index of the instruction."""

_JOINING = frozenset({"BSYNC", "WARPSYNC"})
"""Where lanes wait, which carries the line of the last instruction of one way and is executed by those of all."""


@dataclass(frozen=True, slots=True)
class SiteExactness:
    """How a site is accessed by the assembled code."""

    site: int
    """Number of the site."""
    verdict: str
    """`exact`, `merged` or `hint`."""
    reason: str
    """Why it is not exact, in words; empty otherwise."""
    accesses: tuple[Access, ...]
    """What was made from it, in the order of the code; nothing of a merged site whose neighbour carries their access."""
    assembled: str = ""
    """The accesses that do its work in words, such as `1 x 16 B shared load`, that of a merged neighbour too; empty where there is none."""
    merged: tuple[int, ...] = ()
    """Of a merged site: the numbers of the sites that became one access, by their addresses; empty where these do not show."""
    exact_if_full: bool = False
    """Whether a hint is exact in a launch in which every request of the site had all lanes of its warp."""


@dataclass(frozen=True, slots=True)
class SiteChange:
    """A site whose accesses are others in the traced code than in the original."""

    site: int
    original: str
    """What the original code makes of it, for example `1 x 16 B`, or `none`."""
    traced: str

    def __str__(self) -> str:
        return f"{self.original} in the original, {self.traced} traced"


def exactness(module: Module, assembled: bytes | Program) -> tuple[SiteExactness, ...]:
    """The verdict for each counted site of a module (not of an instrumented one), in the order of their numbers.

    `assembled`: its cubin, or the program in that. Raises MemlaneError if it is that of another module, CompileError if it is no cubin, and
    MissingDependency.
    """
    functions, table = _Functions(Assembled(module, _program(assembled))), site_table(module)
    verdicts: list[SiteExactness] = []
    for name, known in table.of_kernel.items():
        by_place: dict[tuple[str, Calls], dict[int, Site]] = {}
        for index, site in known.items():
            if site.is_counted:
                origin = table.inlined.origin(name, index)
                by_place.setdefault((origin.function, origin.calls), {})[origin.instruction] = site
        if by_place:
            functions.code.check(name)
        for (function, calls), sites in by_place.items():
            verdicts.extend(functions.verdicts(function, calls, sites))
    return tuple(sorted(verdicts, key=lambda verdict: verdict.site))


def changes(module: Module, original: bytes | Program, traced: Traced, assembled: bytes | Program) -> tuple[SiteChange, ...]:
    """The timed sites whose accesses tracing changed: those that the assembler merges in the original and cannot merge around probes, or
    unrolls less often. Of a wait for products of a warpgroup: those that had others under way.

    `original`: the cubin of `module`; `assembled`: that of `traced.module`. Raises as `exactness`.
    """
    before, after = Assembled(module, _program(original)), Assembled(traced.module, _program(assembled))
    inlined, found = inline_calls(module), []
    for kernel, positions in traced.positions.items():
        for number, position in positions.items():
            site = traced.sites[number]
            origin = inlined.origin(kernel, site.instruction)
            if origin.calls and before.is_elsewhere(origin.function):
                continue
            was = _described(before, origin.function, origin.instruction, site)
            now = _described(after, kernel, position, site)
            if site.op.startswith("wgmma"):
                shares = [_waited_products(code, kernel) for code in (before, after)]
                if shares[1] > shares[0]:
                    was, now = (f"{float(share):.0%} of the products are waited for before the next" for share in shares)
            if was != now:
                found.append(SiteChange(number, was, now))
    return tuple(sorted(found, key=lambda change: change.site))


def _program(assembled: bytes | Program) -> Program:
    return disassemble(assembled) if isinstance(assembled, bytes) else assembled


def _described(code: Assembled, function: str, instruction: int, site: Site) -> str:
    """What was made of an instruction: how many accesses of which width, and of an atomic or a reduction who does them."""
    counted = Counter(access.nbytes for access in code.accesses(function, instruction, site.space).values())
    text = " + ".join(f"{count} x {nbytes} B" for nbytes, count in sorted(counted.items())) or "none"
    if not (site.is_atomic and _is_combined(code, function, instruction)):
        return text
    return f"{text} by one lane for all" if counted.total() == 1 else f"{text}, of which one by one lane for all"


def _is_combined(code: Assembled, function: str, instruction: int) -> bool:
    """Whether lanes first combine what they have."""
    return any(code.flow.nodes[node].opcode in _COMBINES for node in code.nodes(function, instruction))


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


class _Functions:
    """The functions of a module, kernels and what they call, in its assembled code."""

    def __init__(self, code: Assembled) -> None:
        self.code = code
        self._groupings: dict[str, tuple[Grouping, Mapping[int, int], frozenset[int]]] = {}
        self._coming_apart: dict[str, bool] = {}

    def verdicts(self, name: str, calls: Calls, sites: Mapping[int, Site]) -> list[SiteExactness]:
        """Of the sites of a function, by index, that it has where these calls lead to it."""
        if calls and self.code.is_elsewhere(name):
            reason = "ptxas inlined the function, and does not tell the accesses of its calls apart"
            return [SiteExactness(site.id, HINT, reason, ()) for site in sites.values()]
        callees = [*(caller for caller, _ in calls[1:]), name][: len(calls)]
        apart = [self._called_apart(caller, index, callee) for (caller, index), callee in zip(calls, callees, strict=True)]
        reasons = [one for one in apart if one.reason]
        return [_less_exact(verdict, reasons) for verdict in self._function(name, sites).verdicts()]

    def _called_apart(self, caller: str, index: int, callee: str) -> Apart:
        """Why the lanes that come to a call may come in other groups, or another number of times, in the assembled code."""
        flow = self.code.flow
        nodes = [node for node in self.code.nodes(caller, index) if flow.nodes[node].opcode == "CALL"]
        return self._function(caller, {}).called_apart(index, [node for node in nodes if flow.entry(callee) in flow.successors[node]])

    def _function(self, name: str, sites: Mapping[int, Site]) -> _Kernel:
        function = self.code.module.functions[name]
        if name not in self._groupings:
            flow, block, looping = _blocks(function)
            self._groupings[name] = Grouping(flow, self.code.flow, name, self._coming_apart), block, looping
        return _Kernel(self.code, function, sites, *self._groupings[name])


def _less_exact(verdict: SiteExactness, reasons: Sequence[Apart]) -> SiteExactness:
    """The verdict on an access of a function whose calls are not the same in the assembled code."""
    if not reasons or verdict.verdict == MERGED:
        return verdict
    if_full = all(one.unless_full for one in reasons)
    if verdict.verdict == EXACT:
        return replace(verdict, verdict=HINT, reason=f"of its call: {reasons[0].reason}", exact_if_full=if_full)
    return replace(verdict, exact_if_full=verdict.exact_if_full and if_full)


class _Kernel:
    """The sites of one kernel, or of a function that it calls."""

    def __init__(
        self,
        code: Assembled,
        kernel: Function,
        sites: Mapping[int, Site],
        grouping: Grouping,
        block: Mapping[int, int],
        looping: frozenset[int],
    ) -> None:
        """`block`: by index of an instruction its basic block in the PTX; `looping`: the indices of those in a loop."""
        self.code = code
        self.name = kernel.name
        self.sites = sites
        self.grouping, self.block, self.looping = grouping, block, looping
        flow = grouping.ptx
        instructions = tuple(kernel.body.instructions()) if kernel.body else ()
        self.guarded = {index for index, one in enumerate(instructions) if one.guard is not None}
        self.filling = {index for index in sites if any(access.read_bytes is not None for access in memory_accesses(instructions[index]))}
        """Asynchronous copies whose lanes may read less than they store."""
        ends = {block.index for block in flow.blocks if len(flow.successors[block.index]) > 1}
        lines = code.lines(kernel.name)
        self.branches = {block: lines[index] for index, block in sorted(self.block.items()) if block in ends}
        """By basic block that ends in a conditional branch: the line of that."""
        self.last = {block: index for index, block in sorted(self.block.items())}
        self.made = {index: code.accesses(kernel.name, index, site.space) for index, site in sites.items()}
        self.groups = {index: self._group(kernel, index) for index in sites if self._is_wider(index)}
        """By index of a site from which wider accesses than its own were made: the indices of those that became one with it."""
        self.carrier = {member: index for index, group in self.groups.items() for member in (index, *group)}
        self.most: dict[int, int] = {}
        for index, made in self.made.items():
            site = sites[index]
            if all((access.kind, access.nbytes) == (site.kind, site.nbytes) for access in made.values()):
                self.most[self.block[index]] = max(self.most.get(self.block[index], 0), len(made))

    def verdicts(self) -> list[SiteExactness]:
        found = []
        for index, site in self.sites.items():
            own, carrier = tuple(self.made[index].values()), self.carrier.get(index)
            reason = self._reason(index, site)
            if carrier is not None and reason == self._merged(carrier):
                merged = tuple(self.sites[other].id for other in self.groups[carrier])
                found.append(SiteExactness(site.id, MERGED, reason, own, _listed(self.made[carrier].values()), merged))
                continue
            apart = Apart(reason) if reason else self.grouping.apart(self.block[index], self.made[index].keys())
            verdict = HINT if apart.reason else EXACT
            found.append(SiteExactness(site.id, verdict, apart.reason, own, _listed(own), exact_if_full=apart.unless_full))
        return found

    def called_apart(self, index: int, calls: Collection[int]) -> Apart:
        """What is to be said of a call, of which the assembler made these."""
        if not calls:
            return Apart("ptxas made no such call")
        # What prepares a call may stand in front of the branch that decides on it: it tells of a block nothing that others would not.
        is_last = self.last[self.block[index]] == index
        reason = ("" if is_last else self._moved(index, calls)) or self._narrowed(index, calls)
        return Apart(reason) if reason else self.grouping.apart(self.block[index], calls)

    def _reason(self, index: int, site: Site) -> str:
        made = self.made[index]
        if site.space == "local":
            return "local memory: the assembler decides what of it is kept in registers"
        if not made:
            return self._absent(index, site)
        if site.is_atomic and any(access.kind == "load" for access in made.values()):
            return f"ptxas made a loop of it that tries until it succeeds ({_listed(made.values())} a turn)"
        if {access.kind for access in made.values()} != {site.kind}:
            return f"ptxas made {_listed(made.values())} of the {site.kind}"
        if _is_combined(self.code, self.name, index):
            return "ptxas lets the lanes of a warp combine their values first"
        if self._is_wider(index):
            return self._merged(index)
        if any(access.nbytes != site.nbytes for access in made.values()):
            return f"ptxas made {_listed(made.values())} of {site.nbytes} B"
        if index in self.filling:
            return "its lanes may fill what they copy with zeros, and the sectors of such copies were not compared with a profiler"
        most = self.most[self.block[index]]
        if len(made) < most:
            return f"the assembled code has it {_times(len(made))}, and another access of its block {_times(most)}"
        return self._moved(index, made) or self._narrowed(index, made)

    def _narrowed(self, index: int, made: Collection[int]) -> str:
        """Whether fewer lanes execute it than its basic block: it was moved behind a branch, or stands under a condition."""
        block = self.block[index]
        if any(self.grouping.is_moved_behind(block, node, self.branches) for node in made):
            return "ptxas moved it behind a branch, so that only lanes that need it access memory"
        if index in self.guarded or not any(is_guarded(self.code.flow.nodes[node]) for node in made):
            return ""
        beside = (node for other in self._beside(index) for node in self.made[other] if other not in self.guarded)
        if block == 0 or any(not is_guarded(self.code.flow.nodes[node]) for node in beside):
            return "ptxas put a condition on it, so that only lanes that need it access memory"
        return ""

    def _moved(self, index: int, made: Collection[int]) -> str:
        """Whether it is executed less often than its basic block: what else was made from the block repeats without it."""
        if index not in self.looping:
            return ""
        beside = {node for other, nodes in self.made.items() if self.block[other] == self.block[index] for node in nodes}
        last = self.code.nodes(self.name, self.last[self.block[index]])
        beside.update(node for node in last if self.code.flow.nodes[node].opcode not in _JOINING)
        if any(self._repeats(node, avoiding=made) for node in beside.difference(made)):
            return "ptxas moved it to where it is executed less often, out of a loop or behind a branch"
        if len(made) == 1 and not self._repeats(next(iter(made)), avoiding=()):
            return "ptxas moved it out of its loop, or found that the loop runs once"
        return ""

    def _absent(self, index: int, site: Site) -> str:
        """Why nothing was made from a site: the nearest access of its block that is wider has swallowed it, or nobody needed it."""
        if index in self.carrier:
            return self._merged(self.carrier[index])
        if any(self._is_wider(other) and self._alike(self.sites[other], site) for other in self._beside(index)):
            return "ptxas made no access for it; it may be part of a wider one of a neighbour"
        if site.space in ("tex", "surf"):
            return f"the assembled code does not tell which {'texture fetch' if site.space == 'tex' else 'surface access'} is this one"
        if site.space == "const":
            return "ptxas made it an operand of other instructions"
        return "ptxas made no access for it: the value was known already, or nobody needed it"

    def _is_wider(self, index: int) -> bool:
        return any(access.nbytes > self.sites[index].nbytes for access in self.made[index].values())

    def _merged(self, index: int) -> str:
        wide, narrow = max(access.nbytes for access in self.made[index].values()), self.sites[index].nbytes
        return f"ptxas merged {wide // narrow} x {narrow} B into 1 x {wide} B"

    def _group(self, kernel: Function, index: int) -> tuple[int, ...]:
        """The indices of the sites that became one access with that at `index`, itself among them, by their addresses; empty where these
        do not show."""
        site = self.sites[index]
        wide = max(access.nbytes for access in self.made[index].values())
        absent = [other for other in self._beside(index) if not self.made[other] and self._alike(self.sites[other], site)]
        return _run(_offsets(kernel, index, [index, *absent]), index, site.nbytes, wide)

    def _beside(self, index: int) -> list[int]:
        """The indices of the other sites of its basic block."""
        return [other for other in self.sites if other != index and self.block[other] == self.block[index]]

    @staticmethod
    def _alike(one: Site, other: Site) -> bool:
        return (one.kind, one.space, one.nbytes) == (other.kind, other.space, other.nbytes)

    def _repeats(self, node: int, avoiding: Collection[int]) -> bool:
        """Whether control can come back to an instruction without passing one of others."""
        following = self.grouping.following
        return node in reachable(following(node), following, set(avoiding) - {node})


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _offsets(kernel: Function, index: int, near: Iterable[int]) -> Mapping[int, int]:
    """By index, of those `near` that use the same base as the access at `index` while it holds the same: their offsets from it."""
    instructions = list(kernel.instructions())
    own = _address(instructions[index])
    if own is None:
        return {}
    found = {}
    for other in near:
        address = _address(instructions[other])
        between = instructions[min(index, other) : max(index, other)]
        if address is None or address.base != own.base:
            continue
        if isinstance(own.base, Register) and any(own.base.name in registers_written(one) for one in between):
            continue
        found[other] = address.offset
    return found


def _address(instruction: Instruction) -> Address | None:
    addresses = [operand for operand in instruction.operands if isinstance(operand, Address)]
    return addresses[0] if len(addresses) == 1 else None


def _run(places: Mapping[int, int], index: int, narrow: int, wide: int) -> tuple[int, ...]:
    """The sites whose bytes lie side by side and make up one access of `wide` bytes with that at `index`; empty unless there is exactly one
    such row."""
    at = {offset: site for site, offset in places.items() if offset != places[index] or site == index} if index in places else {}
    rows = []
    for first in range(places.get(index, 0) - wide + narrow, places.get(index, 0) + 1, narrow):
        offsets = range(first, first + wide, narrow)
        if all(offset in at for offset in offsets):
            rows.append(tuple(at[offset] for offset in offsets))
    return rows[0] if len(rows) == 1 else ()


def _listed(accesses: Iterable[Access]) -> str:
    counted = Counter(map(str, accesses))
    return " and ".join(f"{count} x {text}" for text, count in counted.items())


def _blocks(kernel: Function) -> tuple[ControlFlow, Mapping[int, int], frozenset[int]]:
    """The control flow of a kernel; by index of an instruction its basic block; and the indices of those in a loop."""
    flow = ControlFlow(flatten_scopes(kernel))
    block = dict(enumerate(one.index for one in flow.blocks for _ in one.instructions))
    in_loops = {number for loop in flow.loops for number in loop.blocks}
    return flow, block, frozenset(index for index, number in block.items() if number in in_loops)
