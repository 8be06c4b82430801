"""Find and read chip data files.

A file `<name>.toml` describes the chip `<name>`. Directories are searched in order: `$MEMLANE_CHIPS` if it is set, else
`~/.config/memlane/chips`; then the files that come with memlane. To add a chip, copy `data/h200.toml` and change its entries.

    product = "NVIDIA H200"
    compute_capability = [9, 0]

    [sources]                                   # names for sources that several entries cite
    chase = "measured: a pointer chase by one warp"

    [latency]
    l2 = { value = 283, unit = "cycles", source = "chase" }
    l1 = { value = 34.3, unit = "cycles", source = "measured: with a ruler" }

A source is a name from `[sources]`, or a text that begins with `measured:`, `cited:`, `derived:` or `assumed:`. The table `[chip]` holds
the fields of `Chip`, `[banks]`, `[coalescing]`, `[latency]` and `[throughput]` those of the classes of that name in `model.py`. The
optional tables `[store_banks]`, `[atomic_banks]` and `[increment_banks]` hold entries that differ from `[banks]` for stores and atomics,
`[compare_swap_banks]` those that differ from `[atomic_banks]`. The tables `[bandwidth]` and `[links]`, with the fields of `Bandwidth` and
`Links`, are optional too, and so is each of their entries. Other missing entries, unknown entries, wrong types and wrong units are errors
that name the entry.

A file with `like = "gtx480"` holds only the entries that differ from the chip of that name, which is looked up in the same directory first
and then among the shipped files: so a user's `h200.toml` can be like the shipped one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args, get_origin, get_type_hints

from memlane.chip.model import KINDS, LANES, OLDEST_COMPILED, WIDTHS, BankRule, Chip, CoalescingRule, Fact
from memlane.chip.rates import Bandwidth, Latency, Links, Throughput
from memlane.data_files import DataFiles
from memlane.errors import ChipError
from memlane.number_format import plural
from memlane.source import shortened

_TABLES: Mapping[str, type] = {"banks": BankRule, "coalescing": CoalescingRule, "latency": Latency, "throughput": Throughput}
_VARIANTS = {"store_banks": "banks", "atomic_banks": "banks", "increment_banks": "banks", "compare_swap_banks": "atomic_banks"}
"""Optional tables, each with the entries that differ from those of another table."""
_RATES: Mapping[str, type] = {"bandwidth": Bandwidth, "links": Links}
"""Optional tables whose entries are optional too."""
_OPTIONAL = ("sources", *_RATES, *_VARIANTS)
_HEAD = ("product", "compute_capability", "sources", "chip", *_TABLES, *_RATES, *_VARIANTS)
_NOT_IN_THE_CHIP_TABLE = {"name", "product", "compute_capability", "calibrated", "facts", *_TABLES, *_RATES, *_VARIANTS}
_OF_ITS_OWN = (
    "copy_gb_per_s",
    "fp32_gflops",
    *(f"bandwidth.{one.name}" for one in fields(Bandwidth) if not one.name.startswith("sm_")),
    *(f"links.{one.name}" for one in fields(Links)),
)
"""Facts that `nearest` does not take from another chip, because they depend on the whole chip and its memory."""

MOST, MOST_OF_A_RULE = 1 << 50, 1024
"""Largest numbers of a chip, and of the rules for banks and coalescing, so that products fit 64 bits, and arrays with an element for each
bank fit the memory."""
LEAST = 1e-6
"""Smallest positive number, so that cycles, which are amounts over rates, fit 64 bits."""
WIDEST_ACCESS_BYTES = 16
_FILE_NAME = re.compile(r"[^/\\\x00-\x1f]{1,200}")
_MAY_BE_ZERO = ("[chip] reserved_shared_bytes", "[chip] l1_bytes", "[chip] l2_bytes")

_ATTRIBUTES: Mapping[str, tuple[str, int]] = {
    "multiprocessor_count": ("sm_count", 1),
    "clock_rate": ("clock_mhz", 1000),
    "warp_size": ("warp_size", 1),
    "max_threads_per_block": ("max_threads_per_block", 1),
    "max_threads_per_multiprocessor": ("max_threads_per_sm", 1),
    "max_blocks_per_multiprocessor": ("max_blocks_per_sm", 1),
    "max_registers_per_multiprocessor": ("registers_per_sm", 1),
    "max_registers_per_block": ("max_registers_per_block", 1),
    "max_shared_memory_per_multiprocessor": ("shared_bytes_per_sm", 1),
    "max_shared_memory_per_block": ("max_static_shared_bytes", 1),
    "max_shared_memory_per_block_optin": ("max_shared_bytes", 1),
    "reserved_shared_memory_per_block": ("reserved_shared_bytes", 1),
    "total_constant_memory": ("constant_bytes", 1),
    "l2_cache_size": ("l2_bytes", 1),
    "total_memory": ("dram_bytes", 1),
}
"""Field of `Chip`, and divisor, for each device attribute of the CUDA driver (lower case, without CU_DEVICE_ATTRIBUTE_)."""


SHIPPED = Path(__file__).parent / "data"
"""Directory of the chip files that come with memlane."""


FILES = DataFiles("chip", "MEMLANE_CHIPS", SHIPPED, ChipError)


def user_directory() -> Path | None:
    """Return the user's directory of chip files, which need not exist; None for a user without a home directory."""
    return FILES.user_directory()


