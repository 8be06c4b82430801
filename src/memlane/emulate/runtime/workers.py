"""Coordinates the workers of a launch: they claim blocks and slots, and detect that none of them makes progress.

Each worker is a thread with its own slots for blocks and its own CONTEXT; all that they share is a WORKERS record. They start blocks in the
order of their numbers, so that a block may wait for those before it: each of these has ended or is run by some worker. The blocks of a
cluster are claimed together, and so are their slots; without clusters each block is a cluster of its own.
"""

from __future__ import annotations

from memlane.emulate.code.atomic import fetch, load_whole, store_whole
from memlane.emulate.code.build import I32, I64, POINTER, Emit, Value, constant
from memlane.emulate.layout import CONTEXT, PARTNER, WORKERS
from memlane.emulate.runtime.helper import helper


def workers_record(e: Emit, context: Value) -> Value:
    """Return the record that the workers share."""
    return e.get_pointer(context, CONTEXT, "workers")


def claim_cluster(e: Emit, context: Value) -> Value:
    """Claim the next cluster for this worker. Return how many blocks start before its first; no cluster is left if that is not below
    `context.blocks`."""
    place, _ = e.place(workers_record(e, context), WORKERS, "next_block")
    return fetch(e, "add", place, e.zext(e.get(context, CONTEXT, "cluster_blocks"), I64))


def are_blocks_left(e: Emit, context: Value) -> Value:
    """Return i1: whether some block has not been started."""
    place, kind = e.place(workers_record(e, context), WORKERS, "next_block")
    return e.icmp_unsigned("<", load_whole(e, place, kind), e.get(context, CONTEXT, "blocks"))


def claim_slots(e: Emit, context: Value) -> Value:
    """Claim slots for a cluster. Return the index of the first; none are left if it is not below `context.slot_count`."""
    place, _ = e.place(workers_record(e, context), WORKERS, "slots_taken")
    return fetch(e, "add", place, e.get(context, CONTEXT, "cluster_blocks"))


def are_slots_left(e: Emit, context: Value) -> Value:
    """Return i1: whether there are unclaimed slots for a cluster, and this worker has at most its share of the claimed ones, these
    included.

    So blocks that all have to be resident, because they wait for each other, are distributed evenly. And while one worker does not
    progress, the others do not fill their slots with blocks that wait for it and that they would have to poll.
    """
    record = workers_record(e, context)
    taken = load_whole(e, *e.place(record, WORKERS, "slots_taken"))
    workers = e.get(record, WORKERS, "worker_count")
    more = e.mul(workers, e.zext(e.get(context, CONTEXT, "cluster_blocks"), I64))
    is_fair = e.icmp_unsigned("<=", e.mul(e.get(context, CONTEXT, "owned"), workers), e.add(e.zext(taken, I64), more))
    return e.and_(is_fair, e.icmp_unsigned("<", taken, e.get(context, CONTEXT, "slot_count")))


def note_progress(e: Emit, context: Value) -> None:
    """Record progress (a block began, or a thread passed a barrier or ended): all workers restart their patience."""
    e.put(e.get(context, CONTEXT, "patience"), context, CONTEXT, "patience_left")
    place, kind = e.place(context, CONTEXT, "progress")
    store_whole(e, e.add(e.load(place, typ=kind), constant(I64, 1)), place)


def _worker_context(e: Emit, record: Value, number: Value) -> Value:
    """Return the context of a worker."""
    return e.at(e.get_pointer(record, WORKERS, "contexts"), e.mul(number, e.get(record, WORKERS, "context_bytes")))


@helper("is_endless", I32, POINTER)
def is_endless(e: Emit, context: Value) -> None:
    """Return 1 if this worker's patience and every other worker's is spent and nothing has happened since; else 0, because a worker that
    still runs may do what this one waits for.

    A worker is stuck at a total progress of all workers if it spent its whole patience while the total did not change.
    """
    record = workers_record(e, context)
    total = e.variable(constant(I64, 0))
    with e.count(e.get(record, WORKERS, "worker_count")) as number:
        total.set(e.add(total.get(), load_whole(e, *e.place(_worker_context(e, record, number), CONTEXT, "progress"))))
    others = e.sub(total.get(), e.get(context, CONTEXT, "progress"))
    with e.if_then(e.icmp_unsigned("!=", others, e.get(context, CONTEXT, "others"))):
        e.put(others, context, CONTEXT, "others")
        e.put(e.get(context, CONTEXT, "patience"), context, CONTEXT, "patience_left")
        e.ret(constant(I32, 0))
    mark = e.add(total.get(), constant(I64, 1))
    store_whole(e, mark, e.place(context, CONTEXT, "stuck")[0])
    with e.count(e.get(record, WORKERS, "worker_count")) as number:
        other = _worker_context(e, record, number)
        works = e.icmp_unsigned("!=", load_whole(e, *e.place(other, CONTEXT, "working")), constant(I64, 0))
        moves = e.icmp_unsigned("!=", load_whole(e, *e.place(other, CONTEXT, "stuck")), mark)
        with e.if_then(e.and_(works, moves)):
            e.ret(constant(I32, 0))
    partners = e.get(record, WORKERS, "partner_count")
    with e.if_then(e.icmp_unsigned("!=", partners, constant(I64, 0)), likely=False):
        e.ret(_are_partners_stuck(e, record, partners, total.get()))
    e.ret(constant(I32, 1))


def _are_partners_stuck(e: Emit, record: Value, partners: Value, progress: Value) -> Value:
    """Return i32: 1 if each of the launches that run together with this one has ended or is stuck too, and nothing has happened in
    between."""
    own = _partner_record(e, record, e.get(record, WORKERS, "partner"))
    store_whole(e, progress, e.place(own, PARTNER, "progress")[0])
    total = e.variable(constant(I64, 1))
    with e.count(partners) as number:
        total.set(e.add(total.get(), load_whole(e, *e.place(_partner_record(e, record, number), PARTNER, "progress"))))
    store_whole(e, total.get(), e.place(own, PARTNER, "stuck")[0])
    stuck = e.variable(constant(I32, 1))
    with e.count(partners) as number:
        other = _partner_record(e, record, number)
        works = e.icmp_unsigned("!=", load_whole(e, *e.place(other, PARTNER, "working")), constant(I64, 0))
        moves = e.icmp_unsigned("!=", load_whole(e, *e.place(other, PARTNER, "stuck")), total.get())
        with e.if_then(e.and_(works, moves)):
            stuck.set(constant(I32, 0))
    return stuck.get()


def _partner_record(e: Emit, record: Value, number: Value) -> Value:
    return e.at(e.get_pointer(record, WORKERS, "partners"), e.mul(number, constant(I64, PARTNER.itemsize)))
