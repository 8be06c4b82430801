"""Count, time and record a memory instruction for the counting and clock layers, in out-of-line helpers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache

from memlane.chip import ACCESS_KINDS, LANES, AccessKind, Chip
from memlane.chip.copies import HALF
from memlane.emulate.clock.caches import access_helper
from memlane.emulate.clock.issue import Clock
from memlane.emulate.clock.sectors import ATOMIC, LOAD, LOAD_PAST_L1, STORE
from memlane.emulate.code.build import I8, I32, I64, POINTER, VOID, Emit, Value, constant, vector
from memlane.emulate.count.banks import bank_period
from memlane.emulate.count.copies import copy_helper
from memlane.emulate.count.counting import counting, equal_lanes
from memlane.emulate.layers import CompiledLayers
from memlane.emulate.layout import BLOCK, CONTEXT, PATTERN, SPACE_NUMBERS, WARP, offset
from memlane.emulate.observe.examples import EXAMPLE_SLOTS, keep_example
from memlane.emulate.runtime.helper import Helper, helper, invoke
from memlane.emulate.runtime.pages import Pages
from memlane.emulate.runtime.window import split_by_rank, split_by_space
from memlane.launch import ACCESS_DTYPE, COUNT_FIELDS

_FIELD = {name: 8 * number for number, name in enumerate(COUNT_FIELDS)}
COUNT_BYTES = 8 * len(COUNT_FIELDS)
_ARGUMENTS = (POINTER, POINTER, I64, I32, I32, I32, I64)
"""Argument types: warp, addresses, distance, lanes, bytes per lane, site, cycle of issue."""
_ATOMICS = (ATOMIC, "compare_swap", "increment")
"""Kinds of access that the caches treat as atomic."""
PASS_CYCLES = 2
"""Cycles for which a line of 128 bytes occupies L1, by `stencils by block shape` in benchmarks/results/h200/predict_measured.json."""
LINE_BYTES = 128
SECTOR_SHIFT = 5
"""Logarithm of the sector size, 32 bytes on all chips that copy boxes."""
_ACCESSES = Pages(ACCESS_DTYPE, "accesses", "access_count", "access_room", "new_page")


@cache
def _digest_of(chip: Chip) -> str:
    """Return a key that distinguishes the helpers of different chips and is the same in every process."""
    return hashlib.sha256(repr(chip).encode()).hexdigest()[:12]


@cache
def accounting(chip: Chip, layers: CompiledLayers, space: str, kind: AccessKind, is_request: bool = True, floats: bool = False) -> Helper:
    """Return `(warp, addresses, distance, lanes, nbytes, site, issue) -> cycle of completion`, which accounts for one executed access.

    With `is_request` false it accounts for a further part of the same request. Without the clock layer, cycles are 0.
    """

    def build(e: Emit, warp: Value, addresses: Value, distance: Value, lanes: Value, nbytes: Value, site: Value, issue: Value) -> None:
        with e.if_then(e.icmp_unsigned("==", lanes, constant(I32, 0)), likely=False):
            e.ret(issue)
        if layers.counts:
            row = _count_request(e, warp, site, lanes, nbytes, is_request)
            if kind in _ATOMICS:
                met = invoke(e, equal_lanes, addresses, lanes)
                _add(e, row, "addresses", e.and_(met, constant(I64, 0xFFFFFFFF)))
                _raise_to(e, row, "most_lanes_at_address", e.lshr(met, constant(I64, 32)))
        if layers.predicts and space != "tex":
            addresses = invoke(e, side_by_side, warp, addresses, distance, lanes, nbytes, site)
        arguments = (addresses, distance, lanes, nbytes, site, issue)
        if space not in ("generic", "shared::cluster"):
            e.ret(invoke(e, accounting_part(chip, layers, space, kind, floats), warp, *arguments))
            return
        latest = e.variable(issue)
        parts = split_by_space if space == "generic" else split_by_rank
        for name, group, start in parts(e, addresses, distance, lanes, warp):
            with e.if_then(e.icmp_unsigned("!=", group, constant(I32, 0))):
                inner = e.sub(distance, constant(I64, start))
                complete = invoke(e, accounting_part(chip, layers, name, kind, floats), warp, addresses, inner, group, nbytes, site, issue)
                latest.set(e.intrinsic("smax", [latest.get(), complete]))
        e.ret(latest.get())

    return Helper(f"memlane_account_{_key(chip, layers)}_{space}_{kind}_{is_request:d}{floats:d}", I64, _ARGUMENTS, build)


@helper("side_by_side", POINTER, POINTER, POINTER, I64, I32, I32, I32)
def side_by_side(e: Emit, warp: Value, addresses: Value, distance: Value, lanes: Value, nbytes: Value, site: Value) -> None:
    """Return the addresses of an access, or for an instruction of `Layers.side_by_side` addresses as if its lanes were contiguous, in a
    line that one of them touches.

    The address of the first lane selects that lane, so that consecutive accesses, and those of neighbouring warps, use different lines, as
    they would with such a data layout.
    """
    context = e.get_pointer(e.get_pointer(warp, WARP, "block"), BLOCK, "context")
    chosen = e.load(e.at(e.get_pointer(context, CONTEXT, "side_by_side"), e.zext(site, I64)), typ=I8)
    with e.if_then(e.icmp_unsigned("==", chosen, constant(I8, 0)), likely=True):
        e.ret(addresses)
    first = e.lowest_bit(e.zext(lanes, I64))
    # With the constant offset of the instruction, so that the turns of an unrolled loop select different lanes too.
    low = e.add(e.load(e.element(addresses, first, I64), typ=I64), distance)
    lane = e.urem(e.udiv(low, e.zext(nbytes, I64)), constant(I64, LANES))
    taken = e.icmp_unsigned("!=", e.and_(e.lshr(e.zext(lanes, I64), lane), constant(I64, 1)), constant(I64, 0))
    line = e.load(e.element(addresses, e.select(taken, lane, first), I64), typ=I64)
    line = e.sub(e.and_(e.add(line, distance), constant(I64, -LINE_BYTES)), distance)
    near = e.get_pointer(context, CONTEXT, "near_addresses")
    with e.count(constant(I64, LANES)) as number:
        e.store(e.add(line, e.mul(number, e.zext(nbytes, I64))), e.element(near, number, I64))
    e.ret(near)


@cache
def accounting_copy(chip: Chip, layers: CompiledLayers, nbytes: int, kind: AccessKind) -> Helper:
    """Return `(warp, sources, distance, targets, distance, lanes, readers, partly, site, issue) -> cycle of completion`, which accounts for
    an asynchronous copy of `nbytes` per lane from global to shared memory: one request, with its loads and stores.

    Lanes that are not `readers` fill their target with zeros: they belong to the request, but move no sector. Copies are aligned, so a lane
    that reads part of its copy, one of `partly`, reads one sector, as for all of it.
    """
    past_l1 = kind == LOAD_PAST_L1 and nbytes == HALF

    def build(
        e: Emit,
        warp: Value,
        source: Value,
        far: Value,
        target: Value,
        near: Value,
        lanes: Value,
        readers: Value,
        partly: Value,
        site: Value,
        issue: Value,
    ) -> None:
        size, low = constant(I32, nbytes), constant(I64, 0xFFFF)
        with e.if_then(e.icmp_unsigned("==", lanes, constant(I32, 0)), likely=False):
            e.ret(issue)
        sectors = wavefronts = constant(I64, 0)
        if layers.clock:  # the banks are assumed to be busy as for a store
            wavefronts = invoke(e, counting(chip, STORE).wavefronts, target, near, lanes, size)
        if layers.counts:
            _count_request(e, warp, site, lanes, size)
            whole = e.and_(readers, e.not_(partly))
            cost = invoke(e, copy_helper(nbytes, past_l1), source, far, target, near, lanes, readers, whole)
            sectors = invoke(e, counting(chip, kind).sectors, source, far, readers, size)
            if past_l1:
                sectors = e.or_(e.and_(sectors, e.not_(low)), e.lshr(cost, constant(I64, 48)))
            cycles = e.and_(wavefronts, constant(I64, 0xFFFF << 16))
            ideal = e.and_(cost, constant(I64, 0xFFFF << 32))
            wavefronts = e.or_(e.or_(e.and_(cost, low), cycles), ideal)
        read = e.variable(issue)
        with e.if_else(e.icmp_unsigned("!=", readers, constant(I32, 0))) as (some, none):
            with some:
                banks = constant(I64, 0)
                if layers.predicts and kind == LOAD:
                    banks = invoke(e, counting(chip, kind).wavefronts, source, far, readers, size)
                loaded = _Access(chip, layers, "global", kind, warp, source, far, readers, size, site, issue)
                read.set(_record_access(e, loaded, sectors, banks))
            with none:
                if layers.accesses:
                    when, nothing = e.add(issue, _origin(e, layers, warp)), constant(I32, 0)
                    invoke(e, keep_row, warp, site, constant(I32, SPACE_NUMBERS["global"]), nothing, when, when, nothing, nothing)
        written = _Access(chip, layers, "shared", STORE, warp, target, near, lanes, size, site, read.get())
        e.ret(_record_access(e, written, constant(I64, 0), wavefronts))

    arguments = (POINTER, POINTER, I64, POINTER, I64, I32, I32, I32, I32, I64)
    return Helper(f"memlane_account_copy_{_key(chip, layers)}_{kind}_{nbytes}", I64, arguments, build)


def _key(chip: Chip, layers: CompiledLayers) -> str:
    return f"{_digest_of(chip)}_{layers.counts:d}{layers.accesses:d}{layers.clock:d}{layers.predicts:d}"


@cache
def accounting_part(chip: Chip, layers: CompiledLayers, space: str, kind: AccessKind, floats: bool = False) -> Helper:
    """Return a helper that counts and times the lanes of one access that fall into `space`; `accounting` counts the request itself."""
    rules = counting(chip, kind)

    def build(e: Emit, warp: Value, addresses: Value, distance: Value, lanes: Value, nbytes: Value, site: Value, issue: Value) -> None:
        sectors = wavefronts = constant(I64, 0)
        if space == "global" and layers.counts:
            sectors = invoke(e, rules.sectors, addresses, distance, lanes, nbytes)
        if space == "local" and layers.counts:
            sectors = invoke(e, rules.local, addresses, distance, lanes, nbytes)
        if space == "shared" or (space == "global" and layers.predicts and kind == "load"):
            if kind in _ATOMICS:  # their address pattern mostly changes from access to access
                wavefronts = invoke(e, rules.wavefronts, addresses, distance, lanes, nbytes)
            else:
                wavefronts = invoke(e, _wavefronts_of_site(chip, kind), warp, addresses, distance, lanes, nbytes, site)
        place = _Access(chip, layers, space, kind, warp, addresses, distance, lanes, nbytes, site, issue, floats)
        e.ret(_record_access(e, place, sectors, wavefronts))

    return Helper(f"memlane_account_part_{_key(chip, layers)}_{space}_{kind}_{floats:d}", I64, _ARGUMENTS, build)


@cache
def _wavefronts_of_site(chip: Chip, kind: AccessKind) -> Helper:
    """Return `(warp, addresses, distance, lanes, nbytes, site) -> i64`: `Counting.wavefronts`, called only if the site's address pattern,
    modulo `bank_period`, differs from its last one."""
    unit = bank_period(chip.bank_rule(kind))

    def build(e: Emit, warp: Value, addresses: Value, distance: Value, lanes: Value, nbytes: Value, site: Value) -> None:
        first_lane = e.and_(e.lowest_bit(lanes), constant(I32, LANES - 1))
        first = e.trunc(e.load(e.element(addresses, first_lane, I64), typ=I64), I32)
        steps = e.sub(e.trunc(e.load_lanes(addresses, I64), vector(I32)), e.splat(first))
        place = e.and_(e.add(first, e.trunc(distance, I32)), constant(I32, unit - 1))
        place = e.or_(place, e.shl(nbytes, constant(I32, 16)))
        context = e.get_pointer(e.get_pointer(warp, WARP, "block"), BLOCK, "context")
        row = e.at(e.get_pointer(context, CONTEXT, "patterns"), e.mul(e.zext(site, I64), constant(I64, PATTERN.itemsize)))
        known = e.at(row, offset(PATTERN, "steps"))
        differ = e.and_(e.mask_of(e.icmp_unsigned("!=", steps, e.load_lanes(known, I32))), lanes)
        differ = e.or_(differ, e.xor(lanes, e.get(row, PATTERN, "mask")))
        differ = e.or_(differ, e.xor(place, e.get(row, PATTERN, "place")))
        with e.if_then(e.icmp_unsigned("!=", differ, constant(I32, 0))):
            e.store_lanes(steps, known)
            e.put(lanes, row, PATTERN, "mask")
            e.put(place, row, PATTERN, "place")
            e.put(invoke(e, counting(chip, kind).wavefronts, addresses, distance, lanes, nbytes), row, PATTERN, "wavefronts")
        e.ret(e.get(row, PATTERN, "wavefronts"))

    arguments = (POINTER, POINTER, I64, I32, I32, I32)
    return Helper(f"memlane_wavefronts_of_site_{_digest_of(chip)}_{kind}", I64, arguments, build)


@dataclass(frozen=True)
class _Access:
    """The part of an executed access that reaches one state space."""

    chip: Chip
    layers: CompiledLayers
    space: str
    kind: AccessKind
    warp: Value
    addresses: Value
    distance: Value
    lanes: Value
    nbytes: Value
    site: Value
    issue: Value
    """Cycle of issue."""
    floats: bool = False
    """Whether an atomic operation adds floats."""


def _record_access(e: Emit, one: _Access, sectors: Value, wavefronts: Value) -> Value:
    """Add the cost of an access to one state space to its counts, keep a row and an example, and return the cycle of completion."""
    layers, space = one.layers, one.space
    if layers.counts:
        row = _count_row(e, one.warp, one.site)
        for packed, name in ((sectors, "sectors"), (wavefronts if space == "shared" else constant(I64, 0), "wavefronts")):
            _add(e, row, name, e.and_(packed, constant(I64, 0xFFFF)))
            _add(e, row, f"ideal_{name}", e.lshr(packed, constant(I64, 32)))
    complete = one.issue
    if layers.clock:
        complete = _completion_cycle(e, one, wavefronts)
    if layers.accesses:
        origin = _origin(e, layers, one.warp)
        if space in EXAMPLE_SLOTS:
            packed = wavefronts if space == "shared" else sectors
            numbers = (
                constant(I32, EXAMPLE_SLOTS[space]),
                constant(I32, SPACE_NUMBERS[space]),
                constant(I32, ACCESS_KINDS.index(one.kind)),
            )
            invoke(e, keep_example, one.warp, one.site, *numbers, one.lanes, one.nbytes, packed, one.addresses, one.distance)
        invoke(
            e,
            keep_row,
            one.warp,
            one.site,
            constant(I32, SPACE_NUMBERS[space]),
            one.lanes,
            e.add(one.issue, origin),
            e.add(complete, origin),
            e.and_(e.trunc(sectors, I32), constant(I32, 0xFFFF)),
            e.and_(e.trunc(wavefronts, I32), constant(I32, 0xFFFF)),
        )
    return complete


def _completion_cycle(e: Emit, one: _Access, wavefronts: Value) -> Value:
    """Return the cycle in which the last value arrives, and reserve the wavefronts' slots in the load-store unit."""
    chip, layers, space, kind, issue = one.chip, one.layers, one.space, one.kind, one.issue
    block = e.get_pointer(one.warp, WARP, "block")
    context = e.get_pointer(block, BLOCK, "context")
    sm = e.get_pointer(block, BLOCK, "sm_state")
    lsu = Clock(chip).lsu
    if space == "tex":  # one pass; misses of the texture cache are not modelled
        return e.add(invoke(e, lsu, sm, issue, constant(I32, 1)), constant(I64, round(chip.latency.texture)))
    if space == "shared":
        count = e.and_(e.trunc(e.lshr(wavefronts, constant(I64, 16)), I32), constant(I32, 0xFFFF))
        latency = chip.latency.shared_atomic if kind in _ATOMICS else chip.latency.shared
        start = invoke(e, lsu, sm, issue, count)
        return e.add(start, e.add(e.sub(e.zext(count, I64), constant(I64, 1)), constant(I64, round(latency))))
    if space == "shared::cluster":  # contention on the path between multiprocessors is not modelled
        return e.add(invoke(e, lsu, sm, issue, constant(I32, 1)), constant(I64, round(chip.latency.shared_cluster or chip.latency.l2)))
    if space in ("param", "const"):  # the first constant cache; its misses are not modelled
        return e.add(issue, constant(I64, round(chip.latency.constant)))
    if space == "local":
        # The hardware interleaves the lanes' copies, so that one word of all lanes is one line; near accesses hit L1.
        words = constant(I32, 1)
        return e.add(invoke(e, lsu, sm, issue, words), constant(I64, round(chip.latency.l1)))
    caches = e.get_pointer(context, CONTEXT, "caches")
    number = e.get(block, BLOCK, "sm")
    place = (one.addresses, one.distance, one.lanes, one.nbytes)
    operation = "float" if one.floats else "pair" if kind == "compare_swap" else ""
    packed = invoke(e, access_helper(chip, ATOMIC if kind in _ATOMICS else kind, operation), caches, number, *place, issue)
    passes = e.trunc(e.lshr(packed, constant(I64, 40)), I32)
    if layers.predicts:
        # L1 has the banks of shared memory, and storing a line takes two cycles.
        banks = e.and_(e.trunc(e.lshr(wavefronts, constant(I64, 16)), I32), constant(I32, 0xFFFF))
        twice = e.mul(passes, constant(I32, PASS_CYCLES))
        passes = twice if kind == "store" else e.intrinsic("umax", [passes, banks])
    start = invoke(e, lsu, sm, issue, passes)
    return e.add(start, e.and_(packed, constant(I64, 0xFFFFFFFF)))


