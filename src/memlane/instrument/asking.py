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


def first_questions(prefix: str, sites: Iterable[int]) -> str:
    """PTX before the first instruction of a kernel: nobody has asked at any of the sites."""
    return "".join(f".reg .b64 {_since(prefix, site)};\nmov.u64 {_since(prefix, site)}, 0;\n" for site in sites)


def first_question(prefix: str, site: int) -> str:
    """PTX behind the first clock read: the start is that of the first question, and is kept."""
    r, since = f"%{prefix}", _since(prefix, site)
    return f"""\
setp.ne.u64 {r}again, {since}, 0;
selp.b64 {r}start, {since}, {r}start, {r}again;
mov.u64 {since}, {r}start;
"""


def forget(prefix: str, site: int) -> str:
    """PTX behind the record, with the label for those who ask again."""
    return f"mov.u64 {_since(prefix, site)}, 0;\n${prefix}asks_{site}:\n"


def _since(prefix: str, site: int) -> str:
    return f"%{prefix}since_{site}"
