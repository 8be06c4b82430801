"""Predict the times of memlane's own plans on several devices, by a model that is fitted to measured kernels.

The time of a launch of one step is the longest of four. Constants are fitted to launches of 2 to 256 planes of a 7-point rule and of
Himeno's on one H200 (`benchmarks/results/h200/stencil_slabs.json`); `choice` has those that were fitted before.

- its bytes from and to DRAM, at the rates of long reads and writes, with half of the overlap that blocks read twice around their tiles;
- reads and writes of its blocks in L2, wave by wave: with few blocks some multiprocessors have one more than others and finish last;
- the instructions that it issues;
- the march of a block through its planes, each of which waits for memory.

The bytes of all fields of a device decide whether fields stay in L2 between launches: up to 0.7 of L2 all do, from 0.84 on none. A border
whose fields fit finds the results of its previous step in L2. Times of launches of several steps come from `choice`.

Borders and the planes between them are launched on queues of their own, schedule `linked` of `regions`. So the time between two exchanges
is the longer of two: the work that occupies the multiprocessors (all launches, borders without their start), and the chain of border
launches and exchange, which the next borders wait for. Launches that put planes to the neighbours are part of that work. Where events in
one graph order the devices, a device takes several us for each wait for another one, one after another, and the time between two exchanges
is at least their sum: on four devices 14 us with one launch between two exchanges, and 28 us with several. With the schedule
`independent` borders and exchange follow each other beside the inner region, as in the paper: max(inner, exchange) + borders. The costs of
exchanges (links, signals) are in the network's file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, prod

from memlane.chip import LANES, SECTOR_BYTES, Chip
from memlane.number_format import percent, size
from memlane.stencils.choice import RATED_SHARE, RESIDENT, default_variant, estimate, fused_variants, missed_share
from memlane.stencils.geometry import Geometry, itemsize
from memlane.stencils.grid import Grid
from memlane.stencils.problem import Problem
from memlane.stencils.rule import Rule
from memlane.stencils.scaling.kawamura import ASSUMED_LAUNCH_US
from memlane.stencils.scaling.regions import Box, Schedule, Step
from memlane.stencils.scaling.work import Exchange
from memlane.stencils.schedule import cannot_fuse
from memlane.stencils.tiles import Tile, tile_us
from memlane.stencils.variant import Variant

_DRAM_SHARE = 0.98
"""Share of the rates of long reads and writes that launches of one step reach."""
_SEAM_MISSES = 0.5
"""Share of the overlap that blocks read twice around their tiles that comes from DRAM again instead of L2."""
_L2_SHARE = 0.5
"""Share of the rates of reads and writes in L2, added up, that launches of one step reach."""
_START, _MARCH_START, _TURN = 6.5, 5.5, 2.7
"""Latencies of L2 before a launch moves at its full rate, before a block marches, and in each plane of its march."""
_SLOTS_A_READ = 4.4
"""Instructions that launches of one step issue for each value that a cell reads: a 27-point rule at 512^3, which they bound."""
_BARRIER_US = 1.6
"""A barrier of the grid. Assumed: measured is a whole exchange by kernels that stay, 4.5 us with a barrier, two fences and a flag."""
_STAYING_US, _STAYING_SLOTS, _STAYING_TURN = 3.0, 18.0, 0.035
"""What a rule takes longer in a kernel that stays than in a launch: beside its barrier, in slots of a lane for each cell, and as a share
for each further step between two exchanges. Fitted to 18 times of two H200s."""
_LOADED_SHARE, _MOST_LOADED_US, _BORDERS_US, _TOGETHER = 0.4, 20.0, 1.0, 4
"""What borders of one step take longer where the device computes what lies between them: a share of the time of that, and at most so much;
what each launch of them adds to the work of the device; and the power by whose sum the longer of work and chain is taken, because each
delays the other. These and the next are fitted to 291 times of a 7-point rule and of Himeno's on two H200s, of 2026-11-24, by
`benchmarks/stencil_scaling.py`."""
_NARROW, _APART_US, PACKED_US = 1.5, 2.0, 8.0
"""How much longer borders along a row take; what a launch takes longer whose device waits for an exchange behind it; and what an exchange
takes longer whose messages are packed."""
_FUSED_SHARED, _FUSED_BORDERS = 1.03, 0.5
"""Launches of several steps: what they take where devices wait for each other, as a multiple of their time on one device alone; and which
share of the time that borders take alone they add to the work of the device, because the last blocks between them leave room.

