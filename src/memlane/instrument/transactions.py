"""The PTX that counts what one access of a warp costs, by the rules of a chip: `memlane.chip.access` in the language of the device.

The lanes of the warp compare their addresses among themselves: `match.any` tells every lane which others have the same key, and the lowest
of them stands for all, so that a ballot of the lowest ones counts the distinct keys. As PTX demands natural alignment, two lanes touch
the same bytes or none in common, no lane touches two sectors, and an access wider than a bank fills a run of banks that can be counted
as one wide bank.

The fragments below share these names (without prefix): `active` mask of the lanes that access, `lane`, `below` the mask of lower lanes,
`address` 64 bits, `here` whether the address of this lane lies in the space that is counted, `inside` the mask of these lanes.
"""

from __future__ import annotations

from memlane.chip import BankRule, Chip
from memlane.errors import ChipError


def check_countable(chip: Chip) -> None:
    """ChipError for rules that these fragments cannot express."""
    if chip.coalescing.transactions != "sectors" or chip.banks.broadcast != "every word":
        raise ChipError(
            f"{chip.name} groups its accesses by rules that can only be counted on the emulator; use memlane.target('emulator:{chip.name}')"
        )


def sectors(r: str, chip: Chip, nbytes: int) -> str:
    """Leaves the distinct sectors in `sectors` and those that the distinct bytes would fill in `ideal_sectors`."""
    group = _shift(chip.coalescing.lanes(nbytes))
    return f"""\
.reg .b64 {r}sector;
.reg .b32 {r}part;
shr.u64 {r}sector, {r}address, {_shift(chip.sector_bytes)};
shl.b64 {r}sector, {r}sector, 5;
shr.u32 {r}part, {r}lane, {group};
{_tag(r, "sector", "part")}{_distinct(r, "sector", "sectors")}{_distinct(r, "address", "ideal_sectors")}\
mad.lo.u32 {r}ideal_sectors, {r}ideal_sectors, {nbytes}, {chip.sector_bytes - 1};
shr.u32 {r}ideal_sectors, {r}ideal_sectors, {_shift(chip.sector_bytes)};
"""


def wavefronts(r: str, chip: Chip, nbytes: int) -> str:
    """Leaves the passes through the banks in `wavefronts`, and the fewest for the same bytes in `ideal_wavefronts`."""
    rule = chip.banks
    lanes = rule.lanes(nbytes)
    passes = 32 // lanes
    merges = rule.merge == "neighbours" and passes > 1
    width = rule.banks * rule.bank_bytes * rule.row_words
    return f"""\
.reg .b64 {r}cell, {r}spot, {r}row;
.reg .b32 {r}pass, {r}size, {r}bank, {r}rows, {r}first_cells, {r}first_spots, {r}others, {r}degree, {r}members, {r}merged;
mov.u32 {r}pass, {_shift(lanes)};
mov.u32 {r}merged, 0;
{_merge(r) if merges else ""}mov.u32 {r}size, 1;
shl.b32 {r}size, {r}size, {r}pass;
shr.u32 {r}pass, {r}lane, {r}pass;
{_cells(r, rule, nbytes)}{_first(r, "cell", "first_cells")}{_first(r, "spot", "first_spots")}\
{_tag_bank(r)}match.any.sync.b32 {r}others, {r}bank, {r}active;
and.b32 {r}others, {r}others, {r}first_cells;
popc.b32 {r}rows, {r}others;
mov.u32 {r}wavefronts, 0;
mov.u32 {r}ideal_wavefronts, 0;
{"".join(_one_pass(r, number, nbytes, width) for number in range(passes))}\
{_unmerge(r, passes) if merges else ""}{_unless_empty(r)}"""


def _merge(r: str) -> str:
    """Two passes become one when every active lane has the address of lane^1, or every one that of lane^2: one more bit of shift.

    A neighbour that does not access agrees with any.
    """
    return f"""\
.reg .b32 {r}same, {r}agree;
.reg .pred {r}next_agree, {r}second_agree;
match.any.sync.b64 {r}same, {r}address, {r}active;
not.b32 {r}agree, {r}inside;
or.b32 {r}same, {r}same, {r}agree;
{_neighbours(r, 1, "next_agree")}{_neighbours(r, 2, "second_agree")}\
or.pred {r}next_agree, {r}next_agree, {r}second_agree;
selp.u32 {r}merged, 1, 0, {r}next_agree;
add.u32 {r}pass, {r}pass, {r}merged;
"""


