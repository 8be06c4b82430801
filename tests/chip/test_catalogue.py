"""Chip files: what ships, what a user adds, what a wrong file is told, and a GPU that has no file."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from memlane import chip
from memlane.chip import AccessKind, Chip, catalogue
from memlane.chip.floors import Traffic
from memlane.chip.model import KINDS
from memlane.chip.rates import Latency
from memlane.errors import ChipError

SHIPPED = Path(chip.__file__).parent / "data"
H200 = (SHIPPED / "h200.toml").read_text(encoding="utf-8")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the user's own chips."""
    monkeypatch.setenv("MEMLANE_CHIPS", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", sorted(path.stem for path in SHIPPED.glob("*.toml")))
def test_every_shipped_chip_is_sound(name: str, mine: Path) -> None:
    one = chip.load(name)
    assert one.name == name
    assert one.calibrated
    assert {fact.kind for fact in one.facts.values()} <= set(KINDS)
    # What loads are counted by, and on living chips where the time of an access goes, must never be a guess.
    counted_by = {name for name in one.facts if name.partition(".")[0] in ("banks", "coalescing")}
    assert not (counted_by - {"coalescing.lines_per_wavefront", "banks.lanes_16"}) & set(one.assumed)
    assert one.latency.shared < one.latency.l1 < one.latency.l2 < one.latency.dram
    assert one.max_shared_bytes + one.reserved_shared_bytes <= one.shared_bytes_per_sm
    assert one.max_threads_per_sm % one.warp_size == 0
    for rule in (one.banks, one.store_banks, one.atomic_banks):
        assert rule is not None
        for lanes in (rule.lanes_4, rule.lanes_8, rule.lanes_16):
            assert one.warp_size % lanes == 0
    if one.compute_capability >= (5, 0):
        assert not {"latency.shared", "latency.l1", "latency.l2", "latency.dram", "sm_count", "l2_bytes"} & set(one.assumed)
        assert one.shared_bytes_per_sm < one.l1_bytes


def test_numbers_of_the_b200_follow_from_published_ones(mine: Path) -> None:
    b200, h200, h100 = chip.load("b200"), chip.load("h200"), chip.load("h100")
    assert b200.dram_gb_per_s == pytest.approx(2 * 3996e6 * 7680 / 8 / 1e9, rel=1e-3)
    assert 2 * 128 * b200.sm_count * b200.clock_mhz * 1e6 == pytest.approx(75e12, rel=0.01)
    assert b200.latency.dram - h100.latency.dram == pytest.approx(853.4 - 697.5, abs=0.5)
    assert b200.latency.l2 - h100.latency.l2 == pytest.approx(294.2 - 290.9, abs=0.5)
    assert b200.l2_kept_bytes
    assert h200.l2_kept_bytes
    assert b200.l2_kept_bytes / b200.l2_bytes == pytest.approx(h200.l2_kept_bytes / h200.l2_bytes, rel=2e-3)
    for name in ("l2_read", "l2_read_lines", "l2_write", "l2_write_lines", "l2_atomic", "dram_mixed", "dram_read", "dram_write_alone"):
        own, other = getattr(b200.bandwidth, name), getattr(h200.bandwidth, name)
        assert own / b200.dram_gb_per_s == pytest.approx(other / h200.dram_gb_per_s, rel=5e-3), name
    assert not {name for name, fact in b200.facts.items() if fact.kind == "measured"}


def test_the_page_of_chips_names_them_all() -> None:
    page = (Path(__file__).parents[2] / "docs" / "chips.md").read_text(encoding="utf-8")
    assert [path.stem for path in SHIPPED.glob("*.toml") if f"`{path.stem}`" not in page] == []


def test_a_number_says_where_it_comes_from() -> None:
    fact = chip.load("h200").fact("latency.l2")
    assert (fact.value, fact.unit, fact.kind) == (283.0, "cycles", "measured")
    assert "pointer chase" in str(fact)
    assert chip.load("h200").fact("l2_bytes").value == chip.load("h200").l2_bytes


def test_an_unknown_fact_names_those_that_exist() -> None:
    with pytest.raises(ChipError, match=r"h200 has no fact named 'latency\.l9'; it has .*latency\.l2"):
        chip.load("h200").fact("latency.l9")


def test_an_unknown_chip_names_those_that_exist() -> None:
    with pytest.raises(ChipError, match=r"unknown chip 'h2000'; known chips: a100, b200, gtx480, gtx680, gtx680-8byte, h100, h200, m2050"):
        chip.load("h2000")


@pytest.mark.parametrize("name", ["../h200", "", "/etc/passwd"])
def test_a_name_is_no_path(name: str) -> None:
    with pytest.raises(ChipError, match="unknown chip"):
        chip.load(name)


def test_issue_intervals_follow_from_throughput() -> None:
    h200 = chip.load("h200")
    assert [h200.issue_interval(pipe) for pipe in ("fma", "alu", "fp64", "sfu")] == [1, 2, 2, 8]


def test_a_user_file_is_read_before_ours(mine: Path) -> None:
    (mine / "h200.toml").write_text(H200.replace("sm_count                 = { value = 132", "sm_count = { value = 131"))
    (mine / "h300.toml").write_text(H200)
    assert chip.load("h200").sm_count == 131
    assert chip.load("h300").name == "h300"
    assert "h300" in chip.names()
    assert "a100" in chip.names()


def test_an_edited_file_is_read_again(mine: Path) -> None:
    path = mine / "x.toml"
    path.write_text(H200)
    first = chip.load("x")
    assert chip.load("x") is first
    path.write_text(H200.replace("value = 283,", "value = 290,"))
    path.touch()
    assert chip.load("x").latency.l2 == 290


def test_the_home_directory_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMLANE_CHIPS", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert chip.directories()[0] == tmp_path / ".config" / "memlane" / "chips"


WARP = "warp_size                = { value = 32, unit"
L2 = 'l2            = { value = 283, unit = "cycles",   source = "chase" }'
BROKEN = [
    (L2, "", r"\[latency\] has no entry 'l2'"),
    (L2, L2.replace("l2", "l5", 1), r"\[latency\] has an unknown entry 'l5'; it may have shared, l1, l2"),
    (L2, L2.replace("cycles", "ns"), r"\[latency\] l2: the unit is 'ns', but must be 'cycles'"),
    (L2, L2.replace("283", "-283"), r"\[latency\] l2 must be a positive number, not -283"),
    (L2, L2.replace("283", '"283"'), r"\[latency\] l2 must be a positive number, not '283'"),
    (L2, L2.replace("283", "true"), r"\[latency\] l2 must be a positive number, not True"),
    (L2, 'l2 = { unit = "cycles", source = "chase" }', r'\[latency\] l2 must be \{ value = ..., unit = "cycles", source = "..." \}'),
    (L2, "l2 = 283", r'\[latency\] l2 must be \{ value = ..., unit = "cycles", source = "..." \}'),
    (L2, L2.replace(',   source = "chase"', ""), r"\[latency\] l2: the source '' must be a name from \[sources\]"),
    (
        L2,
        L2.replace("chase", "hearsay"),
        r"\[latency\] l2: the source 'hearsay' must .* begin with one of measured:, cited:, derived:, assumed:",
    ),
    (L2, L2.replace("source", "sauce"), r"\[latency\] l2 has an unknown key 'sauce'"),
    ('value = "neighbours"', 'value = "friends"', r"\[banks\] merge must be one of 'neighbours', 'never', not 'friends'"),
    (L2, L2.replace("283", "0"), r"\[latency\] l2 must be a positive number, not 0"),
    (L2, L2.replace("283", f"{(1 << 50) + 1}"), r"l2 must be at most 1,125,899,906,842,624, not 1125899906842625"),
    (L2, L2.replace("283", "0.0000009"), r"\[latency\] l2 must be at least 1e-06, not 9e-07"),
    (
        "sm_count                 = { value = 132",
        "sm_count                 = { value = 0",
        r"\[chip\] sm_count must be a positive integer, not 0",
    ),
    (
        "value = [1024, 1024, 64]",
        "value = [1024, 1024, 0]",
        r"\[chip\] max_block_dim must be three positive integers, not \[1024, 1024, 0\]",
    ),
    (
        "lanes_4    = { value = 32",
        "lanes_4    = { value = 24",
        r"\[banks\] lanes_4 must divide 32, the number of lanes of a warp; 24 does not",
    ),
    (
        "value = 2048,                         ",
        "value = 31, ",
        r"\[chip\] max_threads_per_sm must be at least 32, the threads of a warp, not 31",
    ),
    ("line_bytes               = { value = 128", "line_bytes = { value = 48", r"\[chip\] line_bytes must be a multiple of the 32 bytes"),
    ("bank_bytes = { value = 4", "bank_bytes = { value = 3", r"\[banks\] bank_bytes must be one of 1, 2, 4, 8, 16, not 3"),
    ("banks      = { value = 32, ", "banks      = { value = 1, ", r"\[banks\] banks times bank_bytes must be a multiple of 16 bytes"),
    ("compute_capability = [9, 0]", "compute_capability = [9, 0, 0]", r"compute_capability must be two integers, as in \[9, 0\]"),
    ("compute_capability = [9, 0]", "compute_capability = [9, 100]", r"compute_capability must be two integers, as in \[9, 0\]"),
    ("value = [1024, 1024, 64]", "value = [1024, 1024]", r"\[chip\] max_block_dim must be three positive integers"),
    (WARP, WARP.replace("32,", "64,"), r"\[chip\] warp_size must be one of 32, not 64"),
    ("value = 132", "value = 132.5", r"\[chip\] sm_count must be a positive integer, not 132.5"),
    ("compute_capability = [9, 0]", "compute_capability = 9.0", r"compute_capability must be two integers, as in \[9, 0\]"),
    ('product = "NVIDIA H200"', "product = 200", "product must be a string"),
    ('product = "NVIDIA H200"', "", "'product' is missing"),
    ("[banks]", "[blanks]", "unknown table or key 'blanks'; a chip file has product, compute_capability"),
    ("[chip]", "[chip", r"cannot read the chip file .*line"),
]


ODD = [
    (L2, L2.replace("283", f"{1 << 50}"), lambda one: one.latency.l2 == 1 << 50),
    (L2, L2.replace("283", "0.000001"), lambda one: one.latency.l2 == 1e-6),
    ("value = 2048,                         ", "value = 32, ", lambda one: one.max_threads_per_sm == 32),
    ("l1_bytes                 = { value = 262144", "l1_bytes = { value = 0", lambda one: one.l1_bytes == 0),
    ("compute_capability = [9, 0]", "compute_capability = [99, 0]", lambda one: one.compute_capability == (99, 0)),
    ("banks      = { value = 32, ", "banks      = { value = 4, ", lambda one: one.banks.banks == 4),
]


@pytest.mark.parametrize(("old", "new", "holds"), ODD)
def test_what_is_just_allowed(tmp_path: Path, old: str, new: str, holds: Callable[[Chip], bool]) -> None:
    assert old in H200
    path = tmp_path / "odd.toml"
    path.write_text(H200.replace(old, new, 1))
    assert holds(chip.from_file(path))


@pytest.mark.parametrize(("old", "new", "message"), BROKEN)
def test_a_wrong_file_is_told_what_is_wrong(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in H200
    path = tmp_path / "broken.toml"
    path.write_text(H200.replace(old, new, 1))
    with pytest.raises(ChipError, match=message) as caught:
        chip.from_file(path)
    assert "broken.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "mark"),
    [
        (L2, L2.replace("283", "-283"), "l2            = { value = -283"),
        (L2, L2.replace("l2", "l5", 1), "l5            ="),
        (L2, "", "[latency]"),
        ("value = 132", "value = 132.5", "sm_count"),
    ],
)
def test_the_line_is_named(tmp_path: Path, old: str, new: str, mark: str) -> None:
    path = tmp_path / "broken.toml"
    path.write_text(H200.replace(old, new, 1))
    line = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if text.startswith(mark))
    with pytest.raises(ChipError, match=rf"broken\.toml:{line}: \["):
        chip.from_file(path)


