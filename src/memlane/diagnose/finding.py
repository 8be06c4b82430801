"""One thing that is wrong with the accesses of a kernel, with its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import PurePath
from typing import Any

from memlane.number_format import approximate, duration, percent, size
from memlane.record import kernel_label

CYCLES = "warp cycles"
"""The unit of findings that are not about transactions."""


@dataclass(frozen=True)
class Finding:
    """A problem that a rule found at one place of a kernel, over all counted launches. `str()` returns it as one paragraph.

    worst = ml.explain(trace)[0]
    worst.rule, worst.file, worst.line, worst.op, worst.excess_bytes, worst.cost_cycles

    Findings are ranked by `cost_cycles`: the warp cycles that fixing it would save, summed over all warps; `method` says how that was
    found. If no times were recorded, it is the least that the excess transactions take, and `cost_measured` is False. If `saved_us` is
    known, the rank follows from it instead.
    """

    rule: str
    """Id of the rule, for example `uncoalesced-global`."""
    title: str
    rank: int
    """1 for the finding that costs most."""
    kernel: str
    """The kernel's title."""
    file: str
    line: int
    op: str
    space: str
    source: str
    """The source line, stripped; empty where the text is not known."""
    requests: int
    """Warp-level executions with at least one active lane."""
    unit: str
    """What `transactions` counts: `sectors` (of 32 bytes), `wavefronts`, `lanes` that updated an address, or `warp cycles`."""
    transactions: int
    ideal_transactions: int
    """Transactions that would do for the same bytes; of warp cycles those without the excess."""
    bytes_requested: int
    """Bytes that the lanes asked for."""
    excess_bytes: int | None
    """Bytes moved by the excess transactions; None where they move nothing more."""
    what: str
    cause: str
    remedy: str
    chip: str
    how: str
    """Where the counts come from: `emulated` or `counted on the device`."""
    cost_cycles: float = 0.0
    """Cycles of warps, over all launches of the trace."""
    cost_low: float = 0.0
    cost_high: float | None = None
    """Between these lies `cost_cycles`; None: not bounded from above."""
    cost_share: float | None = None
    """Of the lifetimes of the kernel's warps as traced, 0 to 1; None where no times were recorded."""
    cost_ns: float | None = None
    """`cost_cycles` at the nominal clock of the chip: nanoseconds of warps, not of the launch; None where no times were recorded."""
    cost_measured: bool = False
    """Whether times were recorded, or only transactions counted."""
    times_modelled: bool = False
    """Whether these times come from the emulator's clock."""
    method: str = ""
    """How the cost was found, a clause."""
    evidence: Mapping[str, float] = field(default_factory=dict)
    """What the rule went by, by name with its unit."""
    column: int | None = None
    """Where the statement begins in the line, from 1; None where all accesses of the line have one column, which then says nothing."""
    arrays: tuple[str, ...] = ()
    """What is accessed: names of arguments in the source, or `argument 3`, or names of variables; none where they are unknown."""
    least_per_request: float | None = None
    most_per_request: float | None = None
    """The fewest and the most transactions per request of its instructions, where they differ: `x[i] + x[32 * i]`; else None."""
    launch_us: float | None = None
    """What the launches would take by the model of kernels, without probes; None where that was not predicted."""
    saved_us: float | None = None
    """Of `launch_us`, by how much they would be shorter if the lanes of the access lay side by side."""
    called_at: tuple[str, ...] = ()
    """Where the function that holds the line was called or inlined, as `bitonic.cu:12`; none of a line of the kernel itself."""

    @property
    def per_request(self) -> float:
        """The mean number of transactions per request."""
        return self.transactions / max(self.requests, 1)

    @property
    def ideal_per_request(self) -> float:
        """The fewest possible transactions per request, on average."""
        return self.ideal_transactions / max(self.requests, 1)

    @property
    def ratio(self) -> float:
        """The transactions divided by the fewest possible."""
        return self.transactions / max(self.ideal_transactions, 1)

    @property
    def excess_transactions(self) -> int:
        """The transactions above the fewest possible."""
        return self.transactions - self.ideal_transactions

    @property
    def place(self) -> str:
        """File name and line, as `transpose.cu:17`, with the column where that tells accesses apart; a compiler gives line 0 to what it
        made itself, or took from several lines."""
        if not self.line:
            return f"{PurePath(self.file).name} (at no line)"
        return f"{PurePath(self.file).name}:{self.line}{'' if self.column is None else f':{self.column}'}"

    @property
    def access(self) -> str:
        """The arrays and calls that distinguish this access from others at the same place: `gamma and beta; called at norm.cu:30`. May be
        empty."""
        called = f"called at {joined(self.called_at)}" if self.called_at else ""
        return "; ".join(part for part in (joined(self.arrays), called) if part)

    @property
    def where(self) -> str:
        """The place, with the access in parentheses if that is known: `norm.cu:13 (gamma and beta)`."""
        return f"{self.place} ({self.access})" if self.access else self.place

    @property
    def cost(self) -> str:
        """The cost as a sentence: the transactions in excess, or else the warp cycles that fixing this would save."""
        if self.unit == CYCLES:
            return f"{'About' if self.cost_measured else 'At least'} {approximate(self.cost_cycles, 'warp cycle')} would be saved"
        moved = "" if self.excess_bytes is None else f" ({size(self.excess_bytes)})"
        return f"{self.excess}{moved}"

    @property
    def excess(self) -> str:
        """The excess transactions as a sentence: `917,504 of 1,048,576 sectors are excess`."""
        excess = self.excess_transactions
        return f"{excess:,} of {self.transactions:,} {self.unit} {'is' if excess == 1 else 'are'} excess"

    @property
    def time(self) -> str:
        """The cost in warp cycles as a sentence, with its bounds and how it was found."""
        if not self.cost_measured:
            return f"At least {approximate(self.cost_cycles, 'warp cycle')} ({self.method})."
        share = "" if self.cost_share is None else f", {percent(self.cost_share)} of the time of its warps"
        bounds = [approximate(self.cost_low), approximate(self.cost_cycles if self.cost_high is None else self.cost_high)]
        between = "" if bounds[0] == bounds[1] else f", between {bounds[0]} and {bounds[1]}"
        modelled = "modelled times: " if self.times_modelled else ""
        return f"{approximate(self.cost_cycles, 'warp cycle')}{share}{between} ({modelled}{self.method})."

    @property
    def launch(self) -> str:
        """How much shorter the launches would be without it, as a sentence; empty if that was not predicted."""
        if self.launch_us is None or self.saved_us is None:
            return ""
        now, then = duration(1e3 * self.launch_us), duration(1e3 * (self.launch_us - self.saved_us))
        if then == now:
            return f"This alone does not slow the kernel down: it takes {now} with or without it (modelled, without probes)"
        return f"The kernel would take {then} instead of {now} (modelled, without probes)"

    def __str__(self) -> str:
        of = f" of {self.access}" if self.arrays else f" ({self.access})" if self.access else ""
        return f"{self.place}  {self.op}{of} in {kernel_label(self.kernel)}: {self.what}, because {self.cause}. {self.cost}. {self.remedy}"

    def as_dict(self) -> dict[str, Any]:
        """Return all fields and the derived numbers as plain values, ready for JSON."""
        derived = ("per_request", "ideal_per_request", "ratio", "excess_transactions", "cost", "time", "launch", "place", "access")
        several = {"arrays": list(self.arrays), "called_at": list(self.called_at)}
        return {**asdict(self), **several, **{name: getattr(self, name) for name in derived}, "text": str(self)}


def joined(names: Sequence[str], most: int = 4) -> str:
    """Return `a`, `a and b`, or `a, b, c, d and 3 more`."""
    named, left = list(names[:most]), len(names) - most
    if left > 0:
        return f"{', '.join(named)} and {left} more"
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)
