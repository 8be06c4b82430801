"""Triton's kernels on the emulator against NumPy: compiled here, launched without naming their block, traced and counted."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import memlane as ml
from memlane.compile import assemble, triton
from memlane.errors import BadLaunch, CompileError, UnsupportedPtx
from memlane.instrument import site_table
from memlane.launch import Target
from memlane.targets import target as target_named

pytest.importorskip("triton", reason="Triton is not installed")

from tests.compile import triton_kernels as kernels
from tests.compile.measuring import check_counts, check_quiet, check_trace
from tests.compile.triton_cases import CASES

pytestmark = pytest.mark.triton
FILE = os.path.relpath(Path(kernels.__file__))
INSTRUMENTED = ("vector_add", "saxpy", "reduction", "matmul")
"""Accesses behind predicates and of 16 bytes in inline assembly; shared memory and atomics; asynchronous copies and matrix loads."""
TRIED = [pytest.param(name, marks=pytest.mark.slow if name == "matmul" else ()) for name in INSTRUMENTED]
ADD = "*fp32:16, *fp32:16, *fp32:16, i32"


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What Triton compiled before must not stand in for what it compiles now."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


@pytest.fixture
def target() -> Target:
    return target_named("emulator:h200")


@pytest.mark.parametrize("name", CASES)
def test_results_equal_numpy(name: str, target: Target) -> None:
    case = CASES[name]()
    call, arguments = case.prepare(target)
    call(*arguments)
    case.check(arguments)


@pytest.mark.parametrize("name", CASES)
def test_the_checker_finds_nothing(name: str) -> None:
    check_quiet(CASES[name]())


@pytest.mark.parametrize("name", TRIED)
def test_counting_kernels_count_what_the_emulator_sees(name: str) -> None:
    check_counts(CASES[name]())


@pytest.mark.parametrize("name", TRIED)
def test_traced_kernels_compute_the_same_and_name_their_lines(name: str) -> None:
    check_trace(CASES[name](), FILE, kernels.__dict__[name])


@pytest.mark.parametrize("name", CASES)
def test_modules_assemble(name: str) -> None:
    module = CASES[name]().module
    assert assemble(module, arch=module.target[0]).kernels[name].registers > 0


def test_a_module_knows_its_block_its_shared_memory_and_its_text() -> None:
    module = CASES["matmul"]().module
    kernel = module.kernels["matmul"]
    assert module.target[0] == "sm_80"
    assert {"mma", "ldmatrix", "cp"} <= {instruction.opcode for instruction in kernel.body.instructions()}  # type: ignore[union-attr]
    assert kernel.convention is not None
    assert kernel.convention.block == kernel.extents(".reqntid") == (64, 1, 1)
    assert kernel.convention.shared_bytes > 0
    assert (module.name, module.sources[FILE]) == (FILE, Path(kernels.__file__).read_text(encoding="utf-8"))


def test_a_file_that_was_moved_since_triton_compiled_it_is_named_by_where_it_is(tmp_path: Path) -> None:
    text = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef seven(out):\n    tl.store(out, 7)\n"
    for folder in ("before", "after"):
        file = tmp_path / folder / "moved.py"
        file.parent.mkdir()
        file.write_text(text)
        module = triton(runpy.run_path(str(file))["seven"], "*fp32")
        assert (module.name, module.sources) == (str(file), {str(file): text})
        assert {one.file for one in site_table(module).sites} == {str(file)}


def test_a_copied_script_is_named_by_its_own_name(tmp_path: Path) -> None:
    """Triton's cache holds the code of the first script, and its line table names that one."""
    text = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef eight(out):\n    tl.store(out, 8)\n"
    for name in ("first.py", "second.py"):
        file = tmp_path / name
        file.write_text(text)
        module = triton(runpy.run_path(str(file))["eight"], "*fp32")
        assert (module.name, module.sources) == (str(file), {str(file): text})
        assert {one.file for one in site_table(module).sites} == {str(file)}