def test_the_line_is_that_of_the_table(tmp_path: Path) -> None:
    """`lanes_16` stands in two tables."""
    begin = H200.index("[coalescing]")
    text = H200[:begin] + re.sub(r"(lanes_16 *= \{ value = )32", r"\g<1>24", H200[begin:])
    (tmp_path / "two.toml").write_text(text)
    line = 1 + next(number for number, one in enumerate(text.splitlines()) if one.startswith("lanes_16") and "24" in one)
    with pytest.raises(ChipError, match=rf"two\.toml:{line}: \[coalescing\] lanes_16 must divide 32, the number of lanes"):
        chip.from_file(tmp_path / "two.toml")


def test_a_chip_that_is_like_another(mine: Path) -> None:
    assert (chip.load("m2050").sm_count, chip.load("m2050").banks) == (14, chip.load("gtx480").banks)
    assert chip.load("m2050").fact("clock_mhz").source.startswith("NVIDIA Tesla M2050")
    (mine / "h200.toml").write_text(H200)
    (mine / "mine.toml").write_text('like = "h200"\n[latency]\nl2 = { value = 250, unit = "cycles", source = "measured: here" }\n')
    assert (chip.load("mine").latency.l2, chip.load("mine").latency.l1) == (250, chip.load("h200").latency.l1)
    for name in ("h201", "other"):
        (mine / "other.toml").write_text(f'like = "{name}"\n')
        with pytest.raises(ChipError, match=rf"other\.toml: like names {name}\.toml, but there is no such file in its directory"):
            chip.load("other")


