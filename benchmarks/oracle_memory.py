"""Compute loads, stores and atomics as the cases use them: 16 bytes per thread, which its neighbour reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from exact import FORMATS, added
from instructions import Spelling
from oracle_table import answers, group_answers, number

from cases import Case
from memlane.ptx import SCALAR_TYPES

_MOVE = "data-movement-and-conversion-instructions-"
_SYNC = "parallel-synchronization-and-communication-instructions-"
Threads = Sequence[tuple[int, ...]]


@answers(_MOVE + "mov")
def mov(s: Spelling, *values: int) -> Sequence[int]:
    return values


def _neighbours(case: Case, threads: Threads) -> Threads:
    """Return the operands whose bytes each thread sees: those of its neighbour, or its own for local memory."""
    return threads if "own_local]" in case.code else [threads[number ^ 1] for number in range(len(threads))]


@group_answers(_MOVE + "ld", _MOVE + "ld-global-nc", _MOVE + "ldu")
def load(case: Case, threads: Threads) -> list[list[int]]:
    nbytes = SCALAR_TYPES[case.results[0]].nbytes
    found = []
    for thread in _neighbours(case, threads):
        data = b"".join(value.to_bytes(8, "little") for value in thread)
        found.append([int.from_bytes(data[nbytes * place : nbytes * (place + 1)], "little") for place in range(len(case.results))])
    return found


@group_answers(_MOVE + "st", _MOVE + "st-async")
def store(case: Case, threads: Threads) -> list[list[int]]:
    nbytes = SCALAR_TYPES[case.operands[0]].nbytes
    found = []
    for thread in _neighbours(case, threads):
        data = b"".join((value & ((1 << 8 * nbytes) - 1)).to_bytes(nbytes, "little") for value in thread).ljust(16, b"\x5a")
        found.append([int.from_bytes(data[start : start + 8], "little") for start in (0, 8)])
    return found


# -- atomics -------------------------------------------------------------------------------------------------------------------------


def _operation(s: Spelling) -> str:
    words = ("and", "or", "xor", "cas", "exch", "add", "inc", "dec", "min", "max")
    return next(word for word in words if s.has(word))


def _sum(s: Spelling, kind: str, space: str, a: int, b: int) -> int:
    """Return a sum. By the manual, sums of f32 flush subnormal operands and results in global memory but not in shared memory; sums of
    shorter formats with `.noftz` never do."""
    name = kind.removesuffix("x2")
    form = FORMATS[name]
    if name != kind:
        halves = [_sum(s, name, space, a >> shift & 0xFFFF, b >> shift & 0xFFFF) for shift in (0, 16)]
        return halves[0] | halves[1] << 16
    flush = form.flushed if kind == "f32" and space != "shared" else int
    found = added(form, flush(a), flush(b), "rn")
    return form.nothing if found is None else flush(found)


def _updated(s: Spelling, kind: str, old: int, b: int, c: int = 0) -> int:
    space = next(iter(s.form.addresses.values()))
    whole = (1 << SCALAR_TYPES[kind].bits) - 1
    operation = _operation(s)
    if operation == "add" and SCALAR_TYPES[kind].kind == "f":
        return _sum(s, kind, space, old, b)
    found: dict[str, Callable[[], int]] = {
        "and": lambda: old & b,
        "or": lambda: old | b,
        "xor": lambda: old ^ b,
        "cas": lambda: c if old == b else old,
        "exch": lambda: b,
        "add": lambda: (old + b) & whole,
        "inc": lambda: 0 if old >= b else old + 1,
        "dec": lambda: b if old == 0 or old > b else old - 1,
        "min": lambda: min(old, b, key=lambda value: number(value, kind)),
        "max": lambda: max(old, b, key=lambda value: number(value, kind)),
    }
    return found[operation]()


def _kind(s: Spelling) -> str:
    return s.form.slots.get("type", "f32" if s.has("f32") else "u32")


@group_answers(_SYNC + "atom", _SYNC + "red", _SYNC + "red-async")
def atomic(case: Case, threads: Threads) -> list[Sequence[int]]:
    s, kind = case.spelling, _kind(case.spelling)
    if len(case.operands) == 1:  # of every eighth thread, on one address that holds 12345
        totals = [12345] * 8
        for place, (value,) in enumerate(threads):
            totals[place % 8] = _updated(s, kind, totals[place % 8], value)
        return [[totals[place % 8]] for place in range(len(threads))]
    found: list[Sequence[int]] = []
    for old, *values in threads:
        new = _updated(s, kind, old, *values)
        found.append([old, new] if s.row.opcode == "atom" else [new])
    return found
