"""Count the wavefronts of a warp access to shared memory in generated code, by the rules of `memlane.chip.access`.

Accesses are naturally aligned, so a lane's words lie in neighbouring banks, and lanes whose first words share a bank share the banks of the
other words as well. It is therefore enough to count *cells*, one per lane, as wide as the access: the remainder of a cell's number is its
bank, the quotient its row.

If the cells of a full warp are equally far apart, the load of the fullest bank follows from the stride. Otherwise the load of all banks is
counted at once: each lane is a word with one bit set, that of its bank, and a tree of bitwise adders sums the lanes into a few words, the
k-th of which holds bit k of every bank's count. That takes some 60 cycles whatever the conflict. Lanes with the same cell must count once:
equal neighbours, or equal lanes half a pass apart, are removed beforehand; if other duplicates can remain, the cells are sorted and counted
again.
"""

from __future__ import annotations

import hashlib
from functools import cache

import llvmlite.ir as ir

from memlane.chip import LANES, AccessKind, BankRule, Chip
from memlane.emulate.code.build import I32, I64, Emit, Value, constant, lane_numbers, vector
from memlane.emulate.code.sorting import descents, distinct, permute, sort
from memlane.emulate.count import ARGUMENTS
from memlane.emulate.layout import FULL
from memlane.emulate.runtime.helper import Helper, invoke

_VECTOR = vector(I32)
_WIDTHS = (4, 8, 16)
"""Access widths in bytes with rules of their own; accesses of 1 and 2 bytes follow the rule for 4."""


def wavefronts_helper(chip: Chip, kind: AccessKind = "load") -> Helper:
    """Return `(addresses: <32 x i64>*, distance: i64, mask: i32, nbytes: i32) -> i64`: wavefronts, `cycles << 16` and `ideal << 32`.

    Addresses must be naturally aligned and lie in one window of 2^32 bytes that begins at a multiple of all banks' width.
    """
    return _wavefronts_helper(chip.bank_rule(kind))


def bank_period(rule: BankRule) -> int:
    """Return the bytes by which all addresses may shift without changing the wavefronts, a power of two: one cell, as banks are alike, or
    one row if a bank row holds several words."""
    return _WIDTHS[-1] if rule.row_words == 1 else rule.banks * rule.bank_bytes * rule.row_words


@cache
def _wavefronts_helper(rule: BankRule) -> Helper:
    digest = hashlib.sha256(repr(rule).encode()).hexdigest()[:12]
    width_rules = {width: _WidthRule(rule, width, digest) for width in _WIDTHS if width <= rule.bank_bytes or rule.wide == "at once"}
    widest = max(width_rules)

    def build(e: Emit, addresses: Value, distance: Value, mask: Value, nbytes: Value) -> None:
        with e.if_then(e.icmp_unsigned("==", mask, constant(I32, 0)), likely=False):
            e.ret(constant(I64, 0))
        for width in sorted(width_rules)[:-1]:
            with e.if_then(e.icmp_unsigned("<=", nbytes, constant(I32, width))):
                e.ret(invoke(e, width_rules[width].helper, addresses, distance, mask, nbytes))
        if rule.wide == "at once":
            e.ret(invoke(e, width_rules[widest].helper, addresses, distance, mask, nbytes))
            return
        one = e.intrinsic("umin", [nbytes, constant(I32, rule.bank_bytes)])
        total = e.variable(constant(I64, 0))
        with e.count(e.udiv(nbytes, one)) as word:
            there = e.add(distance, e.zext(e.mul(word, one), I64))
            total.set(e.add(total.get(), invoke(e, width_rules[widest].helper, addresses, there, mask, one)))
        e.ret(total.get())

    return Helper(f"memlane_wavefronts_{digest}", I64, ARGUMENTS, build)


