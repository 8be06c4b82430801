"""How a warp gets from place to place in generated code.

entry      take a fresh budget and choose a fragment
dispatch   jump to the place of the chosen fragment
place N    the instructions; ends by going on, splitting, waiting or leaving
arrive N   go on at N, unless lanes wait at N or before: then join them
back N     the same over a back edge, which costs some of the budget
pick       choose a fragment again, or stop
"""

from __future__ import annotations

from collections.abc import Sequence

import llvmlite.ir as ir

from memlane.chip import LANES
from memlane.emulate.check.hooks import check_turn
from memlane.emulate.code.build import I32, I64, Value, constant
from memlane.emulate.layout import CONTEXT, LATER, NONE, POLL_COST, RUN, WARP
from memlane.emulate.lower.body import LiveOut, Place, Step
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.runtime.barriers import gather
from memlane.emulate.runtime.cluster import leave_cluster
from memlane.emulate.runtime.fragments import defer, enter, park, pick


class Flow:
    """The control flow of one kernel while its code is written."""

    def __init__(self, k: Lowering, places: Sequence[Place], needed: LiveOut) -> None:
        self._k, self._places, self._needed = k, places, needed
        self._place = places[0]
        function: ir.Function = k.e.function
        self._blocks = [function.append_basic_block(f"place{place.number}") for place in places]
        self._arrivals: dict[tuple[int, int], ir.Block] = {}
        self._entry = k.e.block
        self._dispatch, self._pick, self._join, self._defer, self._end = (
            function.append_basic_block(name) for name in ("dispatch", "pick", "join", "defer", "end")
        )
        self._join_phi, self._defer_phi = self._write_frame()
        self.end = len(places)
        """The place of a thread that has run off the end: it exits."""

    # -- what a place needs ----------------------------------------------------------------------------------------------------

    @property
    def successors(self) -> tuple[int, ...]:
        """Where the current place may go."""
        return self._place.successors

    @property
    def following(self) -> int:
        """Where lanes go on that do not branch: the place behind this one, or the end."""
        return self.successors[0] if self.successors else self.end

    def begin(self, place: Place) -> None:
        """Turn to a place."""
        self._place = place
        e = self._k.e
        e.position_at_end(self._blocks[place.number])
        self._k.begin_place(e.get(self._k.warp, WARP, "mask"))
        if self._k.layers.clock:
            self._stop_if_late(place)

    def _stop_if_late(self, place: Place) -> None:
        """In the clock layer a warp runs no further than the limit that the scheduler set."""
        k, e = self._k, self._k.e
        late = e.icmp_signed(">", e.get(k.warp, WARP, "time"), e.get(k.context, CONTEXT, "limit"))
        with e.if_then(late):
            e.put(constant(I64, k.near_lines(self._needed.read_by(place.number))), k.warp, WARP, "near")
            with e.if_then(e.icmp_unsigned("==", k.mask, e.get(k.warp, WARP, "live"))):  # nobody else has to be looked at
                for field, value in (("together", 1), ("pc", place.number), ("frontier", NONE)):
                    e.put(value, k.warp, WARP, field)
                e.ret(constant(I32, LATER))
            k.call(park, k.warp, k.mask, constant(I32, place.number))
            e.ret(constant(I32, LATER))

    def finish(self) -> None:
        """End a place that did not end itself."""
        if not self._k.e.block.is_terminated:
            self.save()
            self.go(self.following)

    def save(self) -> None:
        """Store the registers that are needed later."""
        self._k.save(self._needed.named_in(self._place.number))
        self._tally(self._place.number, self._k.mask)

    def count_executions(self, step: Step) -> None:
        """Tally the lanes of a guarded instruction; the others are tallied by place."""
        if step.instruction.guard is not None and not step.resumes:
            self._tally(len(self._places) + step.index, self._k.active)

    def _tally(self, number: int, lanes: Value) -> None:
        k, e = self._k, self._k.e
        if k.layers.counts:
            place = e.at(e.get_pointer(k.context, CONTEXT, "executions"), 8 * number)
            e.store(e.add(e.load(place, typ=I64), e.zext(e.popcount(lanes), I64)), place)

    def weights(self) -> tuple[tuple[int, int], ...]:
        """For each tally, how many instructions it stands for."""
        by_place = [(p.number, sum(s.instruction.guard is None and not s.resumes for s in p.steps)) for p in self._places]
        guarded = [
            (len(self._places) + s.index, 1) for p in self._places for s in p.steps if s.instruction.guard is not None and not s.resumes
        ]
        return (*by_place, *guarded)

    def go(self, number: int) -> None:
        """All lanes go on at a place."""
        self._k.e.branch(self._way_to(number))

    def split(self, taken: Value) -> None:
        """Lanes of `taken` go to the first successor, the others to the second."""
        k, e = self._k, self._k.e
        goal, otherwise = self.successors if len(self.successors) == 2 else (self.successors[0], self.end)
        some, both = (e.append_basic_block(name) for name in ("not_all", "both"))
        e.cbranch(e.icmp_unsigned("==", taken, k.mask), self._way_to(goal), some)
        e.position_at_end(some)
        e.cbranch(e.icmp_unsigned("==", taken, constant(I32, 0)), self._way_to(otherwise), both)
        e.position_at_end(both)
        k.call(park, k.warp, taken, constant(I32, goal))
        k.call(park, k.warp, e.and_(k.mask, e.not_(taken)), constant(I32, otherwise))
        self.pick_again()

    def leave(self, lanes: Value) -> None:
        """`lanes` exit; the others, if the instruction is guarded, go on."""
        k = self._k
        self.skip_if_idle(self.following)
        k.call(leave_cluster, k.warp, lanes)
        self.pick_again()

    def pause(self) -> int:
        """End the place at an instruction that may wait: registers are stored, and lanes without a part in it go on. The place behind."""
        self.save()
        self.skip_if_idle(self.following)
        return self.following

    def skip_if_idle(self, following: int) -> None:
        """Behind a guard: if no lane takes part, all go on at `following`; else those that do not wait there for their turn."""
        k, e = self._k, self._k.e
        if k.instruction.guard is None:
            return
        some = e.append_basic_block("some")
        e.cbranch(e.icmp_unsigned("==", k.active, constant(I32, 0)), self._way_to(following), some)
        e.position_at_end(some)
        k.call(park, k.warp, e.and_(k.mask, e.not_(k.active)), constant(I32, following))

    def gather(self, members: Value, partners: Value) -> None:
        """Begin a warp-synchronous instruction, the first of its place. A lane goes on when all of its live `partners`, a mask for each
        lane, are here; `members` are all those that a running lane waits for."""
        k, e = self._k, self._k.e
        missing = e.and_(e.and_(members, e.get(k.warp, WARP, "live")), e.not_(k.mask))
        with e.if_then(e.icmp_unsigned("!=", missing, constant(I32, 0)), likely=False):
            e.store_lanes(partners, k.scratch("partners", 4 * LANES))
            together = k.call(gather, k.warp, constant(I32, self._place.number), k.scratch("partners", 4 * LANES), constant(I32, k.index))
            with e.if_then(e.icmp_unsigned("==", together, constant(I32, 0))):
                self.pick_again()
        k.change_mask(e.get(k.warp, WARP, "mask"))

    def pick_again(self) -> None:
        """The lanes have been seen to: choose a fragment."""
        self._k.e.branch(self._pick)

    # -- the frame ---------------------------------------------------------------------------------------------------------------

    def _write_frame(self) -> tuple[Value, Value]:
        """The blocks that every kernel has."""
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
        """Write the entry, after everything that puts something into the function's frame."""
        k, e = self._k, self._k.e
        e.position_at_end(self._entry)
        check_turn(k)
        status = k.call(enter, k.warp)
        stop = e.append_basic_block("stop")
        e.cbranch(e.icmp_unsigned("==", status, constant(I32, RUN)), self._dispatch, stop)
        e.position_at_end(stop)
        e.ret(status)

    def _way_to(self, number: int) -> ir.Block:
        """The block that goes on at a place from here."""
        if number == self.end:
            return self._end
        cost = 0
        if number <= self._place.number:
            cost = POLL_COST if self._place.polls else 1
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