Fitted to 54 times of a 7-point rule on two and four H200s, measured on 2026-11-27 with kernels as they are now, in
`benchmarks/results/h200/stencil_scaling.json`. The optimum is flat: 1.01 to 1.04 and 0.5 to 0.65 are off by nearly as much."""
_ENDS_US, _CHAIN_US = 0.85, 2.9
"""The exchange of kernels that keep cells on the multiprocessors costs these times in us.

The first is added to the time of a step. The second passes from the first planes of a step to those of the next one on the neighbour,
beside their transfer. They are fitted to 15 times of a trial on two and four H200s, with faces of 64 KiB to 1 MiB, on 2026-11-26; the times
in benchmarks/results/h200/stencil_scaling.json were measured after the fit."""


@dataclass(frozen=True)
class LaunchTime:
    """The time of one launch, and its parts."""

    us: float
    """Time from start to end, alone on the device."""
    busy_us: float
    """Time for which it occupies the multiprocessors."""


@dataclass
class CalibratedModel:
    """Times of the regions of a problem on a chip by measured kernels."""

    problem: Problem
    chip: Chip
    resident_bytes: float = 0.0
    """Bytes of all fields on the device, which compete for L2."""
    launch_us: float = ASSUMED_LAUNCH_US
    notes: tuple[str, ...] = ()
    schedule: Schedule = "linked"
    stays: bool = False
    """Whether kernels stay on their devices for many steps, so that barriers of the grid take the place of launches."""
    share: Box = ()
    """Cells of a device, for which kernels of several steps are chosen; all its regions use the same kernels."""
    _known: dict[tuple[Box, int, bool], LaunchTime] = field(default_factory=dict, repr=False)
    _variants: dict[tuple[Box, int], Variant | None] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, problem: Problem, chip: Chip, schedule: Schedule = "linked", stays: bool = False) -> CalibratedModel:
        """Return the model of a problem on a chip. `linked` is the schedule of memlane's own plans; with `stays` each device makes many
        steps by one kernel."""
        notes = []
        if stays:
            notes.append(f"kernels that stay on their devices: {_BARRIER_US:g} us for a barrier of the grid are assumed")
        if chip.links.launch_us is None:
            notes.append(f"{chip.name}: {ASSUMED_LAUNCH_US} us between launches are assumed, because its file has no [links] launch_us")
        if chip.copy_gb_per_s is None:
            notes.append(f"{chip.name}: {percent(RATED_SHARE)} of the rated bandwidth is assumed, because its file has no copy_gb_per_s")
        if chip.bandwidth.rate("l2", "read") is None:
            notes.append(f"{chip.name}: reads of L2 count as endlessly fast, because its file has no [bandwidth] l2_read")
        if not chip.name.startswith("h200"):
            notes.append(f"{chip.name}: how launches start and march is as fitted on an H200, in latencies of this chip")
        return cls(problem, chip, launch_us=chip.links.launch_us or ASSUMED_LAUNCH_US, notes=tuple(notes), schedule=schedule, stays=stays)

    @property
    def sentence(self) -> str:
        """Describe the numbers that the model uses."""
        read, write = self._dram_rates
        return (
            f"DRAM read at {_DRAM_SHARE * read:,.0f} GB/s and written at {_DRAM_SHARE * write:,.0f} GB/s, "
            f"{self.launch_us:g} us between launches, fields stay in L2 up to {size(RESIDENT * self.chip.l2_bytes)} a device"
        )

    def on_share(self, share: Box, nbytes: float) -> CalibratedModel:
        """Return the model for devices with so many cells, on which all fields have so many bytes."""
        return replace(self, share=share, resident_bytes=nbytes, _known={})

    # -- launches ----------------------------------------------------------------------------------------------------------------

    def launch(self, box: Box, steps: int, again: bool) -> LaunchTime:
        """Return the time of a launch of each rule for a region. `again`: the previous launch wrote the data that it reads."""
        key = box, steps, again
        if key not in self._known:
            if not prod(box):
                return LaunchTime(0.0, 0.0)
            times = [self._fused(box, steps) if steps > 1 else self._direct(box, rule, again) for rule in self.problem.rules]
            self._known[key] = LaunchTime(sum(one.us for one in times), sum(one.busy_us for one in times))
        return self._known[key]

    def _on(self, box: Box) -> Problem:
        """Return the problem restricted to a region."""
        return replace(self.problem, grid=Grid(box, self.problem.grid.dtype))

    @cached_property
    def _l2_us(self) -> float:
        return self.chip.latency.l2 / self.chip.clock_mhz

    @cached_property
    def _dram_us(self) -> float:
        return self.chip.latency.dram / self.chip.clock_mhz

    @cached_property
    def _dram_rates(self) -> tuple[float, float]:
        """Rates of long reads and writes in GB/s."""
        rates = self.chip.bandwidth
        if rates.dram_read and rates.dram_write:
            return rates.dram_read, rates.dram_write
        copy = self.chip.copy_gb_per_s or RATED_SHARE * self.chip.dram_gb_per_s
        return copy, copy

    def _missed(self, box: Box, again: bool) -> float:
        own = prod(box) * sum(itemsize(self.problem.dtype(name)) for name in self.problem.fields)
        return missed_share(own if again else max(self.resident_bytes, own), self.chip)

    def _direct(self, box: Box, rule: Rule, again: bool) -> LaunchTime:
        problem = self._on(box)
        variant, geometry, missed = default_variant(problem, rule), Geometry(problem, rule), self._missed(box, again)
        nz, ny, nx = geometry.extents
        (bx, by), cells = variant.block, prod(box)
        width, height, depth = bx * variant.vector, by * variant.rows, variant.planes
        blocks = ceil(nx / width) * ceil(ny / height) * ceil(nz / depth)
        read, written = (sum(self._row_bytes(rule, geometry, name) for name in names) / nx for names in (rule.reads, rule.writes))
        to_read, to_write = self._dram_rates
        with_seams = sum(self._seams(rule, geometry, name, (depth, height, width)) for name in rule.reads)
        fetched = read + _SEAM_MISSES * (with_seams - read)
        dram_us = 1e-3 * cells * (fetched / to_read + written / to_write) / _DRAM_SHARE
        l2_us = 0.0
        if (sectors := self.chip.bandwidth.rate("l2", "read")) is not None:
            a_wave = min(width, nx) * min(height, ny) * min(depth, nz) * (with_seams + written) * self.chip.sm_count
            both = sectors + (self.chip.bandwidth.rate("l2", "write") or sectors)
            l2_us = ceil(blocks / self.chip.sm_count) * a_wave / (_L2_SHARE * both * SECTOR_BYTES * self.chip.clock_mhz)
        values = sum(len(several) * (2 if problem.dtype(name) == "f8" else 1) for name, several in rule.reads.items())
        issued = ceil(nx / width) * width * ceil(ny / height) * height * nz  # lanes without cells of the region take part
        issue_us = issued * values * _SLOTS_A_READ / (self.chip.sm_count * self.chip.schedulers * LANES * self.chip.clock_mhz)
        moving = max(issue_us, l2_us, missed * dram_us + (1 - missed) * l2_us)
        turn = _TURN * self._l2_us + missed * (self._dram_us - self._l2_us)
        resident = max(1, self.chip.max_threads_per_sm // (2 * bx * by)) * self.chip.sm_count
        march = _MARCH_START * self._l2_us + turn * min(depth, nz) * ceil(blocks / resident)
        # With few blocks it leaves multiprocessors to others, but not the memory, which they share.
        used, shared = min(1.0, blocks / self.chip.sm_count), self._missed(box, False)
        busy = max(used * issue_us, used * l2_us, shared * dram_us + (1 - shared) * used * l2_us)
        return LaunchTime(self.launch_us + max(_START * self._l2_us + moving, march), busy)

    def _row_bytes(self, rule: Rule, geometry: Geometry, name: str) -> int:
        """Return the bytes of the sectors in which a row of a region lies, with the cells beside it that are read."""
        _, _, nx = geometry.extents
        is_cut = nx < self.problem.grid.shape[-1]
        size, beside = itemsize(geometry.problem.dtype(name)), any(geometry.offsets(one)[2] for one in rule.reads.get(name, ()))
        return nx * size + (2 * SECTOR_BYTES if beside and is_cut else 0)

    def _seams(self, rule: Rule, geometry: Geometry, name: str, tile: tuple[int, int, int]) -> float:
        """Return the bytes that a block reads of a field for each of its cells, with the cells around its tile."""
        offsets = [geometry.offsets(one) for one in rule.reads[name]]
        grown = self._row_bytes(rule, geometry, name) / geometry.extents[2]
        for axis, extent in enumerate(tile):
            grown *= (extent + max(0, *(one[axis] for one in offsets)) - min(0, *(one[axis] for one in offsets))) / extent
        return grown

    def _fused(self, box: Box, steps: int) -> LaunchTime:
        variant = self._variant(steps)
        assert variant is not None
        one = self._of_variant(box, variant)
        return replace(one, us=self.launch_us + _MARCH_START * self._l2_us + one.busy_us)

    def _of_variant(self, box: Box, variant: Variant) -> LaunchTime:
        """Return the time of a launch of several steps, without its start."""
        problem, rule = self._on(box), self.problem.rules[0]
        us = 1e6 * prod(box) * variant.steps / estimate(problem, rule, variant, self.chip).cells_per_s
        return LaunchTime(us, us)

    def _variant(self, steps: int) -> Variant | None:
        """Return the fastest kernel of so many steps for the whole share; None where there is none."""
        key = self.share, steps
        if key not in self._variants:
            found = [one for one in fused_variants(self._on(self.share), self.problem.rules[0]) if one.steps == steps]
            self._variants[key] = min(found, key=lambda one: self._of_variant(self.share, one).us, default=None)
        return self._variants[key]

    def can_fuse(self, steps: int) -> bool:
        """Return whether steps of the problem can share a launch for a share of this size."""
        return steps == 1 or (not cannot_fuse(self.problem, steps) and self._variant(steps) is not None)

    # -- what passes between two exchanges -----------------------------------------------------------------------------------------

    def inner_us(self, steps: Sequence[Step], fused: int = 1) -> float:
        """Return the time of the launches between the borders. A launch of several steps leaves the region of its last one."""
        return sum(self.launch(one.inner, fused, at > 0).us for at, one in enumerate(steps[fused - 1 :: fused]) if one.inner)

    def boundary_us(self, steps: Sequence[Step], fused: int = 1) -> float:
        """Return the chain of border launches; those of different faces run side by side, so the longest counts."""
        chain = [[self.launch(box, fused, at > 0).us for box in one.borders] for at, one in enumerate(steps[fused - 1 :: fused])]
        return sum(max(times, default=0.0) for times in chain)

    def turn_us(self, steps: Sequence[Step], fused: int, exchange: Exchange) -> tuple[float, bool]:
        """Return the time between two exchanges, and whether the devices' work decides it and not the chain of borders and exchange."""
        launches = steps[fused - 1 :: fused]
        inner, chain = self.inner_us(steps, fused), self.boundary_us(steps, fused)
        if self.schedule == "independent":
            return max(inner, exchange.us) + chain, inner >= exchange.us
        borders = sum(self._border(box, fused, at > 0).busy_us for at, one in enumerate(launches) for box in one.borders)
        if fused > 1:
            inner, chain, borders = _FUSED_SHARED * inner, _FUSED_SHARED * chain, _FUSED_SHARED * _FUSED_BORDERS * borders
        else:  # borders of one step share the memory with what lies between them, and end later than alone
            borders += _BORDERS_US * sum(len(one.borders) for one in launches)
            chain += sum(min(_LOADED_SHARE * self.launch(one.inner, 1, at > 0).us, _MOST_LOADED_US)
                         for at, one in enumerate(launches) if one.inner)  # fmt: skip
        busy, chain = inner + borders + exchange.puts_us, chain + exchange.us
        return max((busy**_TOGETHER + chain**_TOGETHER) ** (1 / _TOGETHER), exchange.ordered_us), busy >= max(chain, exchange.ordered_us)

    def apart_us(self, steps: Sequence[Step], fused: int, exchange_us: float) -> float:
        """Return the time between two exchanges where these follow all launches."""
        shared = _FUSED_SHARED if fused > 1 else 1
        return shared * self.boundary_us(steps, fused) + exchange_us + _APART_US * len(steps[fused - 1 :: fused])

    def _border(self, box: Box, steps: int, again: bool) -> LaunchTime:
        """Return what a launch for a border takes; one along a row has parts of rows, which lie far from each other."""
        one = self.launch(box, steps, again)
        is_narrow = bool(self.share) and 2 * box[-1] < self.share[-1]
        return replace(one, busy_us=one.busy_us * _NARROW) if is_narrow else one

    def staying_turn_us(self, steps: Sequence[Step], borders: Sequence[Step], exchange_us: float) -> tuple[float, float, float]:
        """Return the times of persistent kernels between two exchanges: the total, that of all tiles and barriers, and that of the borders.

        `steps` have all cells of a device in one piece, `borders` those that are computed first. All cells are computed step by step, with
        a barrier behind each rule. The other bound is the chain of an exchange: the borders of the first step wait for it, whole steps
        follow, and those of the last step come before the next exchange, whose time has a barrier in it.
        """
        barriers = (_BARRIER_US + _STAYING_US) * len(self.problem.rules)
        slower = 1 + _STAYING_TURN * (len(steps) - 1)
        whole = [slower * (self._tiles_us(step.borders, at > 0) + barriers) for at, step in enumerate(steps)]
        first, last = (self._tiles_us(borders[at].borders, at < 0 and len(steps) > 1) for at in (0, -1))
        chain = exchange_us + last + (first + barriers + sum(whole[1:-1]) if len(steps) > 1 else 0.0)
        return max(sum(whole), chain), sum(whole), last + (first if len(steps) > 1 else 0.0)

    def tile_us(self, tile: Tile, sending_us: float) -> tuple[float, float]:
        """Return what a step takes where multiprocessors keep the cells in tiles, and which part of it devices lose to each other.

        The planes to send are computed first and travel while the rest is computed, so a step is short only if they arrive before its end.
        """
        own, depth = tile_us(self.problem, tile, self.chip), max(Geometry(self.problem, self.problem.rules[0]).radius[0])
        chain = _CHAIN_US + own * min(1.0, depth / tile.planes) + sending_us
        step = max(own + _ENDS_US, chain)
        return step, step - own

    def _tiles_us(self, boxes: Sequence[Box], again: bool) -> float:
        """Return the time of some regions side by side inside a kernel that runs already."""
        slots = self.chip.sm_count * self.chip.schedulers * LANES * self.chip.clock_mhz
        times = [self.launch(box, 1, again).us + prod(box) * _STAYING_SLOTS / slots for box in boxes]
        return max((one - self.launch_us * len(self.problem.rules) for one in times), default=0.0)

    def pack_us(self, nbytes: float) -> float:
        """Return the time to pack a face whose cells do not lie side by side, and to unpack it at the other end."""
        read, write = self._dram_rates
        return 2 * (self.launch_us + _START * self._l2_us + 1e-3 * nbytes * (1 / read + 1 / write))
