"""The transactions in the rows of a trace are those of `memlane.chip`, computed from the addresses."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.chip import load
from memlane.chip.access import sectors, wavefronts
from memlane.emulate import Emulator
from memlane.measure import trace
from memlane.ptx import parse

PTX = """\
.version 8.0
.target sm_90
.address_size 64

.visible .entry gather(.param .u64 data, .param .u64 index, .param .u64 rounds)
{{
    .reg .pred %p;
    .reg .b64 %rd<9>;
    .reg .b32 %r<9>;
    .shared .align 16 .b8 tile[16384];
    ld.param.u64 %rd1, [data];
    ld.param.u64 %rd2, [index];
    ld.param.u64 %rd3, [rounds];
    mov.u32 %r1, %tid.x;
    mad.wide.u32 %rd2, %r1, 8, %rd2;
    mov.u64 %rd6, tile;
AGAIN:
    ld.global.u64 %rd4, [%rd2];
    add.u64 %rd5, %rd1, %rd4;
    ld.global.{kind} {value}, [%rd5];
    add.u64 %rd7, %rd6, %rd4;
    ld.shared.{kind} {value}, [%rd7];
    add.u64 %rd2, %rd2, 256;
    sub.u64 %rd3, %rd3, 1;
    setp.ne.u64 %p, %rd3, 0;
    @%p bra AGAIN;
    st.global.{kind} [%rd1], {value};
    ret;
}}
"""
ROUNDS = 12


@pytest.mark.parametrize(("nbytes", "kind", "value"), [(4, "u32", "%r2"), (8, "u64", "%rd8"), (16, "v4.u32", "{%r2, %r3, %r4, %r5}")])
@pytest.mark.parametrize("chip_name", ["h200", "v100"])
def test_every_row_has_its_own_sectors_and_wavefronts(nbytes: int, kind: str, value: str, chip_name: str) -> None:
    chip = load(chip_name)
    target = Emulator(chip)
    random = np.random.default_rng(nbytes)
    elements = 16384 // nbytes
    index = np.stack([random.integers(0, reach, 32) for reach in np.geomspace(2, elements, ROUNDS).astype(int)]) * nbytes
    kernel = target.load(parse(PTX.format(kind=kind, value=value), "gather.ptx"))["gather"]
    data = target.zeros(16384, "u1")
    made = trace(kernel[1, 32], data, target.array(index.astype(np.uint64)), np.uint64(ROUNDS))
    _, of_data, of_tile, _ = (made.table.filter(np.asarray(made.table["site"]) == site.id) for site in made.sites)
    everyone = [True] * 32
    expected_sectors = [sectors(chip, (data.address + lane).tolist(), everyone, nbytes) for lane in index]
    expected_wavefronts = [wavefronts(chip, lane.tolist(), everyone, nbytes) for lane in index]
    assert of_data["sectors"].to_pylist() == expected_sectors
    assert of_tile["wavefronts"].to_pylist() == expected_wavefronts
    assert of_data["wavefronts"].null_count == of_tile["sectors"].null_count == ROUNDS
    assert len(set(expected_sectors)) > 3
    assert len(set(expected_wavefronts)) > 2
