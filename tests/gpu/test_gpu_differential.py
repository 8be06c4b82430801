"""Every form of an instruction that is emulated gives the same on the GPU: the whole comparison, and the cases by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from memlane.driver import Device

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import handmade  # noqa: E402
from application import module, run  # noqa: E402
from comparison import is_approximate  # noqa: E402
from differential import architecture, assembled_part  # noqa: E402
from exact import FORMATS  # noqa: E402
from instructions import GROUPS  # noqa: E402

pytestmark = pytest.mark.gpu

SECONDS = 300
"""At most, for a group; all of them take about a minute on a machine with a free core for each worker of the emulator."""


@pytest.mark.parametrize("group", GROUPS)
def test_no_operands_give_another_result(gpu: Device, group: str, tmp_path: Path) -> None:
    """In a process of its own: a kernel that fails takes its CUDA context with it."""
    command = [sys.executable, "benchmarks/differential.py", "--target", "cuda", "--case", group, "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = json.loads((tmp_path / "differential.json").read_text(encoding="utf-8"))["rows"]
    assert [(row["case"], row["metric"], row["value"], row["note"]) for row in rows if not row["holds"]] == []
    assert len(rows) >= 10


def _is_settled(line: handmade.Line) -> bool:
    """Whether a GPU has to give just that: approximate instructions only where the result is zero, infinite or no number."""
    if not is_approximate(line.case):
        return True
    parts = {"f16x2": "f16", "bf16x2": "bf16"}
    for kind, bits in zip(line.case.results, line.results, strict=True):
        form = FORMATS[parts.get(kind, kind)]
        pieces = [bits or 0] if kind in FORMATS else [(bits or 0) & 0xFFFF, (bits or 0) >> 16]
        if any(piece & ~form.sign and not form.is_nan(piece) and not form.is_infinite(piece) for piece in pieces):
            return False
    return True


def test_the_cases_by_hand(gpu: Device) -> None:
    wrong, tried = [], 0
    for kernel in handmade.kernels(tuple(line for line in handmade.lines() if _is_settled(line))):
        kept, refused = assembled_part(kernel, architecture(gpu))
        assert [(row.case, row.note) for row in refused if not row.holds] == []  # forms of newer chips hold
        if kept.cases:
            assert isinstance(kept, handmade.Handmade)
            tried += len(kept.lines)
            for line, found in kept.wrong(run(kept, gpu.load(module([kept])), gpu)):
                wrong.append((line.place, line.case.name, [hex(bits) for bits in found]))
    assert wrong == []
    assert tried > 600
