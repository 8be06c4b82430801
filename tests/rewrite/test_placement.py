"""What is concluded of a layout's map of bytes, against looking at every byte."""

from __future__ import annotations

from random import Random

import pytest

from memlane.errors import LayoutError
from memlane.layout import Layout, OfVectors, Padded, RowMajor, Strided, XorSwizzle
from memlane.ptx import parse
from memlane.rewrite import accesses_to_shared, cached_accesses_to_shared, provenance, shared_arrays
from memlane.rewrite.emit import emit
from memlane.rewrite.placement import Placement
from tests.layout.families import a_few

LAYOUTS = [known.layout for known in a_few([1]) if known.layout.is_injective]


def placed(layout: Layout, element: int, tiles: int, byte: int) -> int:
    """By the definition."""
    index, rest = divmod(byte, element)
    tile, inside = divmod(index, layout.rows * layout.columns)
    return (tile * layout.size + layout(inside)) * element + rest


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_bytes_lie_where_the_layout_says(layout: Layout) -> None:
    random = Random(str(layout))
    for element, tiles, nbytes in ((4, 1, 4), (4, 3, 1), (2, 2, 2), (8, 1, 16)):
        placement = Placement(layout, element, tiles)
        assert placement.nbytes == layout.rows * layout.columns * element * tiles
        assert placement.room == layout.size * element * tiles
        program = placement.program(nbytes)
        for _ in range(20):
            byte = random.randrange(placement.nbytes) // min(nbytes, element) * min(nbytes, element)
            expected = placed(layout, element, tiles, byte)
            assert placement.of(byte) == program.evaluate({"b": byte}) == expected


@pytest.mark.parametrize("layout", [Padded(6, 8, 1), XorSwizzle(8, 8), RowMajor(4, 12), OfVectors(8, 8, XorSwizzle(8, 2), 4)], ids=str)
def test_distances_hold_for_every_pair(layout: Layout) -> None:
    placement = Placement(layout, 4, 2)
    random = Random(5)
    constant = 0
    for _ in range(300):
        by, nbytes, start, multiple = (
            random.randrange(-80, 80, 4),
            random.choice([4, 4, 16]),
            random.randrange(0, 64, 4),
            1 << random.randrange(8),
        )
        by, start = by // nbytes * nbytes, start // nbytes * nbytes
        firsts = [
            byte for byte in range(0, placement.nbytes, nbytes) if (byte - start) % multiple == 0 and 0 <= byte + by < placement.nbytes
        ]
        found = {placed(layout, 4, 2, byte + by) - placed(layout, 4, 2, byte) for byte in firsts}
        distance = placement.distance(by, nbytes, start, multiple)
        if distance is not None:
            assert found <= {distance}, (by, nbytes, start, multiple)
            constant += by != 0
        else:
            assert len(found) != 1 or multiple < nbytes
    assert constant >= 10


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_torn_vectors_are_found(layout: Layout) -> None:
    for nbytes in (8, 16):
        placement = Placement(layout, 4, 1)
        vector, elements = nbytes // 4, layout.rows * layout.columns
        torn = placement.torn_at(nbytes)
        if elements % vector:
            assert torn == 0
            continue
        places = [layout(index) for index in range(elements)]
        groups = [places[at : at + vector] for at in range(0, elements, vector)]
        bad = [at for at, group in enumerate(groups) if group[0] % vector or group != list(range(group[0], group[0] + vector))]
        assert torn == (bad[0] * nbytes if bad else None)


def test_multiples_follow_the_address() -> None:
    text = """.version 9.0
.target sm_90
.address_size 64
.visible .entry k() {
    .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<2>;
    .shared .align 16 .b8 tile[4096];
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 7;
    and.b32 %r3, %r1, 24;
    add.s32 %r4, %r2, %r3;
    cvt.u64.u32 %rd1, %r4;
    mov.u64 %rd2, tile;
    add.s64 %rd3, %rd2, %rd1;
    ld.shared.u32 %r5, [%rd3];
    mad.wide.u32 %rd4, %r1, 48, %rd2;
    ld.shared.u32 %r5, [%rd4];
    setp.eq.u32 %p1, %r1, 0;
    selp.b64 %rd5, %rd3, %rd4, %p1;
    ld.shared.u32 %r5, [%rd5];
    add.s64 %rd6, %rd5, %rd1;
    @%p1 add.s64 %rd6, %rd2, 4;
    ld.shared.u32 %r5, [%rd6];
    mul.wide.u32 %rd7, %r1, %r1;
    add.s64 %rd8, %rd2, %rd7;
    ld.shared.u32 %r5, [%rd8];
    shl.b32 %r6, %r1, 1;
    shl.b32 %r7, %r1, 2;
    mul.lo.u32 %r8, %r6, %r7;
    add.s32 %r0, %r8, tile;
    ld.shared.u32 %r5, [%r0];
    ret;
}
"""
    module = parse(text)
    found = accesses_to_shared(module.kernels["k"], shared_arrays(module))
    assert found.problems == ()
    assert [one.pointer.multiple for one in found.accesses] == [8, 16, 8, 4, 1, 8]
    assert {one.pointer.offset for one in found.accesses} == {None}


def test_what_32_bits_do_not_hold_is_refused() -> None:
    placement = Placement(Strided(2, 2, 1 << 30, 1 << 29), 4, 1)
    with pytest.raises(LayoutError, match="do not fit into 32 bits"):
        emit(placement.program(4), "%x", lambda kind: "%y", {}, "")


def test_the_accesses_of_a_kernel_are_followed_once_for_all_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = provenance.accesses_to_shared
    monkeypatch.setattr(provenance, "accesses_to_shared", lambda function, arrays: asked.append(function.name) or real(function, arrays))
    text = """
.version 9.0
.target sm_90
.address_size 64
.visible .entry k()
{
    .reg .b32 %r<2>;
    .shared .align 4 .b8 cells[64];
    mov.u32 %r1, cells;
    ld.shared.u32 %r1, [%r1+4];
    ret;
}
"""
    module = parse(text)
    kernel, arrays = module.kernels["k"], shared_arrays(module)
    first = cached_accesses_to_shared(module, kernel, arrays)
    assert first == real(kernel, arrays)
    assert first.accesses
    assert cached_accesses_to_shared(module, kernel, arrays) is first
    assert cached_accesses_to_shared(parse(text), kernel, arrays) == first
    assert cached_accesses_to_shared(module, kernel, arrays[:0]).accesses == ()
    assert asked == ["k"] * 3


def test_parts_of_elements_are_no_whole_distance_apart() -> None:
    placement = Placement(Strided(4, 4, 8, 1), 4, 1)
    assert placement.distance(4, 4, 0, 16) == 4
    assert [placement.distance(*places, 4) for places in ((2, 2, 0), (4, 2, 2), (2, 2, 2))] == [None] * 3
