"""Recognise atomics that one leader lane performs for its warp: how the leader is chosen, and how the others get their results.

ptxas turns `atom.add` to an address that all lanes share, here with the same addend, into:

    S2R lane, SR_LANEID
    VOTEU.ANY lanes, UPT                    the active mask
    FLO leader, lanes                       the highest active lane
    POPC sum, lanes                         the sum of their addends
    ISETP.EQ P, leader, lane
    @P ATOMG old, [address], sum            by the leader
    SHFL.IDX old, old, leader               broadcast to all
    IADD value, old, rank                   what each lane would have got by itself

Where the addends differ and all 32 lanes are active, it makes a prefix sum over the lanes (`SHFL.UP`), and the last lane adds the total;
where some lanes are inactive, each performs its own atomic:

    VOTE.ANY lanes, PT
    ISETP.EQ P, lanes, -1
    @!P ATOMG value, [address], data
    @!P BRA behind
    SHFL.UP ...
    @Q ATOMG old, [address], sum            Q: the lane is number 31
    SHFL.IDX old, old, 31

All of that implements one PTX instruction. Its time runs from the first clock read, before which no lane has begun, to the second, at
which every lane has its own value. So values that are computed from the active lanes between the first clock read and the atomic belong
to the time, where an operand made by another instruction would not. It is shown of the atomic and of all that broadcasts its result that
the second clock read waits for it.

The pattern is recognised by its effect: the lane that the guard selects is the one that the shuffle reads from; that lane is active; it
broadcasts what the atomic returned; only the shuffle uses that result; and from the vote to the shuffle no instruction could diverge the
lanes. An atomic under a condition added by ptxas that does not fit this is `issue-only`.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from memlane.sass import Flow, Instruction, Operand, Register, Scoreboards, effects

_LAST_LANE = 31
_WHOLE_WARP = 0x1F
"""The last operand of a `SHFL.IDX` that can read from any lane of the warp."""
_LANE = "SR_LANEID"
_LANE_REGISTERS = frozenset({"SR_LANEID", "SR_EQMASK", "SR_LTMASK", "SR_LEMASK"})
_LEADER_OPCODES = frozenset({"FLO", "POPC", "UFLO", "UPOPC", "SHFL"})
"""Variable-latency opcodes that compute the leader and the sum of the addends from the active lanes; reads of the lane number count too."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """The way in which the lanes of a warp perform one atomic together."""

    leader_values: frozenset[int] = frozenset()
    """Variable-latency nodes whose results choose the leader and make up the addend."""
    broadcasts: frozenset[int] = frozenset()
    """Nodes that broadcast the result."""
    reason: str = ""
    """Why it is not proved that every lane gets its result; empty otherwise."""


_NOT_AGGREGATED = Aggregation()
"""The result for an access that every lane performs by itself."""


class Aggregations:
    """Aggregated atomics of one program."""

    def __init__(self, flow: Flow, scoreboards: Scoreboards) -> None:
        self.nodes, self.flow, self.scoreboards = flow.nodes, flow, scoreboards

    def of(self, access: int, made: Set[int]) -> Aggregation:
        """Return how an atomic is aggregated. `made`: the nodes that ptxas made of its PTX instruction."""
        unknown = Aggregation(reason=f"it is not known which lane performs the access at 0x{self.nodes[access].offset:04x} for its warp")
        guard = self.nodes[access].guard
        tests = frozenset[int]() if guard is None or guard.register is None else self.scoreboards.definitions(access, guard.register)
        is_broadcast = any(self._shuffles_result(node, access) for node in made)
        if not tests & made and not is_broadcast:
            return _NOT_AGGREGATED
        if guard is None or len(tests) != 1:
            return unknown
        (test,) = tests
        if self._tests_full_warp(test):
            return _NOT_AGGREGATED if self._branches_likewise(access) else unknown
        leader = None if guard.negated else self._leader(access, test)
        broadcasts = frozenset() if leader is None else frozenset(self._broadcasts(access, test, leader, made))
        return Aggregation(frozenset(filter(self._is_leader_value, made)), broadcasts) if broadcasts else unknown

    def _is_leader_value(self, node: int) -> bool:
        one = self.nodes[node]
        return one.opcode in _LEADER_OPCODES or (one.opcode == "S2R" and one.operands[-1].text in _LANE_REGISTERS)

    # -- the leader lane ------------------------------------------------------------------------------------------------------------

    def _leader(self, access: int, test: int) -> tuple[int, Operand] | None:
        """Return the node from which the active lanes stay together, and the leader, for a test `lane == leader`; None for other tests."""
        operands = _equality(self.nodes[test])
        for lane, leader in (operands, operands[::-1]) if operands else ():
            if lane.register is None or not self._is_lane(test, lane.register):
                continue
            if leader.register is None:
                first = self._full_warp_start(access) if leader.value == _LAST_LANE else None
            else:
                first = self._voted(test, leader.register)
            if first is not None:
                return first, leader
        return None

    def _is_lane(self, node: int, register: Register) -> bool:
        made = self._definition(node, register)
        return made is not None and self.nodes[made].opcode == "S2R" and self.nodes[made].operands[-1].text == _LANE

    def _voted(self, node: int, register: Register) -> int | None:
        """Return the vote of all active lanes whose highest lane a register holds; None if it holds anything else."""
        highest = self._definition(node, register)
        one = None if highest is None else self.nodes[highest]
        if highest is None or one is None or one.opcode not in ("FLO", "UFLO") or one.modifiers != ("U32",):
            return None
        source = one.operands[-1]
        vote = None if source.register is None or source.text != str(source.register) else self._definition(highest, source.register)
        return vote if vote is not None and _is_vote_of_all(self.nodes[vote]) else None

    def _full_warp_start(self, node: int) -> int | None:
        """Return the first node of the straight-line code around `node` if it is reached only with the whole warp active, else None."""
        while self._follows(node - 1):
            node -= 1
        is_behind = self.flow.predecessors[node] == (node - 1,) and self.nodes[node - 1].opcode == "BRA"
        return node if is_behind and self._runs_unless_full(node - 1) else None

    def _runs_unless_full(self, node: int) -> bool:
        """Return whether an instruction executes exactly where some of the 32 lanes are inactive."""
        guard = self.nodes[node].guard
        if guard is None or guard.register is None or not guard.negated:
            return False
        test = self._definition(node, guard.register)
        return test is not None and self._tests_full_warp(test) and self._is_straight(test, node)

    def _tests_full_warp(self, test: int) -> bool:
        """Return whether a test asks if all 32 lanes took part in a vote."""
        operands = _equality(self.nodes[test])
        if operands is None or operands[0].register is None or operands[1].value not in (-1, 0xFFFFFFFF):
            return False
        vote = self._definition(test, operands[0].register)
        return vote is not None and _is_vote_of_all(self.nodes[vote]) and self._is_straight(vote, test)

    def _branches_likewise(self, access: int) -> bool:
        """Return whether exactly the lanes that perform an atomic by themselves branch away behind it."""
        node = access
        while self._follows(node):
            node += 1
        branch = self.nodes[node]
        return (
            branch.opcode == "BRA"
            and branch.guard == self.nodes[access].guard
            and self._runs_unless_full(access)
            and self._runs_unless_full(node)
        )

    def _definition(self, node: int, register: Register) -> int | None:
        """Return the only definition that reaches a register at `node`, if it has no guard; None otherwise."""
        made = self.scoreboards.definitions(node, register)
        if len(made) != 1:
            return None
        (one,) = made
        return one if self.nodes[one].guard is None else None

    # -- the broadcast of the result ------------------------------------------------------------------------------------------------

    def _broadcasts(self, access: int, test: int, leader: tuple[int, Operand], made: Set[int]) -> Set[int]:
        """Return the nodes that broadcast the result; empty unless it is certain that every lane gets it, and from nowhere else."""
        first, lane = leader
        found: dict[Register, int] = {}
        if not self._is_straight(first, access):
            return set()
        node, results = access, set(effects(self.nodes[access]).writes)
        while results and self._follows(node):
            node += 1
            one = self.nodes[node]
            for register in effects(one).reads & results:
                if node not in made or register in found or not self._broadcasts_from(node, register, test, lane):
                    return set()
                found[register] = node
            if one.guard is not None and effects(one).writes & results:
                return set()  # Lanes would hold different values in it.
            results -= effects(one).writes
        return set(found.values()) if self._are_dead(node, results) else set()

    def _shuffles_result(self, node: int, access: int) -> bool:
        """Return whether a node is a shuffle that reads the result of the access."""
        if self.nodes[node].opcode != "SHFL":
            return False
        taken = effects(self.nodes[node]).reads & effects(self.nodes[access]).writes
        return any(access in self.scoreboards.definitions(node, register) for register in taken)

    def _broadcasts_from(self, node: int, register: Register, test: int, leader: Operand) -> bool:
        """Return whether a node broadcasts a register of the leader to all lanes."""
        one = self.nodes[node]
        if one.opcode != "SHFL" or one.modifiers != ("IDX",) or one.guard is not None or len(one.operands) != 5:
            return False
        _, _, source, lane, whole = one.operands
        if source.register != register or whole.value != _WHOLE_WARP:
            return False
        if leader.register is None:
            return lane.value == leader.value
        if lane.register is None:
            return False
        return self.scoreboards.definitions(node, lane.register) == self.scoreboards.definitions(test, leader.register)

    def _are_dead(self, last: int, registers: Set[Register]) -> bool:
        """Return whether the registers are dead behind the end of straight-line code: nothing reads the values that they hold there."""
        seen: set[tuple[int, Register]] = set()
        work = [(node, register) for node in self.flow.successors[last] for register in registers]
        while work:
            node, register = work.pop()
            if (node, register) not in seen:
                seen.add((node, register))
                used = effects(self.nodes[node])
                if register in used.reads:
                    return False
                if register not in used.writes or self.nodes[node].guard is not None or not used.exact:
                    work.extend((successor, register) for successor in self.flow.successors[node])
        return True

    # -- straight-line code ---------------------------------------------------------------------------------------------------------

    def _follows(self, node: int) -> bool:
        """Return whether control goes from a node only to the next, which has no other predecessor."""
        return node >= 0 and self.flow.successors[node] == (node + 1,) and self.flow.predecessors[node + 1] == (node,)

    def _is_straight(self, first: int, last: int) -> bool:
        return first <= last and all(self._follows(node) for node in range(first, last))


def _equality(one: Instruction) -> tuple[Operand, Operand] | None:
    """Return the operands of an unguarded `P = a == b` on 32-bit numbers; None for any other instruction."""
    if one.opcode != "ISETP" or not {"EQ", "AND"} <= set(one.modifiers) <= {"EQ", "AND", "U32"} or one.guard is not None:
        return None
    if len(one.operands) != 5 or one.operands[1].text != "PT" or one.operands[4].text != "PT":
        return None
    a, b = one.operands[2:4]
    return (a, b) if all(_is_plain(operand) for operand in (a, b)) else None


def _is_plain(operand: Operand) -> bool:
    """Return whether an operand is a number or an unmodified register."""
    return operand.value is not None or (operand.register is not None and operand.text.removesuffix(".reuse") == str(operand.register))


def _is_vote_of_all(one: Instruction) -> bool:
    """Return whether an instruction returns the active mask."""
    if one.opcode not in ("VOTE", "VOTEU") or one.modifiers != ("ANY",) or one.guard is not None:
        return False
    return one.operands[-1].text in ("PT", "UPT")