def _origin(e: Emit, layers: CompiledLayers, warp: Value) -> Value:
    """Return the offset from cycles to the times in rows, which are those of the multiprocessor, as in `%clock64`."""
    return e.get(e.get_pointer(warp, WARP, "block"), BLOCK, "origin") if layers.clock else constant(I64, 0)


def _count_row(e: Emit, warp: Value, site: Value) -> Value:
    context = e.get_pointer(e.get_pointer(warp, WARP, "block"), BLOCK, "context")
    return e.at(e.get_pointer(context, CONTEXT, "counts"), e.mul(e.zext(site, I64), constant(I64, COUNT_BYTES)))


def _count_request(e: Emit, warp: Value, site: Value, lanes: Value, nbytes: Value, is_request: bool = True) -> Value:
    """Count a request of `lanes` with `nbytes` each, or only the bytes of a further part of it; return the address of its counts."""
    row, active = _count_row(e, warp, site), e.zext(e.popcount(lanes), I64)
    if is_request:
        _add(e, row, "requests", constant(I64, 1))
        _add(e, row, "lanes", active)
    _add(e, row, "bytes", e.mul(active, e.zext(nbytes, I64)))
    return row


def _add(e: Emit, row: Value, name: str, by: Value) -> None:
    place = e.at(row, _FIELD[name])
    e.store(e.add(e.load(place, typ=I64), by), place)


