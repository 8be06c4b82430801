"""What `memlane explain` says of kernels that others wrote: a list with labels, given by reading them, before the tool had seen them.

The files are not part of this project. Fetch them, and name the folder:

    git clone https://github.com/NVIDIA/cuda-samples            && git -C cuda-samples checkout 306af8d2755e712ffcb0b16a585da61bd1956303
    git clone https://github.com/zjin-lcf/HeCBench              && git -C HeCBench checkout 280045f0659705899a18d289c3ed6c4fb0b3459b
    git clone https://github.com/yuhc/gpu-rodinia               && git -C gpu-rodinia checkout 31d0ebf5adaf3aaa6c770cc5319a62275d8c1881
    python benchmarks/explain_public.py FOLDER --target cuda:0

A file that is not there is a row that says so. Sizes are small enough for the emulator. The result is told separately from the planted
kernels and has no reach: labels are one reader's opinion, and where the tool disagrees either may be wrong. After the first run, on the
emulator, one rule was changed for one of them: misses of lanes that walk through sectors of their own are no outliers (`AoSKernel`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from explain import FALSE, FIRST
from explain_cases import Arguments, floats, whole
from harness import Row, show, store
from running import machine, parser

from memlane.compile import cuda
from memlane.diagnose import Findings, explain
from memlane.launch import Target
from memlane.measure import trace
from memlane.targets import target as named

SOURCES = ["src/memlane/diagnose", "benchmarks/explain_public.py"]
SAMPLES, HECBENCH, RODINIA = "cuda-samples", "HeCBench", "gpu-rodinia"


@dataclass(frozen=True)
class Public:
    """One launch of a kernel in a repository."""

    repository: str
    file: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: Arguments
    label: str
    """What a reader of the kernel expects to be the first finding; empty for nothing."""
    why: str
    """What in the kernel makes him think so."""
    include: Sequence[str] = field(default=())
    """Folders of the repository to search for headers."""
    instantiate: Sequence[str] = field(default=())
    define: Sequence[str] = field(default=())
    """What the host's headers would give."""

    @property
    def name(self) -> str:
        return f"{self.repository}: {self.kernel}"


def _matrices(count: int, n: int, *more: object) -> Arguments:
    return lambda target, _: (*(floats(target, n, n) for _ in range(count)), *more)


def _trees(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return whole(target, 1 << 20, 4096 * 4096), target.zeros(4096, "i4")


def _gaussian(*more: object) -> Arguments:
    return lambda target, _: (floats(target, 256, 256), floats(target, 256, 256), *([floats(target, 256)] if len(more) == 3 else []), *more)


_TRANSPOSE = "Samples/6_Performance/transpose/transpose.cu"
_PRODUCT = "Samples/0_Introduction/matrixMul_nvrtc/matrixMul_kernel.cu"
CASES = (
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


def explained(case: Public, folder: Path, target: Target) -> Findings:
    root = folder / case.repository
    module = cuda(root / case.file, include=[root / one for one in case.include], instantiate=case.instantiate, define=case.define)
    call = target.load(module)[case.kernel][case.grid, case.block]
    return explain(trace(call, *case.arguments(target, np.random.default_rng(0)), counts=True))


def judged(case: Public, found: Findings) -> Row:
    """Whether the first finding is the label; what was found by rank."""
    said = "; ".join(f"{one.rule} at line {one.line}" for one in found) or "nothing found"
    agrees = found[0].rule == case.label if found and case.label else not found and not case.label
    note = f"label: {case.label or 'nothing'} ({case.why}); {said}"
    return Row(case.name, FIRST if case.label else FALSE, float(agrees), "agrees", peer={"findings": float(len(found))}, note=note)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", type=Path, help="where the repositories were cloned to")
    chosen = options.parse_args()
    if not chosen.folder.is_dir():
        raise SystemExit(
            f"there is no folder {chosen.folder}; clone the repositories into one, as `python {Path(__file__).name} --help` says"
        )
    target, rows = named(chosen.target), []
    for case in CASES:
        if chosen.case and chosen.case not in case.name:
            continue
        try:
            rows.append(judged(case, explained(case, chosen.folder, target)))
        except Exception as error:  # One file that is missing or does not compile is a row, and the others are told.
            rows.append(Row(case.name, "not measured", None, "", note=f"{type(error).__name__}: {error}".splitlines()[0][:300]))
    agreed = [row.value for row in rows if row.value is not None]
    if agreed:
        rows.append(Row("public", "share that agrees with the labels", sum(agreed) / len(agreed), "share", note=f"{len(agreed)} kernels"))
    store("explain_public", rows, **machine(chosen))
    show(rows)


if __name__ == "__main__":
    main()
