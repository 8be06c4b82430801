"""Attribute the machine instructions of a kernel to its PTX instructions, for the timing model: counts, order, copies of loops.

    found = attribute(assembled, "kernel")       # what each PTX instruction became, by its index, and its place in the machine code
    found.in_order(order)                         # the same for the instructions in another order, with what waits for what

The line table of ptxas tells which PTX instruction each machine instruction comes from. Loops are matched, because ptxas copies their
bodies: of the machine loops whose instructions come from one loop of the PTX, the one with the most copies of its body counts. Code hoisted
out of the loop then costs nothing per iteration, and code shared by all copies, such as a counter, costs a fraction in each. Code that runs
only behind a call of ptxas's own routines, such as divisions of unusual numbers, is left out.

Loads that come late in the PTX may come early in the machine code: across branches, whose code it executes under predicates, and from
several iterations of a loop. Instructions in front of which it puts such loads are late: the timing model lets the warp go on to the
loads, and wait where the machine code has caught up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mode

from memlane.audit.assembled_module import COMBINES, AssembledModule
from memlane.launch import MachineCode, Made
from memlane.ptx import ControlFlow, Function, Instruction, flatten_scopes, memory_access, values_read, values_written
from memlane.sass import Flow, effects
from memlane.sass import Instruction as MachineInstruction
from memlane.sass import memory_access as machine_access
from memlane.walks import reachable

_PIPES = {
    "fma": "FADD FMUL FFMA FSWZADD HADD2 HMUL2 HFMA2",
    "imul": "IMAD VIADD IDP IDP4A",
    "fp64": "DADD DMUL DFMA DSETP DMNMX",
    "sfu": "MUFU",
    "convert": "I2F F2I F2F FRND I2I POPC FLO BREV",
    "shuffle": "SHFL",
    "vote": "VOTE VOTEU MATCH REDUX",
    "alu": """IADD IADD3 LOP3 PLOP3 ISETP SEL SHF SHL SHR LEA PRMT MOV IMNMX VIMNMX VIMNMX3 VIADDMNMX FMNMX FSETP FSEL FSET IABS SGXT
        BMSK P2R R2P FCHK VABSDIFF I2FP F2FP HMNMX2 HSETP2 HSET2 PSETP""",
}
"""Opcodes by the pipe that they use, according to the guide of Nsight Compute (fma, alu, fp64, xu, ...).

`IMAD` and `VIADD` use the half of the FMA pipe that also does integers: `arithmetic: Shift` in
benchmarks/results/h200/predict_measured.json keeps ALU as busy as two of its three instructions a step do.
"""
PIPE_OF = {opcode: pipe for pipe, opcodes in _PIPES.items() for opcode in opcodes.split()}
"""Pipe of each opcode.

