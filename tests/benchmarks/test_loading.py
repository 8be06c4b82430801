"""Why files of a clone do not load, and what is counted of those that do."""

from __future__ import annotations

from pathlib import Path

import pytest
from loading import OTHER, Loaded, folders, load, rows_of

FILES = {
    "sum/sum.cu": '#include "real.h"\n#include "piece.cu"\nint main() { k<<<1, 1>>>(0); }\n',
    "sum/piece.cu": "__global__ void k(real* p) { *p = 1; }\n",
    "sum/main.cu": "int main() { }\n",
    "sum/parent.cu": "__global__ void a();\n__global__ void b() { a<<<1, 1>>>(); }\n",
    "sum/both.cu": "__global__ void a() { }\n__global__ void b() { a<<<1, 1>>>(); }\n",
    "sum/texture.cu": "texture<float> t;\n__global__ void k(float* p) { *p = tex1Dfetch(t, 1); }\n",
    "sum/random.cu": "#include <curand_kernel.h>\n__global__ void k(curandState* s) { curand_init(1, 2, 3, s); }\n",
    "sum/caller.cu": '#include "templates.cuh"\nint main() { }\n',
    "common/templates.cuh": "template <class T> __global__ void k(T* p) { *p = 1; }\n",
    "sum/wrong.cu": "__global__ void k() { x; }\n",
    "common/real.h": "typedef float real;\n",
}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_reasons(clone: Path) -> None:
    found = {path.relative_to(clone): load(path, folders(clone, path)) for path in sorted(clone.rglob("*.cu"))}
    assert {path.stem: one.reason for path, one in found.items()} == {
        "sum": "",  # its header lies in a directory that the message names
        "piece": "a piece of another file",
        "main": "no kernel of its own",
        "parent": "kernels that launch kernels",
        "both": "",  # without the one that launches
        "texture": "texture references",
        "random": "a header that is not there",
        "caller": "launches in another file",
        "wrong": OTHER,
    }
    rows = {row.metric: row for row in rows_of("clone", found, "abc")}
    assert (rows["files"].value, rows["files"].note) == (9, "abc")
    assert rows["files that load"].value == rows["kernels that load"].value == 2
    assert (rows["files that do not: another reason"].value, rows["files that do not: another reason"].note) == (1, "wrong")
    assert not rows["files that do not: another reason"].holds


def test_kernels_that_are_not_modelled_are_named() -> None:
    refused = {Path("a.cu"): Loaded(kernels=100, refused={"k(int*)": "no wmma"}), Path("b.cu"): Loaded("texture references")}
    row = next(row for row in rows_of("clone", refused) if row.metric == "kernels that the emulator runs")
    assert (row.value, row.note, row.holds) == (0.99, "a: k (no wmma)", True)
