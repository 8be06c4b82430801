"""Describe one problem with the memory accesses of a kernel, with its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import PurePath
from typing import Any

from memlane.number_format import approximate, duration, percent, size
from memlane.record import kernel_label

CYCLES = "warp cycles"
"""Unit of findings that do not count transactions."""
LANES = "lanes"
"""Unit of findings about updates of one address."""


@dataclass(frozen=True)
class Finding:
    """A problem that a rule found at one place of a kernel, over all counted launches. `str()` returns it as one paragraph.

        worst = ml.explain(trace)[0]
        worst.rule, worst.file, worst.line, worst.op, worst.excess_bytes, worst.cost_cycles

    Findings are ranked by `cost_cycles`: the warp cycles that a fix would save, summed over all warps; `method` says how they were
    estimated. Without recorded times it is the minimum that the excess transactions take, and `cost_measured` is False. If `saved_us` is
    known, the rank follows from it instead.
    """

    rule: str
    """Identifier of the rule, such as `uncoalesced-global`."""
    title: str
    rank: int
    """Rank by cost; 1 is the costliest."""
    kernel: str
    """The kernel's title."""
    file: str
    line: int
    op: str
    space: str
    source: str
    """The source line, stripped; empty if unknown."""
    requests: int
    """Warp-level executions with at least one active lane."""
    unit: str
    """Unit of `transactions`: `sectors` (of 32 bytes), `wavefronts`, `lanes` that updated an address, or `warp cycles`."""
    transactions: int
    ideal_transactions: int
    """Minimum transactions for the same bytes; for warp cycles, those without the excess."""
    bytes_requested: int
    """Bytes requested by the lanes."""
    excess_bytes: int | None
    """Bytes moved by the excess transactions; None if these move no further bytes."""
    what: str
    cause: str
    remedy: str
    chip: str
    how: str
    """Source of the counts: `emulated` or `counted on the device`."""
    cost_cycles: float = 0.0
    """Cost in warp cycles, over all launches of the trace."""
    cost_low: float = 0.0
    cost_high: float | None = None
    """Upper bound of `cost_cycles`, with `cost_low` below; None if there is none."""
    cost_share: float | None = None
    """Cost as a share of the traced lifetimes of the kernel's warps, 0 to 1; None if no times were recorded."""
    cost_ns: float | None = None
    """`cost_cycles` at the chip's nominal clock: warp nanoseconds, not launch time; None if no times were recorded."""
    cost_measured: bool = False
    """Whether times were recorded, rather than only transactions counted."""
    times_modelled: bool = False
    """Whether the times come from the emulator's clock."""
    method: str = ""
    """How the cost was estimated: a clause."""
    evidence: Mapping[str, float] = field(default_factory=dict)
    """Numbers that the rule used, by name with unit."""
    lines: tuple[int, ...] = ()
    """Lines of all its accesses, ascending: several if they do the same to one array. `line` is the costliest."""
    column: int | None = None
    """Column of the statement, 1-based; None if all accesses of the line share one column."""
    arrays: tuple[str, ...] = ()
    """Accessed arrays: names of arguments in the source, `argument 3`, or names of variables; empty if unknown."""
    least_per_request: float | None = None
    most_per_request: float | None = None
    """Maximum transactions per request among its instructions, with the minimum in `least_per_request`, as in `x[i] + x[32 * i]`; None if
    they are equal."""
    launch_us: float | None = None
    """Predicted time of the launches without probes, in us; None if not predicted."""
    saved_us: float | None = None
    """Part of `launch_us` that contiguous lanes in this access would save."""
    called_at: tuple[str, ...] = ()
    """Call sites of the function that holds the line, such as `bitonic.cu:12`; empty for a line of the kernel itself."""

    @property
    def per_request(self) -> float:
        """Transactions per request, on average."""
        return self.transactions / max(self.requests, 1)

    @property
    def ideal_per_request(self) -> float:
        """Minimum transactions per request, on average."""
        return self.ideal_transactions / max(self.requests, 1)

    @property
    def ratio(self) -> float:
        """Transactions divided by the minimum."""
        return self.transactions / max(self.ideal_transactions, 1)

    @property
    def excess_transactions(self) -> int:
        """Transactions above the minimum."""
        return self.transactions - self.ideal_transactions

    @property
    def place(self) -> str:
        """File name and line, such as `transpose.cu:17`, with the column if that distinguishes accesses; `aos.cu:20-23` for several lines.

        Compilers use line 0 for code that they made themselves, or merged from several lines.
        """
        if not self.line:
            return f"{PurePath(self.file).name} (at no line)"
        if len(self.lines) > 1:
            return f"{PurePath(self.file).name}:{_ranges(self.lines)}"
        return f"{PurePath(self.file).name}:{self.line}{'' if self.column is None else f':{self.column}'}"

    @property
    def access(self) -> str:
        """The arrays and calls that distinguish this access from others at the same place, such as `gamma and beta; called at norm.cu:30`;
        may be empty."""
        called = f"called at {join_names(self.called_at)}" if self.called_at else ""
        return "; ".join(part for part in (join_names(self.arrays), called) if part)

    @property
    def where(self) -> str:
        """The place, with the access in parentheses if known, such as `norm.cu:13 (gamma and beta)`."""
        return f"{self.place} ({self.access})" if self.access else self.place

    @property
    def cost(self) -> str:
        """The cost as a sentence: the excess transactions, or else the warp cycles that a fix would save."""
        if self.unit == CYCLES:
            return f"{'About' if self.cost_measured else 'At least'} {approximate(self.cost_cycles, 'warp cycle')} would be saved"
        moved = "" if self.excess_bytes is None else f" ({size(self.excess_bytes)})"
        return f"{self.excess}{moved}"

    @property
    def excess(self) -> str:
        """The excess transactions as a sentence, such as `917,504 of 1,048,576 sectors are excess`."""
        excess = self.excess_transactions
        return f"{excess:,} of {self.transactions:,} {self.unit} {'is' if excess == 1 else 'are'} excess"

    @property
    def time(self) -> str:
        """The cost in warp cycles as a sentence, with its bounds and method."""
        if not self.cost_measured:
            return f"At least {approximate(self.cost_cycles, 'warp cycle')} ({self.method})."
        share = "" if self.cost_share is None else f", {percent(self.cost_share)} of the time of its warps"
        bounds = [approximate(self.cost_low), approximate(self.cost_cycles if self.cost_high is None else self.cost_high)]
        between = "" if bounds[0] == bounds[1] else f", between {bounds[0]} and {bounds[1]}"
        modelled = "modelled times: " if self.times_modelled else ""
        return f"{approximate(self.cost_cycles, 'warp cycle')}{share}{between} ({modelled}{self.method})."

    @property
    def launch(self) -> str:
        """The predicted gain of a fix as a sentence; empty if it was not predicted."""
        if self.launch_us is None or self.saved_us is None:
            return ""
        now, then = duration(1e3 * self.launch_us), duration(1e3 * (self.launch_us - self.saved_us))
        if then == now:
            return f"This alone does not slow the kernel down: it takes {now} with or without it (modelled, without probes)"
        if self.unit == LANES:
            return f"With each update at an address of its own, the kernel would take {then} instead of {now} (modelled, without probes)"
        return f"The kernel would take {then} instead of {now} (modelled, without probes)"

    @property
    def saved_share(self) -> float | None:
        """Share of the predicted time of the launches that a fix would save, 0 to 1; None if it was not predicted."""
        return None if self.saved_us is None or not self.launch_us else max(0.0, self.saved_us) / self.launch_us

    def __str__(self) -> str:
        of = f" of {self.access}" if self.arrays else f" ({self.access})" if self.access else ""
        return f"{self.place}  {self.op}{of} in {kernel_label(self.kernel)}: {self.what}, because {self.cause}. {self.cost}. {self.remedy}"

    def as_dict(self) -> dict[str, Any]:
        """Return all fields and the derived numbers as plain values, ready for JSON."""
        derived = (
            "saved_share",
            "per_request",
            "ideal_per_request",
            "ratio",
            "excess_transactions",
            "cost",
            "time",
            "launch",
            "place",
            "access",
        )
        several = {"arrays": list(self.arrays), "called_at": list(self.called_at), "lines": list(self.lines)}
        return {**asdict(self), **several, **{name: getattr(self, name) for name in derived}, "text": str(self)}


def _ranges(lines: Sequence[int]) -> str:
    """Return ascending lines in short: `20-23,30`."""
    parts: list[list[int]] = []
    for line in lines:
        if parts and line == parts[-1][1] + 1:
            parts[-1][1] = line
        else:
            parts.append([line, line])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def join_names(names: Sequence[str], most: int = 4) -> str:
    """Join names: `a`, `a and b`, or `a, b, c, d and 3 more`."""
    named, left = list(names[:most]), len(names) - most
    if left > 0:
        return f"{', '.join(named)} and {left} more"
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)