Opcodes not listed take an issue slot only: loads and stores (whose passes are counted where they run), branches, uniform arithmetic.
"""
_SINGLE = frozenset({"add", "sub", "mul", "fma", "mad", "min", "max"})
"""Operations that become one machine instruction on floats of 32 or 64 bits."""
_JUMPS = frozenset({"BRA", "BRX", "JMP", "JMX", "EXIT", "RET", "BREAK"})
_NO_LOOP = -1
"""The loop number of an instruction outside all loops."""


@dataclass(frozen=True)
class _Region:
    """The machine code of one PTX loop, or of the code outside all loops."""

    nodes: frozenset[int]
    copies: int
    """Number of copies of the loop body in it."""


def attribute(assembled: AssembledModule, kernel: str) -> Attribution | None:
    """Return what each instruction of a kernel became; None if the machine code has no such kernel or no table of lines."""
    function = assembled.module.functions[kernel]
    code = assembled.program.functions.get(kernel)
    if code is None or function.body is None or all(one.ptx_line is None for one in code.instructions):
        return None
    return _Attributor(assembled.flow, kernel, function, assembled.lines(kernel)).attribute()


@dataclass(frozen=True)
class Attribution:
    """The machine code of the instructions of a kernel, by index."""

    instructions: Sequence[Instruction]
    made: Sequence[Made]
    ranks: Sequence[int | None]
    """Place of each instruction in the machine code; None for an instruction from which nothing was made."""
    loop_of: Sequence[int]
    """Number of the innermost loop of each instruction, or -1."""
    turns: Mapping[int, int]
    """Iterations whose loads are in flight together, by number of the loop; only loops with several."""
    skipped: Mapping[int, range]
    """Instructions that a guarded branch skips, by branches for which the machine code has no jump."""

    def in_order(self, order: Sequence[int]) -> MachineCode:
        """Return the machine code for the instructions in a given order that respects their operands, with those that are late marked."""
        found = [self.made[index] for index in order]
        for loop in sorted(set(self.loop_of)):
            places = [place for place, index in enumerate(order) if self.loop_of[index] == loop]
            turns = self.turns.get(loop, 1)
            late = self._behind_all(order, places) if turns > 1 else self._behind_later_loads(order, places)
            for place in late:
                found[place] = replace(found[place], is_late=True)
            for place, catches_up in self._catching_up(order, places, late, turns, loop):
                found[place] = replace(found[place], catches_up=catches_up)
        for place, index in enumerate(order):
            if index in self.skipped:
                found[place] = replace(found[place], skipped=self._sum(self.skipped[index]))
        return MachineCode(tuple(found))

    def _sum(self, indices: Iterable[int]) -> tuple[int, int]:
        """Return the number of machine instructions made from `indices`, and how many of them access memory."""
        some = [index for index in indices if self.made[index].pipes]
        accesses = sum(_accesses(self.instructions[index]) for index in some)
        return sum(len(self.made[index].pipes) for index in some), accesses

    def _behind_all(self, order: Sequence[int], places: Sequence[int]) -> set[int]:
        """Return the places in a loop with several iterations in flight whose instructions depend on loads of the loop."""
        loaded = loaded_values([self.instructions[order[place]] for place in places])
        return {place for place in places if not loaded.isdisjoint(values_read(self.instructions[order[place]]))}

    def _behind_later_loads(self, order: Sequence[int], places: Sequence[int]) -> set[int]:
        """Return the places whose instructions stand, in the machine code, behind loads that follow them in this order."""
        late = set()
        earliest: int | None = None
        for place in reversed(places):
            rank = self.ranks[order[place]]
            if rank is None:
                continue
            if earliest is not None and rank > earliest:
                late.add(place)
            if _loads(self.instructions[order[place]]):
                earliest = rank if earliest is None else min(earliest, rank)
        return late

    def _catching_up(
        self, order: Sequence[int], places: Sequence[int], late: Collection[int], turns: int, loop: int
    ) -> Iterator[tuple[int, int]]:
        """Yield (place, iterations) where the warp waits for late instructions: at a place that catches up, or at a loop's end."""
        scoreboards: int | None = None
        for place in places:
            rank = self.ranks[order[place]]
            if place in late:
                scoreboards = rank if scoreboards is None else min(scoreboards, rank or 0)
            elif turns == 1 and scoreboards is not None and rank is not None and rank > scoreboards:
                scoreboards = None
                yield place, 1
        if loop != _NO_LOOP and (scoreboards is not None or turns > 1):
            yield places[-1], turns


