"""Functions that Triton calls and does not inline: their accesses are counted and traced with those of the kernel."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from memlane.compile import triton as compiled
from memlane.measure import count, trace
from memlane.targets import target as target_named

triton = pytest.importorskip("triton", reason="Triton is not installed")
tl = pytest.importorskip("triton.language", reason="Triton is not installed")

pytestmark = pytest.mark.triton


@triton.jit(noinline=True)
def row_sum(data, row, n, width: tl.constexpr):
    i = tl.arange(0, width)
    return tl.sum(tl.load(data + row * n + i, mask=i < n, other=0.0))  # here


@triton.jit
def differences(out, data, n, width: tl.constexpr):
    row = tl.program_id(0)
    tl.store(out + row, row_sum(data, row, n, width) - row_sum(data, row + 1, n, width))


def test_a_function_that_is_called_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    module = compiled(differences, "*fp32, *fp32, i32", {"width": 128}, num_warps=2)
    assert any("row_sum" in name for name in module.functions), "it is called"
    target = target_named("emulator:h200")
    out, data = target.zeros(2, np.float32), np.arange(300, dtype=np.float32)
    call, sums = target.load(module)["differences"][2,], data.reshape(3, 100).sum(1)
    counts = count(call, out, target.array(data), 100)
    assert out.numpy().tolist() == (sums[:2] - sums[1:]).tolist()
    line = 1 + next(number for number, text in enumerate(Path(__file__).read_text().splitlines()) if text.endswith("# here"))
    loads = [one for one in counts.sites if one.site.line == line]
    assert sum(one.lanes for one in loads) == 2 * 2 * 100
    assert Counter(len(one.site.calls) for one in loads) == {1: len(loads)}
    assert len({one.site.calls for one in loads}) == 1, "both calls are on one line"
    made = trace(call, out, target.array(data), 100)
    assert out.numpy().tolist() == (sums[:2] - sums[1:]).tolist()
    assert made.skipped == counts.skipped == ()
    assert made.table.num_rows == sum(one.requests for one in counts.sites)
