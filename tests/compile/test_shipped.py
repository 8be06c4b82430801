"""The examples, and the PTX that is kept beside them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from memlane.compile import cuda, cuda_to_ptx, shipped, toolkit
from memlane.errors import MissingDependency

EXAMPLES = Path(__file__).parents[2] / "examples"
KERNELS = {
    "chase": ["link_ring", "chase_global", "chase_shared"],
    "copies": ["direct", "vectors", "shifted", "strided"],
    "histogram": ["global_atomics", "shared_atomics"],
    "matmul": ["matmul"],
    "reduction": ["block_sum<int>", "block_sum<float>", "interleaved<int>", "interleaved<float>"],
    "rotation": ["turn"],
    "spmv": ["csr_scalar", "csr_warp"],
    "stencil": ["seven_point", "marching"],
    "transpose": ["naive", "tiled", "padded"],
}


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.cu")))
def test_every_example_compiles_with_a_line_for_each_access(name: str) -> None:
    module = cuda(EXAMPLES / f"{name}.cu")
    assert [re.sub(r"^void |\(.*", "", kernel.title) for kernel in module.kernels.values()] == KERNELS[name]
    source = next(iter(module.sources.values())).splitlines()
    for kernel in module.kernels.values():
        assert kernel.body is not None
        accesses = [i for i in kernel.body.instructions() if re.match(r"(ld|st|atom|red)\.(global|shared)", i.name)]
        assert accesses
        for access in accesses:
            assert access.location is not None
            assert re.search(r"[\[*]", source[access.location.line - 1]), f"{access.name} on line {access.location.line}"


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.cu")))
def test_the_kept_ptx_is_made_from_its_source(name: str) -> None:
    source = EXAMPLES / f"{name}.cu"
    kept, made = shipped.path_beside(source).read_text(), shipped.make(source)
    assert kept.partition("\n")[0] == made.partition("\n")[0], "run examples/build_ptx.py"
    compiler = re.compile(r"// Cuda compilation tools.*")
    if compiler.findall(kept) == compiler.findall(made):
        assert kept == made, "run examples/build_ptx.py"
    assert str(Path.cwd()) not in kept


def test_no_ptx_is_kept_without_a_source() -> None:
    assert {path.stem for path in (EXAMPLES / "ptx").glob("*.ptx")} == {path.stem for path in EXAMPLES.glob("*.cu")} == set(KERNELS)


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise MissingDependency("compiling CUDA C++")

    monkeypatch.setattr(toolkit, "nvrtc_bindings", missing)
    monkeypatch.setattr(toolkit, "include_directories", missing)


def test_without_a_compiler_the_kept_ptx_gives_the_same_module(request: pytest.FixtureRequest) -> None:
    path = EXAMPLES / "transpose.cu"
    compiled = cuda(path)
    request.getfixturevalue("no_compiler")
    kept = cuda(path)
    assert kept.kernels == compiled.kernels
    assert (kept.name, kept.files, kept.sources) == (compiled.name, compiled.files, compiled.sources)
    assert [kernel.title for kernel in kept.kernels.values()] == [kernel.title for kernel in compiled.kernels.values()]


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("options", [{"arch": "sm_80"}, {"define": ["A"]}, {"lineinfo": False}, {"options": ["-G"]}])
def test_kept_ptx_is_not_taken_for_other_options(options: dict[str, object]) -> None:
    with pytest.raises(MissingDependency):
        cuda(EXAMPLES / "transpose.cu", **options)  # type: ignore[arg-type]


@pytest.mark.usefixtures("no_compiler")
def test_kept_ptx_of_another_version_of_the_source_is_not_taken(tmp_path: Path) -> None:
    source = tmp_path / "transpose.cu"
    shutil.copy(EXAMPLES / "transpose.cu", source)
    shutil.copytree(EXAMPLES / "ptx", tmp_path / "ptx")
    assert len(cuda(source).kernels) == 3
    source.write_text(source.read_text().replace("TILE = 32", "TILE = 16"))
    with pytest.raises(MissingDependency, match="compiling CUDA"):
        cuda(source)


def test_text_of_a_program_never_looks_for_files(no_compiler: None) -> None:
    with pytest.raises(MissingDependency):
        cuda_to_ptx("__global__ void nothing_kept() { }")
