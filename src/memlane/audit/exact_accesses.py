"""Tell which sites the machine code accesses exactly as the PTX does, so that counts on PTX hold for the hardware.

ptxas merges neighbouring accesses, drops those whose value is known, splits, unrolls, and turns atomics into loops. A site is `exact` if
the machine code accesses memory for it in the same number, width and kind, whenever its basic block is executed:

- at least one instruction was made from it, each with the kind and the width of the site;
- as many as from any other site of its basic block, so that no copy of an unrolled block lacks it;
- no loop of the machine code goes through its basic block without one of them, and none has left a loop;
- where its basic block is in no loop, no two of them are executed one after the other;
- it was not moved behind a branch that comes later in the PTX, and has no condition of its own and no branch around it;
- the lanes do not first combine their operands, as for an addition of a constant to one address;
- and the lanes reach it in the same groups (`grouping`).

Every other site is a `hint`, with the reason, or `merged` if ptxas made one wider access of several sites. Local memory is always a hint:
ptxas decides which of it to keep in registers.
"""

from __future__ import annotations

from collections import ChainMap, Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations

from memlane.audit.assembled_module import AssembledModule, program_of
from memlane.audit.grouping import Grouping, GroupMismatch, is_guarded
from memlane.audit.reconvergence import Reconvergence
from memlane.instrument.sites import site_table
from memlane.ptx import (
    Address,
    ControlFlow,
    Function,
    Instruction,
    Module,
    Register,
    flatten_scopes,
    registers_written,
)
from memlane.record import EXACT, HINT, MERGED, Site
from memlane.sass import Access, Program

Base = tuple[object, int]
"""The base of an address, and how often it had been written: equal bases hold the same value within one basic block."""

Calls = tuple[tuple[str, int], ...]
"""The calls that lead to a function, each by caller and index of the call instruction."""

_JOINING = frozenset({"BSYNC", "WARPSYNC"})
"""Opcodes at which lanes wait. They carry the line of the last instruction of one path and are executed by the lanes of all paths."""


@dataclass(frozen=True, slots=True)
class SiteExactness:
    """The verdict on how the machine code accesses a site."""

    site: int
    """Number of the site."""
    verdict: str
    """`exact`, `merged` or `hint`."""
    reason: str
    """Why the site is not exact, in words; empty otherwise."""
    accesses: tuple[Access, ...]
    """Accesses made from the site, in the order of the code; empty for a merged site if a neighbour carries the wide access."""
    assembled: str = ""
    """Accesses that do its work, such as `1 x 16 B shared load`, including that of a merged neighbour; empty if there is none."""
    merged: tuple[int, ...] = ()
    """Numbers of the sites that became one access with a merged site, by their addresses; empty where the addresses do not tell."""
    exact_if_full: bool = False
    """Whether a hint becomes exact in a launch in which every request of the site had all lanes of its warp."""


def exactness(module: Module, assembled: bytes | Program) -> tuple[SiteExactness, ...]:
    """Return the verdict for each counted site of a module (not of an instrumented one), in the order of their numbers.

    `assembled`: its cubin, or the program in it. Raises MemlaneError if it belongs to another module, CompileError if it is not a cubin,
    and MissingDependency if nvdisasm is missing.
    """
    functions, table = _Functions(AssembledModule(module, program_of(assembled))), site_table(module)
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


