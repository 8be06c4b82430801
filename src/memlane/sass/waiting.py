"""What has completed when an instruction issues: scoreboards along the paths of control."""

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
"""What takes a time that is not known beforehand, by the pipe that it goes through. More may: whatever raises a write scoreboard does."""

_COUNTED = frozenset({"texture"})
"""Pipes that complete in order, so that the assembler counts: at most one outstanding means that all but the last are done."""

_SPOKEN_FOR = frozenset({"shared", "uniform special", "transcendental", "query"})
"""Pipes that return results in order, so that the assembler gives a scoreboard to the last of several only."""

_Outstanding = tuple[int, int | None, int]
"""A node at which a result is still to come; the scoreboard that speaks for it; how many more were raised on that behind it, if they can
only complete in that order."""
_UNORDERED = -1
_MOST_COUNTED = 63


def is_late(instruction: Instruction) -> bool:
    """Whether the result comes at a time that is not known beforehand, so that somebody has to wait for it."""
    late = instruction.control.write_scoreboard is not None or instruction.opcode in _PIPES
    return late and bool(effects(instruction).writes)


class Waiting:
    """Answers for one program; what is asked twice is remembered."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._unwaited: dict[int, frozenset[int]] = {}
        self._definitions = Definitions(flow)
        self._waits = tuple(waits_for(one) for one in flow.nodes)

    def unwaited(self, node: int) -> frozenset[int]:
        """The nodes that some path reaches from `node` before anything has waited for its result.

        A node that itself waits is not among them: it issues when the result is there. For a result without a scoreboard of its own
        the next of its pipe may speak, as among loads from shared memory, which return in order. If none does, everything that can be
        reached is unwaited.
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
            if scoreboard is None and raised is not None and pipe in _SPOKEN_FOR and _PIPES.get(one.opcode) == pipe:
                scoreboard = raised
            elif raised is not None and raised == scoreboard:
                in_order = later != _UNORDERED and _PIPES.get(one.opcode) == pipe
                later = min(later + 1, _MOST_COUNTED) if in_order else _UNORDERED
            return self._outstanding(node, scoreboard, later)

        initial = 0 if pipe in _COUNTED else _UNORDERED
        starts = self._outstanding(start, first.control.write_scoreboard, initial)
        return frozenset(node for node, _, _ in reachable(starts, behind))

    def _outstanding(self, node: int, scoreboard: int | None, later: int) -> list[_Outstanding]:
        """The nodes that follow one and do not wait for the result."""
        following = self.flow.successors[node]
        return [(to, scoreboard, later) for to in following if scoreboard is None or not self._lowers(to, scoreboard, later)]

    def _lowers(self, node: int, scoreboard: int, later: int) -> bool:
        """Whether the node issues only when the scoreboard has come down so far that what raised it is done."""
        if scoreboard in self._waits[node]:
            return True
        counted = counted_wait(self.flow.nodes[node])
        return counted is not None and counted[0] == scoreboard and later >= counted[1]

    def raised(self, node: int, scoreboard: int) -> frozenset[int]:
        """The nodes that raise `scoreboard` for their results and that `node` may have to wait for, with its own mask left out."""
        above = self.flow.predecessors
        before = reachable(above[node], lambda one: () if scoreboard in self._waits[one] else above[one])
        return frozenset(one for one in before if self.flow.nodes[one].control.write_scoreboard == scoreboard)

    def definitions(self, node: int, register: Register) -> frozenset[int]:
        """The nodes that may have written what `register` holds when `node` issues, in the lanes that execute it."""
        return self._definitions.of(node, register)


def waits_for(instruction: Instruction) -> tuple[int, ...]:
    """The scoreboards that are at zero when the instruction issues, and behind it.

    `DEPBAR.LE SB0, 0x0, {5,4}` waits for the named scoreboard and for those of the set. With a count above zero it says nothing about a
    single access by itself: so many may be outstanding.
    """
    waits = instruction.control.waits
    if instruction.opcode != "DEPBAR":
        return waits
    counted = counted_wait(instruction)
    sets = (operand.text.strip("{} ") for operand in instruction.operands if operand.text.startswith("{"))
    named = [int(number) for text in sets for number in text.split(",") if number.strip()]
    return (*waits, *named, *([counted[0]] if counted is not None and counted[1] == 0 else []))


def counted_wait(instruction: Instruction) -> tuple[int, int] | None:
    """The scoreboard of a `DEPBAR.LE` and how many may still be outstanding on it."""
    if instruction.opcode != "DEPBAR":
        return None
    board = next((int(one.text[2:]) for one in instruction.operands if one.text.startswith("SB")), None)
    count = next((one.value for one in instruction.operands if one.value is not None), 0)
    return None if board is None else (board, count)


def collect(starts: Iterable[int], edges: Callable[[int], Iterable[int]], stop: Callable[[int], bool]) -> tuple[set[int], set[int]]:
    """The nodes met from `starts` along `edges` up to those that `stop`: what lies between, and those that stopped."""
    met = reachable(starts, lambda node: () if stop(node) else edges(node))
    stops = {node for node in met if stop(node)}
    return met - stops, stops
