"""One thing that is wrong with the accesses of a kernel, with its evidence."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any

from memlane.record import kernel_label


@dataclass(frozen=True)
class Finding:
    """What a rule found at one place of a kernel, over all launches that were counted. `str()` gives it as one paragraph.

    The cost is in transactions, which were counted. How much time they take depends on what else the kernel waits for, so no time is
    claimed.
    """

    rule: str
    """Id of the rule, for example `uncoalesced-global`."""
    title: str
    rank: int
    """1 for the finding with the most excess transactions, sectors and wavefronts counted alike; not a statement about time."""
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
    """What `transactions` counts: `sectors` (of 32 bytes) or `wavefronts`."""
    transactions: int
    ideal_transactions: int
    """Transactions that would do for the same bytes."""
    bytes_requested: int
    """Bytes that the lanes asked for."""
    excess_bytes: int | None
    """Bytes moved by the excess transactions; None for wavefronts, which move nothing more."""
    what: str
    cause: str
    remedy: str
    chip: str
    how: str
    """Where the counts come from: `emulated` or `counted on the device`."""

    @property
    def per_request(self) -> float:
        """Transactions per request, the mean."""
        return self.transactions / self.requests

    @property
    def ideal_per_request(self) -> float:
        return self.ideal_transactions / self.requests

    @property
    def ratio(self) -> float:
        """Transactions over those that would do."""
        return self.transactions / self.ideal_transactions

    @property
    def excess_transactions(self) -> int:
        """Transactions beyond those that would do."""
        return self.transactions - self.ideal_transactions

    @property
    def place(self) -> str:
        """File name and line, as `transpose.cu:17`."""
        return f"{PurePath(self.file).name}:{self.line}"

    @property
    def cost(self) -> str:
        """What it costs, in what was counted."""
        moved = "" if self.excess_bytes is None else f" ({_amount(self.excess_bytes)})"
        return f"{self.excess_transactions:,} of {self.transactions:,} {self.unit} are excess{moved}"

    def __str__(self) -> str:
        return f"{self.place}  {self.op} in {kernel_label(self.kernel)}: {self.what}, because {self.cause}. {self.cost}. {self.remedy}"

    def as_dict(self) -> dict[str, Any]:
        """All fields and the derived numbers, ready for JSON."""
        derived = ("per_request", "ideal_per_request", "ratio", "excess_transactions", "cost")
        return {**asdict(self), **{name: getattr(self, name) for name in derived}, "text": str(self)}


def _amount(nbytes: int) -> str:
    """`896 B`, `896.0 KiB`, `1.2 GiB`."""
    amount, units = float(nbytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{nbytes} B" if units[0] == "B" else f"{amount:.1f} {units[0]}"