def test_tables_of_differences_keep_the_rest(mine: Path) -> None:
    (mine / "x.toml").write_text(H200 + "\n")
    one = chip.load("x")
    assert (one.bank_rule("store").merge, one.bank_rule("store").lanes_16) == ("never", one.banks.lanes_16)
    assert (one.bank_rule("compare_swap").same_word, one.bank_rule("compare_swap").times) == ("one by one", 2)
    assert one.bank_rule("increment") == one.banks
    assert one.fact("store_banks.merge").kind == "measured"
    assert "store_banks.lanes_4" not in one.facts
    bare = H200[: H200.index("[store_banks]")] + H200[H200.index("[coalescing]") :]
    (mine / "bare.toml").write_text(bare)
    kinds: tuple[AccessKind, ...] = get_args(AccessKind)
    assert {chip.load("bare").bank_rule(kind) for kind in kinds} == {one.banks}


def test_a_file_needs_no_sources_where_each_number_names_its_own(tmp_path: Path) -> None:
    """Such as `derived: ...`: the table gives short names only."""
    begin = H200.index("[sources]")
    end = H200.index("\n[", begin + 1)
    named = re.findall(r'^(\w+) *= *"(.*)"$', H200[begin:end], re.MULTILINE)
    text = H200[:begin] + H200[end:]
    for short, whole in named:
        text = text.replace(f'source = "{short}"', f'source = "{whole}"')
    (tmp_path / "bare.toml").write_text(text)
    assert chip.from_file(tmp_path / "bare.toml").latency == chip.load("h200").latency


