"""Emit the PTX that counts the transactions of one access of a warp: the rules of `memlane.chip.access` as device code.

The lanes of the warp compare their addresses: `match.any` gives every lane the mask of lanes with the same key, and the lowest of them
represents all, so that a ballot of the lowest lanes counts the distinct keys. As PTX demands natural alignment, two lanes touch the same
bytes or disjoint ones, no lane touches two sectors, and an access wider than a bank fills a run of banks that can be counted as one wide
bank.

The fragments below share these names (without prefix): `active` mask of the lanes that access, `lane`, `below` the mask of lower lanes,
`address` 64 bits, `here` whether the address of this lane lies in the space that is counted, `inside` the mask of these lanes.
"""

from __future__ import annotations

from memlane.chip import LANES, AccessKind, BankRule, Chip
from memlane.chip.copies import HALF, LINE, SECTOR
from memlane.errors import ChipError


def check_countable(chip: Chip) -> None:
    """Raise ChipError for rules that these fragments cannot express."""
    rules = [chip.banks, chip.store_banks or chip.banks, chip.atomic_banks or chip.banks]
    if chip.coalescing.transactions != "sectors" or any(rule.broadcast != "every word" or rule.wide != "at once" for rule in rules):
        raise ChipError(
            f"{chip.name} groups its accesses by rules that only the emulator can count; use memlane.target('emulator:{chip.name}')"
        )


def sectors(r: str, chip: Chip, nbytes: int, kind: AccessKind) -> str:
    """Return PTX that puts the sectors transferred into `sectors` and those that the distinct bytes would fill into `ideal_sectors`."""
    group, piece = _shift(chip.coalescing.lanes(nbytes)), chip.piece_bytes(kind)
    return f"""\
.reg .b64 {r}sector;
.reg .b32 {r}part;
shr.u64 {r}sector, {r}address, {_shift(piece)};
shl.b64 {r}sector, {r}sector, 5;
shr.u32 {r}part, {r}lane, {group};
{_tag(r, "sector", "part")}{_distinct(r, "sector", "sectors")}{_distinct(r, "address", "ideal_sectors")}\
shl.b32 {r}sectors, {r}sectors, {_shift(piece // chip.sector_bytes)};
mad.lo.u32 {r}ideal_sectors, {r}ideal_sectors, {nbytes}, {chip.sector_bytes - 1};
shr.u32 {r}ideal_sectors, {r}ideal_sectors, {_shift(chip.sector_bytes)};
"""


def local_sectors(r: str, chip: Chip, nbytes: int) -> str:
    """Return PTX that puts the sectors of local memory into `sectors` and those that the requested words would fill into `ideal_sectors`.

    `address` is the logical one, within the copy of the lane: the copies are interleaved by words of 4 bytes, so lanes share a sector if
    they use the same word and their numbers have the same upper bits.
    """
    width = max(4, nbytes)
    return f"""\
.reg .b64 {r}sector;
.reg .b32 {r}part;
shr.u64 {r}sector, {r}address, {_shift(width)};
shl.b64 {r}sector, {r}sector, 5;
shr.u32 {r}part, {r}lane, {_shift(chip.sector_bytes // 4)};
{_tag(r, "sector", "part")}{_distinct(r, "sector", "sectors")}\
mul.lo.u32 {r}sectors, {r}sectors, {width // 4};
popc.b32 {r}ideal_sectors, {r}inside;
mad.lo.u32 {r}ideal_sectors, {r}ideal_sectors, {width}, {chip.sector_bytes - 1};
shr.u32 {r}ideal_sectors, {r}ideal_sectors, {_shift(chip.sector_bytes)};
"""


