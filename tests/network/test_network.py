"""Network files: what ships, what a user adds, what a wrong file is told, and times by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlane import network
from memlane.chip import load
from memlane.chip.model import KINDS
from memlane.errors import NetworkError
from memlane.network import Link, Transfer

SMALL = """\
title = "Two nodes"
devices_per_node = { value = 2, unit = "", source = "assumed: a test" }
[sources]
bench = "measured: with a ruler"
[inside.copies]
neighbours = "share the rate"
message = { value = [[1000, 2], [3000, 4]], unit = "bytes, us", source = "bench" }
[between.mpi]
neighbours = "one after another"
message_us = { value = 5, unit = "us", source = "bench" }
message_gb_per_s = { value = 2, unit = "GB/s", source = "bench" }
host_us = { value = 10, unit = "us", source = "bench" }
host_gb_per_s = { value = 4, unit = "GB/s", source = "bench" }
signal_us = { value = 0.5, unit = "us", source = "bench" }
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the user's own networks."""
    monkeypatch.setenv("MEMLANE_NETWORKS", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", sorted(path.stem for path in network.SHIPPED.glob("*.toml")))
def test_every_shipped_network_is_sound(name: str, mine: Path) -> None:
    one = network.load(name)
    assert one.name == name
    assert one.title
    assert {fact.kind for fact in one.facts.values()} <= set(KINDS)
    for link in (*one.inside.values(), *one.between.values()):
        times = [link.exchange_us(nbytes, neighbours) for neighbours in (1, 2) for nbytes in (1 << 10, 1 << 18, 1 << 20, 1 << 24)]
        assert all(0 < us < 100_000 for us in times)
        assert link.exchange_us(1 << 26, 2) >= link.exchange_us(1 << 26, 1) > link.exchange_us(1 << 12, 1)
        assert link.exchange_us(1 << 20, 0) == link.exchange_us(0, 2) == 0


def test_the_page_of_networks_names_them_all() -> None:
    page = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text(encoding="utf-8")
    assert [path.stem for path in network.SHIPPED.glob("*.toml") if f"`{path.stem}`" not in page] == []


def test_measured_copies_between_two_h200s() -> None:
    """The table of the measurement itself, and a rate for what is larger: 395 GB/s were seen."""
    copies = network.load("h200-nvlink").link(2).message
    assert [copies.us(nbytes) for nbytes in (4096, 262144, 1 << 20)] == [2.23, 3.03, 4.98]
    assert (1 << 30) / (1e3 * copies.us(1 << 30)) == pytest.approx(396, abs=2)
    assert copies.us(8) == 2.23


def test_links_of_a_chip_file_are_a_network() -> None:
    chip = load("h200")
    own = network.of_chip(chip)
    assert own.transports == ("peer", "host", "flags", "persistent")
    assert own.link(2, "flags").exchange_us(395_000, 2) == pytest.approx(0.7 + 2 + 7.45)
    assert own.link(2).exchange_us(395_000, 1) == pytest.approx(2.23 + 1 + 15.5)
    assert own.link(4).exchange_us(395_000, 2) == pytest.approx(2.23 + 2 + 15.5 + 7.1)
    there, message, back = own.link(2, "host").parts_us(55_400, 2)
    assert (there, message, back) == pytest.approx((2 * 3.37, 2 * 0.7 + 21.5, 2 * 3.37))
    shipped = network.load("h200-nvlink")
    for transport in own.transports:
        assert shipped.link(2, transport).exchange_us(1 << 20, 1) == pytest.approx(own.link(2, transport).exchange_us(1 << 20, 1), rel=0.1)
    assert str(own.facts["inside.peer.peer_us"]).startswith("2.23 us (measured: ")


def test_times_of_a_table_lie_between_its_points() -> None:
    table = Transfer(times=((1000, 2.0), (3000, 4.0)))
    assert [table.us(nbytes) for nbytes in (0, 1000, 1500, 3000, 5000)] == [2, 2, 2.5, 4, 6]
    falling = Transfer(times=((1000, 4.0), (3000, 2.0)), gb_per_s=1)
    assert [falling.us(nbytes) for nbytes in (2000, 3000, 5000)] == [3, 3, 5]  # the rate bounds them; none is quicker than the last point


def test_a_user_describes_nodes_of_a_cluster(mine: Path) -> None:
    (mine / "lab.toml").write_text(SMALL)
    lab = network.named("lab")
    assert network.from_file(mine / "lab.toml") == lab == network.named(str(mine / "lab.toml"))
    assert "lab" in network.names()
    assert lab.link(2).exchange_us(1000, 2) == 3  # both share the rate: 2,000 bytes
    staged = lab.link(3)  # no longer one node
    assert staged.is_staged
    assert staged.parts_us(4000, 2) == (22, 14.5, 22)  # two copies of 10 + 1 us, two messages of 5 + 2 us and a signal, two copies
    assert str(lab.facts["between.mpi.host_us"]) == "10 us (measured: with a ruler)"


def test_waits_for_the_events_of_several_neighbours_follow_each_other() -> None:
    link = Link("peer", Transfer(2.0, 1.0), "share the rate", signal_us=10.0, order_us=7.0)
    assert link.exchange_us(1000, 1) == 2 + 1 + 10  # the wait for one neighbour is in the signal
    assert link.exchange_us(1000, 2) == 2 + 2 + 10 + 7
    assert link.exchange_us(1000, 1, (1000, 2)) == 2 + 3 + 10 + 14
    assert link.exchange_us(0, 2) == 0
    assert [link.ordered_us(neighbours, launches) for launches in (1, 2, 3) for neighbours in (0, 1, 2)] == [0, 7, 14, 0, 14, 28, 0, 14, 28]


def test_an_exchange_after_one_launch_saves_waits_for_the_borders_of_neighbours() -> None:
    link = Link("peer", Transfer(2.0, 1.0), "share the rate", signal_us=10.0, order_us=8.0)
    assert [link.saved_us(neighbours, 1) for neighbours in (0, 1, 2)] == [0, 4, 8]
    assert link.saved_us(2, 2) == link.saved_us(2, 3) == 0
    assert Link("host", Transfer(2.0, 1.0), "one after another").saved_us(2, 1) == 0


def test_a_file_says_what_a_wait_for_another_device_takes(mine: Path) -> None:
    (mine / "lab.toml").write_text(SMALL.replace("signal_us = {", 'order_us = { value = 3, unit = "us", source = "bench" }\nsignal_us = {'))
    lab = network.load("lab")
    assert {link.order_us for link in (*lab.inside.values(), *lab.between.values())} == {0.0, 3.0}
    assert any(str(fact).startswith("3 us (measured") for name, fact in lab.facts.items() if name.endswith("order_us"))


def test_a_measured_exchange_includes_its_neighbours() -> None:
    ring = Link("ring", Transfer(times=((1000, 5.0), (2000, 6.0))), "included")
    assert ring.exchange_us(1000, 1) == ring.exchange_us(1000, 2) == 5


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title =", "name =", r"unknown table or key 'name'; a network file has title, devices_per_node, sources, inside"),
        ('"share the rate"', '"wait"', r"\[inside.copies\] neighbours must be one of 'one after another', 'share the rate', 'included'"),
        ("host_gb_per_s = ", "host_speed = ", r"\[between.mpi\] has an unknown entry 'host_speed'; it may have neighbours, message, "),
        ('[[1000, 2], [3000, 4]]', '[[3000, 2], [1000, 4]]', r"inside.copies.message must have its sizes in ascending order, and 1000"),
        ('[[1000, 2], [3000, 4]]', '[1000, 2]', r"inside.copies.message must be pairs of bytes and microseconds, as \[\["),
        ('value = 5, unit = "us"', 'value = 5, unit = "ms"', r"between.mpi.message_us is in 'ms'; it must be in 'us'"),
        ("value = 2, unit = \"\"", "value = 2.5, unit = \"\"", r"devices_per_node must be a whole number of 1 or more, not 2.5"),
        ("value = 4, unit", "value = 0, unit", r"between.mpi.host_gb_per_s must be a positive number, not 0"),
        ("assumed: a test", "guessed: a test", r"devices_per_node has the source 'guessed: a test'; it needs a name from \[sources\]"),
        ('host_us = { value = 10, unit = "us", source = "bench" }', "", r"\[between.mpi\] lacks the entry 'host_us', which goes"),
        ("[inside.copies]", "[inside.copies", "cannot read the network file .*lab.toml: "),
    ],
)  # fmt: skip
def test_a_wrong_file_is_told_the_place(mine: Path, old: str, new: str, message: str) -> None:
    assert old in SMALL
    (mine / "lab.toml").write_text(SMALL.replace(old, new))
    with pytest.raises(NetworkError, match=message):
        network.load("lab")


def test_names_that_do_not_exist_are_told_those_that_do(mine: Path) -> None:
    with pytest.raises(NetworkError, match=r"no network is called 'token-ring'; known: h200-nvlink, h200-nvlink-ring, tsubame2, or name a"):
        network.load("token-ring")
    with pytest.raises(NetworkError, match=r"cannot read the network file .*none.toml: No such file"):
        network.named(str(mine / "none.toml"))
    with pytest.raises(
        NetworkError, match=r"network h200-nvlink has no transport 'mpi' inside a node; it has peer, stores, flags, persistent, host"
    ):
        network.load("h200-nvlink").link(2, "mpi")
    with pytest.raises(NetworkError, match=r"describes one node of 8 devices and no links between nodes: use at most 8 devices, not 16"):
        network.load("h200-nvlink").link(16)