class _Functions:
    """The functions of a module, kernels and their callees, in its machine code."""

    def __init__(self, code: AssembledModule) -> None:
        self.code = code
        self._texts: dict[str, _Text] = {}
        self._reconvergence = Reconvergence(code)

    def verdicts(self, name: str, calls: Calls, sites: Mapping[int, Site]) -> list[SiteExactness]:
        """Return the verdicts on the sites of a function, given by index, where these calls lead to it."""
        callees = [*(caller for caller, _ in calls[1:]), name][: len(calls)]
        if inlined := next((one for one in reversed(callees) if self.code.is_inlined(one)), ""):
            which = "the function" if inlined == name else f"{self.code.module.functions[inlined].title}, which calls it"
            reason = f"ptxas inlined {which}, so the accesses of its calls cannot be told apart"
            return [SiteExactness(site.id, HINT, reason, ()) for site in sites.values()]
        mismatches = [self._call_mismatch(caller, index, callee) for (caller, index), callee in zip(calls, callees, strict=True)]
        reasons = [one for one in mismatches if one.reason]
        return [_less_exact(verdict, reasons) for verdict in self._function(name, sites).verdicts()]

    def _call_mismatch(self, caller: str, index: int, callee: str) -> GroupMismatch:
        """Return why lanes may reach a call in different groups, or a different number of times, in the machine code."""
        flow = self.code.flow
        nodes = [node for node in self.code.nodes(caller, index) if flow.nodes[node].opcode == "CALL"]
        return self._function(caller, {}).call_mismatch(index, [node for node in nodes if flow.entry(callee) in flow.successors[node]])

    def _function(self, name: str, sites: Mapping[int, Site]) -> _Kernel:
        if name not in self._texts:
            self._texts[name] = _Text(self.code, self.code.module.functions[name], self._reconvergence)
        return _Kernel(self.code, self._texts[name], sites)


def _less_exact(verdict: SiteExactness, reasons: Sequence[GroupMismatch]) -> SiteExactness:
    """Return a verdict weakened by the reasons for which the calls of its function differ in the machine code."""
    if not reasons or verdict.verdict == MERGED:
        return verdict
    if_full = all(one.unless_full for one in reasons)
    if verdict.verdict == EXACT:
        return replace(verdict, verdict=HINT, reason=f"of its call: {reasons[0].reason}", exact_if_full=if_full)
    return replace(verdict, exact_if_full=verdict.exact_if_full and if_full)


class _Text:
    """The PTX of one kernel, or of a function that it calls, independent of any choice of sites."""

    def __init__(self, code: AssembledModule, function: Function, reconvergence: Reconvergence) -> None:
        self.name = function.name
        self.instructions = tuple(function.instructions())
        flow = ControlFlow(flatten_scopes(function))
        self.block = dict(enumerate(one.index for one in flow.blocks for _ in one.instructions))
        """Basic block of each instruction, by index."""
        in_loops = {number for loop in flow.loops for number in loop.blocks}
        self.looping = frozenset(index for index, number in self.block.items() if number in in_loops)
        """Indices of the instructions inside a loop."""
        self.last = {block: index for index, block in self.block.items()}
        """Index of the last instruction of each basic block."""
        lines = code.lines(function.name)
        branches = {block: lines[index] for block, index in self.last.items() if len(flow.successors[block]) > 1}
        self.grouping = Grouping(flow, code.flow, function.name, reconvergence.diverged(function.name), branches)

    @cached_property
    def bases(self) -> Mapping[int, tuple[Base, int]]:
        """Base of the only address of each instruction, with how often it was written above, and the offset from it."""
        written: Counter[str] = Counter()
        found = {}
        for index, one in enumerate(self.instructions):
            address = _address(one)
            if address is not None:
                base = address.base
                found[index] = (base, written[base.name] if isinstance(base, Register) else 0), address.offset
            written.update(set(registers_written(one)))
        return found


