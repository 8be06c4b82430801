"""Numba's kernels on the emulator against NumPy: compiled here, launched with arrays as in Numba, traced and counted."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

import memlane as ml
from memlane.compile import assemble, numba
from memlane.errors import BadAccess, BadLaunch, CompileError, MissingDependency
from memlane.launch import Target
from memlane.packages import install_command
from memlane.targets import target as target_named

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from cuda.pathfinder import DynamicLibNotFoundError
from numba import config, cuda, float32, int32, types, void

from tests.compile import numba_kernels as kernels
from tests.compile.measuring import check_counts, check_quiet, check_trace
from tests.compile.numba_cases import CASES

pytestmark = pytest.mark.numba
FILE = os.path.relpath(Path(kernels.__file__))
INSTRUMENTED = ("vector_add", "layer_norm", "histogram", "transpose")
"""Generic addresses, shuffles, shared atomics, tiles."""


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


@pytest.mark.slow
@pytest.mark.parametrize("name", INSTRUMENTED)
def test_counting_kernels_count_what_the_emulator_sees(name: str) -> None:
    check_counts(CASES[name]())


@pytest.mark.slow
@pytest.mark.parametrize("name", INSTRUMENTED)
def test_traced_kernels_compute_the_same_and_name_their_lines(name: str) -> None:
    check_trace(CASES[name](), FILE, kernels.__dict__[name])


@pytest.mark.parametrize("name", CASES)
def test_modules_assemble(name: str) -> None:
    assert assemble(CASES[name]().module).kernels[name].registers > 0


def test_a_module_holds_one_kernel_under_its_own_name_and_the_text_it_came_from() -> None:
    module = CASES["vector_add"]().module
    assert list(module.kernels) == ["vector_add"]
    assert module.kernels["vector_add"].title == "vector_add"
    assert module.name == FILE
    assert module.sources == {FILE: Path(kernels.__file__).read_text(encoding="utf-8")}
    assert set(module.files.values()) == {FILE}


def test_a_line_costs_what_its_arrays_do(target: Target) -> None:
    call, arguments = CASES["vector_add"]().prepare(target)
    sites = ml.count(call, *arguments).sites
    assert [(site.site.kind, site.lanes, site.sectors) for site in sites] == [
        ("load", 1000, 125),
        ("load", 1000, 125),
        ("store", 1000, 125),
    ]
    text = Path(kernels.__file__).read_text(encoding="utf-8").splitlines()
    assert {text[site.site.line - 1].strip() for site in sites} == {"out[i] = a[i] + b[i]"}


@pytest.mark.parametrize(
    "signature", ["void(float32[:], float32[:], float32[:])", "(f4[:], f4[:], f4[:])", (float32[:],) * 3, void(*(float32[::1],) * 3)]
)
def test_signatures_are_numbas(signature: object, target: Target) -> None:
    out = target.zeros(5)
    ones = target.array(np.ones(5, np.float32))
    target.load(numba(kernels.vector_add, signature))["vector_add"][1, 32](out, ones, ones)
    assert np.array_equal(out.numpy(), np.full(5, 2, np.float32))


def test_options_reach_the_compiler() -> None:
    signature = "void(float32[:, ::1], float32[:, ::1])"
    plain = numba(kernels.softmax, signature, arch="sm_80")
    fast = numba(kernels.softmax, signature, fastmath=True, lineinfo=False, max_threads=128)
    assert (plain.target, fast.target) == (("sm_80",), ("sm_90",))
    assert fast.kernels["softmax"].extents(".maxntid") == (128, 1, 1)
    count = {module: len(list(module.kernels["softmax"].body.instructions())) for module in (plain, fast)}  # type: ignore[union-attr]
    assert count[fast] < count[plain]
    assert not any(i.location for i in fast.kernels["softmax"].body.instructions())  # type: ignore[union-attr]


def test_numbers_of_all_types(target: Target) -> None:
    def store(out, a, b, c, d, e):  # type: ignore[no-untyped-def]
        out[0], out[1], out[2], out[3], out[4] = a, b, c, d, e

    module = numba(store, "void(float64[::1], boolean, int8, uint16, float32, int64)")
    out = target.zeros(5, "f8")
    target.load(module)["store"][1, 1](out, True, -5, 65535, 0.25, -(1 << 40))
    assert out.numpy().tolist() == [1, -5, 65535, 0.25, -(1 << 40)]


def test_printing(target: Target, capfd: pytest.CaptureFixture[str]) -> None:
    def show(x):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < x.size:
            print("item", i, "is", x[i])

    target.load(numba(show, "void(int32[::1])"))["show"][1, 32](target.array(np.array([4, -2], np.int32)))
    target.sync()
    assert capfd.readouterr().out == "item 0 is 4\nitem 1 is -2\n"


def test_a_bad_access_names_the_line_of_python(target: Target) -> None:
    def beyond(x):  # type: ignore[no-untyped-def]
        x[cuda.grid(1)] = 1

    kernel = target.load(numba(beyond, "void(float32[::1])"))["beyond"]
    with pytest.raises(BadAccess, match=r"^kernel beyond, .*test_numba_kernels.py:\d+: block .*thread \(10, 0, 0\) wrote 4 bytes at"):
        kernel[1, 32](target.zeros(10))


def test_a_bad_access_names_the_argument_as_it_was_passed(target: Target) -> None:
    """An array fills several parameters, which nobody who launches the kernel counts."""
    kernel = target.load(numba(kernels.vector_add, "void(float32[::1], float32[::1], float32[::1])"))["vector_add"]
    with pytest.raises(BadAccess, match=r"past the end of the 40-byte allocation at 0x[0-9a-f]+, argument 3 \(f4\[10\]\)$"):
        kernel[1, 32](target.zeros(32), target.zeros(32), target.zeros(10))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((8,), (8,)), "kernel vector_add takes 3 arguments (f4[:], f4[:], f4[:]), got 2"),
        (((8,), (8,), (2, 4)), "argument 3 of vector_add is f4[2, 4], but the kernel was compiled for f4[:]"),
    ],
)
def test_launches_are_checked_against_the_signature(target: Target, arguments: tuple[tuple[int, ...], ...], message: str) -> None:
    kernel = target.load(CASES["vector_add"]().module)["vector_add"]
    with pytest.raises(BadLaunch) as raised:
        kernel[1, 32](*map(target.zeros, arguments))
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        (
            "void(float32[:], in32)",
            "'void(float32[:], in32)' is not a signature for vector_add, write it like 'void(float32[:], int32)': name 'in32'",
        ),
        ("void(float32[:])", "the signature of vector_add has 1 types, but vector_add takes 3 arguments: out, a, b"),
        (int32(*(float32[:],) * 3), "the signature of vector_add returns int32; a kernel returns nothing, write void(...)"),
        (
            "void(c8, f4[:], f4[:])",
            "argument 1 of vector_add is complex64; a launch through memlane passes arrays, integers, float32 and float64",
        ),
        (
            (types.Array(types.unicode_type, 1, "C"), float32[:], float32[:]),
            "argument 1 of vector_add has elements that NumPy has no type for: array(unicode_type, 1d, C)",
        ),
        ("void(f4[:], f4, f4[:])", "Numba does not compile vector_add\n"),
    ],
)
def test_what_does_not_compile(signature: object, message: str) -> None:
    with pytest.raises(CompileError) as raised:
        numba(kernels.vector_add, signature)
    assert str(raised.value).startswith(message)


def test_what_is_no_kernel() -> None:
    with pytest.raises(CompileError) as raised:
        numba("vector_add", "void()")  # type: ignore[arg-type]
    assert str(raised.value) == "'vector_add' is not a Python function; pass one to memlane.numba, or a kernel made by numba.cuda.jit"
    with pytest.raises(CompileError, match=r"^no architecture 'hopper'; write it like sm_90$"):
        numba(kernels.vector_add, "void(f4[:], f4[:], f4[:])", arch="hopper")


def test_what_keeps_numba_from_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_nvvm(*arguments: object, **options: object) -> None:
        raise DynamicLibNotFoundError("libnvvm")

    with monkeypatch.context() as patch:
        patch.setattr(cuda, "compile_ptx", without_nvvm)
        with pytest.raises(MissingDependency, match=r"^compiling Numba kernels needs packages .* pip install 'memlane\[numba\]'$"):
            numba(kernels.vector_add, "void(f4[:], f4[:], f4[:])")
    monkeypatch.setattr(config, "ENABLE_CUDASIM", 1)
    with pytest.raises(CompileError, match=r"^NUMBA_ENABLE_CUDASIM is set: Numba simulates kernels and compiles none; unset it$"):
        numba(kernels.vector_add, "void(f4[:], f4[:], f4[:])")


def test_a_numpy_that_numba_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_row_stack(*arguments: object, **options: object) -> None:
        raise AttributeError("module 'numpy' has no attribute 'row_stack'")

    monkeypatch.setattr(cuda, "compile_ptx", without_row_stack)
    with pytest.raises(MissingDependency) as raised:
        numba(kernels.vector_add, "void(f4[:], f4[:], f4[:])")
    assert str(raised.value) == (
        f"compiling Numba kernels (numba-cuda {version('numba-cuda')} does not go with NumPy {np.__version__}: "
        "module 'numpy' has no attribute 'row_stack') needs packages that are not installed; "
        f"install them with: {install_command('numba')}"
    )
