"""Generates the control flow of a warp between segments.

entry      take a fresh budget and choose a warp split
dispatch   jump to the segment of the chosen split
segment N  the instructions; ends by continuing, splitting, waiting or exiting
arrive N   continue at N, unless lanes wait at N or before: then rejoin them
back N     the same over a back edge, which costs some of the budget
pick       choose a split again, or stop
"""

from __future__ import annotations

from collections.abc import Sequence

import llvmlite.ir as ir

from memlane.chip import LANES
from memlane.emulate.check.hooks import check_turn
from memlane.emulate.code.build import I32, I64, Value, constant
from memlane.emulate.layout import CONTEXT, LATER, NONE, POLL_COST, RUN, WARP
from memlane.emulate.lower.body import LiveOut, Segment, Step
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.runtime.barriers import wait_for_partners
from memlane.emulate.runtime.cluster import leave_cluster
from memlane.emulate.runtime.warp_splits import defer, enter, park, pick


class Flow:
    """The control flow of one kernel while its code is generated."""

    def __init__(self, k: Lowering, segments: Sequence[Segment], needed: LiveOut) -> None:
        self._k, self._segments, self._needed = k, segments, needed
        self._segment = segments[0]
        function: ir.Function = k.e.function
        self._blocks = [function.append_basic_block(f"segment{segment.number}") for segment in segments]
        self._arrivals: dict[tuple[int, int], ir.Block] = {}
        self._entry = k.e.block
        self._dispatch, self._pick, self._join, self._defer, self._end = (
            function.append_basic_block(name) for name in ("dispatch", "pick", "join", "defer", "end")
        )
        self._join_phi, self._defer_phi = self._write_frame()
        self.end = len(segments)
        """The segment number of a thread that has run off the end: it exits."""

    # -- what a segment needs --------------------------------------------------------------------------------------------------

    @property
    def successors(self) -> tuple[int, ...]:
        """Return the successors of the current segment."""
        return self._segment.successors

    @property
    def following(self) -> int:
        """Return where lanes that do not branch continue: the next segment, or the end."""
        return self.successors[0] if self.successors else self.end

    def begin(self, segment: Segment) -> None:
        """Begin to generate the code of a segment."""
        self._segment = segment
        e = self._k.e
        e.position_at_end(self._blocks[segment.number])
        self._k.begin_segment(e.get(self._k.warp, WARP, "mask"))
        if self._k.layers.clock:
            self._stop_if_late(segment)

    def _stop_if_late(self, segment: Segment) -> None:
        """Emit code that stops the warp once it passes the time limit that the scheduler set. For the clock layer."""
        k, e = self._k, self._k.e
        late = e.icmp_signed(">", e.get(k.warp, WARP, "time"), e.get(k.context, CONTEXT, "limit"))
        with e.if_then(late):
            e.put(constant(I64, k.near_lines(self._needed.read_by(segment.number))), k.warp, WARP, "near")
            with e.if_then(e.icmp_unsigned("==", k.mask, e.get(k.warp, WARP, "live"))):  # no other lanes have to be considered
                for field, value in (("together", 1), ("pc", segment.number), ("frontier", NONE)):
                    e.put(value, k.warp, WARP, field)
                e.ret(constant(I32, LATER))
            k.call(park, k.warp, k.mask, constant(I32, segment.number))
            e.ret(constant(I32, LATER))

    def finish(self) -> None:
        """End a segment that did not end itself."""
        if not self._k.e.block.is_terminated:
            self.save()
            self.go(self.following)

    def save(self) -> None:
        """Emit stores of the registers that are live at the end of the segment."""
        self._k.save(self._needed.named_in(self._segment.number))
        self._tally(self._segment.number, self._k.mask)

    def count_executions(self, step: Step) -> None:
        """Emit code that counts the active lanes of a guarded instruction; other instructions are counted by segment."""
        if step.instruction.guard is not None and not step.resumes:
            self._tally(len(self._segments) + step.index, self._k.active)

    def _tally(self, number: int, lanes: Value) -> None:
        k, e = self._k, self._k.e
        if k.layers.counts:
            counter = e.at(e.get_pointer(k.context, CONTEXT, "executions"), 8 * number)
            e.store(e.add(e.load(counter, typ=I64), e.zext(e.popcount(lanes), I64)), counter)

    def weights(self) -> tuple[tuple[int, int], ...]:
        """Return for each execution counter how many instructions it stands for."""
        by_segment = [(p.number, sum(s.instruction.guard is None and not s.resumes for s in p.steps)) for p in self._segments]
        guarded = [
            (len(self._segments) + s.index, 1) for p in self._segments for s in p.steps if s.instruction.guard is not None and not s.resumes
        ]
        return (*by_segment, *guarded)

    def go(self, number: int) -> None:
        """Emit a branch of all lanes to a segment."""
        self._k.e.branch(self._block_to(number))

    def split(self, taken: Value) -> None:
        """Emit a branch of the lanes of `taken` to the first successor and of the others to the second."""
        k, e = self._k, self._k.e
        goal, otherwise = self.successors if len(self.successors) == 2 else (self.successors[0], self.end)
        some, both = (e.append_basic_block(name) for name in ("not_all", "both"))
        e.cbranch(e.icmp_unsigned("==", taken, k.mask), self._block_to(goal), some)
        e.position_at_end(some)
        e.cbranch(e.icmp_unsigned("==", taken, constant(I32, 0)), self._block_to(otherwise), both)
        e.position_at_end(both)
        k.call(park, k.warp, taken, constant(I32, goal))
        k.call(park, k.warp, e.and_(k.mask, e.not_(taken)), constant(I32, otherwise))
        self.pick_again()

    def leave(self, lanes: Value) -> None:
        """Emit the exit of `lanes`; the others, if the instruction is guarded, continue."""
        k = self._k
        self.skip_if_idle(self.following)
        k.call(leave_cluster, k.warp, lanes)
        self.pick_again()

    def pause(self) -> int:
        """End the segment at an instruction that may wait: store registers, let lanes that do not take part continue. Return the next
        segment."""
        self.save()
        self.skip_if_idle(self.following)
        return self.following

    def skip_if_idle(self, following: int) -> None:
        """Emit code that, after a guard, lets all lanes continue at `following` if none is active; else it parks the inactive lanes
        there."""
        k, e = self._k, self._k.e
        if k.instruction.guard is None:
            return
        some = e.append_basic_block("some")
        e.cbranch(e.icmp_unsigned("==", k.active, constant(I32, 0)), self._block_to(following), some)
        e.position_at_end(some)
        k.call(park, k.warp, e.and_(k.mask, e.not_(k.active)), constant(I32, following))

    def wait_for_partners(self, members: Value, partners: Value) -> None:
        """Emit the start of a warp-synchronous instruction, the first of its segment. A lane continues once all of its live `partners` (a
        mask for each lane) are here; `members` are all lanes that a running lane waits for."""
        k, e = self._k, self._k.e
        missing = e.and_(e.and_(members, e.get(k.warp, WARP, "live")), e.not_(k.mask))
        with e.if_then(e.icmp_unsigned("!=", missing, constant(I32, 0)), likely=False):
            e.store_lanes(partners, k.scratch("partners", 4 * LANES))
            together = k.call(
                wait_for_partners, k.warp, constant(I32, self._segment.number), k.scratch("partners", 4 * LANES), constant(I32, k.index)
            )
            with e.if_then(e.icmp_unsigned("==", together, constant(I32, 0))):
                self.pick_again()
        k.change_mask(e.get(k.warp, WARP, "mask"))

    def pick_again(self) -> None:
        """Emit a branch to the choice of the next warp split."""
        self._k.e.branch(self._pick)

    # -- the frame ---------------------------------------------------------------------------------------------------------------

    def _write_frame(self) -> tuple[Value, Value]:
        """Generate the blocks that every kernel has; return the phi nodes of the joining and the deferring one."""
        k, e = self._k, self._k.e
        with e.goto_block(self._pick):
            status = k.call(pick, k.warp)
            stop = e.append_basic_block("stop")
            e.cbranch(e.icmp_unsigned("==", status, constant(I32, RUN)), self._dispatch, stop)
            e.position_at_end(stop)
            e.ret(status)
        with e.goto_block(self._dispatch):
            switch = e.switch(e.get(k.warp, WARP, "pc"), self._end)
            for number, block in enumerate(self._blocks):
                switch.add_case(constant(I32, number), block)
        with e.goto_block(self._end):
            k.call(leave_cluster, k.warp, e.get(k.warp, WARP, "mask"))
            e.branch(self._pick)
        phis = []
        for block, helper in ((self._join, park), (self._defer, defer)):
            with e.goto_block(block):
                phis.append(e.phi(I32))
                k.call(helper, k.warp, e.get(k.warp, WARP, "mask"), phis[-1])
                e.branch(self._pick)
        return phis[0], phis[1]

    def close(self) -> None:
        """Generate the entry block, after everything that allocates in the function's stack frame."""
        k, e = self._k, self._k.e
        e.position_at_end(self._entry)
        check_turn(k)
        status = k.call(enter, k.warp)
        stop = e.append_basic_block("stop")
        e.cbranch(e.icmp_unsigned("==", status, constant(I32, RUN)), self._dispatch, stop)
        e.position_at_end(stop)
        e.ret(status)

    def _block_to(self, number: int) -> ir.Block:
        """Return the block that goes from here to a segment."""
        if number == self.end:
            return self._end
        cost = 0
        if number <= self._segment.number:
            cost = POLL_COST if self._segment.polls else 1
        if (number, cost) not in self._arrivals:
            block = self._k.e.append_basic_block(f"{'back' if cost else 'arrive'}{number}")
            self._arrivals[number, cost] = block
            with self._k.e.goto_block(block):
                self._write_arrival(number, cost)
        return self._arrivals[number, cost]

    def _write_arrival(self, number: int, cost: int) -> None:
        k, e = self._k, self._k.e
        if cost:
            left = e.bump(k.warp, WARP, "budget", -cost)
            onward = e.append_basic_block("onward")
            self._defer_phi.add_incoming(constant(I32, number), e.block)
            e.cbranch(e.icmp_signed("<", left, constant(I32, 0)), self._defer, onward)
            e.position_at_end(onward)
        self._join_phi.add_incoming(constant(I32, number), e.block)
        alone = e.icmp_unsigned("<", constant(I32, number), e.get(k.warp, WARP, "frontier"))
        e.cbranch(alone, self._blocks[number], self._join)
