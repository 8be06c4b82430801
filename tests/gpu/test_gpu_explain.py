"""What is found on a device is what is found on the emulator, where it goes by transactions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from memlane.compile import cuda
from memlane.diagnose import Findings, explain
from memlane.driver import Device
from memlane.launch import Target
from memlane.measure import trace
from memlane.targets import target

pytestmark = pytest.mark.gpu

SOURCE = Path(__file__).parents[2] / "examples" / "transpose.cu"
BY_TRANSACTIONS = {"uncoalesced-global", "bank-conflict", "partial-sectors", "misaligned-base"}


def said(where: Target, kernel: str, *, counts: bool = True) -> Findings:
    module = where.load(cuda(SOURCE))
    source = where.array(np.arange(256 * 256, dtype=np.float32).reshape(256, 256))
    return explain(trace(module[kernel][(8, 8), (32, 32)], where.empty((256, 256), "f4"), source, 256, counts=counts))


@pytest.mark.parametrize("kernel", ["naive", "tiled", "padded"])
def test_the_device_and_the_emulator_agree(gpu: Device, kernel: str) -> None:
    here, there = (
        [
            (one.rule, one.line, one.transactions, one.ideal_transactions)
            for one in sorted(found, key=lambda one: (one.rule, one.line))
            if one.rule in BY_TRANSACTIONS
        ]
        for found in (said(gpu, kernel), said(target(f"emulator:{gpu.chip.name}"), kernel))
    )
    assert here == there


def test_every_rule_can_look_at_a_trace_with_counts(gpu: Device) -> None:
    found = said(gpu, "tiled")
    assert found.unexamined == ()
    assert found[0].rule == "bank-conflict"
    assert found[0].cost_measured
    assert not found[0].times_modelled
    assert 0 < found[0].cost_low <= found[0].cost_cycles <= (found[0].cost_high or 0)


def test_without_counts_the_rules_that_need_them_say_so(gpu: Device) -> None:
    missing = {one.rule for one in said(gpu, "tiled", counts=False).unexamined}
    assert missing > BY_TRANSACTIONS
    assert "latency-outliers" not in missing
