"""Find and read network data files.

A file `<name>.toml` describes the network `<name>`. Directories are searched in order: `$MEMLANE_NETWORKS` if it is set, else
`~/.config/memlane/networks`; then the files that come with memlane. To add a network, copy `data/h200-nvlink.toml`.

    title = "Two GPUs of one host"
    devices_per_node = { value = 2, unit = "", source = "measured: nvidia-smi topo -m" }

    [sources]                                     # names for sources that are quoted more than once
    pair = "measured: copies one after another in a stream"

    [inside.peer]                                 # a link inside a node; [between.NAME] is one between nodes
    neighbours   = "share the rate"               # or "one after another", or "included"
    message      = { value = [[4096, 2.23], [1048576, 4.98]], unit = "bytes, us", source = "pair" }
    signal_us    = { value = 0.63, unit = "us", source = "pair" }

    [between.mpi]
    neighbours       = "one after another"
    message_us       = { value = 5, unit = "us", source = "assumed: ..." }     # instead of a table: a latency and a rate
    message_gb_per_s = { value = 3.2, unit = "GB/s", source = "cited: ..." }
    host_us          = { value = 10, unit = "us", source = "cited: ..." }      # copies to the host before, and from it after a message
    host_gb_per_s    = { value = 6, unit = "GB/s", source = "cited: ..." }

`host = {...}` is a table of measured copies. A rate next to a table bounds messages larger than those measured. A source is a name from
`[sources]`, or a text that begins with `measured:`, `cited:`, `derived:` or `assumed:`. Unknown entries, wrong types and wrong units are
errors that name the entry.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from memlane.chip import Chip, Fact
from memlane.chip.model import KINDS
from memlane.data_files import DataFiles
from memlane.errors import NetworkError
from memlane.network.model import SHARINGS, Link, Network, Transfer
from memlane.source import shortened

SHIPPED = Path(__file__).parent / "data"
"""Directory of the network files that come with memlane."""

_ENTRIES = ("neighbours", *(f"{what}{end}" for what in ("message", "host") for end in ("", "_us", "_gb_per_s")), "signal_us", "order_us")
_HEAD = ("title", "devices_per_node", "sources", "inside", "between")
_ANY = 1 << 16
"""Number of devices per node where none is given."""
_MOST, _MOST_TIMES = 1e15, 1000
_STAYING_US = 3.9
"""An exchange by persistent kernels, without its bytes and its flag: 4.5 us were measured in a ring of four H200s, less a flag of 0.63 us.

It has not been measured on other chips.
"""
_ORDER_US = 7.1
"""A wait of a device for an event of another one in a graph of several devices, as `order_us` of h200-nvlink.

It has not been measured on other chips.
"""


FILES = DataFiles("network", "MEMLANE_NETWORKS", SHIPPED, NetworkError)


def user_directory() -> Path | None:
    """Return the directory of the user's network files, whether or not it exists; None for a user without a home directory."""
    return FILES.user_directory()


def names() -> tuple[str, ...]:
    """Return the names of all networks that `load` finds, sorted."""
    return FILES.names()


def load(name: str) -> Network:
    """Return the network called `name`. Raises NetworkError, which lists the known ones."""
    path = FILES.find(name)
    if path is None:
        raise NetworkError(f"no network is called {name!r}; known: {', '.join(names())}, or name a .toml file{FILES.unread_directory()}")
    return from_file(path)


def named(text: str) -> Network:
    """Return the network with the given name or path of a .toml file."""
    return from_file(text) if text.endswith(".toml") else load(text)


def of_chip(chip: Chip) -> Network:
    """Return the links of a node with this chip, by its file.

    They are copies between peers, copies through the host, and stores to peers with flags, by launches and by persistent kernels. Raises
    NetworkError if the file has no links between peers.
    """
    links = chip.links
    if links.peer_us is None or links.peer_gb_per_s is None:
        raise NetworkError(f"the chip file of {chip.name} has no links between peers: name a network; known: {', '.join(names())}")
    after = links.launch_us or 0.0
    by_events = after if links.peer_order_us is None else links.peer_order_us
    order_us = 0.0 if links.peer_order_us is None else _ORDER_US
    between = Transfer(links.peer_us, links.peer_gb_per_s)
    found = {"peer": Link("peer", between, "share the rate", signal_us=by_events, order_us=order_us)}
    if links.host_us is not None and links.host_gb_per_s is not None:
        copies = Transfer(links.host_us, links.host_gb_per_s)
        found["host"] = Link("host", Transfer(after), "one after another", copies, signal_us=links.host_order_us or 0.0)
    if links.flag_us is not None:
        by_flags = links.flag_us if links.flag_order_us is None else links.flag_order_us
        found["flags"] = Link("flags", Transfer(after, links.peer_gb_per_s), "share the rate", signal_us=by_flags)
        found["persistent"] = Link("persistent", Transfer(_STAYING_US, links.peer_gb_per_s), "share the rate", signal_us=links.flag_us)
    facts = {
        f"inside.{name.partition('_')[0]}.{name}": chip.facts[f"links.{name}"]
        for name in ("peer_us", "peer_gb_per_s", "host_us", "host_gb_per_s")
        if f"links.{name}" in chip.facts
    }
    return Network(f"peers of {chip.name}", f"Peers by the chip file of {chip.name}", _ANY, found, {}, MappingProxyType(facts))


def from_file(path: str | Path) -> Network:
    """Return the network that a data file describes. Raises NetworkError with the place of the error."""
    where = Path(path)
    return _NetworkFile(where, FILES.read(where)).network()


