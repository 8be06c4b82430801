"""Build the rings at each memory level of a chip, and the launches of chains over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memlane.chip import LANES
from memlane.lab.latency import chains
from memlane.lab.latency.chains import TURN, Chain
from memlane.launch import DeviceArray, Launch, LoadedModule, Target

BLOCK = 256
TEXELS, TEXEL_STEP = 4096, 72
"""A texture of 16 KiB, walked in steps of 288 bytes."""
CONSTANT_ROWS = {"constant": (32, 16), "constant miss": (64, 512)}
"""Rows and bytes of a row of a ring: 512 bytes, which fit into the first constant cache (2 KiB since Volta); 32 KiB, which do not."""


@dataclass(frozen=True)
class Place:
    """A chain at a level of the memory."""

    name: str
    chain: Chain
    rows: int = 0
    row_bytes: int = 0
    warm: int = 0
    """Steps before those that are timed."""
    fresh: bool = False
    """Whether every step accesses a line for the first time, and L2 is emptied before each walk."""
    field: str = ""
    """Chip-file field of its latency, as in `latency.l2`; empty if there is none."""

    @property
    def stride(self) -> int:
        """Rows between two steps of the walk."""
        return long_stride(self.rows)


def long_stride(rows: int) -> int:
    """Return the rows between two steps of a walk over a ring.

    The stride is near the golden ratio of the ring, so that steps are long and never repeat, and coprime to `rows`.
    """
    stride = int(rows * 0.6180339887) | 1
    while np.gcd(stride, rows) != 1:
        stride += 2
    return stride


def places(target: Target, quick: bool) -> tuple[Place, ...]:
    """Return the places to measure on a target, sized by its caches."""
    chip = target.chip
    l1 = max(chip.l1_bytes, 16 << 10)
    l2_rows = (4 * l1 if quick else max(8 * l1, chip.l2_bytes // 4)) >> 8
    ring = (16 << 20) if quick else min(4 << 30, chip.dram_bytes // 16)
    dram_row = 1024 if quick else 4096
    return (
        Place("shared", chains.SHARED, warm=chains.SHARED_ROWS, field="shared"),
        Place("L1", chains.GLOBAL, 64, 256, 64, field="l1"),
        Place("L2", chains.GLOBAL, l2_rows, 256, l2_rows, field="l2"),
        Place("DRAM", chains.GLOBAL, ring // dram_row, dram_row, fresh=True, field="dram"),
        Place("local", chains.LOCAL, warm=chains.LOCAL_ROWS),
        Place("constant", chains.CONSTANT, *CONSTANT_ROWS["constant"], warm=64, field="constant"),
        Place("constant miss", chains.CONSTANT, *CONSTANT_ROWS["constant miss"], warm=128, field="constant_miss"),
        Place("texture", chains.TEXTURE, warm=TEXELS, field="texture"),
        Place("shared atomic", chains.SHARED_ATOMIC, warm=chains.SHARED_ROWS, field="shared_atomic"),
        Place("global atomic", chains.GLOBAL_ATOMIC, 64, 256, 64, field="global_atomic"),
        Place("shared store then load", chains.SHARED_PAIR, warm=16),
        Place("global store then load", chains.GLOBAL_PAIR, warm=16),
        Place("shared store", chains.SHARED_STORE, warm=16),
        Place("global store", chains.GLOBAL_STORE, warm=16),
        Place("shared reduction", chains.SHARED_REDUCTION, warm=16),
        Place("global reduction", chains.GLOBAL_REDUCTION, warm=16),
    )


NAMES = (
    "shared",
    "L1",
    "L2",
    "DRAM",
    "local",
    "constant",
    "constant miss",
    "texture",
    "shared atomic",
    "global atomic",
    "shared store then load",
    "global store then load",
    "shared store",
    "global store",
    "shared reduction",
    "global reduction",
)
"""Names of all places, in their order."""

FLUSH_BYTES = 512 << 20
"""Bytes cleared to empty the L2: many times its size."""


class Walker:
    """One place on one target, ready to be walked."""

    def __init__(self, target: Target, place: Place, turns: int, loaded: LoadedModule | None = None) -> None:
        self.target, self.place, self.turns = target, place, turns
        self.loaded = loaded or target.load(place.chain.module())
        self.times = target.zeros(4, "u8")
        self._walked = 0
        self._flusher: DeviceArray | None = None
        self._linked: list[LoadedModule] = []
        self._at, self._handle, self._owner = self._start()

    @property
    def steps(self) -> int:
        return self.turns * TURN

    def launch(self, loaded: LoadedModule | None = None) -> Launch:
        """Return the next walk, to be launched once, as a fresh ring is never walked twice.

        `loaded`: another module with the same kernel, from which the walk shall read its constants.
        """
        at = self._at
        if self.place.chain.start == "constant":
            self._link_constants(loaded or self.loaded)
        if self.place.fresh:
            self._flush()
            row = self._walked * self.steps % self.place.rows * self.place.stride % self.place.rows
            at += row * self.place.row_bytes
            self._walked += 1
        warm = -(-self.place.warm // TURN)
        return self.loaded["walk"][1, LANES].bind(self.times, at, self._handle, warm, self.turns, 0)

    def average(self) -> float:
        """Walk once, and return the cycles of a step by the kernel's own clock reads."""
        self.target.launch(self.launch())
        begin, end, _, _ = (int(value) for value in self.times.numpy())
        return (end - begin) / self.steps

    def added_up(self) -> float:
        """Walk once, and return the mean of the cycles that the steps themselves added up."""
        self.target.launch(self.launch())
        return int(self.times.numpy()[3]) / self.steps

    def _start(self) -> tuple[int, int, object]:
        """Return `at` and `handle` of the kernel, and the owner of the memory."""
        place = self.place
        match place.chain.start:
            case "ring":
                ring = self.target.empty(place.rows * place.row_bytes, "u1")
                self.loaded["link"][-(-place.rows // BLOCK), BLOCK](ring, place.row_bytes, place.rows, place.stride)
                return ring.address, 0, ring
            case "slots":
                slots = self.target.zeros(TURN * chains.SLOT_BYTES, "u1")
                return slots.address, 0, slots
            case "texel":
                following = ((np.arange(TEXELS) + TEXEL_STEP) % TEXELS).astype(np.int32)
                texture = self.target.texture(following, memory="linear")
                return 0, texture.handle, texture
        return 0, 0, None

    def _link_constants(self, loaded: LoadedModule) -> None:
        """Write the ring into the constant memory of a module; only a kernel of that module can read its address."""
        if loaded in self._linked:
            return
        self._linked.append(loaded)
        out = self.target.zeros(1, "u8")
        loaded["where"][1, 1](out)
        base, (address, nbytes) = int(out.numpy()[0]), self.target.symbol(loaded, "words")
        words = np.zeros(nbytes // 8, np.uint64)
        rows = np.arange(self.place.rows)
        words[rows * self.place.row_bytes // 8] = base + (rows + self.place.stride) % self.place.rows * self.place.row_bytes
        self.target.write(address, words)

    def _flush(self) -> None:
        """Empty the L2. Nothing to do on an emulated one: between launches it forgets what no timed launch brought into it."""
        if self.target.modelled:
            return
        if self._flusher is None:
            self._flusher = self.target.empty(FLUSH_BYTES, "u1")
        self.target.clear(self._flusher.address, self._flusher.nbytes)
        self.target.sync()
