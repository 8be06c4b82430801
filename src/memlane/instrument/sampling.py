"""Choose which warps of a launch are traced, and which executions of a site: the user specifies it, the kernel evaluates it, the host
predicts it.

A sample draws warps, numbered through the launch as `block * warps per block + warp`, or whole blocks. Exactly one of each `every`
consecutive numbers is drawn, at a position hashed from the number of the group and the seed. So the sample is spread evenly, cannot alias
with the period of the kernel, and the host computes it without asking the device.

The sample is part of the kernel's code, because every untraced warp evaluates it; windows are a few words in constant memory, so changing a
window does not change the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from memlane.errors import BadLaunch, MemlaneError
from memlane.number_format import plural
from memlane.record import Sample, Span, span_text

Ranges = str | int | range | Sequence[int | range]
"""Numbers as a user writes them: `"0-3,17"` with both ends included, `5`, `range(0, 4)`, or a sequence of numbers and ranges."""

SPANS = 4
"""Maximum number of windows of one kind."""

WORDS_DTYPE = np.dtype(
    [
        *((name, "<u4", (SPANS, 2)) for name in ("blocks", "warps", "sms")),
        ("executions", "<u4", (2,)),
    ]
)
"""The windows in the kernel's constant memory: (first, length); unused ones have length 0."""

_MOST = (1 << 32) - 1
_GROUPS_AT_ONCE = 1 << 20
_SPREAD, _SHIFT, _MIX = 0x9E3779B1, 15, 0x85EBCA6B
"""Constants of the hash: a prime near 2^32 over the golden ratio (Knuth, The Art of Computer Programming, 6.4), which a shift and a second
factor (of MurmurHash3, public domain) keep from drawing lines through a grid. Only the upper bits of the result are used."""
_NUMBERS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")


@dataclass(frozen=True, slots=True)
class Chosen:
    """Part of a launch that a sampling selects."""

    in_window: int
    """Warps of the chosen blocks with the chosen numbers."""
    warps: int
    """Warps among these that are sampled; an upper bound if SMs are chosen as well."""
    extent: tuple[int, int]
    """The highest block and the highest warp index in its block among them, each plus one."""