def distinct_addresses(r: str) -> str:
    """Return PTX that puts the number of distinct addresses into `addresses`, and the most lanes at one of them into `most_lanes`.

    All active lanes count, whatever space their addresses lead to.
    """
    return f"""\
.reg .b32 {r}at_mine, {r}lower_at_mine, {r}addresses, {r}most_lanes;
.reg .pred {r}lowest_there;
match.any.sync.b64 {r}at_mine, {r}address, {r}active;
and.b32 {r}lower_at_mine, {r}at_mine, {r}below;
setp.eq.u32 {r}lowest_there, {r}lower_at_mine, 0;
vote.sync.ballot.b32 {r}addresses, {r}lowest_there, {r}active;
popc.b32 {r}addresses, {r}addresses;
popc.b32 {r}most_lanes, {r}at_mine;
redux.sync.max.u32 {r}most_lanes, {r}most_lanes, {r}active;
"""


def wavefronts(r: str, chip: Chip, nbytes: int, kind: AccessKind) -> str:
    """Return PTX that puts the passes through the banks into `wavefronts`, and the fewest for the same bytes into `ideal_wavefronts`."""
    rule = chip.bank_rule(kind)
    lanes = rule.lanes(nbytes)
    passes = LANES // lanes
    merges = rule.merge == "neighbours" and passes > 1
    width = rule.banks * rule.bank_bytes * rule.row_words
    times = rule.times or 1
    return f"""\
.reg .b64 {r}cell, {r}spot, {r}row;
.reg .b32 {r}pass, {r}bank, {r}rows, {r}first_cells, {r}first_spots, {r}others, {r}degree, {r}members;
{_merged_pairs(r, rule, nbytes) if merges else ""}\
shr.u32 {r}pass, {r}lane, {_shift(lanes)};
{f"@{r}merged and.b32 {r}pass, {r}pass, 0xfffffffe;{chr(10)}" if merges else ""}\
{_bank_rows(r, rule, nbytes)}\
mov.u32 {r}wavefronts, 0;
mov.u32 {r}ideal_wavefronts, 0;
{"".join(_one_pass(r, number, nbytes, width, rule.extra(nbytes)) for number in range(passes))}\
mul.lo.u32 {r}wavefronts, {r}wavefronts, {times};
mul.lo.u32 {r}ideal_wavefronts, {r}ideal_wavefronts, {times};
"""


def copies(r: str, nbytes: int, past_l1: bool) -> str:
    """Return PTX that puts the cost of an asynchronous copy into `wavefronts` and `ideal_wavefronts`, and past L1 its sectors into
    `sectors`.

    The rules are those of `memlane.chip.copies`. `source` and `target` are the addresses of the lane, 64 bits each; `here` says whether the
    lane reads, `inside` is the mask of these lanes, `whole` says whether it reads all that it copies.
    """
    if not past_l1:
        return f"{_through_l1(r, nbytes)}{_ideal_of_copies(r, 'active', nbytes)}"
    return f"""\
{_past_l1(r)}{{
.reg .b32 {r}past, {r}fewest, {r}all;
.reg .pred {r}all_read;
mov.u32 {r}past, {r}wavefronts;
mov.u32 {r}fewest, {r}ideal_wavefronts;
{_through_l1(r, nbytes)}{_ideal_of_copies(r, "active", nbytes)}\
vote.sync.ballot.b32 {r}all, {r}whole, {r}active;
setp.eq.u32 {r}all_read, {r}all, {r}active;
selp.b32 {r}wavefronts, 0, {r}wavefronts, {r}all_read;
selp.b32 {r}ideal_wavefronts, 0, {r}ideal_wavefronts, {r}all_read;
add.u32 {r}wavefronts, {r}wavefronts, {r}past;
add.u32 {r}ideal_wavefronts, {r}ideal_wavefronts, {r}fewest;
}}
"""


def _ideal_of_copies(r: str, lanes: str, nbytes: int) -> str:
    """Return PTX that puts the fewest wavefronts of the copies of `lanes` into `ideal_wavefronts`."""
    return f"""\
popc.b32 {r}ideal_wavefronts, {r}{lanes};
mad.lo.u32 {r}ideal_wavefronts, {r}ideal_wavefronts, {nbytes}, {LINE - 1};
shr.u32 {r}ideal_wavefronts, {r}ideal_wavefronts, {_shift(LINE)};
"""