class _Attributor:
    """The PTX and the machine code of one kernel."""

    def __init__(self, flow: Flow, kernel: str, function: Function, lines: Sequence[int]) -> None:
        self._flow = flow
        self._instructions = tuple(function.instructions())
        self._loop_of, self._loops, self._targets = _structure_of(function)
        number = {line: index for index, line in enumerate(lines)}
        self._order = [node for node in sorted(_executed(flow, kernel)) if flow.nodes[node].opcode != "NOP"]
        self._origin = {node: number.get(flow.nodes[node].ptx_line or 0, 0) for node in self._order}
        """Index of the PTX instruction from which each node comes; the prologue of a kernel counts for the first."""

    def attribute(self) -> Attribution:
        """Return what all instructions became."""
        found = [Made()] * len(self._instructions)
        ranks: list[int | None] = [None] * len(self._instructions)
        turns = {}
        combined = {self._origin[node] for node in self._order if self._flow.nodes[node].opcode in COMBINES}
        for loop, region in self._regions().items():
            own = [node for node in self._order if node in region.nodes and self._loop_of_node(node) == loop]
            for index, one in self._divide_among_iterations(own, region.copies).items():
                found[index] = replace(one, is_combined=index in combined)
            for node in reversed(own):
                ranks[self._origin[node]] = node
            under_way = 1 if loop == _NO_LOOP else self._iterations_in_flight(loop, own, region.copies)
            if under_way > 1:
                turns[loop] = under_way
        return Attribution(self._instructions, found, ranks, self._loop_of, turns, self._skipped_instructions())

    def _skipped_instructions(self) -> dict[int, range]:
        """Return, by guarded branch without a jump in the machine code, the instructions that it skips where all lanes take it."""
        jumps = {self._origin[node] for node in self._order if self._flow.nodes[node].opcode in _JUMPS}
        return {
            branch: range(branch + 1, target)
            for branch, target in self._targets.items()
            if branch not in jumps and target > branch and self._loop_of[branch] == self._loop_of[branch + 1]
        }

    def _loop_of_node(self, node: int) -> int:
        """Return the innermost loop of the PTX instruction that a node comes from."""
        return self._loop_of[self._origin[node]]

    # -- loops ---------------------------------------------------------------------------------------------------------------------

    def _regions(self) -> dict[int, _Region]:
        """Return the machine code of each PTX loop; where it has no machine loop, all code that comes from it."""
        candidates: dict[int, list[_Region]] = defaultdict(list)
        for nodes in _machine_loops(self._flow, self._order):
            homes = Counter(self._loop_of_node(node) for node in nodes)
            homes.pop(_NO_LOOP, None)
            if homes:
                loop = homes.most_common(1)[0][0]
                own = [node for node in nodes if self._loop_of_node(node) == loop]
                candidates[loop].append(_Region(nodes, self._count_copies(own)))
        found = {_NO_LOOP: _Region(frozenset(self._order), 1)}
        for loop in range(len(self._loops)):
            everywhere = [node for node in self._order if self._loop_of_node(node) == loop]
            whole = _Region(frozenset(self._order), self._count_copies(everywhere))
            found[loop] = max(candidates[loop], key=lambda one: (one.copies, len(one.nodes)), default=whole)
        return found

    def _count_copies(self, nodes: Collection[int]) -> int:
        """Return the number of copies of a loop's body, from instructions that become one machine instruction in each copy."""
        accesses: Counter[int] = Counter()
        sums: Counter[int] = Counter()
        rest: Counter[tuple[int, str]] = Counter()
        for node in nodes:
            one, index = self._flow.nodes[node], self._origin[node]
            access = machine_access(one)
            if access is not None and access.space != "const" and memory_access(self._instructions[index]) is not None:
                accesses[index] += 1
            elif PIPE_OF.get(one.opcode) in ("fma", "fp64") and _is_single(self._instructions[index]):
                sums[index] += 1
            else:
                rest[index, one.opcode] += 1
        counted = [mode(sorted(each.values())) for each in (accesses, sums) if each]
        return max(counted) if counted else mode(sorted(rest.values())) if rest else 1

    # -- weights -------------------------------------------------------------------------------------------------------------------

    def _divide_among_iterations(self, nodes: Sequence[int], copies: int) -> dict[int, Made]:
        """Divide the machine instructions of all copies of a body among the instructions of one iteration.

        The order is that of the first copy.
        """
        of: dict[int, list[MachineInstruction]] = defaultdict(list)
        rank: dict[int, int] = {}
        for node in nodes:
            index = self._origin[node]
            of[index].append(self._flow.nodes[node])
            rank.setdefault(index, node)
        left: Counter[str] = Counter()
        cycles = 0.0
        found = {}
        for index in sorted(of, key=rank.__getitem__):
            amounts = Counter(PIPE_OF.get(one.opcode, "") for one in of[index])
            pipes: list[str] = []
            for pipe, amount in amounts.items():
                left[pipe] += amount
                pipes += [pipe] * (left[pipe] // copies)
                left[pipe] %= copies
            cycles += sum(max(1, one.control.stall) for one in of[index]) / copies
            found[index] = Made(tuple(pipes), int(cycles) if pipes else 0)
            cycles -= found[index].cycles
        return found

    def _iterations_in_flight(self, loop: int, nodes: Sequence[int], copies: int) -> int:
        """Return how many iterations of a loop issue their loads before the first result is used."""
        first, last = self._loops[loop]
        if copies < 2 or self._ends_by_loads(first, last) or set(self._loop_of[first : last + 1]) != {loop}:
            return 1
        of: dict[int, list[int]] = defaultdict(list)
        for place, node in enumerate(nodes):
            index, access = self._origin[node], machine_access(self._flow.nodes[node])
            if access is not None and access.kind == "load" and access.space not in ("const", "local"):
                of[index].append(place)
        depths = []
        for places in of.values():
            use = self._first_use(nodes, places[0])
            before = sum(place < use for place in places)
            depths.append(round(before * copies / len(places)))
        return min(copies, max(depths, default=1))

    def _first_use(self, nodes: Sequence[int], place: int) -> int:
        """Return the place among the nodes where the result of a load is first used, or their number if nowhere."""
        written = effects(self._flow.nodes[nodes[place]]).writes
        for later in range(place + 1, len(nodes)):
            if not written.isdisjoint(effects(self._flow.nodes[nodes[later]]).reads):
                return later
        return len(nodes)

    def _ends_by_loads(self, first: int, last: int) -> bool:
        """Return whether a loaded value decides whether a loop continues: then no iteration begins before it has arrived."""
        tainted = loaded_values(self._instructions[first : last + 1])
        return not tainted.isdisjoint(values_read(self._instructions[last]))


def loaded_values(instructions: Sequence[Instruction]) -> set[str]:
    """Return the values of a loop body that depend on what the body loads."""
    found: set[str] = set()
    before = -1
    while before != len(found):
        before = len(found)
        for one in instructions:
            if _loads(one) or not found.isdisjoint(values_read(one)):
                found.update(values_written(one))
    return found


def _loads(one: Instruction) -> bool:
    """Return whether an instruction loads from memory, constants and parameters excluded."""
    access = memory_access(one)
    return one.form.effect in ("load", "texture", "atomic") and (access is None or access.space not in ("param", "const"))


def _accesses(one: Instruction) -> bool:
    """Return whether an instruction uses the load-store unit."""
    access = memory_access(one)
    return access is not None and access.space not in ("param", "const")


def _is_single(one: Instruction) -> bool:
    return one.opcode in _SINGLE and any(kind in ("f32", "f64") for kind in one.form.types.values())


def _structure_of(function: Function) -> tuple[list[int], list[tuple[int, int]], dict[int, int]]:
    """Return the innermost loop of each instruction, the (first, last) instruction of each loop, and the target of each guarded branch."""
    flow = ControlFlow(flatten_scopes(function))
    innermost = [_NO_LOOP] * sum(len(block.instructions) for block in flow.blocks)
    bounds = []
    for number, loop in enumerate(flow.loops):  # outer ones first
        places = [place for block in loop.blocks for place in _places(flow, block)]
        for place in places:
            innermost[place] = number
        bounds.append((min(places, default=0), max(places, default=0)))
    targets = {}
    for block in flow.blocks:
        last = block.terminator
        if last is not None and last.opcode == "bra" and last.guard is not None:
            targets[block.first + len(block.instructions) - 1] = flow.blocks[flow.targets(last)[0]].first
    return innermost, bounds, targets


def _places(flow: ControlFlow, block: int) -> range:
    one = flow.blocks[block]
    return range(one.first, one.first + len(one.instructions))


# -- the machine code ------------------------------------------------------------------------------------------------------------------


def _executed(flow: Flow, kernel: str) -> set[int]:
    """Return the nodes of a kernel that run without a call of ptxas's own routines."""
    nodes = flow.nodes_of(kernel)

    def successors(node: int) -> Iterable[int]:
        # Control continues behind a call; the code in front of one runs rarely, as it only prepares the call.
        return flow.behind(node) if node in flow.called else (one for one in flow.successors[node] if one in nodes)

    found = reachable((flow.entry(kernel),), successors)
    return found - _call_preparation(flow, found)


def _call_preparation(flow: Flow, nodes: Collection[int]) -> set[int]:
    """Return the nodes of straight-line code that ends in a call."""
    found: set[int] = set()
    for call in nodes:
        if flow.nodes[call].opcode != "CALL":
            continue
        node = call
        while node in nodes:
            found.add(node)
            before = flow.predecessors[node]
            if len(before) != 1 or len(flow.successors[before[0]]) != 1:
                break
            node = before[0]
    return found


def _machine_loops(flow: Flow, order: Sequence[int]) -> list[frozenset[int]]:
    """Return the nodes of each loop, those of inner loops excluded; a loop spans from the target of a backward branch to the branch.

    This is how assemblers lay out loops.
    """
    executed = set(order)
    spans = set()
    for node in order:
        if flow.nodes[node].opcode in ("BRA", "JMP", "WARPSYNC"):
            spans |= {(target, node) for target in flow.targets(node) if target <= node and target in executed}
    ends: Mapping[int, int] = {start: max(last for first, last in spans if first == start) for start, _ in spans}
    found = []
    for start, last in sorted(ends.items()):
        inner = {node for other, end in ends.items() if start < other and end <= last for node in range(other, end + 1)}
        found.append(frozenset(node for node in range(start, last + 1) if node in executed and node not in inner))
    return found
