"""The probe around a wait that is asked again and again until the answer is yes, as `mbarrier.try_wait` in its loop.

One record for one wait: its start is the clock before the first question, which each thread keeps in a register until it is let go, and
it is written for the lanes that are let go together.

    (before, as around any access)             start = clock
    start = first question, if there was one already, and is kept
    mbarrier.try_wait.parity.b64 over, [barrier], parity;
    (after, as around any access)              end = clock that waits for `over`
    if over: reserve a place, write the record, forget the first question
"""

from __future__ import annotations

from collections.abc import Iterable

from memlane.instrument.insert import alias, placed, under_guard
from memlane.instrument.schemes import Probe
from memlane.instrument.warp import record, reserve
from memlane.ptx import Block, Instruction, Statement


def first_questions(prefix: str, sites: Iterable[int]) -> str:
    """PTX before the first instruction of a kernel: nobody has asked at any of the sites."""
    return "".join(f".reg .b64 {_since(prefix, site)};\nmov.u64 {_since(prefix, site)}, 0;\n" for site in sites)


def asked(
    instruction: Instruction, access: Instruction, answer: str, probe: Probe, prefix: str, site: int, counted: bool
) -> tuple[Statement, ...]:
    """`access`, which is `instruction` without its guard, between its clock reads, and the record where the register `answer` says so.

    The place is reserved behind the second clock read: a question that is answered with no must not take one.
    """
    r, since, at = f"%{prefix}", _since(prefix, site), instruction.location
    before = f"""\
.reg .b64 {r}start, {r}end;
.reg .pred {r}again;
{probe.before}setp.ne.u64 {r}again, {since}, 0;
selp.b64 {r}start, {since}, {r}start, {r}again;
mov.u64 {since}, {r}start;
"""
    after = f"""\
{probe.after}@!{alias(answer)} bra ${prefix}asks_{site};
{reserve(prefix, site, counted)}{record(prefix, site, counted)}mov.u64 {since}, 0;
${prefix}asks_{site}:
"""
    inner = Block((*placed(before, at), access, *placed(after, at)))
    return under_guard(instruction.guard, f"${prefix}skip_{site}", (inner,), at)


def _since(prefix: str, site: int) -> str:
    return f"%{prefix}since_{site}"