def _through_l1(r: str, nbytes: int) -> str:
    """Return PTX that sums into `wavefronts`, per pass, the most lanes that conflict with one: they write its bank or read the bank that it
    reads."""
    banks = LINE // nbytes
    lanes_at = "".join(
        f"""\
shr.u64 {r}wide, {r}{address}, {_shift(nbytes)};
cvt.u32.u64 {r}{bank}, {r}wide;
and.b32 {r}{bank}, {r}{bank}, {banks - 1};
mad.lo.u32 {r}{bank}, {r}turn, {banks}, {r}{bank};
{f"@!{r}here mov.u32 {r}{bank}, 0xffffffff;{chr(10)}" if address == "source" else ""}\
match.any.sync.b32 {r}{bank}, {r}{bank}, {r}active;
{f"@!{r}here mov.u32 {r}{bank}, 0;{chr(10)}" if address == "source" else ""}"""
        for address, bank in (("source", "read"), ("target", "written"))
    )
    passes = "".join(
        f"""\
setp.eq.u32 {r}mine, {r}turn, {number};
selp.b32 {r}most, {r}met, 0, {r}mine;
redux.sync.max.u32 {r}most, {r}most, {r}active;
add.u32 {r}wavefronts, {r}wavefronts, {r}most;
"""
        for number in range(LANES // banks)
    )
    return f"""\
{{
.reg .b64 {r}wide;
.reg .b32 {r}turn, {r}read, {r}written, {r}met, {r}most;
.reg .pred {r}mine;
shr.u32 {r}turn, {r}lane, {_shift(banks)};
{lanes_at}or.b32 {r}met, {r}read, {r}written;
popc.b32 {r}met, {r}met;
mov.u32 {r}wavefronts, 0;
{passes}}}
"""


def _past_l1(r: str) -> str:
    """Return PTX for `sectors` (transfers), `wavefronts` (shared by these) and `ideal_wavefronts` (fewest). Lanes that take no part get
    unique keys."""
    return f"""\
{{
.reg .b64 {r}key, {r}own, {r}wide, {r}of_sector;
.reg .b32 {r}peers, {r}above, {r}upper, {r}count, {r}of_half, {r}to_half, {r}class, {r}copied;
.reg .pred {r}kept, {r}is_upper, {r}paired, {r}two, {r}second, {r}again, {r}lowest;
cvt.u64.u32 {r}own, {r}lane;
or.b64 {r}own, {r}own, 0xffffffffffffff00;
mov.u32 {r}above, %lanemask_gt;
selp.b64 {r}key, {r}target, {r}own, {r}here;
match.any.sync.b64 {r}peers, {r}key, {r}active;
and.b32 {r}peers, {r}peers, {r}above;
setp.eq.and.u32 {r}kept, {r}peers, 0, {r}here;
vote.sync.ballot.b32 {r}copied, {r}kept, {r}active;
{_ideal_of_copies(r, "copied", HALF)}\
shr.u64 {r}of_sector, {r}source, {_shift(SECTOR)};
shr.u64 {r}wide, {r}target, {_shift(SECTOR)};
and.b64 {r}wide, {r}wide, 0xfffff;
shl.b64 {r}key, {r}of_sector, 20;
or.b64 {r}key, {r}key, {r}wide;
selp.b64 {r}key, {r}key, {r}own, {r}kept;
match.any.sync.b64 {r}peers, {r}key, {r}active;
shr.u64 {r}wide, {r}source, {_shift(HALF)};
cvt.u32.u64 {r}of_half, {r}wide;
and.b32 {r}of_half, {r}of_half, 1;
shr.u64 {r}wide, {r}target, {_shift(HALF)};
cvt.u32.u64 {r}to_half, {r}wide;
and.b32 {r}to_half, {r}to_half, 1;
setp.ne.u32 {r}is_upper, {r}of_half, 0;
vote.sync.ballot.b32 {r}upper, {r}is_upper, {r}active;
and.b32 {r}upper, {r}upper, {r}peers;
popc.b32 {r}upper, {r}upper;
popc.b32 {r}count, {r}peers;
setp.eq.and.u32 {r}two, {r}count, 2, {r}kept;
setp.eq.and.u32 {r}paired, {r}upper, 1, {r}two;
setp.ne.and.u32 {r}second, {r}to_half, 0, {r}paired;
not.pred {r}second, {r}second;
and.pred {r}kept, {r}kept, {r}second;
vote.sync.ballot.b32 {r}sectors, {r}kept, {r}active;
popc.b32 {r}sectors, {r}sectors;
shl.b32 {r}class, {r}of_half, 1;
or.b32 {r}class, {r}class, {r}to_half;
xor.b32 {r}count, {r}of_half, {r}to_half;
or.b32 {r}count, {r}count, 4;
selp.b32 {r}class, {r}count, {r}class, {r}paired;
xor.b64 {r}wide, {r}source, {r}target;
shr.u64 {r}wide, {r}wide, {_shift(SECTOR)};
cvt.u32.u64 {r}count, {r}wide;
and.b32 {r}count, {r}count, 1;
shl.b32 {r}class, {r}class, 1;
or.b32 {r}class, {r}class, {r}count;
shr.u64 {r}wide, {r}target, {_shift(LINE)};
and.b64 {r}wide, {r}wide, 0xffff;
shr.u64 {r}key, {r}source, {_shift(LINE)};
shl.b64 {r}key, {r}key, 16;
or.b64 {r}key, {r}key, {r}wide;
shl.b64 {r}key, {r}key, 4;
cvt.u64.u32 {r}wide, {r}class;
or.b64 {r}key, {r}key, {r}wide;
and.b64 {r}of_sector, {r}of_sector, 3;
shl.b64 {r}wide, {r}key, 2;
or.b64 {r}wide, {r}wide, {r}of_sector;
selp.b64 {r}wide, {r}wide, {r}own, {r}kept;
match.any.sync.b64 {r}peers, {r}wide, {r}active;
and.b32 {r}peers, {r}peers, {r}below;
setp.ne.u32 {r}again, {r}peers, 0;
selp.b64 {r}wide, 1, 0, {r}again;
shl.b64 {r}key, {r}key, 1;
or.b64 {r}key, {r}key, {r}wide;
selp.b64 {r}key, {r}key, {r}own, {r}kept;
match.any.sync.b64 {r}peers, {r}key, {r}active;
and.b32 {r}peers, {r}peers, {r}below;
setp.eq.and.u32 {r}lowest, {r}peers, 0, {r}kept;
vote.sync.ballot.b32 {r}wavefronts, {r}lowest, {r}active;
popc.b32 {r}wavefronts, {r}wavefronts;
}}
"""


def _bank_rows(r: str, rule: BankRule, nbytes: int) -> str:
    """Return PTX that puts the wavefronts of the lane's bank in its pass into `rows`, and the first lanes at each address into
    `first_spots`."""
    counted = "first_cells" if rule.same_word == "together" else "inside"
    return f"""\
{_cells(r, rule, nbytes)}{_first(r, "cell", "first_cells")}{_first(r, "spot", "first_spots")}\
{_tag_bank(r)}match.any.sync.b32 {r}others, {r}bank, {r}active;
and.b32 {r}others, {r}others, {r}{counted};
popc.b32 {r}rows, {r}others;
"""


def _merged_pairs(r: str, rule: BankRule, nbytes: int) -> str:
    """Return PTX that sets `merged` in the lanes of two passes that become one.

    Every active lane of the pair has the address of lane^1, or every active lane of the warp that of lane^2, and the pair has no conflict.
    A neighbour that does not access agrees with any lane.
    """
    pair = 2 * rule.lanes(nbytes)
    return f"""\
.reg .b32 {r}same, {r}agree, {r}apart, {r}pair, {r}first_lane, {r}crowded;
.reg .pred {r}merged, {r}second_agrees;
shr.u32 {r}pass, {r}lane, {_shift(pair)};
{_bank_rows(r, rule, nbytes)}\
setp.gt.and.u32 {r}merged, {r}rows, 1, {r}here;
vote.sync.ballot.b32 {r}crowded, {r}merged, {r}active;
match.any.sync.b64 {r}same, {r}address, {r}active;
not.b32 {r}agree, {r}inside;
or.b32 {r}same, {r}same, {r}agree;
{_apart(r, 2)}setp.eq.u32 {r}second_agrees, {r}apart, 0;
{_apart(r, 1)}and.b32 {r}first_lane, {r}lane, {32 - pair};
shl.b32 {r}pair, {(1 << pair) - 1 if pair < 32 else 0xFFFFFFFF}, {r}first_lane;
and.b32 {r}apart, {r}apart, {r}pair;
and.b32 {r}crowded, {r}crowded, {r}pair;
setp.eq.or.u32 {r}merged, {r}apart, 0, {r}second_agrees;
setp.eq.and.u32 {r}merged, {r}crowded, 0, {r}merged;
"""


def _apart(r: str, step: int) -> str:
    """Return PTX that puts the lanes inside whose address differs from that of lane^step into `apart`."""
    return f"""\
xor.b32 {r}agree, {r}lane, {step};
shr.u32 {r}agree, {r}same, {r}agree;
and.b32 {r}agree, {r}agree, 1;
setp.eq.and.u32 {r}merged, {r}agree, 0, {r}here;
vote.sync.ballot.b32 {r}apart, {r}merged, {r}active;
"""


def _cells(r: str, rule: BankRule, nbytes: int) -> str:
    """Return PTX for `cell` = row and wide bank of the lane, `spot` = its address, both tagged with the pass, and `bank` = its wide
    bank."""
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
    """Return PTX that puts the number of the part of the warp into the lowest 5 bits of a key, so that lanes of different parts never
    match."""
    return f"""\
{{
.reg .b64 {r}wide;
cvt.u64.u32 {r}wide, {r}{part};
or.b64 {r}{key}, {r}{key}, {r}wide;
}}
"""


def _tag_bank(r: str) -> str:
    """Return PTX that tags the bank with its pass; lanes that are not counted get a bank out of range, which matches no counted lane."""
    return f"""\
shl.b32 {r}bank, {r}bank, 5;
or.b32 {r}bank, {r}bank, {r}pass;
@!{r}here mov.u32 {r}bank, 0xffffffff;
"""


def _first(r: str, key: str, mask: str) -> str:
    """Return PTX for `mask` = the lanes inside that are the lowest with their key."""
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
    """Return PTX for `count` = the number of distinct keys among the lanes inside."""
    return f"{_first(r, key, count)}popc.b32 {r}{count}, {r}{count};\n"


def _one_pass(r: str, number: int, nbytes: int, width: int, extra: int) -> str:
    """Return PTX that adds the fullest bank of one pass, and the fewest wavefronts for its distinct bytes; nothing for a pass without
    lanes."""
    return f"""\
{{
.reg .pred {r}mine, {r}empty;
setp.eq.and.u32 {r}mine, {r}pass, {number}, {r}here;
selp.b32 {r}degree, {r}rows, 0, {r}mine;
redux.sync.max.u32 {r}degree, {r}degree, {r}active;
add.u32 {r}wavefronts, {r}wavefronts, {r}degree;
setp.eq.u32 {r}empty, {r}degree, 0;
@!{r}empty add.u32 {r}wavefronts, {r}wavefronts, {extra};
vote.sync.ballot.b32 {r}members, {r}mine, {r}active;
and.b32 {r}members, {r}members, {r}first_spots;
popc.b32 {r}degree, {r}members;
mad.lo.u32 {r}degree, {r}degree, {nbytes}, {width - 1};
shr.u32 {r}degree, {r}degree, {_shift(width)};
add.u32 {r}ideal_wavefronts, {r}ideal_wavefronts, {r}degree;
}}
"""


def _shift(power: int) -> int:
    """Return log2 of a power of two."""
    assert power.bit_count() == 1, power
    return power.bit_length() - 1