def _raise_to(e: Emit, row: Value, name: str, to: Value) -> None:
    """Raise a field to at least `to`."""
    place = e.at(row, _FIELD[name])
    e.store(e.intrinsic("umax", [e.load(place, typ=I64), to]), place)


@cache
def count_box(keeps_rows: bool) -> Helper:
    """Return `(warp, sectors, touched, lanes, site, issue)`, which counts tensor copies of boxes, given 32 i64 each of sectors and of
    bytes."""

    def build(e: Emit, warp: Value, sectors: Value, touched: Value, lanes: Value, site: Value, issue: Value) -> None:
        with e.if_then(e.icmp_unsigned("==", lanes, constant(I32, 0)), likely=False):
            e.ret_void()
        row, shift, total = _count_row(e, warp, site), constant(I64, SECTOR_SHIFT), e.variable(constant(I64, 0))
        _add(e, row, "requests", constant(I64, 1))
        _add(e, row, "lanes", e.zext(e.popcount(lanes), I64))
        with e.each_lane(lanes) as lane:
            count, nbytes = (e.load(e.element(source, lane, I64), typ=I64) for source in (sectors, touched))
            total.set(e.add(total.get(), count))
            _add(e, row, "bytes", nbytes)
            _add(e, row, "ideal_sectors", e.lshr(e.add(nbytes, constant(I64, (1 << SECTOR_SHIFT) - 1)), shift))
        _add(e, row, "sectors", total.get())
        if keeps_rows:
            origin = e.get(e.get_pointer(warp, WARP, "block"), BLOCK, "origin")
            when = e.add(issue, origin)
            most = constant(I64, 0xFFFF)
            kept = e.trunc(e.intrinsic("umin", [total.get(), most]), I32)
            invoke(e, keep_row, warp, site, constant(I32, SPACE_NUMBERS["global"]), lanes, when, when, kept, constant(I32, 0))

    return Helper(f"memlane_count_box_{keeps_rows:d}", VOID, (POINTER, POINTER, POINTER, I32, I32, I64), build)