class _NetworkFile:
    """Parser of one data file into a `Network`; collects `facts` on the way."""

    def __init__(self, path: Path, text: dict[str, Any]) -> None:
        self.path, self.text = path, text
        self.facts: dict[str, Fact] = {}

    def fail(self, what: str) -> NetworkError:
        return NetworkError(f"{self.path}: {what}")

    def network(self) -> Network:
        for name in self.text:
            if name not in _HEAD:
                raise self.fail(f"unknown table or key {shortened(name)!r}; a network file has {', '.join(_HEAD)}")
        for name in ("title", "devices_per_node"):
            if name not in self.text:
                raise self.fail(f"{name!r} is missing")
        if not isinstance(self.text["title"], str):
            raise self.fail('title must be a string, as in "Two H200s of one host"')
        if not isinstance(self.text.get("sources", {}), dict):
            raise self.fail("'sources' must be a table: [sources]")
        devices = self.number("devices_per_node", self.text["devices_per_node"], "")
        if devices != int(devices) or devices < 1:
            raise self.fail(f"devices_per_node must be a whole number of 1 or more, not {devices:g}")
        inside, between = self.links("inside"), self.links("between")
        if not inside and not between:
            raise self.fail("there are no links: add a table [inside.NAME] or [between.NAME]")
        return Network(self.path.stem, self.text["title"], int(devices), inside, between, MappingProxyType(self.facts))

    def links(self, where: str) -> dict[str, Link]:
        given = self.text.get(where, {})
        if not isinstance(given, dict) or not all(isinstance(one, dict) for one in given.values()):
            raise self.fail(f"{where!r} must be tables with names: [{where}.NAME]")
        return {name: self.link(f"{where}.{name}", entries) for name, entries in given.items()}

    def link(self, where: str, entries: dict[str, Any]) -> Link:
        for entry in entries:
            if entry not in _ENTRIES:
                raise self.fail(f"[{where}] has an unknown entry {shortened(entry)!r}; it may have {', '.join(_ENTRIES)}")
        neighbours = entries.get("neighbours")
        if neighbours not in SHARINGS:
            raise self.fail(f"[{where}] neighbours must be one of {', '.join(map(repr, SHARINGS))}, not {shortened(repr(neighbours))}")
        message, host = (self.transfer(where, entries, what) for what in ("message", "host"))
        if message is None:
            raise self.fail(f"[{where}] lacks the time of a message: give message, or message_us and message_gb_per_s")
        signal, order = (self.number(f"{where}.{one}", entries[one], "us") if one in entries else 0.0 for one in ("signal_us", "order_us"))
        return Link(where.partition(".")[2], message, neighbours, host, signal, order)

    def transfer(self, where: str, entries: dict[str, Any], what: str) -> Transfer | None:
        """Return one way of moving bytes; None if the file does not have it."""
        latency, rate = f"{what}_us", f"{what}_gb_per_s"
        if what in entries:
            if latency in entries:
                raise self.fail(f"[{where}] has measured times as {what}, so it cannot have {latency}")
            bound = self.number(f"{where}.{rate}", entries[rate], "GB/s") if rate in entries else None
            return Transfer(None, bound, self.times(f"{where}.{what}", entries[what]))
        if latency not in entries and rate not in entries:
            return None
        for one in (latency, rate):
            if one not in entries:
                raise self.fail(f"[{where}] lacks the entry {one!r}, which goes with the other one")
        return Transfer(self.number(f"{where}.{latency}", entries[latency], "us"), self.number(f"{where}.{rate}", entries[rate], "GB/s"))

    def number(self, where: str, entry: Any, unit: str) -> float:
        value = self._value(where, entry, unit)
        if type(value) not in (int, float) or not 0 <= value <= _MOST or (unit == "GB/s" and value <= 0):
            raise self.fail(f"{where} must be a positive number, not {shortened(repr(value))}")
        self.facts[where] = Fact(value, unit, *self._source(where, entry))
        return float(value)

    def times(self, where: str, entry: Any) -> tuple[tuple[float, float], ...]:
        value = self._value(where, entry, "bytes, us")
        pairs: list[Any] = value if isinstance(value, list) and 0 < len(value) <= _MOST_TIMES else [None]
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2 or not all(type(one) in (int, float) and 0 <= one <= _MOST for one in pair):
                raise self.fail(f"{where} must be pairs of bytes and microseconds, as [[4096, 2.2], [65536, 2.5]]")
        found = tuple((float(nbytes), float(us)) for nbytes, us in pairs)
        for before, behind in pairwise(found):
            if behind[0] <= before[0]:
                raise self.fail(f"{where} must have its sizes in ascending order, and {behind[0]:g} follows {before[0]:g}")
        self.facts[where] = Fact(found, "bytes, us", *self._source(where, entry))
        return found

    def _value(self, where: str, entry: Any, unit: str) -> Any:
        if not isinstance(entry, dict) or "value" not in entry:
            raise self.fail(f'{where} must be {{ value = ..., unit = "{unit}", source = "..." }}')
        if unknown := set(entry) - {"value", "unit", "source"}:
            raise self.fail(f"{where} has an unknown key {shortened(min(unknown))!r}; it may have value, unit and source")
        if entry.get("unit", "") != unit:
            raise self.fail(f"{where} is in {shortened(repr(entry.get('unit', '')))}; it must be in {unit!r}")
        return entry["value"]

    def _source(self, where: str, entry: dict[str, Any]) -> tuple[str, str]:
        """Return kind and text of an entry's source."""
        written = entry.get("source", "")
        text = str(self.text.get("sources", {}).get(written, written)) if isinstance(written, str) else ""
        kind, _, rest = text.partition(":")
        if kind not in KINDS or not rest.strip():
            begins = ", ".join(f"{one}:" for one in KINDS)
            raise self.fail(
                f"{where} has the source {shortened(text)!r}; it needs a name from [sources], or a text that begins with one of {begins}"
            )
        return kind, rest.strip()