def _neighbours(r: str, step: int, verdict: str) -> str:
    return f"""\
xor.b32 {r}agree, {r}lane, {step};
shr.u32 {r}agree, {r}same, {r}agree;
and.b32 {r}agree, {r}agree, 1;
@!{r}here mov.u32 {r}agree, 1;
setp.ne.u32 {r}{verdict}, {r}agree, 0;
vote.sync.all.pred {r}{verdict}, {r}{verdict}, {r}active;
"""


def _cells(r: str, rule: BankRule, nbytes: int) -> str:
    """`cell` = row and wide bank of the lane, `spot` = its address, both with the pass; `bank` = its wide bank."""
    wide_bytes = max(nbytes, rule.bank_bytes)
    wide_banks = rule.banks * rule.bank_bytes // wide_bytes
    row_shift = _shift(rule.banks * rule.bank_bytes * rule.row_words)
    return f"""\
shr.u64 {r}row, {r}address, {row_shift};
shl.b64 {r}row, {r}row, {_shift(wide_banks)};
shr.u64 {r}cell, {r}address, {_shift(wide_bytes)};
and.b64 {r}cell, {r}cell, {wide_banks - 1};
cvt.u32.u64 {r}bank, {r}cell;
or.b64 {r}cell, {r}cell, {r}row;
shl.b64 {r}cell, {r}cell, 5;
shl.b64 {r}spot, {r}address, 5;
{_tag(r, "cell", "pass")}{_tag(r, "spot", "pass")}"""


def _tag(r: str, key: str, part: str) -> str:
    """Put the number of the part of the warp into the lowest 5 bits of a key, so that lanes of different parts never match."""
    return f"""\
{{
.reg .b64 {r}wide;
cvt.u64.u32 {r}wide, {r}{part};
or.b64 {r}{key}, {r}{key}, {r}wide;
}}
"""


def _tag_bank(r: str) -> str:
    """The bank with its pass; lanes that are not counted match nobody who is, for their bank is out of range."""
    return f"""\
shl.b32 {r}bank, {r}bank, 5;
or.b32 {r}bank, {r}bank, {r}pass;
@!{r}here mov.u32 {r}bank, 0xffffffff;
"""


def _first(r: str, key: str, mask: str) -> str:
    """`mask` = the lanes inside that are the lowest of those with their key."""
    return f"""\
{{
.reg .b32 {r}peers;
.reg .pred {r}lowest;
match.any.sync.b64 {r}peers, {r}{key}, {r}active;
and.b32 {r}peers, {r}peers, {r}inside;
and.b32 {r}peers, {r}peers, {r}below;
setp.eq.and.u32 {r}lowest, {r}peers, 0, {r}here;
vote.sync.ballot.b32 {r}{mask}, {r}lowest, {r}active;
}}
"""


def _distinct(r: str, key: str, count: str) -> str:
    return f"{_first(r, key, count)}popc.b32 {r}{count}, {r}{count};\n"


def _one_pass(r: str, number: int, nbytes: int, width: int) -> str:
    """Add the fullest bank of one pass, and the fewest wavefronts for its distinct bytes; a pass without lanes costs one too."""
    return f"""\
{{
.reg .pred {r}mine;
setp.eq.and.u32 {r}mine, {r}pass, {number}, {r}here;
selp.b32 {r}degree, {r}rows, 1, {r}mine;
redux.sync.max.u32 {r}degree, {r}degree, {r}active;
add.u32 {r}wavefronts, {r}wavefronts, {r}degree;
vote.sync.ballot.b32 {r}members, {r}mine, {r}active;
and.b32 {r}members, {r}members, {r}first_spots;
popc.b32 {r}degree, {r}members;
mad.lo.u32 {r}degree, {r}degree, {nbytes}, {width - 1};
shr.u32 {r}degree, {r}degree, {_shift(width)};
max.u32 {r}degree, {r}degree, 1;
add.u32 {r}ideal_wavefronts, {r}ideal_wavefronts, {r}degree;
}}
"""


def _unmerge(r: str, passes: int) -> str:
    """Merged, only half of the passes exist; the others were counted as one each."""
    return f"""\
mul.lo.u32 {r}merged, {r}merged, {passes // 2};
sub.u32 {r}wavefronts, {r}wavefronts, {r}merged;
sub.u32 {r}ideal_wavefronts, {r}ideal_wavefronts, {r}merged;
"""


def _unless_empty(r: str) -> str:
    return f"""\
{{
.reg .pred {r}empty;
setp.eq.u32 {r}empty, {r}inside, 0;
selp.b32 {r}wavefronts, 0, {r}wavefronts, {r}empty;
selp.b32 {r}ideal_wavefronts, 0, {r}ideal_wavefronts, {r}empty;
}}
"""


def _shift(power: int) -> int:
    """log2 of a power of two."""
    assert power.bit_count() == 1, power
    return power.bit_length() - 1
