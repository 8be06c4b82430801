"""Compute the content of a picture of one access: what was served when, and its caption."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from memlane.chip import ACCESS_KINDS, LANES, BankRule, Chip, access, served
from memlane.number_format import percent, plural
from memlane.record import AccessExample, Trace, kernel_label

_PLACES = {"global": "global memory", "local": "local memory", "shared": "shared memory"}


@dataclass(frozen=True)
class Drawing:
    """One access by the rules of one chip."""

    place: str
    """File and line: `transpose.cu:18`."""
    op: str
    """PTX opcode in full."""
    code: str
    """Source line, without its indentation; empty where the text is not known."""
    origin: str
    """Text that identifies the access, its launch, and the chip whose rules apply."""
    chip: Chip
    rule: BankRule
    """Rule by which the chip's shared memory serves an access of this kind."""
    space: str
    active_mask: int
    addresses: tuple[int, ...]
    nbytes: int
    """Bytes per lane."""
    transactions: int
    """Number of sectors, or of wavefronts of shared memory."""
    ideal: int
    pieces: tuple[served.Piece, ...] = ()
    """Pieces that move, for global and local memory."""
    wavefronts: tuple[served.Wavefront, ...] = ()
    """Wavefronts, for shared memory."""
    array: str = ""
    """Array accessed, `gamma (argument 3)`; empty where not known."""

    @property
    def what(self) -> str:
        """The opcode and the array: `ld.global.f32 of gamma (argument 3)`."""
        return f"{self.op} of {self.array}" if self.array else self.op

    @property
    def active(self) -> tuple[int, ...]:
        """Numbers of the active lanes."""
        return tuple(lane for lane in range(LANES) if self.active_mask >> lane & 1)

    @cached_property
    def asked_bytes(self) -> int:
        """Number of distinct bytes that the lanes request."""
        groups: tuple[served.Piece | served.Wavefront, ...] = (*self.pieces, *self.wavefronts)
        touches = [one for group in groups for one in group.touches]
        return len({byte for one in touches for byte in range(one.address, one.address + one.nbytes)})

    @property
    def moved_bytes(self) -> int:
        """Number of bytes in the sectors that move."""
        return sum(piece.nbytes for piece in self.pieces)

    @property
    def caption(self) -> str:
        """Caption in one or two sentences."""
        return f"{self.headline} {self.detail}".rstrip()

    @property
    def headline(self) -> str:
        """Cost of the access, as `32 lanes x 4 B touch 32 sectors where 4 would do.`"""
        lanes = len(self.active)
        who = f"{plural(lanes, 'lane')} x {self.nbytes} B"
        verb, unit = ("take", "wavefront") if self.space == "shared" else ("touch", "sector")
        verb = verb + "s" * (verb == "take" and lanes == 1) + "es" * (verb == "touch" and lanes == 1)
        count = plural(self.transactions, unit)
        if self.transactions > self.ideal:
            return f"{who} {verb} {count} where {self.ideal} would do."
        return f"{who} {verb} {count}: the fewest possible."

    @property
    def detail(self) -> str:
        """Reason for that cost; may be empty."""
        if self.space != "shared":
            share = percent(self.asked_bytes / self.moved_bytes) if self.moved_bytes else "none"
            if self.asked_bytes == self.moved_bytes:
                return f"All {plural(self.moved_bytes, 'byte')} moved were requested."
            return f"{plural(self.moved_bytes, 'byte')} are moved, of which {self.asked_bytes:,} ({share}) were requested."
        if self.transactions <= self.ideal:
            if (self.rule.times or 1) > 1:
                return f"Accesses of this kind pass through the banks {self.rule.times} times."
            return "" if self.ideal == 1 else "No bank has to deliver two rows at once."
        bank, waves = min(self.full_banks, default=0), self.most_waves
        if self.rule.same_word == "one by one":
            return f"{plural(waves, 'lane')} conflict in bank {bank}, which serves them one by one."
        if (self.rule.times or 1) > 1:
            return (
                f"Accesses of this kind pass through the banks {self.rule.times} times; bank {bank} takes part in "
                f"{plural(waves, 'wavefront')}."
            )
        if waves <= 1:
            return ""
        if len(self.full_banks) > 1:
            return (
                f"{plural(len(self.full_banks), 'bank')}, the first of them bank {bank}, must each deliver "
                f"{plural(waves, 'different word')}."
            )
        return f"Only bank {bank} must deliver {plural(waves, 'different word')}; each takes a wavefront."

    @property
    def most_waves(self) -> int:
        """Number of wavefronts in which the busiest bank takes part."""
        return max(self._waves_of_banks.values(), default=0)

    @property
    def full_banks(self) -> tuple[int, ...]:
        """Banks that take part in `most_waves` wavefronts."""
        return tuple(sorted(bank for bank, waves in self._waves_of_banks.items() if waves == self.most_waves))

    @cached_property
    def _waves_of_banks(self) -> Counter[int]:
        rule = self.rule
        return Counter(
            bank
            for wave in self.wavefronts
            for bank in {
                byte // rule.bank_bytes % rule.banks for one in wave.touches for byte in (one.address, one.address + one.nbytes - 1)
            }
        )


def drawing_of(trace: Trace, example: AccessExample, chip: Chip) -> Drawing:
    """Return the picture of an access of a trace by the rules of `chip`, which may differ from the chip it ran on."""
    site, launch = trace.sites[example.site], trace.launches[example.launch]
    numbers = (chip, example.addresses, example.active_mask, example.nbytes)
    kind = ACCESS_KINDS[ACCESS_KINDS.index(example.access)]
    pieces: list[served.Piece] = []
    waves: list[served.Wavefront] = []
    if example.space == "shared":
        waves, ideal = served.wavefronts(*numbers, kind), access.ideal_wavefronts(*numbers, kind)
    elif example.space == "local":
        pieces, ideal = served.local_pieces(*numbers), access.ideal_local_sectors(chip, example.active_mask, example.nbytes)
    else:
        pieces, ideal = served.pieces(*numbers, kind), access.ideal_sectors(*numbers)
    who = f"block {example.block}, warp {example.warp}" + ("" if example.execution is None else f", execution {example.execution}")
    ran = "" if trace.chip == chip.name else f" (it ran on {trace.chip})"
    return Drawing(
        place=f"{PurePath(site.file).name}:{site.line}",
        op=site.op,
        code=source_line(trace, site.file, site.line),
        origin=f"{kernel_label(launch.kernel)}, launch {launch.id}, {who}; {_PLACES[example.space]} by the rules of {chip.name}{ran}",
        chip=chip,
        rule=chip.bank_rule(kind),
        space=example.space,
        active_mask=example.active_mask,
        addresses=example.addresses,
        nbytes=example.nbytes,
        transactions=len(waves) if example.space == "shared" else sum(piece.nbytes for piece in pieces) // chip.sector_bytes,
        ideal=ideal,
        pieces=tuple(pieces),
        wavefronts=tuple(waves),
        array=site.array_label,
    )


def source_line(trace: Trace, file: str, line: int) -> str:
    """Return the text of a source line, without its indentation; empty where it is not in the trace."""
    lines = trace.sources.get(file, "").splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""