@dataclass(frozen=True, slots=True)
class Draw:
    """A sample of one in each `every` consecutive numbers of warps or blocks, below 2^32."""

    every: int
    """Size of a group, at least 2."""
    seed: int
    """Seed of 32 bits."""
    whole_blocks: bool

    def among(self, low: int, high: int) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the drawn numbers from `low` to below `high`, ascending, in chunks."""
        groups = range(low // self.every, -(-high // self.every))
        for start in range(groups.start, groups.stop, _GROUPS_AT_ONCE):
            group = np.arange(start, min(start + _GROUPS_AT_ONCE, groups.stop), dtype=np.uint64)
            drawn = group.astype(np.int64) * self.every + self.place(group)
            yield drawn[(drawn >= low) & (drawn < high)]

    def place(self, group: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Return which number of each group is drawn, from 0."""
        hashed = _hashed(group ^ np.uint64(self.seed))
        return ((hashed * np.uint64(self.every)) >> np.uint64(32)).astype(np.int64)

    def divide(self, number: str, group: str, spare: str) -> str:
        """Return PTX that puts the group of the register `number` into `group`; it overwrites the register `spare`."""
        if self._shift:
            return f"shr.u32 {group}, {number}, {self._shift};\n"
        magic, first, second = _division(self.every)
        return f"""\
mul.hi.u32 {spare}, {number}, {magic:#x};
sub.u32 {group}, {number}, {spare};
shr.u32 {group}, {group}, {first};
add.u32 {group}, {group}, {spare};
shr.u32 {group}, {group}, {second};
"""

    @property
    def _shift(self) -> int:
        """Bits to shift right by to divide by `every`; 0 if it is not a power of two."""
        return self.every.bit_length() - 1 if self.every & (self.every - 1) == 0 else 0

    def decide(self, number: str, drawn: str, spare: tuple[str, str]) -> str:
        """Return PTX that sets the predicate `drawn` if the register `number` is drawn; it overwrites `number` and two spare registers.

        The divisions by constants are written out, because ptxas does not optimise them.
        """
        group, place = spare
        if self._shift:
            rest = f"and.b32 {number}, {number}, {self.every - 1:#x};\n"
            scale = f"shr.u32 {place}, {place}, {32 - self._shift};\n"
        else:
            rest = f"mul.lo.u32 {place}, {group}, {self.every};\nsub.u32 {number}, {number}, {place};\n"
            scale = f"mul.hi.u32 {place}, {place}, {self.every};\n"
        return f"""\
{self.divide(number, group, place)}{rest}xor.b32 {group}, {group}, {self.seed:#x};
mul.lo.u32 {group}, {group}, {_SPREAD:#x};
shr.u32 {place}, {group}, {_SHIFT};
xor.b32 {place}, {place}, {group};
mul.lo.u32 {place}, {place}, {_MIX:#x};
{scale}setp.eq.u32 {drawn}, {number}, {place};
"""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Which part of each launch to trace; every condition must hold, and an empty tuple of spans always holds.

    Raises MemlaneError for windows that overlap, are empty, or are too many.
    """

    blocks: tuple[Span, ...] = ()
    """Linear indices in the grid, x fastest; at most 4 half-open spans."""
    warps: tuple[Span, ...] = ()
    """Indices of warps in their block."""
    sms: tuple[Span, ...] = ()
    executions: Span | None = None
    """Executions of each site to record, counted from 0 by each thread; the count of the lowest active lane decides."""
    every: int = 1
    """Trace one in `every` warps, or blocks."""
    seed: int = 0
    """Seed of the sample; another seed draws others."""
    whole_blocks: bool = False
    """Draw blocks and trace all their warps. Warps of a block wait for each other at barriers and at its end, so warps drawn singly may
    delay most blocks, while whole blocks delay only themselves."""

    def __post_init__(self) -> None:
        for name, spans in (("block", self.blocks), ("warp", self.warps), ("SM", self.sms)):
            _check_spans(name, spans)
        if self.executions is not None:
            _check_spans("execution", (self.executions,))
        if not 1 <= self.every <= 1 << 31:
            raise MemlaneError(f"a sample takes 1 in N warps or blocks, with N from 1 to 2^31, got {self.every}")
        if not 0 <= self.seed < 1 << 64:
            raise MemlaneError(f"the seed of a sample is a number from 0 to below 2^64, got {self.seed}")
        if self.whole_blocks and self.every == 1:
            raise MemlaneError("whole blocks were requested without a sample; pass `every` to trace one block in N")

    @classmethod
    def of(
        cls,
        *,
        blocks: Ranges | None = None,
        warps: Ranges | None = None,
        sms: Ranges | None = None,
        executions: Ranges | None = None,
        every: int = 1,
        seed: int = 0,
        whole_blocks: bool = False,
    ) -> Sampling:
        """Return a sampling from the user's notation: `"0-3,17"` (both ends included), `5`, `range(0, 4)`, or a list of numbers and ranges;
        None selects all."""
        window = _spans("execution", executions)
        if len(window) > 1:
            raise MemlaneError(f"the executions to trace are one window, such as 10-20, got {span_text(window)}")
        spans = (_spans("block", blocks), _spans("warp", warps), _spans("SM", sms))
        return cls(*spans, window[0] if window else None, every, seed, whole_blocks)

    @property
    def windows(self) -> frozenset[str]:
        """Kinds of windows in use. The kernel reads their extents when it runs, so only a change of the kinds changes the kernel."""
        spans = {"blocks": self.blocks, "warps": self.warps, "sms": self.sms, "executions": self.executions}
        return frozenset(name for name, said in spans.items() if said)

    @property
    def draw(self) -> Draw | None:
        """The sample; None if there is none."""
        return Draw(self.every, _folded(self.seed), self.whole_blocks) if self.every > 1 else None

    @property
    def chooses_warps(self) -> bool:
        """Whether some warps are left out."""
        return self.every > 1 or bool(self.windows - {"executions"})

    @property
    def numbers_warps(self) -> bool:
        """Whether arithmetic alone gives each traced warp a distinct number below `places`; windows leave gaps in the numbers."""
        return not self.windows - {"executions"}

    def places(self, blocks: int, warps_per_block: int) -> int:
        """Return the size of the range of the numbers of the traced warps of such a launch (`number`)."""
        if self.draw is None:
            return blocks * warps_per_block
        if self.whole_blocks:
            return -(-blocks // self.every) * warps_per_block
        return -(-blocks * warps_per_block // self.every)

    def number(self, result: str, names: Mapping[str, str], spare: tuple[str, str]) -> str:
        """Return PTX that puts the number of a traced warp, below `places`, into the register `result`.

        `names`: the registers with the number of the `block` in the grid, of the `warp` in its block and in the `launch`, and with the
        `warps` per block; it overwrites two spare registers.
        """
        if self.draw is None:
            return f"mov.u32 {result}, {names['launch']};\n"
        if self.whole_blocks:
            group, place = spare
            return self.draw.divide(names["block"], group, place) + f"mad.lo.u32 {result}, {group}, {names['warps']}, {names['warp']};\n"
        return self.draw.divide(names["launch"], result, spare[0])

    def makes_the_same(self, other: Sampling) -> bool:
        """Return whether kernels decide by the same code."""
        return (self.windows, self.draw) == (other.windows, other.draw)

    def chosen(self, blocks: int, warps_per_block: int) -> Chosen:
        """Return what is selected of a launch of `blocks` blocks. Raises BadLaunch for a sampled launch of more than 2^32 warps."""
        total = blocks * warps_per_block
        if total > _MOST and (self.windows or self.draw):
            raise BadLaunch(
                f"a launch of {plural(total, 'warp')} is too large for a sample, which supports up to 2^32 warps; trace it without a sample"
            )
        of_blocks, of_warps = _clipped(self.blocks, blocks), _clipped(self.warps, warps_per_block)
        in_window = _length(of_blocks) * _length(of_warps)
        if self.draw is None or not in_window:
            return Chosen(in_window, in_window, (of_blocks[-1][1], of_warps[-1][1]) if in_window else (0, 0))
        count, extent, size = 0, (0, 0), 1 if self.whole_blocks else warps_per_block
        for first, stop in of_blocks:
            for drawn in self.draw.among(first * size, stop * size):
                block, warp = np.divmod(drawn, size)
                if self.whole_blocks:
                    found, last = _length(of_warps) * len(drawn), of_warps[-1][1] - 1
                else:
                    inside = np.logical_or.reduce([(warp >= low) & (warp < high) for low, high in of_warps])
                    block, found, last = block[inside], int(inside.sum()), int(warp[inside].max(initial=0))
                if found:
                    count += found
                    extent = max(extent[0], int(block.max()) + 1), max(extent[1], last + 1)
        return Chosen(in_window, count, extent)

    def words(self) -> npt.NDArray[np.uint8]:
        """Return the windows that the kernel reads, in `WORDS_DTYPE`, as bytes."""
        words = np.zeros(1, WORDS_DTYPE)
        for name, spans in (("blocks", self.blocks), ("warps", self.warps), ("sms", self.sms)):
            for number, (first, stop) in enumerate(spans):
                words[name][0, number] = first, stop - first
        if self.executions is not None:
            first, stop = self.executions
            words["executions"][0] = first, stop - first
        return words.view(np.uint8).reshape(-1)

    def sample(self, chosen: Chosen) -> Sample | None:
        """Return the sample for the record of a launch; None if the whole launch is traced."""
        if not self.windows and self.draw is None:
            return None
        windows = self.blocks, self.warps, self.sms, self.executions
        return Sample(chosen.in_window, chosen.warps, *windows, self.every, self.seed, self.whole_blocks)


# -- what a user writes ----------------------------------------------------------------------------------------------------------


def _spans(name: str, said: Ranges | None) -> tuple[Span, ...]:
    """Return the spans in ascending order, with adjacent ones joined. Raises MemlaneError if they overlap or if there are none."""
    if said is None:
        return ()
    spans = sorted(_written(name, said) if isinstance(said, str) else _listed(name, [said] if isinstance(said, int | range) else said))
    if not spans:
        raise MemlaneError(f"the list of {name}s to trace is empty; leave it out to trace all")
    _check_order(name, spans)
    joined: list[Span] = []
    for first, stop in spans:
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((first, stop))
    return tuple(joined)


def _written(name: str, text: str) -> Iterator[Span]:
    """Yield the spans of a text such as `0-3,17`."""
    for part in text.split(","):
        found = _NUMBERS.fullmatch(part.strip())
        if found is None:
            article = "an" if name == "SM" else "a"
            raise MemlaneError(f"{part.strip()!r} is not {article} {name} window; write numbers and ranges with both ends, such as 0-3,17")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise MemlaneError(f"the {name} window {part.strip()} is empty, because it ends before it begins; write {last}-{first}")
        yield first, last + 1


def _listed(name: str, parts: Sequence[int | range]) -> Iterator[Span]:
    """Yield the spans of numbers and ranges."""
    for part in parts:
        if isinstance(part, range) and (not part or part.step != 1):
            raise MemlaneError(f"the {name} window {part} is empty or leaves numbers out; give a range of consecutive numbers")
        yield (part.start, part.stop) if isinstance(part, range) else (int(part), int(part) + 1)


def _check_spans(name: str, spans: tuple[Span, ...]) -> None:
    """Raise MemlaneError for spans that are empty, out of range, overlapping or too many."""
    for first, stop in spans:
        if not 0 <= first < stop <= _MOST:
            raise MemlaneError(f"the {name} window from {first} to below {stop} is empty or not within 0 to 2^32 - 2")
    _check_order(name, spans)
    if len(spans) > SPANS:
        raise MemlaneError(
            f"a trace has at most {SPANS} windows of {name}s, got {len(spans)}: {span_text(spans)}; trace them one after another"
        )


def _check_order(name: str, spans: Sequence[Span]) -> None:
    """Raise MemlaneError for spans that overlap."""
    ordered = sorted(spans)
    for before, after in pairwise(ordered):
        if after[0] < before[1]:
            whole = span_text(((before[0], max(before[1], after[1])),))
            raise MemlaneError(f"the {name} windows {span_text((before,))} and {span_text((after,))} overlap; write {whole} instead")


# -- arithmetic ------------------------------------------------------------------------------------------------------------------


def _clipped(spans: Sequence[Span], count: int) -> list[Span]:
    """Return the spans clipped to numbers below `count`; all of these numbers if there are no spans."""
    return [(first, min(stop, count)) for first, stop in sorted(spans or [(0, count)]) if first < count]


def _length(spans: Sequence[Span]) -> int:
    """Return how many numbers the spans contain."""
    return sum(stop - first for first, stop in spans)


def _division(divisor: int) -> tuple[int, int, int]:
    """Return `magic` and two shifts: n // divisor == (((n - t) >> first) + t) >> second with t = n * magic >> 32, for every n of 32 bits.

    Granlund and Montgomery, Division by Invariant Integers using Multiplication, 1994, figure 4.1.
    """
    bits = (divisor - 1).bit_length()
    return ((1 << 32) * ((1 << bits) - divisor)) // divisor + 1, min(bits, 1), max(bits - 1, 0)


def _hashed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return hashes of 32 bits, as the PTX of `Draw.decide` computes them."""
    spread = (numbers * np.uint64(_SPREAD)) & np.uint64(_MOST)
    return ((spread ^ (spread >> np.uint64(_SHIFT))) * np.uint64(_MIX)) & np.uint64(_MOST)


def _folded(seed: int) -> int:
    """Return a hash of 32 bits of the seed, so that adjacent seeds are far apart."""
    low, high = (np.array([part], np.uint64) for part in (seed & _MOST, seed >> 32))
    return int(_hashed(_hashed(high) ^ low)[0])