def test_chips_of_history_take_the_launches_of_today() -> None:
    old, limits = chip.load("s1070"), chip.load("s1070").launch_limits
    assert (old.max_threads_per_block, limits.max_threads_per_block, limits.max_shared_bytes) == (512, 1024, 49152)
    assert (limits.max_grid_dim[2], limits.max_block_dim) == (65535, (1024, 1024, 64))
    assert limits.banks == old.banks
    assert chip.load("h200").launch_limits is chip.load("h200")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ChipError, match=r"cannot read the chip file .*none\.toml: No such file"):
        chip.from_file(tmp_path / "none.toml")


ATTRIBUTES = {"multiprocessor_count": 84, "clock_rate": 1695000, "l2_cache_size": 6291456, "max_threads_per_multiprocessor": 1536}


class TestUnknownGpu:
    def test_takes_its_attributes_and_the_nearest_rules(self, mine: Path) -> None:
        one = chip.nearest((8, 6), ATTRIBUTES, "NVIDIA A40")
        ada = chip.load("rtx4090")
        assert (one.name, one.product, one.calibrated) == ("sm_86", "NVIDIA A40", False)
        assert (one.sm_count, one.clock_mhz, one.l2_bytes, one.max_warps_per_sm) == (84, 1695, 6291456, 48)
        assert (one.banks, one.latency) == (ada.banks, ada.latency)

    def test_says_what_it_borrowed(self, mine: Path) -> None:
        one = chip.nearest((8, 6), ATTRIBUTES)
        assert one.fact("sm_count").kind == "measured"
        assert one.fact("latency.l2").source.startswith("as on rtx4090 (cited:")
        assert "latency.l2" in one.assumed
        assert one.copy_gb_per_s is None

    def test_extents_come_as_three_attributes(self, mine: Path) -> None:
        one = chip.nearest((9, 0), {"max_block_dim_x": 512, "max_block_dim_y": 256, "max_block_dim_z": 32})
        assert one.max_block_dim == (512, 256, 32)
        assert one.fact("max_block_dim").value == (512, 256, 32)

    @pytest.mark.parametrize(
        ("capability", "relative"), [((7, 5), "v100"), ((8, 7), "rtx4090"), ((10, 3), "b200"), ((6, 1), "v100"), ((5, 2), "v100")]
    )
    def test_the_nearest_generation_with_the_fewest_assumptions(self, mine: Path, capability: tuple[int, int], relative: str) -> None:
        source = chip.nearest(capability, {}).fact("latency.l2").source
        assert source.startswith(f"as on {relative} ")

    def test_a_known_product_is_no_stranger(self, mine: Path) -> None:
        one: Chip = chip.nearest((9, 0), ATTRIBUTES, "NVIDIA H200")
        assert one is chip.load("h200")


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (
            'l2_read = { value = 141, unit = "GB/s", source = "rates" }',
            "[bandwidth] l2_read: the unit is 'GB/s', but must be 'sectors/clock'",
        ),
        ('l2_read = { value = 1e-9, unit = "sectors/clock", source = "rates" }', "[bandwidth] l2_read must be at least 1e-06, not 1e-09"),
        ('l2_read = { value = 0, unit = "sectors/clock", source = "rates" }', "[bandwidth] l2_read must be a positive number, not 0"),
        ('l2_read = { value = 141, unit = "sectors/clock", source = "a guess" }', "[bandwidth] l2_read: the source 'a guess' must"),
        (
            'l3_read = { value = 141, unit = "sectors/clock", source = "rates" }',
            "[bandwidth] has an unknown entry 'l3_read'; it may have l2_read,",
        ),
    ],
)
def test_a_bad_bandwidth_is_named(entry: str, told: str, mine: Path) -> None:
    (mine / "odd.toml").write_text(f'like = "h200"\n[bandwidth]\n{entry}\n', encoding="utf-8")
    with pytest.raises(ChipError) as error:
        chip.load("odd")
    assert f": {told}" in str(error.value)


