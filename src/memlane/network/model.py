"""Model networks: the time of messages between devices, inside a node and between nodes.

Times are those of one message in one direction. The combined cost of several neighbours of a device is a property of the link
(`Link.neighbours`), because machines differ in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from memlane.chip import Fact
from memlane.errors import NetworkError

UNMEASURED = ("nccl", "mpi-cuda")
"""Transports that pass memory of GPUs directly. A network without such a link has its first one instead, which is not fitted to them."""
SAVED_SHARE = 0.5
"""Share of the time of a wait for another device by which an exchange is shorter without it; the rest passes beside others."""
Sharing = Literal["one after another", "share the rate", "included"]
"""Ways in which messages to several neighbours combine: one after another, sharing its rate, or included in the measured time."""
SHARINGS: tuple[str, ...] = get_args(Sharing)


@dataclass(frozen=True)
class Transfer:
    """The time of one way of moving bytes: by measured times, or by a latency and a rate."""

    latency_us: float | None = None
    gb_per_s: float | None = None
    times: tuple[tuple[float, float], ...] = ()
    """Measured pairs of bytes and microseconds, in ascending order; between two of them the time is interpolated.

    A rate next to them bounds larger messages.
    """

    def us(self, nbytes: float) -> float:
        """Return the time to move `nbytes`, in microseconds.

        It is at least that of the smallest message measured, and above the largest it grows at the rate between the last two.
        """
        at_rate = nbytes / (1e3 * self.gb_per_s) if self.gb_per_s else 0.0
        if not self.times:
            return (self.latency_us or 0.0) + at_rate
        at = bisect_right(self.times, (nbytes, float("inf")))
        if at == 0 or len(self.times) == 1:
            return max(self.times[0][1], at_rate)
        (left, before), (right, behind) = self.times[at - 1 : at + 1] if at < len(self.times) else self.times[-2:]
        slope = (behind - before) / (right - left)
        return max(before + slope * (nbytes - left), behind if nbytes > right else 0.0, at_rate)


@dataclass(frozen=True)
class Link:
    """One way for a device to exchange data with its neighbours."""

    name: str
    message: Transfer
    neighbours: Sharing
    host: Transfer | None = None
    """Copies between a device and its host, before and after each message; None where devices exchange directly."""
    signal_us: float = 0.0
    """Time from the end of a transfer to the start of work that waits for it."""
    order_us: float = 0.0
    """Time that each wait for another device takes on a link whose devices are ordered by events; waits of a device follow each other."""

    @property
    def is_staged(self) -> bool:
        return self.host is not None

    def parts_us(self, nbytes: float, neighbours: int, *more: tuple[float, int]) -> tuple[float, float, float]:
        """Return the times of an exchange of `nbytes` with each of some neighbours: to the host, the messages, and back from the host.

        They follow each other, as do the copies of several neighbours. `more`: (bytes, neighbours) along other axes, exchanged at the same
        time. The time is 0 without neighbours or bytes.
        """
        at_once = [(size, count) for size, count in ((nbytes, neighbours), *more) if size and count]
        if not at_once:
            return 0.0, 0.0, 0.0
        if self.neighbours == "included":
            message = self.message.us(sum(size for size, _ in at_once))
        elif self.neighbours == "share the rate":
            message = self.message.us(sum(size * count for size, count in at_once))
        else:
            message = sum(self.message.us(size) * count for size, count in at_once)
        copies = 0.0 if self.host is None else sum(self.host.us(size) * count for size, count in at_once)
        orders = self.order_us * (sum(count for _, count in at_once) - 1)  # the wait for one neighbour is in the signal
        return copies, message + self.signal_us + orders, copies

    def saved_us(self, neighbours: int, launches: int) -> float:
        """Return by how much an exchange along one axis is shorter than `exchange_us` if `launches` is 1.

        There is one launch then between two exchanges, and no copy waits for the neighbour's border.
        """
        return SAVED_SHARE * self.order_us * neighbours if launches == 1 else 0.0

    def ordered_us(self, neighbours: int, launches: int) -> float:
        """Return for how long a device waits, between two exchanges that it overlaps, for events of its neighbours along one axis.

        Each border waits for the copy from its neighbour; if there are several launches between two exchanges, the copy to a neighbour
        waits for that neighbour's border too.
        """
        return self.order_us * neighbours * min(launches, 2)

    def exchange_us(self, nbytes: float, neighbours: int, *more: tuple[float, int]) -> float:
        """Return the time of an exchange of `nbytes` with each of some neighbours, and at the same time with those of other axes."""
        return sum(self.parts_us(nbytes, neighbours, *more))


@dataclass(frozen=True)
class Network:
    """The links of one machine. Networks are equal if their numbers are; `facts` has the origin of the numbers."""

    name: str
    """Name of the data file without its extension."""
    title: str
    devices_per_node: int
    inside: Mapping[str, Link] = field(default_factory=dict)
    """Links between devices of one node by name; the first is the default."""
    between: Mapping[str, Link] = field(default_factory=dict)
    """Links between devices of different nodes."""
    facts: Mapping[str, Fact] = field(default_factory=dict, compare=False, repr=False)
    """Each number with its origin: `inside.peer.message_us`, ..."""

    @property
    def transports(self) -> tuple[str, ...]:
        """Names of all links."""
        return tuple(dict.fromkeys([*self.inside, *self.between]))

    def link(self, devices: int, transport: str = "") -> Link:
        """Return the link that limits an exchange between so many devices: one between nodes if they do not fit into one node.

        `transport` names a link; by default it is the first, which also stands for those of `UNMEASURED` that the network does not have.
        Raises NetworkError if the network does not have another.
        """
        crosses = devices > self.devices_per_node
        found = self.between if crosses else self.inside
        if not found and crosses:
            raise NetworkError(
                f"network {self.name} describes one node of {self.devices_per_node} devices and no links between nodes: "
                f"use at most {self.devices_per_node} devices, not {devices}, or a network file with a table [between.NAME]"
            )
        if not found:
            raise NetworkError(f"network {self.name} has no links inside a node: add a table [inside.NAME] to its file")
        if not transport or (transport in UNMEASURED and transport not in found):
            return next(iter(found.values()))
        if transport not in found:
            where = "between nodes" if crosses else "inside a node"
            raise NetworkError(f"network {self.name} has no transport {transport!r} {where}; it has {', '.join(found)}")
        return found[transport]

    @property
    def assumed(self) -> tuple[str, ...]:
        """Names of the numbers without a source."""
        return tuple(name for name, fact in self.facts.items() if fact.kind == "assumed")
