"""`--cluster`, for the one launch of a .cu or .ptx file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.emulate.running import HEAD

TEXT = f"""{HEAD}.visible .entry k(.param .u64 out) {{
    .reg .b32 %r<4>; .reg .b64 %o; .shared .align 4 .b32 word;
    ld.param.u64 %o, [out]; st.shared.u32 [word], 5; barrier.cluster.arrive; barrier.cluster.wait;
    mov.u32 %r1, word; mapa.shared::cluster.u32 %r2, %r1, 1; ld.shared::cluster.u32 %r3, [%r2]; st.global.u32 [%o], %r3;
    barrier.cluster.arrive; barrier.cluster.wait; ret; }}
"""


@pytest.fixture
def words(tmp_path: Path) -> tuple[object, ...]:
    path = tmp_path / "k.ptx"
    path.write_text(TEXT)
    return (path, "--grid", "4", "--block", "32", "--arg", "i4[1]")


def test_a_launch_in_clusters_is_counted(memlane: Command, words: tuple[object, ...]) -> None:
    answer = memlane("count", *words, "--cluster", "2")
    assert answer.code == 0, answer.err
    assert "ld.shared::cluster.u32" in answer.out
    assert "is not documented" in " ".join(answer.out.split())


def test_what_is_wrong_with_it_is_one_sentence(memlane: Command, words: tuple[object, ...]) -> None:
    answer = memlane("count", *words, "--cluster", "3")
    assert answer.code != 0
    assert "grid.x of k is 4, which is not a multiple of the 3 blocks of its clusters (3x1x1)" in " ".join(answer.err.split())
    assert "--cluster" in memlane("count", *words, "--cluster", "two").err