def test_bandwidths_may_be_missing_and_come_with_the_whole_chip() -> None:
    assert chip.load("s1070").bandwidth == chip.Bandwidth()
    h200, m2050 = chip.load("h200"), chip.load("m2050")
    assert m2050.bandwidth == chip.load("gtx480").bandwidth
    other = chip.nearest((9, 0), {"multiprocessor_count": 20})
    assert (other.bandwidth.l2_read, other.bandwidth.line_atomic, other.bandwidth.dram_read) == (None, None, None)
    assert other.bandwidth.sm_read == h200.bandwidth.sm_read
    assert not {name for name in other.facts if name.startswith("bandwidth.l2_")}
    assert h200.fact("bandwidth.l2_read").kind == "measured"


def test_a_way_that_is_not_known_to_be_slower_goes_like_whole_sectors() -> None:
    known = chip.Bandwidth(l2_read=5.0, l2_write=4.0, l2_write_lines=2.0, sm_partial_write=1.0)
    ways = ("read", "write", "partial_write", "write_lines", "partial_write_lines", "atomic", "read_lines")
    assert [known.rate("l2", way) for way in ways] == [5.0, 4.0, 4.0, 2.0, 2.0, 4.0, None]
    assert [known.rate("sm", way) for way in ways] == [None, None, 1.0, None, None, None, None]