class _Kernel:
    """The sites of one kernel, or of a function that it calls."""

    def __init__(self, code: AssembledModule, text: _Text, sites: Mapping[int, Site]) -> None:
        self.code = code
        self.text = text
        self.sites = sites
        self.grouping, self.block = text.grouping, text.block
        self.made = {index: code.accesses(text.name, index, site.space) for index, site in sites.items()}
        self.wider = {index for index, site in sites.items() if any(access.nbytes > site.nbytes for access in self.made[index].values())}
        """Indices of sites from which wider accesses were made."""
        self.wider_beside = {(self.block[index], *_merge_key(sites[index])) for index in self.wider}
        self.groups = {index: self._group(index) for index in sites if index in self.wider}
        """Indices of the sites that became one access with each site of `wider`."""
        self.carrier = {member: index for index, group in self.groups.items() for member in (index, *group)}
        self._made_of: dict[int, list[int]] = defaultdict(list)
        """Nodes made from the sites of each basic block."""
        self._chains_of: dict[int, frozenset[int]] = {}
        self.most: dict[int, int] = {}
        for index, made in self.made.items():
            site = sites[index]
            self._made_of[self.block[index]] += made
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
            mismatch = GroupMismatch(reason) if reason else self.grouping.mismatch(self.block[index], self.made[index].keys())
            verdict = HINT if mismatch.reason else EXACT
            found.append(SiteExactness(site.id, verdict, mismatch.reason, own, _listed(own), exact_if_full=mismatch.unless_full))
        return found

    def call_mismatch(self, index: int, calls: Collection[int]) -> GroupMismatch:
        """Return why lanes may reach a call in different groups; `calls`: the nodes that ptxas made of it."""
        if not calls:
            return GroupMismatch("the assembled code has no such call")
        # What prepares a call may stand in front of the branch that decides on it, so it says nothing special about the block.
        is_last = self.text.last[self.block[index]] == index
        reason = ("" if is_last else self._moved(index, calls)) or self._narrowed(index, calls)
        return GroupMismatch(reason) if reason else self.grouping.mismatch(self.block[index], calls)

    def _reason(self, index: int, site: Site) -> str:
        made = self.made[index]
        if site.space == "local":
            return "local memory: the assembler may keep it in registers"
        if not made:
            return self._absent(index, site)
        if site.is_atomic and any(access.kind == "load" for access in made.values()):
            return f"ptxas turned it into a loop that retries until it succeeds ({_listed(made.values())} per iteration)"
        if {access.kind for access in made.values()} != {site.kind}:
            return f"ptxas turned the {site.kind} into {_listed(made.values())}"
        if site.kind != "product" and self.code.is_combined(self.text.name, index):
            return "ptxas first combines the values of a warp's lanes"
        if index in self.wider:
            return self._merged(index)
        if any(access.nbytes != site.nbytes for access in made.values()):
            return f"ptxas turned its {site.nbytes} B into {_listed(made.values())}"
        most = self.most[self.block[index]]
        if len(made) < most:
            return f"it occurs {_times(len(made))} in the assembled code, but another access of the same basic block occurs {_times(most)}"
        return self._repeated(index, made) or self._moved(index, made) or self._narrowed(index, made)

    def _repeated(self, index: int, made: Collection[int]) -> str:
        """Return why one execution of the basic block may execute several accesses of a site, or ""; not decided for loops."""
        if index in self.text.looping or not any(self.grouping.chains.leads(*pair) for pair in permutations(made, 2)):
            return ""
        return f"ptxas turned it into {_listed(self.made[index].values())}, some of which run one after another"

    def _narrowed(self, index: int, made: Collection[int]) -> str:
        """Return why fewer lanes execute an access than its basic block: moved behind a branch, or under a condition.

        Empty if they do not.
        """
        block = self.block[index]
        if any(self.grouping.is_moved_behind(block, node) for node in made):
            return "ptxas moved it behind a branch, so that only lanes that need it access memory"
        if not self._has_guard(index) and self.grouping.can_be_skipped(block, made):
            return "ptxas put a branch around it, so that only lanes that need it access memory"
        if self._has_guard(index) or not any(is_guarded(self.code.flow.nodes[node]) for node in made):
            return ""
        if block == 0 or self._unconditional.get(block, set()) - {index}:
            return "ptxas put a condition on it, so that only lanes that need it access memory"
        return ""

    def _has_guard(self, index: int) -> bool:
        return self.text.instructions[index].guard is not None

    @cached_property
    def _unconditional(self) -> Mapping[int, set[int]]:
        """Sites without a guard, by basic block, from which an unguarded instruction was made."""
        found: dict[int, set[int]] = defaultdict(set)
        for index, made in self.made.items():
            if not self._has_guard(index) and any(not is_guarded(self.code.flow.nodes[node]) for node in made):
                found[self.block[index]].add(index)
        return found

    def _moved(self, index: int, made: Collection[int]) -> str:
        """Return why an access is executed less often than its basic block, or "": other code made from the block repeats without it."""
        if index not in self.text.looping:
            return ""
        chains = self.grouping.chains
        own = chains.of([*made, *self._skips(index, made)])
        if any(chains.paths.is_on_cycle(chain, without=own) for chain in self._chains(self.block[index]) - own):
            return "ptxas moved it to where it is executed less often, out of a loop or behind a branch"
        if len(made) == 1 and not chains.is_on_cycle(next(iter(made))):
            return "ptxas moved it out of its loop, or found that the loop runs once"
        return ""

    def _skips(self, index: int, made: Collection[int]) -> list[int]:
        """Return the branches around the accesses made of a guarded store.

        Exactly the lanes whose guard holds reach it, so the store is executed as often as these branches.
        """
        if not (self._has_guard(index) and self.sites[index].kind == "store"):
            return []
        return [branch for node in made if (branch := self.grouping.skip_of(node)) is not None]

    def _chains(self, block: int) -> frozenset[int]:
        """Return the chains of `Grouping.chains` that contain code made from a basic block: from its sites, and from its end."""
        if block not in self._chains_of:
            last = self.code.nodes(self.text.name, self.text.last[block])
            ends = [node for node in last if self.code.flow.nodes[node].opcode not in _JOINING]
            self._chains_of[block] = self.grouping.chains.of((*self._made_of.get(block, ()), *ends))
        return self._chains_of[block]

    def _absent(self, index: int, site: Site) -> str:
        """Return why nothing was made from a site: a wider access covers it, its space leaves that open, or its value is unused."""
        if index in self.carrier:
            return self._merged(self.carrier[index])
        if (self.block[index], *_merge_key(site)) in self.wider_beside:
            return "ptxas made no access for it; a wider access may include it"
        if site.space in ("tex", "surf"):
            return f"it is not known which {'texture fetch' if site.space == 'tex' else 'surface access'} of the assembled code this is"
        if site.kind == "product":
            return "the assembled code has different products after its fence, or has them in a different order"
        if site.space == "const":
            return "ptxas made it an operand of other instructions"
        return "ptxas made no access for it: its value was already known, or nothing uses it"

    def _merged(self, index: int) -> str:
        wide, narrow = max(access.nbytes for access in self.made[index].values()), self.sites[index].nbytes
        return f"ptxas merged {wide // narrow} x {narrow} B into 1 x {wide} B"

    def _group(self, index: int) -> tuple[int, ...]:
        """Return the indices of the sites that became one access with the site at `index`, itself included, by their addresses.

        Empty if the addresses do not tell.
        """
        site, (base, offset) = self.sites[index], self.text.bases.get(index, (None, 0))
        if base is None:
            return ()
        wide = max(access.nbytes for access in self.made[index].values())
        absent = self._absent_at.get((self.block[index], *_merge_key(site), base), {})
        return _run(ChainMap({offset: index}, absent), offset, site.nbytes, wide)

    @cached_property
    def _absent_at(self) -> dict[tuple[object, ...], dict[int, int]]:
        """Sites without an access, by block, likeness and base, and by their offset from the base."""
        found: dict[tuple[object, ...], dict[int, int]] = defaultdict(dict)
        for index, site in self.sites.items():
            if not self.made[index] and index in self.text.bases:
                base, offset = self.text.bases[index]
                found[self.block[index], *_merge_key(site), base][offset] = index
        return found


def _merge_key(site: Site) -> tuple[str, str, int]:
    """Return what sites must have in common to become one access."""
    return site.kind, site.space, site.nbytes


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _address(instruction: Instruction) -> Address | None:
    addresses = [operand for operand in instruction.operands if isinstance(operand, Address)]
    return addresses[0] if len(addresses) == 1 else None


def _run(at: Mapping[int, int], offset: int, narrow: int, wide: int) -> tuple[int, ...]:
    """Return the sites whose bytes adjoin and make up one access of `wide` bytes with those at `offset`.

    Empty unless there is exactly one such row. `at` maps offsets to sites.
    """
    rows = []
    for first in range(offset - wide + narrow, offset + 1, narrow):
        offsets = range(first, first + wide, narrow)
        if all(one in at for one in offsets):
            rows.append(tuple(at[one] for one in offsets))
    return rows[0] if len(rows) == 1 else ()


def _listed(accesses: Iterable[Access]) -> str:
    counted = Counter(map(str, accesses))
    return " and ".join(f"{count} x {text}" for text, count in counted.items())