def directories() -> tuple[Path, ...]:
    """Return the directories that are searched for chip files, in order."""
    return FILES.directories()


def names() -> tuple[str, ...]:
    """Return the names of all chips that `load` knows, sorted."""
    return FILES.names()


def load(name: str) -> Chip:
    """Return the chip called `name`; raise ChipError, with the known names, if there is none."""
    path = FILES.find(name)
    if path is None:
        raise ChipError(f"unknown chip {name!r}; known chips: {', '.join(names())}{unread_directory()}")
    return from_file(path)


def unread_directory() -> str:
    """Return why an existing directory of the user is not read, as the end of a sentence; empty if it is read or absent."""
    return FILES.unread_directory()


def from_file(path: str | Path) -> Chip:
    """Return the chip that a data file describes; raise ChipError if the file is unreadable or invalid."""
    path = Path(path)
    try:
        changed = path.stat().st_mtime_ns
    except OSError as error:
        raise ChipError(f"cannot read the chip file {path}: {error.strerror}") from error
    return _read(path, changed)


def nearest(compute_capability: tuple[int, int], attributes: Mapping[str, int], product: str = "") -> Chip:
    """Return the chip whose data file has the name `product`, or else a chip assembled from the device's `attributes`.

    The latter takes rules, latencies and throughputs from the chip nearest in compute capability (of several, the one with the fewest
    assumed numbers), and has `calibrated` False. `attributes` are the driver's device attributes as `cuda.core` spells them
    (`multiprocessor_count`, `clock_rate` in kHz, ...), and `total_memory` in bytes. Unknown names are ignored.
    """
    chips = [load(name) for name in names()]
    for chip in chips:
        if product and chip.product == product:
            return chip
    living = [chip for chip in chips if chip.compute_capability >= OLDEST_COMPILED]
    relative = min(living, key=lambda chip: (*_distance(chip.compute_capability, compute_capability), len(chip.assumed)))
    facts = dict(relative.facts)
    changes: dict[str, Any] = {}
    for attribute, (name, divisor) in _ATTRIBUTES.items():
        if attribute in attributes:
            changes[name] = int(attributes[attribute]) // divisor
            facts[name] = Fact(changes[name], facts[name].unit, "measured", f"device attribute {attribute}")
    for prefix in ("max_block_dim", "max_grid_dim"):
        axes = [attributes.get(f"{prefix}_{axis}") for axis in "xyz"]
        if None not in axes:
            changes[prefix] = tuple(axes)
            facts[prefix] = Fact(changes[prefix], "", "measured", f"device attributes {prefix}_x, _y, _z")
    for name, fact in facts.items():
        if name not in changes:
            facts[name] = Fact(fact.value, fact.unit, "assumed", f"as on {relative.name} ({fact.kind}: {fact.source})")
    major, minor = compute_capability
    return replace(
        relative,
        name=f"sm_{major}{minor}",
        product=product or f"a GPU of compute capability {major}.{minor}",
        compute_capability=compute_capability,
        copy_gb_per_s=None,
        fp32_gflops=None,
        bandwidth=replace(relative.bandwidth, **{name.partition(".")[2]: None for name in _OF_ITS_OWN if name.startswith("bandwidth.")}),
        links=Links(),
        calibrated=False,
        facts=MappingProxyType({name: fact for name, fact in facts.items() if name not in _OF_ITS_OWN}),
        **changes,
    )


def _distance(chip: tuple[int, int], wanted: tuple[int, int]) -> tuple[int, int, bool]:
    """Return a sort key for nearness: same major version first, then the nearest minor version, then the older chip."""
    return abs(chip[0] - wanted[0]), abs(chip[1] - wanted[1]), chip > wanted


@lru_cache(maxsize=64)
def _read(path: Path, changed: int) -> Chip:
    """Read a chip file, cached by path and `changed`, its modification time, so that an edited file is read again."""
    return _ChipFile(path, _text(path)).chip()


