"""Emit the probe around a polling wait, such as `mbarrier.try_wait` in a loop that repeats until the phase is complete.

One wait yields one record. It starts at the clock of the first poll, which each thread keeps in a register until its wait succeeds, and it
is written for the lanes whose wait succeeds together.

    (before, as around any access)             start = clock
    start = start of the first poll, if there was an earlier one; kept
    mbarrier.try_wait.parity.b64 over, [barrier], parity;
    (after, as around any access)              end = clock that waits for `over`
    if over: reserve a place, write the record, reset the poll start
"""

from __future__ import annotations

from collections.abc import Iterable


def declare_poll_starts(prefix: str, sites: Iterable[int]) -> str:
    """Return PTX for the start of a kernel that declares the poll start of each site as unset."""
    return "".join(f".reg .b64 {_since(prefix, site)};\nmov.u64 {_since(prefix, site)}, 0;\n" for site in sites)


def keep_poll_start(prefix: str, site: int) -> str:
    """Return PTX for after the first clock read: the start becomes that of the first poll, and is kept."""
    r, since = f"%{prefix}", _since(prefix, site)
    return f"""\
setp.ne.u64 {r}again, {since}, 0;
selp.b64 {r}start, {since}, {r}start, {r}again;
mov.u64 {since}, {r}start;
"""


def reset_poll_start(prefix: str, site: int) -> str:
    """Return PTX for after the record that resets the poll start, with the branch target of the lanes that have to poll again."""
    return f"mov.u64 {_since(prefix, site)}, 0;\n${prefix}asks_{site}:\n"


def _since(prefix: str, site: int) -> str:
    """Return the name of the register that keeps the poll start of a site."""
    return f"%{prefix}since_{site}"