@helper("count_product", VOID, POINTER, I32, I32, I32)
def count_product(e: Emit, warp: Value, site: Value, lanes: Value, nbytes: Value) -> None:
    """Count one request of a wgmma product, which reads `nbytes` of shared memory per lane; its wavefronts are counted separately."""
    _count_request(e, warp, site, lanes, nbytes)


@helper("count_branch", VOID, POINTER, I32, I32, I32)
def count_branch(e: Emit, warp: Value, site: Value, lanes: Value, taken: Value) -> None:
    """Count one branch executed by `lanes` and taken by `taken`."""
    row = _count_row(e, warp, site)
    _add(e, row, "requests", constant(I64, 1))
    _add(e, row, "lanes", e.zext(e.popcount(lanes), I64))
    some = e.icmp_unsigned("!=", taken, constant(I32, 0))
    divergent = e.and_(some, e.icmp_unsigned("!=", taken, lanes))
    _add(e, row, "divergent", e.zext(divergent, I64))


@helper("keep_row", VOID, POINTER, I32, I32, I32, I64, I64, I32, I32)
def keep_row(
    e: Emit, warp: Value, site: Value, space: Value, lanes: Value, issue: Value, complete: Value, sectors: Value, wavefronts: Value
) -> None:
    """Append a row to the accesses, unless the limit is reached; Python provides a new page when one is full."""
    block = e.get_pointer(warp, WARP, "block")
    context = e.get_pointer(block, BLOCK, "context")
    with e.if_then(e.icmp_signed("<=", e.get(context, CONTEXT, "accesses_left"), constant(I64, 0)), likely=False):
        e.bump(context, CONTEXT, "accesses_not_kept")
        e.ret_void()
    e.bump(context, CONTEXT, "accesses_left", -1)
    row = _ACCESSES.begin_row(e, context)
    values = {
        "instruction": site,
        "block": e.trunc(e.get(block, BLOCK, "number"), I32),
        "warp": e.get(warp, WARP, "number"),
        "space": space,
        "mask": lanes,
        "issue": issue,
        "complete": complete,
        "sectors": sectors,
        "wavefronts": wavefronts,
    }
    _ACCESSES.fill(e, row, values)