@pytest.mark.parametrize("name", ["h200", "v100", "rtx4090"])
def test_a_chip_made_of_its_own_attributes_is_itself(name: str) -> None:
    """Each attribute of the driver is in the unit that the catalogue takes it for."""
    one = chip.load(name)
    said = {attribute: getattr(one, field) * divisor for attribute, (field, divisor) in catalogue._ATTRIBUTES.items()}
    expected = {
        "clock_rate": one.clock_mhz * 1000,  # in kHz
        "multiprocessor_count": one.sm_count,
        "max_threads_per_block": one.max_threads_per_block,
        "max_registers_per_multiprocessor": one.registers_per_sm,
        "max_registers_per_block": one.max_registers_per_block,
        "max_blocks_per_multiprocessor": one.max_blocks_per_sm,
        "max_threads_per_multiprocessor": one.max_threads_per_sm,
        "max_shared_memory_per_multiprocessor": one.shared_bytes_per_sm,
        "max_shared_memory_per_block": one.max_static_shared_bytes,
        "max_shared_memory_per_block_optin": one.max_shared_bytes,
        "reserved_shared_memory_per_block": one.reserved_shared_bytes,
        "total_constant_memory": one.constant_bytes,
        "l2_cache_size": one.l2_bytes,
        "total_memory": one.dram_bytes,
        "warp_size": one.warp_size,
    }
    assert said == expected
    again = chip.nearest(one.compute_capability, expected)
    assert {field: getattr(again, field) for field, _ in catalogue._ATTRIBUTES.values()} == {
        field: getattr(one, field) for field, _ in catalogue._ATTRIBUTES.values()
    }


def test_every_field_of_the_table_of_a_chip_has_a_unit_and_the_others_have_tables_of_their_own() -> None:
    entries = catalogue._entries.__wrapped__(Chip)
    assert set(entries) == {one.name for one in fields(Chip)} - catalogue._NOT_IN_THE_CHIP_TABLE
    assert entries["sm_count"][1:] == ("", False)
    assert entries["dram_bytes"][1] == "bytes"
    assert catalogue._entries.__wrapped__(Latency)["l2"][1] == "cycles"


def test_what_is_not_said_of_traffic_did_not_move() -> None:
    traffic = Traffic({"read": [1, 2]}, 3, 4)
    assert (traffic.total("read"), traffic.fetched, traffic.written_back) == (3, 3, 4)
    assert traffic.hottest == traffic.fetched_pairs == traffic.allocated == traffic.allocated_pairs == 0