def test_functions_of_a_copied_module_are_named_by_their_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef fetch(at):\n    return tl.load(at)\n"
    text = "import triton\nimport triton.language as tl\nimport parts\n\n@triton.jit\ndef nine(out):\n"
    text += "    tl.store(out, parts.fetch(out + 32) + 9)\n"
    for folder in ("one", "two"):
        file, part = tmp_path / folder / "main.py", tmp_path / folder / "parts.py"
        file.parent.mkdir()
        file.write_text(text)
        part.write_text(helper)
        monkeypatch.syspath_prepend(str(file.parent))
        monkeypatch.delitem(sys.modules, "parts", raising=False)
        module = triton(runpy.run_path(str(file))["nine"], "*fp32")
        assert module.sources == {str(file): text, str(part): helper}
    monkeypatch.delitem(sys.modules, "parts", raising=False)


def test_promised_alignment_makes_wide_accesses(target: Target) -> None:
    call, arguments = CASES["saxpy"]().prepare(target)
    sites = ml.count(call, *arguments).sites
    assert {site.site.nbytes for site in sites} == {16}
    assert sum(site.bytes for site in sites if site.site.kind == "store") == 2048 * 4


def test_wide_accesses_are_on_the_lines_that_make_them(target: Target) -> None:
    """In the compiler's own line table the n-th line of inline assembly is n lines further down."""
    call, arguments = CASES["saxpy"]().prepare(target)
    text = Path(kernels.__file__).read_text(encoding="utf-8").splitlines()
    lines = {text[site.site.line - 1].strip() for site in ml.count(call, *arguments).sites}
    assert lines == {"tl.store(y + at, alpha * tl.load(x + at) + tl.load(y + at))"}


def test_signature_by_name_or_in_order(target: Target) -> None:
    types = dict(zip(("out", "a", "b", "n"), ADD.split(", "), strict=True))
    for signature in (ADD, list(types.values()), types, {**types, "BLOCK": "constexpr"}):
        module = triton(kernels.vector_add, signature, {"BLOCK": 128}, num_warps=1)
        out, ones = target.zeros(100), target.array(np.ones(100, np.float32))
        target.load(module)["vector_add"][1](out, ones, ones, 100)
        assert np.array_equal(out.numpy(), np.full(100, 2, np.float32))


def test_what_is_compiled_in_is_no_argument(target: Target) -> None:
    module = triton(kernels.vector_add, "*fp32, *fp32, *fp32", {"BLOCK": 128, "n": 50})
    out, ones = target.zeros(100), target.array(np.ones(100, np.float32))
    target.load(module)["vector_add"][1,](out, ones, ones)
    assert out.numpy().sum() == 100


@pytest.mark.parametrize(
    ("configuration", "arguments", "message"),
    [
        (
            (2, 2),
            ("out", "a", "b", 8),
            "vector_add was compiled for blocks of 128x1x1 threads, got 2x1x1; write the grid alone, vector_add[grid,], or "
            "vector_add[(2, 2),] for a grid of 2x2",
        ),
        ((1,), ("out", "a", 8), "kernel vector_add takes 4 arguments (u64 pointer, u64 pointer, u64 pointer, u32), got 3"),
        ((1,), ("out", "a", "wide", 8), "argument 3 of vector_add is f8[8], but the kernel was compiled for a pointer to f4"),
    ],
)
def test_launches_are_checked_against_the_signature(
    target: Target, configuration: object, arguments: tuple[object, ...], message: str
) -> None:
    kernel = target.load(triton(kernels.vector_add, ADD, {"BLOCK": 256}))["vector_add"]
    arrays = {name: target.zeros(8, "f8" if name == "wide" else "f4") for name in ("out", "a", "b", "wide")}
    with pytest.raises(BadLaunch) as raised:
        kernel[configuration](*(arrays[one] if isinstance(one, str) else one for one in arguments))
    assert str(raised.value) == message


def test_a_matrix_product_needs_its_shared_memory(target: Target) -> None:
    case = CASES["matmul"]()
    needed = case.module.kernels["matmul"].convention.shared_bytes  # type: ignore[union-attr]
    with pytest.raises(BadLaunch, match=f"^matmul needs {needed:,} bytes of dynamic shared memory, got 16$"):
        target.load(case.module)["matmul"][1, None, None, 16]


