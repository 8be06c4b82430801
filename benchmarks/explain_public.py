"""What `memlane explain` says of kernels that others wrote: a list with labels, given by reading them, before the tool had seen them.

The files are not part of this project: `public_sources.py` fetches them, or says how. Then name the folder:

    python benchmarks/explain_public.py FOLDER --target cuda:0

A file that is not there is a row that says so. Sizes are small enough for the emulator. The result is told separately from the planted
kernels and has no reach: labels are one reader's opinion, and where the tool disagrees either may be wrong. Of the kernels of git
repositories, after their first run on the emulator, one rule was changed for one of them: misses of lanes that walk through sectors of
their own are no outliers (`AoSKernel`).

Prediction for the kernels of source distributions, written before any of them was run: it agrees with 22 of 33. Where there is nothing to
find I expect it to name small things (the stores of `non_diag_mask_kernel`, loads of one index by a whole warp), and where two things are
wrong at once, loads of one of three coordinates that are also loaded again and again, to rank them the other way round.

The first run, on the emulator: 22 of 33 (31 of 43 with the git repositories, two of which did not compile then). Four rules were changed
for it (`docs/findings.md` says which), so later numbers are no test of them. What was left is judged in `public_verdicts.py`, where labels
that were wrong are put right; rules were changed for it again, after 51 of 63 on the emulator and 41 of 51 on an H200.

Prediction, when the changed rules had seen the traces of the emulator, and no GPU: 60 of 63 there, 62 with two labels put right. On an
H200, of the ten that disagreed, `Fan2` and `relocation_kernel` stay, and `spmm_kernel`, whose registers leave room for few warps; one or
two of `nearest_kernel`, the chain of `uniform_random_walk_kernel` and the nearly equal costs of `three_interpolate_kernel` may.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from explain import FALSE, FIRST
from explain_cases import Arguments, floats, whole
from explain_public_cases import SDIST_CASES
from explain_public_later import LATER_CASES
from harness import Row, show, store
from public_kernel import Public
from running import machine, parser

from memlane.diagnose import Findings, explain
from memlane.launch import Target
from memlane.measure import trace
from memlane.targets import target as named

SOURCES = [
    "src/memlane/diagnose",
    "benchmarks/explain_public.py",
    "benchmarks/explain_public_cases.py",
    "benchmarks/explain_public_later.py",
    "benchmarks/public_kernel.py",
    "benchmarks/public_sources.py",
]
SAMPLES, HECBENCH, RODINIA = "cuda-samples", "HeCBench", "gpu-rodinia"


def _matrices(count: int, n: int, *more: object) -> Arguments:
    return lambda target, _: (*(floats(target, n, n) for _ in range(count)), *more)


def _trees(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return whole(target, 1 << 20, 4096 * 4096), target.zeros(4096, "i4")


def _gaussian(*more: object) -> Arguments:
    return lambda target, _: (floats(target, 256, 256), floats(target, 256, 256), *([floats(target, 256)] if len(more) == 3 else []), *more)


_TRANSPOSE = "Samples/6_Performance/transpose/transpose.cu"
_PRODUCT = "Samples/0_Introduction/matrixMul_nvrtc/matrixMul_kernel.cu"
CLONE_CASES = (
    Public(SAMPLES, _TRANSPOSE, "copy", (16, 16), (32, 16), _matrices(2, 512, 512, 512), "", "rows by rows", ("Common",)),
    Public(
        SAMPLES,
        _TRANSPOSE,
        "transposeNaive",
        (16, 16),
        (32, 16),
        _matrices(2, 512, 512, 512),
        "uncoalesced-global",
        "stores a column with neighbouring threads",
        ("Common",),
    ),
    Public(
        SAMPLES,
        _TRANSPOSE,
        "transposeCoalesced",
        (16, 16),
        (32, 16),
        _matrices(2, 512, 512, 512),
        "bank-conflict",
        "reads a column of a tile of 32 words without padding",
        ("Common",),
    ),
    Public(
        SAMPLES, _TRANSPOSE, "transposeNoBankConflicts", (16, 16), (32, 16), _matrices(2, 512, 512, 512), "", "padded tile", ("Common",)
    ),
    Public(SAMPLES, _PRODUCT, "matrixMulCUDA_block16", (8, 8), (16, 16), _matrices(3, 128, 128, 128), "", "tiles in shared memory"),
    Public(SAMPLES, _PRODUCT, "matrixMulCUDA_block32", (4, 4), (32, 32), _matrices(3, 128, 128, 128), "", "tiles in shared memory"),
    Public(
        SAMPLES,
        "Samples/0_Introduction/simpleAtomicIntrinsics/simpleAtomicIntrinsics_kernel.cuh",
        "testKernel",
        (64,),
        (256,),
        lambda target, _: (target.zeros(11, "i4"),),
        "contended-atomics",
        "all threads update the same eleven words",
    ),
    Public(
        HECBENCH,
        "src/layout-cuda/main.cu",
        "AoSKernel<64>",
        (16,),
        (256,),
        _trees,
        "uncoalesced-global",
        "neighbouring threads read 16 KiB apart",
        instantiate=("AoSKernel<64>",),
        define=("uint=unsigned",),
    ),
    Public(
        HECBENCH,
        "src/layout-cuda/main.cu",
        "SoAKernel<64>",
        (16,),
        (256,),
        _trees,
        "",
        "neighbouring threads read neighbours",
        instantiate=("SoAKernel<64>",),
        define=("uint=unsigned",),
    ),
    Public(
        RODINIA,
        "cuda/gaussian/gaussian.cu",
        "Fan1",
        (1,),
        (512,),
        _gaussian(256, 0),
        "uncoalesced-global",
        "neighbouring threads read and store a column of the matrix",
    ),
    Public(
        RODINIA,
        "cuda/gaussian/gaussian.cu",
        "Fan2",
        (64, 64),
        (4, 4),
        _gaussian(256, 256, 0),
        "uncoalesced-global",
        "threadIdx.x counts rows; blocks of 16 threads",
    ),
    Public(
        RODINIA,
        "cuda/nn/nn_cuda.cu",
        "euclid",
        (168,),
        (256,),
        lambda target, _: (floats(target, 42764, 2), target.zeros(42764), 42764, 30.0, 90.0),
        "partial-sectors",
        "reads one of the two fields of a structure at a time",
    ),
)

CASES = (*CLONE_CASES, *SDIST_CASES, *LATER_CASES)
SHARE = "share that agrees with the labels"
_GROUPS = (
    ("git repositories", CLONE_CASES),
    ("source distributions, for which rules were changed", SDIST_CASES),
    ("source distributions, labelled after that", LATER_CASES),
)


def explained(case: Public, folder: Path, target: Target) -> Findings:
    call = target.load(case.module(folder))[case.kernel][case.grid, case.block, None, case.shared_bytes]
    return explain(trace(call, *case.arguments(target, np.random.default_rng(0)), counts=True))


def judged(case: Public, found: Findings) -> Row:
    """Whether the first finding is the label; what was found by rank."""
    said = "; ".join(f"{one.rule} at line {one.line} ({one.cost_cycles:.3g} warp cycles)" for one in found) or "nothing found"
    agrees = found[0].rule == case.label if found and case.label else not found and not case.label
    note = f"label: {case.label or 'nothing'} ({case.why}) => {said}"
    return Row(case.name, FIRST if case.label else FALSE, float(agrees), "agrees", peer={"findings": float(len(found))}, note=note)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", type=Path, help="where the sources are")
    chosen = options.parse_args()
    if not chosen.folder.is_dir():
        raise SystemExit(
            f"there is no folder {chosen.folder}; fetch the sources into one by `python benchmarks/public_sources.py {chosen.folder}`"
        )
    target, head = named(chosen.target), machine(chosen)
    rows: list[Row] = []
    for case in CASES:
        if chosen.case and chosen.case not in case.name:
            continue
        try:
            rows.append(judged(case, explained(case, chosen.folder, target)))
        except Exception as error:  # One file that is missing or does not compile is a row, and the others are told.
            rows.append(Row(case.name, "not measured", None, "", note=f"{type(error).__name__}: {error}".splitlines()[0][:300]))
        store("explain_public", [*rows, *totals(rows)], **head)
    show([*rows, *totals(rows)])


def totals(rows: list[Row]) -> list[Row]:
    """Over the kernels of each group that were run, and over all."""
    found = []
    for name, cases in (*_GROUPS, ("all", CASES)):
        names = {case.name for case in cases}
        agreed = [row.value for row in rows if row.case in names and row.value is not None]
        if agreed:
            share = sum(agreed) / len(agreed)
            found.append(Row(name, SHARE, share, "share", note=f"{sum(agreed):.0f} of {len(agreed)} kernels"))
    return found


if __name__ == "__main__":
    main()
