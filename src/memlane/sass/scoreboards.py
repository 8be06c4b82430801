"""Track scoreboards along the paths of control: which results have arrived when an instruction issues."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from memlane.sass.definitions import Definitions
from memlane.sass.flow import Flow
from memlane.sass.operands import Register
from memlane.sass.program import Instruction
from memlane.sass.registers import effects
from memlane.walks import reachable

_PIPES = {
    opcode: pipe
    for pipe, opcodes in {
        "global": "LD LDG LDL ATOM ATOMG",
        "shared": "LDS LDSM ATOMS SHFL",
        "constant": "LDC LDCU",
        "texture": "TEX TLD TLD4 TXD TXQ SULD SUATOM",
        "special": "S2R",
        "uniform special": "S2UR",
        "transcendental": "MUFU POPC FLO BREV I2F F2I F2F FRND FCHK",
        "warp": "MATCH REDUX",
        "query": "QSPC",
    }.items()
    for opcode in opcodes.split()
}
"""Variable-latency opcodes by their pipe. Other opcodes that set a write scoreboard have variable latency too."""

_COUNTED_PIPES = frozenset({"texture"})
"""Pipes that complete in order, so that ptxas counts: at most one outstanding means that all but the last are done."""

_IN_ORDER_PIPES = frozenset({"shared", "uniform special", "transcendental", "query"})
"""Pipes that return results in order, so that ptxas sets a scoreboard only on the last of several outstanding results."""

_Outstanding = tuple[int, int | None, int]
"""A node with the result still outstanding; the scoreboard that covers it; how many later results were raised on that scoreboard, if they
can only complete in that order.
"""
_UNORDERED = -1
_MOST_COUNTED = 63


def has_variable_latency(instruction: Instruction) -> bool:
    """Return whether the result arrives after a latency that is not fixed, so that a later instruction has to wait for it."""
    late = instruction.control.write_scoreboard is not None or instruction.opcode in _PIPES
    return late and bool(effects(instruction).writes)


class Scoreboards:
    """Outstanding results in one program; answers are cached."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._unwaited: dict[int, frozenset[int]] = {}
        self._definitions = Definitions(flow)
        self._waits = tuple(waits_for(one) for one in flow.nodes)

    def unwaited(self, node: int) -> frozenset[int]:
        """Return the nodes that some path reaches from `node` before any instruction has waited for its result.

        A node that itself waits is not included: it issues when the result has arrived. A result without a scoreboard of its own may be
        covered by that of a later one in its pipe, as among loads from shared memory, which return in order. If none covers it, everything
        reachable is returned.
        """
        if node not in self._unwaited:
            self._unwaited[node] = self._reach(node)
        return self._unwaited[node]

    def _reach(self, start: int) -> frozenset[int]:
        first = self.flow.nodes[start]
        pipe = _PIPES.get(first.opcode)

        def behind(state: _Outstanding) -> list[_Outstanding]:
            node, scoreboard, later = state
            one = self.flow.nodes[node]
            raised = one.control.write_scoreboard
            if scoreboard is None and raised is not None and pipe in _IN_ORDER_PIPES and _PIPES.get(one.opcode) == pipe:
                scoreboard = raised
            elif raised is not None and raised == scoreboard:
                in_order = later != _UNORDERED and _PIPES.get(one.opcode) == pipe
                later = min(later + 1, _MOST_COUNTED) if in_order else _UNORDERED
            return self._outstanding(node, scoreboard, later)

        initial = 0 if pipe in _COUNTED_PIPES else _UNORDERED
        starts = self._outstanding(start, first.control.write_scoreboard, initial)
        return frozenset(node for node, _, _ in reachable(starts, behind))

    def _outstanding(self, node: int, scoreboard: int | None, later: int) -> list[_Outstanding]:
        """Return the successor states of a node that do not wait for the result."""
        following = self.flow.successors[node]
        return [(to, scoreboard, later) for to in following if scoreboard is None or not self._waits_for_result(to, scoreboard, later)]

    def _waits_for_result(self, node: int, scoreboard: int, later: int) -> bool:
        """Return whether a node issues only after the scoreboard has come down so far that the result has arrived."""
        if scoreboard in self._waits[node]:
            return True
        counted = counted_wait(self.flow.nodes[node])
        return counted is not None and counted[0] == scoreboard and later >= counted[1]

    def raised(self, node: int, scoreboard: int) -> frozenset[int]:
        """Return the nodes that set `scoreboard` for their results and for which `node` may have to wait, its own wait mask ignored."""
        above = self.flow.predecessors
        before = reachable(above[node], lambda one: () if scoreboard in self._waits[one] else above[one])
        return frozenset(one for one in before if self.flow.nodes[one].control.write_scoreboard == scoreboard)

    def definitions(self, node: int, register: Register) -> frozenset[int]:
        """Return the nodes that may have written the value of `register` when `node` issues, in the lanes that execute `node`."""
        return self._definitions.of(node, register)


def waits_for(instruction: Instruction) -> tuple[int, ...]:
    """Return the scoreboards that are at zero when the instruction issues, and behind it.

    `DEPBAR.LE SB0, 0x0, {5,4}` waits for the named scoreboard and for those of the set. With a count above zero it says nothing about a
    single access: that many may be outstanding.
    """
    waits = instruction.control.waits
    if instruction.opcode != "DEPBAR":
        return waits
    counted = counted_wait(instruction)
    sets = (operand.text.strip("{} ") for operand in instruction.operands if operand.text.startswith("{"))
    named = [int(number) for text in sets for number in text.split(",") if number.strip()]
    return (*waits, *named, *([counted[0]] if counted is not None and counted[1] == 0 else []))


def counted_wait(instruction: Instruction) -> tuple[int, int] | None:
    """Return the scoreboard of a `DEPBAR.LE` and how many results may still be outstanding on it; None for other instructions."""
    if instruction.opcode != "DEPBAR":
        return None
    board = next((int(one.text[2:]) for one in instruction.operands if one.text.startswith("SB")), None)
    count = next((one.value for one in instruction.operands if one.value is not None), 0)
    return None if board is None else (board, count)


def reach_until(starts: Iterable[int], edges: Callable[[int], Iterable[int]], stop: Callable[[int], bool]) -> tuple[set[int], set[int]]:
    """Return the nodes reachable from `starts` along `edges` before any node that satisfies `stop`, and those stopping nodes."""
    met = reachable(starts, lambda node: () if stop(node) else edges(node))
    stops = {node for node in met if stop(node)}
    return met - stops, stops
