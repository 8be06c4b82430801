"""Write OTF2, the trace format of Score-P, which Vampir, Scalasca and otf2-print read: a directory with an anchor file `traces.otf2`.

It has a location group for each SM, in it a location for each warp slot, and one more for each lane of overlapping accesses. The region of
a warp's life is its kernel; inside are regions of accesses, named by source line and operation. Times are whole ns since the trace began.
Enter events have the attributes block and warp; those of accesses also cycles and, where known, sectors and wavefronts.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from memlane.errors import CommandError
from memlane.export.format import DirectoryExporter
from memlane.export.tracks import Ints, Lines, Tracks, line_name, lines, tracks
from memlane.packages import install_command
from memlane.record import Trace, kernel_label

ARCHIVE = "traces"
TICKS_PER_SECOND = 10**9
CHUNK_BYTES = 1 << 18
"""Memory that each location takes for its events, and again for its (unused) local definitions.

It is the least that the library allows, because there are thousands of locations and closing one takes time proportional to it.
"""
MANY = 2000
"""Number of locations from which on a message warns of the cost: some seconds for each thousand."""
_LOGGER = logging.getLogger(__name__)
_ATTRIBUTES = ("block", "warp", "cycles", "sectors", "wavefronts")


def write(trace: Trace, folder: Path) -> None:
    """Write `trace` as an OTF2 archive. Raises CommandError if the package otf2 is missing, RecordError without a common time axis."""
    package = _package()
    drawn = tracks(trace)
    shown = lines(drawn)
    if len(shown.places) >= MANY:
        _LOGGER.info(
            "the archive has %s locations, with two files each; writing it needs %s MiB of memory and some seconds per thousand "
            "locations; to make it smaller, trace fewer warps (--every 32, --sms 0-3), or export --to perfetto",
            f"{len(shown.places):,}",
            f"{len(shown.places) * 2 * CHUNK_BYTES >> 20:,}",
        )
    sizes = {"chunk_size_events": CHUNK_BYTES, "chunk_size_definitions": CHUNK_BYTES}
    with package.writer.open(str(folder), ARCHIVE, timer_resolution=TICKS_PER_SECOND, **sizes) as archive:
        archive.creator = f"memlane {trace.version}".strip()
        named = _Definitions.define(package, archive.definitions, trace, shown)
        values = _EventValues(trace, drawn, named)
        for location, events in zip(named.locations, _by_line(drawn, shown), strict=True):
            _write_line(archive.event_writer_from_location(location), events, values)


def _package() -> Any:
    try:
        import otf2
        import otf2.writer
    except ImportError:
        raise CommandError(f"writing OTF2 archives needs the package otf2; install it with: {install_command('otf2')}") from None
    return otf2


# -- definitions ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Definitions:
    """Definitions that events refer to."""

    locations: list[Any]
    """Locations in the order of the lines."""
    sites: list[Any]
    """Regions of the accesses."""
    launches: list[Any]
    attributes: dict[str, Any]

    @classmethod
    def define(cls, package: Any, definitions: Any, trace: Trace, shown: Lines) -> _Definitions:
        root = definitions.system_tree_node("memlane", class_name="machine", parent=None)
        several = len(trace.devices) > 1
        gpus = [
            definitions.system_tree_node(f"{trace.chip} {name}" if several else trace.chip, class_name="GPU", parent=root)
            for name in trace.devices
        ]
        group_kind, kind = package.LocationGroupType.ACCELERATOR, package.LocationType.ACCELERATOR_STREAM
        groups = {
            sm: definitions.location_group(
                trace.sm_name(sm), location_group_type=group_kind, system_tree_parent=gpus[trace.device_of_sm(sm)]
            )
            for sm in shown.sms
        }
        shared = {"paradigm": package.Paradigm.CUDA}
        sites = [
            definitions.regions.create(
                f"{PurePath(site.file).name}:{site.line} {site.op}",
                site.op,
                f"{site.kind}, {site.space}, {site.completeness}",
                region_role=package.RegionRole.DATA_TRANSFER,
                source_file=site.file,
                begin_line_number=site.line,
                end_line_number=site.line,
                **shared,
            )
            for site in trace.sites
        ]
        launches = [
            definitions.regions.create(kernel_label(one.kernel), one.kernel, region_role=package.RegionRole.FUNCTION, **shared)
            for one in trace.launches
        ]
        return cls(
            [definitions.locations.create(line_name(slot, lane), kind, 0, groups[sm]) for sm, slot, lane in shown.places],
            sites,
            launches,
            {name: definitions.attribute(name, type=package.Type.UINT64) for name in _ATTRIBUTES},
        )


# -- events --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Line:
    """The lives of one line in turn (-1 if it has none of its own), and the rows of each."""

    lives: list[int]
    rows: list[Ints]


def _by_line(drawn: Tracks, shown: Lines) -> list[_Line]:
    """Return the contents of each line, in the order in which they begin."""
    rank = np.empty(len(drawn.lives.sm), np.int64)
    rank[np.argsort(drawn.lives.begin_ns, kind="stable")] = np.arange(len(rank))
    order = np.lexsort((drawn.start_ns, rank[drawn.life], shown.of_row))
    bounds = np.searchsorted(shown.of_row[order], np.arange(len(shown.places) + 1))
    by_rank = np.lexsort((rank, shown.of_life))
    life_bounds = np.searchsorted(shown.of_life[by_rank], np.arange(len(shown.places) + 1))
    found = []
    for number, (_, _, lane) in enumerate(shown.places):
        rows = order[bounds[number] : bounds[number + 1]]
        if lane:
            found.append(_Line([-1], [rows]))
            continue
        lives = by_rank[life_bounds[number] : life_bounds[number + 1]]
        ranks = rank[drawn.life[rows]]
        starts, ends = (np.searchsorted(ranks, rank[lives], side) for side in ("left", "right"))
        found.append(_Line(lives.tolist(), [rows[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]))
    return found


class _EventValues:
    """Times, regions and attributes of each event."""

    def __init__(self, trace: Trace, drawn: Tracks, named: _Definitions) -> None:
        self.named = named
        self._lives = drawn.lives
        self._drawn = drawn
        self._table = trace.table
        self._origin = float(drawn.lives.begin_ns.min()) if len(drawn.lives.sm) else 0.0

    def life(self, number: int) -> tuple[int, int, Any, dict[Any, int]]:
        """Return start, end, region and attributes of a life."""
        lives, attributes = self._lives, self.named.attributes
        start, end = (int(times[number] - self._origin) for times in (lives.begin_ns, lives.end_ns))
        said = {attributes["block"]: int(lives.block[number]), attributes["warp"]: int(lives.warp[number])}
        return start, end, self.named.launches[int(lives.launch[number])], said

    def rows(self, rows: Ints) -> list[tuple[int, int, Any, dict[Any, int]]]:
        """Return start, end, region and attributes of each access."""
        part = self._table.take(rows)
        cycles = np.maximum(part["end"].to_numpy() - part["start"].to_numpy(), 0).tolist()
        columns = [part["block"].to_pylist(), part["warp"].to_pylist(), cycles, part["sectors"].to_pylist(), part["wavefronts"].to_pylist()]
        keys = [self.named.attributes[name] for name in _ATTRIBUTES]
        said = [{key: value for key, value in zip(keys, values, strict=True) if value is not None} for values in zip(*columns, strict=True)]
        times = (np.floor(times[rows] - self._origin).astype(np.int64).tolist() for times in (self._drawn.start_ns, self._drawn.end_ns))
        return list(zip(*times, [self.named.sites[site] for site in part["site"].to_pylist()], said, strict=True))


def _write_line(writer: Any, line: _Line, values: _EventValues) -> None:
    for life, rows in zip(line.lives, line.rows, strict=True):
        began = None if life < 0 else values.life(life)
        if began is not None:
            writer.enter(began[0], began[2], attributes=began[3])
        for start, end, region, said in values.rows(rows):
            writer.enter(start, region, attributes=said)
            writer.leave(end, region)
        if began is not None:
            writer.leave(began[1], began[2])


EXPORTER = DirectoryExporter(
    "otf2", ".otf2", "for Vampir and Scalasca: a location for each warp slot, a region for each line", f"{ARCHIVE}.otf2", write
)