@pytest.mark.parametrize(
    ("signature", "constexprs", "message"),
    [
        (ADD, {}, "vector_add needs values of its constexpr parameters: BLOCK"),
        (ADD, {"BLOCK": 64, "GROUP": 8}, "vector_add has no parameter GROUP; it has: out, a, b, n, BLOCK"),
        ("*fp32, i32", {"BLOCK": 64}, "the signature of vector_add has 2 types for 4 parameters: out, a, b, n"),
        ({"out": "*fp32", "n": "i32"}, {"BLOCK": 64}, "vector_add needs types of its parameters: a, b"),
        (
            "*fp32, *fp32, *float, i32",
            {"BLOCK": 64},
            "the type of b of vector_add is '*float'; a launch through memlane passes pointers such as '*fp32' or '*bf16:16', numbers "
            "such as 'i32' or 'fp32'",
        ),
        ("*fp32, *fp32, *fp32, bf16", {"BLOCK": 64}, "the type of n of vector_add is 'bf16'; a launch"),
        (ADD, {"BLOCK": 100}, "Triton does not compile vector_add\nat 2:36:"),
    ],
)
def test_what_does_not_compile(signature: object, constexprs: dict[str, object], message: str) -> None:
    with pytest.raises(CompileError) as raised:
        triton(kernels.vector_add, signature, constexprs)  # type: ignore[arg-type]
    assert str(raised.value).startswith(message)


def test_what_is_no_kernel() -> None:
    with pytest.raises(CompileError) as raised:
        triton("vector_add", ADD)  # type: ignore[arg-type]
    assert (
        str(raised.value) == "'vector_add' is not a Triton kernel; memlane.triton takes a Python function, or what triton.jit makes of one"
    )
    with pytest.raises(CompileError, match=r"^no architecture 'hopper'; write it like sm_90$"):
        triton(kernels.vector_add, ADD, {"BLOCK": 64}, arch="hopper")
    with pytest.raises(CompileError, match=r"^Triton does not compile vector_add"):
        triton(kernels.vector_add, ADD, {"BLOCK": 64}, num_warps=3)


def test_tensor_descriptors_of_a_kernel_lie_in_memory_that_a_launch_has_for_them(target: Target) -> None:
    module = triton(kernels.descriptor_copy, "*fp32:16, *fp32:16, i32, i32:16", {"BLOCK": 32}, num_warps=1)
    host = np.random.default_rng(4).standard_normal((20, 48)).astype(np.float32)
    call, out = target.load(module)["descriptor_copy"][2,], target.zeros((32, 32), np.float32)
    call(out, target.array(host), 20, 48)
    assert np.array_equal(out.numpy(), np.pad(host[:, :32], ((0, 12), (0, 0))))
    scratch = [argument.text for argument in call.bind(out, target.array(host), 20, 48).arguments if "scratch" in argument.text]
    assert scratch == ["256 bytes of scratch memory"], "128 for each block"


@pytest.mark.parametrize("shape", [(64, 64, 32), (128, 32, 64)])
def test_matrix_products_of_hopper(target: Target, shape: tuple[int, int, int]) -> None:
    """`tl.dot` for sm_90 is `wgmma`, with its operands in swizzled shared memory, and copies that are under way meanwhile."""
    types, rng = "*fp32:16, *fp16:16, *fp16:16, i32:16, i32:16, i32:16", np.random.default_rng(6)
    module = triton(kernels.matmul, types, dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), shape, strict=True)), arch="sm_90")
    assert "wgmma" in {one.opcode for one in module.kernels["matmul"].body.instructions()}  # type: ignore[union-attr]
    a, b = (rng.integers(-4, 5, (128, 128)).astype(np.float16) for _ in range(2))
    c = target.zeros((128, 128))
    grid = (128 // shape[0], 128 // shape[1])
    target.load(module)["matmul"][grid,](c, target.array(a), target.array(b), 128, 128, 128)
    assert np.array_equal(c.numpy(), a.astype(np.float32) @ b.astype(np.float32))


def test_an_instruction_that_is_not_modelled_is_named_with_its_line(target: Target) -> None:
    module = triton(kernels.with_type_query, "*i32:16, *i32:16", {"BLOCK": 128}, arch="sm_90")
    array = target.zeros(128, "i4")
    with pytest.raises(UnsupportedPtx, match=rf"^{FILE}:\d+: the emulator does not model istypep.texref; PTX line \d+"):
        target.load(module)["with_type_query"][1](array, array)
