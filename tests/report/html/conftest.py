"""A page as large as pages get, made once."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from memlane.record import WARP_DTYPE, AccessExample, Trace, build_trace
from memlane.report.html import write_report
from tests.synthetic import NAIVE, SOURCE, launch, site, transpose


def large(accesses: int, sms: int, warps: int) -> Trace:
    """Accesses of `warps` warps on `sms` multiprocessors, of cycles and starts that no compression makes small."""
    random = np.random.default_rng(7)
    life = np.sort(random.integers(0, warps, accesses))
    turn = np.arange(accesses) - np.searchsorted(life, life)
    sites = tuple(site(number, "ld.global.f32", 3 + number) for number in range(4))
    start = turn * 3000 + random.integers(0, 1000, accesses)
    columns = {
        "launch": np.zeros(accesses, np.int64),
        "site": random.integers(0, 4, accesses),
        "block": life,
        "warp": np.zeros(accesses, np.int64),
        "sm": life % sms,
        "mask": np.full(accesses, 0xFFFFFFFF),
        "start": start,
        "end": start + random.integers(30, 1900, accesses),
    }
    lives = np.zeros(warps, WARP_DTYPE)
    lives["block"] = np.arange(warps)
    lives["sm"] = np.arange(warps) % sms
    lives["end_cycles"] = 3000 * (turn.max() + 1)
    lives["end_ns"] = lives["end_cycles"] * 1000 // 1980
    return build_trace(
        columns,
        sites=sites,
        launches=(launch(0, NAIVE),),
        warps=lives,
        chip="h200",
        target="cuda:0",
        modelled=False,
        clock_mhz=1980,
        sources={"transpose.cu": SOURCE},
    )


def with_pictures() -> Trace:
    """The transposes with the addresses of one store, each lane of which goes to a row of its own."""
    addresses = tuple(4096 * lane for lane in range(32))
    example = AccessExample(0, 1, "global", "store", True, 0, 0, 0, 0xFFFFFFFF, 4, addresses, 32, 4)
    return transpose(chip="h200", examples=(example,))


@pytest.fixture(scope="session")
def million(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Trace, float]:
    """The page of a million records, the trace, and the seconds of the processor that writing took."""
    trace = large(1_000_000, sms=132, warps=20_000)
    path = tmp_path_factory.mktemp("large") / "large.html"
    began = time.process_time()
    write_report(trace, path)
    return path, trace, time.process_time() - began