def _text(path: Path, users: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the entries of a file, merged over those of the file that it is `like`; `users` are the files that are like this one."""
    text = FILES.read(path)
    if "like" not in text:
        return text
    name = text.pop("like")
    if not isinstance(name, str) or not _FILE_NAME.fullmatch(name):
        raise ChipError(
            f'{path}: like must name a chip file in the same directory or a chip that comes with memlane, as in "h200", not {_shown(name)}'
        )
    name = f"{name}.toml"
    candidates = (path.with_name(name), Path(__file__).parent / "data" / name)
    relative = next((one for one in candidates if one.resolve() not in (path.resolve(), *users) and one.is_file()), None)
    if relative is None:
        raise ChipError(f"{path}: like names {name}, but there is no such file in its directory")
    said = _text(relative, (path.resolve(), *users))
    for name, entry in text.items():
        both = isinstance(entry, dict) and isinstance(said.get(name), dict)
        said[name] = {**said[name], **entry} if both else entry
    return said


@cache
def _entries(kind: type) -> Mapping[str, tuple[Any, str, bool]]:
    """Return the type, the unit and whether it is optional for each field of a dataclass that a table fills."""
    hints = get_type_hints(kind, include_extras=True)
    entries = {}
    for one in fields(kind):
        if kind is Chip and one.name in _NOT_IN_THE_CHIP_TABLE:
            continue
        optional = one.default is not MISSING
        hint = get_args(hints[one.name])[0] if optional and one.default is None else hints[one.name]
        value, unit = get_args(hint)
        entries[one.name] = (value, unit, optional)
    return entries


def _shown(value: Any) -> str:
    """Return a value as messages quote it, shortened."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {plural(value.bit_length(), 'bit')}"
    try:
        return shortened(repr(value))
    except ValueError:  # Python refuses to print an integer of thousands of digits
        return "what it is"


_PLACE = re.compile(r"\[(?P<table>\w+)\](?: (?:has no entry '\w+'|has an unknown entry '(?P<unknown>\w+)|(?P<entry>\w+)))?")


def _line_of(path: Path, what: str) -> int | None:
    """Return the line of a file that the message `what`, which begins with a table and an entry, refers to.

    This is the line of the table if the entry is missing, and None if the file has neither, as in one that is `like` another."""
    found = _PLACE.match(what)
    if found is None:
        return None
    entry, table, head = found["entry"] or found["unknown"], "", None
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        text = line.strip()
        if text.startswith("["):
            table = text.strip("[] ").partition("]")[0]
            head = number if table == found["table"] else head
        elif table == found["table"] and entry and text.partition("=")[0].strip() == entry:
            return number
    return head


class _ChipFile:
    """Parser of one data file into a `Chip`; collects `facts` on the way."""

    def __init__(self, path: Path, text: dict[str, Any]) -> None:
        self.path = path
        self.text = text
        self.facts: dict[str, Fact] = {}

    def fail(self, what: str) -> ChipError:
        line = _line_of(self.path, what)
        return ChipError(f"{self.path}{f':{line}' if line else ''}: {what}")

    def chip(self) -> Chip:
        for name in self.text:
            if name not in _HEAD:
                raise self.fail(f"unknown table or key {shortened(name)!r}; a chip file has {', '.join(_HEAD)}")
        for name in _HEAD:
            if name not in self.text and name not in _OPTIONAL:
                raise self.fail(f"{name!r} is missing")
        if not isinstance(self.text.get("sources", {}), dict):
            raise self.fail("'sources' must be a table: [sources]")
        capability = self.text["compute_capability"]
        if not (
            isinstance(capability, list) and len(capability) == 2 and all(type(part) is int and 0 <= part < 100 for part in capability)
        ):
            raise self.fail("compute_capability must be two integers, as in [9, 0]")
        if not isinstance(self.text["product"], str):
            raise self.fail('product must be a string, as in "NVIDIA H200"')
        own = self.table("chip", Chip)
        if own["max_threads_per_sm"] < LANES:
            raise self.fail(f"[chip] max_threads_per_sm must be at least {LANES}, the threads of a warp, not {own['max_threads_per_sm']}")
        parts: dict[str, Any] = {name: kind(**self.table(name, kind)) for name, kind in _TABLES.items()}
        for where, number in (("[chip] line_bytes", own["line_bytes"]), ("[coalescing] load_bytes", parts["coalescing"].load_bytes or 0)):
            if number % own["sector_bytes"]:
                raise self.fail(f"{where} must be a multiple of the {plural(own['sector_bytes'], 'byte')} of a sector, not {number}")
        parts |= {name: kind(**self.table(name, kind)) for name, kind in _RATES.items() if name in self.text}
        for name, base in _VARIANTS.items():
            if name in self.text:
                parts[name] = replace(parts.get(base, parts["banks"]), **self.table(name, BankRule, whole=False))
        for name in ("banks", *_VARIANTS):
            if name in parts and parts[name].bank_bytes not in WIDTHS:
                raise self.fail(f"[{name}] bank_bytes must be one of {', '.join(map(str, WIDTHS))}, not {parts[name].bank_bytes}")
            if name in parts and parts[name].banks * parts[name].bank_bytes % WIDEST_ACCESS_BYTES:
                raise self.fail(
                    f"[{name}] banks times bank_bytes must be a multiple of {WIDEST_ACCESS_BYTES} bytes, the widest access of a lane"
                )
        return Chip(
            name=self.path.stem,
            product=self.text["product"],
            compute_capability=(capability[0], capability[1]),
            facts=MappingProxyType(self.facts),
            **own,
            **parts,
        )

    def table(self, name: str, kind: type, whole: bool = True) -> dict[str, Any]:
        """Return the checked values of one table, by field of `kind`; if `whole`, fail for missing entries that are not optional."""
        given = self.text[name]
        if not isinstance(given, dict):
            raise self.fail(f"{name!r} must be a table: [{name}]")
        wanted = _entries(kind)
        for entry in given:
            if entry not in wanted:
                raise self.fail(f"[{name}] has an unknown entry {shortened(entry)!r}; it may have {', '.join(wanted)}")
        values = {}
        for entry, (value_type, unit, optional) in wanted.items():
            if entry in given:
                values[entry] = self.value(f"[{name}] {entry}", given[entry], value_type, unit)
                self.facts[entry if kind is Chip else f"{name}.{entry}"] = Fact(
                    values[entry], unit, *self.source(f"[{name}] {entry}", given[entry])
                )
            elif whole and not optional:
                raise self.fail(f"[{name}] has no entry {entry!r}")
        return values

    def value(self, where: str, entry: Any, wanted: Any, unit: str) -> Any:
        if not isinstance(entry, dict) or "value" not in entry:
            raise self.fail(f'{where} must be {{ value = ..., unit = "{unit}", source = "..." }}')
        if unknown := set(entry) - {"value", "unit", "source"}:
            raise self.fail(f"{where} has an unknown key {shortened(min(unknown))!r}; it may have value, unit and source")
        if entry.get("unit", "") != unit:
            raise self.fail(f"{where}: the unit is {_shown(entry.get('unit', ''))}, but must be {unit!r}")
        value = entry["value"]
        if get_origin(wanted) is tuple:
            if isinstance(value, list) and len(value) == 3 and all(type(part) is int and 0 < part <= MOST for part in value):
                return tuple(value)
            raise self.fail(f"{where} must be three positive integers, not {_shown(value)}")
        if wanted is int or wanted is float:
            if not (type(value) is int or (wanted is float and type(value) is float)) or not (
                value > 0 or (value == 0 and where in _MAY_BE_ZERO)
            ):
                raise self.fail(f"{where} must be a positive {'integer' if wanted is int else 'number'}, not {_shown(value)}")
            if unit == "lanes" and LANES % value:
                raise self.fail(f"{where} must divide {LANES}, the number of lanes of a warp; {_shown(value)} does not")
            most = MOST if where.startswith("[chip]") or wanted is float else MOST_OF_A_RULE
            if value > most:
                raise self.fail(f"{where} must be at most {most:,}, not {_shown(value)}")
            if 0 < value < LEAST:
                raise self.fail(f"{where} must be at least {LEAST:g}, not {_shown(value)}")
            return wanted(value)
        if value not in get_args(wanted):
            raise self.fail(f"{where} must be one of {', '.join(repr(choice) for choice in get_args(wanted))}, not {_shown(value)}")
        return value

    def source(self, where: str, entry: Mapping[str, Any]) -> tuple[str, str]:
        """Return the kind and the text of an entry's source."""
        named = entry.get("source", "")
        if not isinstance(named, str):
            raise self.fail(f"{where}: the source must be a string, not {_shown(named)}")
        text = str(self.text.get("sources", {}).get(named, named))
        kind, _, rest = text.partition(":")
        if kind not in KINDS or not rest.strip():
            begins = ", ".join(f"{one}:" for one in KINDS)
            raise self.fail(f"{where}: the source {shortened(text)!r} must be a name from [sources], or begin with one of {begins}")
        return kind, rest.strip()