class _WidthRule:
    """Bank rule for accesses of one width."""

    def __init__(self, rule: BankRule, width: int, digest: str) -> None:
        self.rule = rule
        self.width = width
        self.group = rule.lanes(width)
        self.cell_bytes = max(width, rule.bank_bytes)
        self.cells = rule.banks * rule.bank_bytes // self.cell_bytes
        self.row_bytes = rule.banks * rule.bank_bytes * rule.row_words
        self.digest = f"{width}_{digest}"
        self.helper = Helper(f"memlane_banks_{self.digest}", I64, ARGUMENTS, self._build)

    def _build(self, e: Emit, addresses: Value, distance: Value, mask: Value, nbytes: Value) -> None:
        lanes = e.add(e.trunc(e.load_lanes(addresses, I64), _VECTOR), e.splat(e.trunc(distance, I32)))
        if self._has_affine_form():
            self._affine(e, lanes, mask)
        if self.rule.merge == "neighbours" and self.group < LANES:
            merged = self._merged(e, lanes, mask)
            with e.if_then(e.icmp_unsigned("!=", merged, constant(I32, 0)), likely=False):
                e.ret(self._merge_passes(e, lanes, mask, nbytes, merged))
        e.ret(self._result(e, self._passes(e, lanes, mask, nbytes, self.group), LANES // self.group))

    def _merge_passes(self, e: Emit, lanes: Value, mask: Value, nbytes: Value, merged: Value) -> Value:
        """Return the result if the lanes of some pairs of passes agree.

        Such a pair counts as one pass if it has no conflict, and takes the time of one pass if all lanes of the warp agree.
        """
        whole = e.icmp_unsigned("==", merged, constant(I32, FULL))
        self._merge_all_passes(e, lanes, mask, nbytes, whole)
        cost, apart_cycles, joined_cycles = e.variable(constant(I64, 0)), constant(I64, 0), constant(I64, 0)
        for pair in _groups(2 * self.group):
            here = e.and_(mask, constant(I32, pair))
            apart, joined = (self._passes(e, lanes, here, nbytes, group) for group in (self.group, 2 * self.group))
            together = e.and_(joined, constant(I64, 0xFFFF))
            agrees = e.icmp_unsigned("!=", e.and_(merged, constant(I32, pair)), constant(I32, 0))
            alone = e.icmp_unsigned("<=", together, constant(I64, 1 + self.rule.extra(self.width)))
            cost.set(e.add(cost.get(), e.select(e.and_(agrees, alone), joined, apart)))
            apart_cycles = e.add(apart_cycles, e.and_(apart, constant(I64, 0xFFFF)))
            joined_cycles = e.add(joined_cycles, together)
        passes = LANES // self.group
        apart_cycles = e.intrinsic("umax", [apart_cycles, constant(I64, passes)])
        joined_cycles = e.intrinsic("umax", [joined_cycles, constant(I64, passes // 2)])
        times = constant(I64, self.rule.times or 1)
        cycles = e.mul(e.select(whole, joined_cycles, apart_cycles), times)
        return e.or_(e.mul(cost.get(), times), e.shl(cycles, constant(I64, 16)))

    def _merge_all_passes(self, e: Emit, lanes: Value, mask: Value, nbytes: Value, whole: Value) -> None:
        """Return early in the common case of a few addresses for the whole warp: all pairs agree, and none has a conflict."""
        if self.group * self.width > self.row_bytes:
            return
        with e.if_then(whole):
            cost = self._passes(e, lanes, mask, nbytes, 2 * self.group)
            used = e.lshr(cost, constant(I64, 32))
            least = e.mul(used, constant(I64, 1 + self.rule.extra(self.width)))
            with e.if_then(e.icmp_unsigned("==", e.and_(cost, constant(I64, 0xFFFF)), least)):
                e.ret(self._result(e, cost, LANES // self.group // 2))

    def _has_affine_form(self) -> bool:
        rule = self.rule
        plain = rule.row_words == 1 and (rule.broadcast == "every word" or rule.same_word == "one by one")
        return plain and self.width >= rule.bank_bytes and self.group * self.width <= self.row_bytes and self.cells.bit_count() == 1

    def _affine(self, e: Emit, lanes: Value, mask: Value) -> None:
        """Return early for a full warp whose addresses have a constant stride of whole cells: the counts follow from the stride."""
        first = e.extract_element(lanes, constant(I32, 0))
        step = e.sub(e.extract_element(lanes, constant(I32, 1)), first)
        row = e.add(e.splat(first), e.mul(e.splat(step), lane_numbers(I32)))
        off = e.reduce("or", e.xor(lanes, row))
        off = e.or_(off, e.and_(step, constant(I32, self.cell_bytes - 1)))
        passes, extra = LANES // self.group, self.rule.extra(self.width)
        with e.if_then(e.icmp_unsigned("==", e.or_(off, e.not_(mask)), constant(I32, 0))):
            with e.if_then(e.icmp_unsigned("==", step, constant(I32, 0))):
                together = self.rule.same_word == "together"
                merged = self.rule.merge == "neighbours" and self.group < LANES and together
                paid = passes // 2 if merged else passes
                wavefronts = paid * extra + (paid if together else LANES)
                e.ret(self._result(e, constant(I64, wavefronts | paid << 32), paid))
            # The lanes of a pass fall on cells / 2^d banks, where 2^d divides both the step and the number of cells.
            step_cells = e.udiv(step, constant(I32, self.cell_bytes))
            d = e.lowest_bit(e.or_(step_cells, constant(I32, self.cells)))
            degree = e.lshr(constant(I32, self.group), e.sub(constant(I32, self.cells.bit_length() - 1), d))
            degree = e.add(e.intrinsic("umax", [degree, constant(I32, 1)]), constant(I32, extra))
            wavefronts = e.zext(e.mul(degree, constant(I32, passes)), I64)
            e.ret(self._result(e, e.or_(wavefronts, constant(I64, passes << 32)), passes))

    def _result(self, e: Emit, cost: Value, passes: int) -> Value:
        """Return the helper's result, from wavefronts and `ideal << 32` of an access that takes at least `passes` cycles."""
        cost = e.mul(cost, constant(I64, self.rule.times or 1))
        wavefronts = e.and_(cost, constant(I64, 0xFFFF))
        cycles = e.intrinsic("umax", [wavefronts, constant(I64, passes * (self.rule.times or 1))])
        return e.or_(cost, e.shl(cycles, constant(I64, 16)))

    def _merged(self, e: Emit, lanes: Value, mask: Value) -> Value:
        """Return a mask of the pairs of passes whose lanes agree.

        Lanes agree if every active lane has the address of lane^1; all lanes are set if every active lane has the address of lane^2. An
        inactive neighbour agrees with any lane.
        """
        active = e.lanes_of(mask)
        merged = constant(I32, 0)
        for step, groups in ((1, _groups(2 * self.group)), (2, [FULL])):
            neighbour = [lane ^ step for lane in range(LANES)]
            differs = e.icmp_unsigned("!=", lanes, permute(e, lanes, neighbour))
            apart = e.mask_of(e.and_(differs, e.and_(active, permute(e, active, neighbour))))
            for group in groups:
                agrees = e.icmp_unsigned("==", e.and_(apart, constant(I32, group)), constant(I32, 0))
                merged = e.or_(merged, e.select(agrees, constant(I32, group), constant(I32, 0)))
        return merged

    def _passes(self, e: Emit, lanes: Value, mask: Value, nbytes: Value, group: int) -> Value:
        """Return wavefronts and `ideal << 32` of the passes of `group` lanes with an active lane."""
        used = constant(I32, 0)
        for lanes_of_pass in _groups(group):
            used = e.add(used, e.zext(e.icmp_unsigned("!=", e.and_(mask, constant(I32, lanes_of_pass)), constant(I32, 0)), I32))
        if self.rule.broadcast == "one word" and self.rule.same_word == "together":
            number = self._single_broadcast(e, lanes, mask, group)
        else:
            degree = Helper(
                f"memlane_degree_{group}_{self.digest}", I32, (_VECTOR, I32), lambda e, cells, used: self._degree(e, cells, used, group)
            )
            number = invoke(e, degree, e.select(e.lanes_of(mask), self._cells(e, lanes), constant(_VECTOR, -1)), used)
        number = e.add(number, e.mul(used, constant(I32, self.rule.extra(self.width))))
        ideal = self._ideal(e, lanes, mask, nbytes, group, used)
        return e.or_(e.zext(number, I64), e.shl(e.zext(ideal, I64), constant(I64, 32)))

    def _cells(self, e: Emit, lanes: Value) -> Value:
        """Return the cell of each lane: `row * cells + bank`, in units of a cell."""
        unit = e.udiv(lanes, constant(_VECTOR, self.cell_bytes))
        if self.rule.row_words == 1:
            return unit
        row = e.udiv(lanes, constant(_VECTOR, self.row_bytes))
        return e.add(e.mul(row, constant(_VECTOR, self.cells)), e.urem(unit, constant(_VECTOR, self.cells)))

    def _degree(self, e: Emit, cells: Value, used: Value, group: int) -> None:
        """Return the wavefronts of all passes, `used` of which have an active lane. Inactive lanes hold all ones."""
        if self.rule.same_word == "one by one":
            e.ret(self._fullest(e, cells, group))
            return
        number = self._fullest(e, cells, group)
        in_order = e.icmp_unsigned("==", descents(e, cells, group), constant(I32, 0))
        with e.if_then(e.or_(in_order, e.icmp_unsigned("==", number, used))):
            e.ret(number)
        e.ret(self._fullest(e, sort(e, cells, group), group))

    def _fullest(self, e: Emit, cells: Value, group: int) -> Value:
        """Return the load of the fullest bank, summed over the groups.

        A lane that repeats the one before is left out if lanes with the same cell are served together.
        """
        counted = e.mask_of(e.icmp_unsigned("!=", cells, constant(_VECTOR, -1)))
        if self.rule.same_word == "together":
            # Lanes that repeat the one half a group before are left out too: two rows of a tile that read the same words.
            half_before = [lane - group // 2 if lane % group >= group // 2 else lane for lane in range(LANES)]
            repeats = e.mask_of(e.icmp_unsigned("==", cells, permute(e, cells, half_before)))
            second_halves = sum(1 << lane for lane in range(LANES) if lane % group >= group // 2)
            counted = e.and_(distinct(e, cells, group), e.and_(counted, e.not_(e.and_(repeats, constant(I32, second_halves)))))
        bits = I32 if self.cells <= 32 else I64
        bank = e.urem(cells, constant(_VECTOR, self.cells))
        bank = bank if bits is I32 else e.zext(bank, vector(bits))
        one = e.shl(constant(vector(bits), 1), bank)
        planes = _bit_plane_sums(e, e.select(e.lanes_of(counted), one, constant(vector(bits), 0)), group)
        return total_of_passes(e, _bit_plane_maximum(e, planes))

    def _ideal(self, e: Emit, lanes: Value, mask: Value, nbytes: Value, group: int, used: Value) -> Value:
        """Return the wavefronts if the distinct bytes of each pass were spread evenly over the banks, usually one per pass."""
        if self.group * self.width <= self.row_bytes:
            return used  # this holds for merged passes too: at least half of their lanes repeat an address or are inactive
        ordered = sort(e, e.select(e.lanes_of(mask), lanes, constant(_VECTOR, -1)), group)
        kept = e.and_(distinct(e, ordered, group), e.mask_of(e.icmp_unsigned("!=", ordered, constant(_VECTOR, -1))))
        total = constant(I32, 0)
        for lanes_of_pass in _groups(group):
            here = e.and_(kept, constant(I32, lanes_of_pass))
            full = e.add(e.mul(e.popcount(here), nbytes), constant(I32, self.row_bytes - 1))
            total = e.add(total, e.udiv(full, constant(I32, self.row_bytes)))
        return total

    def _single_broadcast(self, e: Emit, lanes: Value, mask: Value, group: int) -> Value:
        """Return the steps if each step broadcasts one word to many lanes, and gives one lane one word from every other bank."""
        steps = Helper(f"memlane_steps_{self.digest}", I32, (_VECTOR, I32), self._steps)
        total = constant(I32, 0)
        for lanes_of_pass in _groups(group):
            total = e.add(total, invoke(e, steps, lanes, e.and_(mask, constant(I32, lanes_of_pass))))
        return total

    def _steps(self, e: Emit, lanes: Value, mask: Value) -> None:
        """Return the steps of one pass; the words left over by each step are compacted, in order, for the next."""
        words_a_lane = self.cell_bytes // self.rule.bank_bytes
        with e.goto_entry_block():
            words = e.alloca(I32, LANES * words_a_lane)
        count, steps = e.variable(constant(I32, 0)), e.variable(constant(I32, 0))
        with e.each_lane(mask) as lane:
            word = e.udiv(e.extract_element(lanes, lane), constant(I32, self.rule.bank_bytes))
            for number in range(words_a_lane):
                e.store(e.add(word, constant(I32, number)), e.element(words, count.get(), I32))
                count.set(e.add(count.get(), constant(I32, 1)))
        with e.while_(lambda: e.icmp_unsigned("!=", count.get(), constant(I32, 0))):
            broadcast = e.load(words, typ=I32)
            served, left = e.variable(self._bank_bit(e, broadcast)), e.variable(constant(I32, 0))
            with e.count(count.get()) as number:
                word = e.load(e.element(words, number, I32), typ=I32)
                with e.if_then(e.icmp_unsigned("!=", word, broadcast)):
                    bit = self._bank_bit(e, word)
                    e.store(word, e.element(words, left.get(), I32))
                    waits = e.icmp_unsigned("!=", e.and_(served.get(), bit), constant(I64, 0))
                    left.set(e.add(left.get(), e.zext(waits, I32)))
                    served.set(e.or_(served.get(), bit))
            count.set(left.get())
            steps.set(e.add(steps.get(), constant(I32, 1)))
        e.ret(steps.get())

    def _bank_bit(self, e: Emit, word: Value) -> Value:
        return e.shl(constant(I64, 1), e.zext(e.urem(word, constant(I32, self.rule.banks)), I64))


def fullest_of_passes(e: Emit, addresses: Value, mask: Value, nbytes: int, row_bytes: int) -> Value:
    """Return for each pass the number of lanes at its fullest bank, without broadcasts: a vector with one lane per pass.

    `addresses` are 32 i32; a bank is as wide as the `nbytes` of a lane, and a pass has as many lanes as a row has such banks.
    """
    cells = row_bytes // nbytes
    bank = e.and_(e.udiv(addresses, constant(_VECTOR, nbytes)), constant(_VECTOR, cells - 1))
    one = e.shl(constant(_VECTOR, 1), bank)
    return _bit_plane_maximum(e, _bit_plane_sums(e, e.select(e.lanes_of(mask), one, constant(_VECTOR, 0)), cells))


def total_of_passes(e: Emit, of_passes: Value) -> Value:
    """Return the sum over the passes; i32."""
    total = None
    for number in range(of_passes.type.count):
        one = e.extract_element(of_passes, constant(I32, number))
        one = one if one.type is I32 else e.trunc(one, I32)
        total = one if total is None else e.add(total, one)
    return total


def _groups(group: int) -> list[int]:
    """Return masks of consecutive groups of `group` lanes."""
    return [(FULL >> (LANES - group)) << first for first in range(0, LANES, group)]


def _bit_plane_sums(e: Emit, bits: Value, group: int) -> list[Value]:
    """Return the sums of the lanes of each group, per bit position: result k holds bit k of the sums, one lane per group."""
    planes = [bits]
    lanes = LANES
    while group > 1:
        half = group // 2
        low = [lane for lane in range(lanes) if lane % group < half]
        a, b = ([permute(e, plane, [lane + shift for lane in low]) for plane in planes] for shift in (0, half))
        planes, carry = [], None
        for x, y in zip(a, b, strict=True):
            differ = e.xor(x, y)
            planes.append(differ if carry is None else e.xor(differ, carry))
            both = e.and_(x, y)
            carry = both if carry is None else e.or_(both, e.and_(differ, carry))
        planes.append(carry)
        group, lanes = half, lanes // 2
    return planes


def _bit_plane_maximum(e: Emit, planes: list[Value]) -> Value:
    """Return the lane-wise maximum of the numbers whose bits the planes hold."""
    kind = planes[0].type
    zero = ir.Constant(kind, None)
    candidates = ir.Constant(kind, [(1 << kind.element.width) - 1] * kind.count)
    greatest = zero
    for number, plane in reversed(list(enumerate(planes))):
        with_bit = e.and_(candidates, plane)
        some = e.icmp_unsigned("!=", with_bit, zero)
        candidates = e.select(some, with_bit, candidates)
        greatest = e.or_(greatest, e.select(some, ir.Constant(kind, [1 << number] * kind.count), zero))
    return greatest
