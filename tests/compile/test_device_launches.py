"""Files in which one kernel launches another: the other kernels load, and what was left out is said."""

from __future__ import annotations

from pathlib import Path

import pytest

import memlane as ml
from memlane.cli import main
from memlane.compile import CompiledPtx, cuda_to_ptx
from memlane.errors import BadLaunch, CompileError

CHILD = "__global__ void child(int* p) { *p = 1; }\n"
OTHER = "__global__ void other(float* p) { p[threadIdx.x] *= 2; }\n"
PARENT = "__global__ void parent(int* p) {\n  child<<<1, 1>>>(p);\n}\n"
REASON = "it launches a kernel from the device (dynamic parallelism); launch the inner kernel from the host"


def compiled(source: str, instantiate: tuple[str, ...] = ()) -> CompiledPtx:
    return cuda_to_ptx(source, name="cdp.cu", instantiate=instantiate)


def titles(source: str) -> set[str]:
    return set(compiled(source).kernels.values())


def test_the_other_kernels_load_and_one_note_says_what_is_left_out() -> None:
    found = compiled(CHILD + PARENT + OTHER)
    assert set(found.kernels.values()) == {"child(int*)", "other(float*)"}
    assert found.notes == (f"cdp.cu:3: the kernel `parent` was left out: {REASON}",)
    assert found.sources == {"cdp.cu": CHILD + PARENT + OTHER}


def test_callers_of_a_function_that_launches_are_left_out_too() -> None:
    helper = "__device__ void helper(int* p) { child<<<1, 1>>>(p); }\n__device__ void outer(int* p) { helper(p); }\n"
    found = compiled(f"{CHILD}{helper}__global__ void caller(int* p) {{ outer(p); }}\n{OTHER}")
    assert set(found.kernels.values()) == {"child(int*)", "other(float*)"}
    reason = REASON.removeprefix("it ")
    assert found.notes == (
        f"cdp.cu:2: the function `helper` was left out: it {reason}",
        f"cdp.cu:3: the function `outer` was left out: it calls `helper`, which {reason}",
        f"cdp.cu:4: the kernel `caller` was left out: it calls `outer`, which {reason}",
    )


@pytest.mark.parametrize(
    "helper",
    [
        "__device__ void helper(int* p);\n__device__ void helper(int* p) { child<<<1, 1>>>(p); }",
        "__device__ void helper(void* p) { }\n__device__ void helper(int* p) { child<<<1, 1>>>(p); }",
        "template <typename T> __device__ void helper(T* p) { child<<<1, 1>>>(p); }",
        "struct S { __device__ void operator()(int) { } __device__ static void run(int* p) { child<<<1, 1>>>(p); } };\n"
        "__device__ void helper(int* p) { S::run(p); }",
    ],
    ids=["declared", "overloaded", "template", "member"],
)
def test_no_other_function_is_called_in_the_place_of_one_that_launches(helper: str) -> None:
    assert titles(f"{CHILD}{helper}\n__global__ void caller(int* p) {{ helper(p); }}\n{OTHER}") == {"child(int*)", "other(float*)"}


def test_one_of_overloads_that_launches_stays_out_alone() -> None:
    overloads = "__device__ void helper(float* p) { *p = 2; }\n__device__ void helper(int* p) { child<<<1, 1>>>(p); }\n"
    source = f"{CHILD}{overloads}__global__ void caller(int* p) {{ helper(p); }}\n__global__ void fine(float* p) {{ helper(p); }}\n"
    assert titles(source) == {"child(int*)", "fine(float*)"}


@pytest.mark.parametrize(
    "use",
    [
        "template __global__ void parent<int>(int*);\n",
        "int main() { parent<int><<<1, 1>>>(0); }\n",
        "int main() { int* p; parent<<<1, 1>>>(p); }\n",
    ],
)
def test_a_template_that_launches_is_left_out(use: str) -> None:
    scale = "template <typename T> __global__ void scale(T* p) { *p *= 2; }\nvoid run(float* p) { scale<<<1, 1>>>(p); }\n"
    found = compiled(f"{CHILD}template <typename T> __global__ void parent(T* p) {{ child<<<1, 1>>>(p); }}\n{scale}{use}")
    assert set(found.kernels.values()) == {"child(int*)", "void scale<float>(float*)"}
    assert found.notes == (f"cdp.cu:2: the kernel `parent` was left out: {REASON}",)


def test_an_instantiation_that_launches_is_refused_with_the_reason() -> None:
    source = f"{CHILD}template <typename T> __global__ void parent(T* p) {{ child<<<1, 1>>>(p); }}\n"
    with pytest.raises(CompileError) as caught:
        compiled(source, instantiate=("parent<int>",))
    assert "cdp.cu cannot instantiate parent<int>" in str(caught.value)
    assert f"cdp.cu:2: the kernel `parent` was left out: {REASON}" in str(caught.value)


def test_a_call_of_the_runtime_is_named() -> None:
    found = compiled(f"{OTHER}__global__ void frees(int* p) {{ cudaFree(p); }}\n")
    assert found.notes == (
        "cdp.cu:2: the kernel `frees` was left out: it calls `cudaFree` of the CUDA runtime (dynamic parallelism); "
        "launch the inner kernel from the host",
    )


def test_a_file_of_only_such_kernels_is_refused() -> None:
    with pytest.raises(CompileError, match=r"cdp\.cu does not compile") as caught:
        compiled("__global__ void again(int n) { if (n) again<<<1, 1>>>(n - 1); }\n")
    assert "memlane runs no kernels that launch kernels or call the CUDA runtime (dynamic parallelism): launch the inner" in str(
        caught.value
    )


def test_an_error_of_another_kind_is_told() -> None:
    with pytest.raises(CompileError, match='identifier "nowhere" is undefined'):
        compiled(f"{CHILD}{PARENT}__global__ void wrong(int* p) {{ *p = nowhere; }}\n")


def test_a_kernel_that_was_left_out_is_refused_by_name_with_the_reason() -> None:
    module = ml.target("emulator:h200").load(ml.cuda(CHILD + PARENT + OTHER, name="cdp.cu"))
    with pytest.raises(BadLaunch, match=r"^cdp\.cu:3: the kernel `parent` was left out: it launches a kernel from the device"):
        module["parent"]
    with pytest.raises(BadLaunch, match="no kernel 'absent'"):
        module["absent"]


def test_the_command_line_says_what_was_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cdp.cu"
    path.write_text(CHILD + PARENT + OTHER)
    main(["explain", str(path)])
    told = capsys.readouterr().err
    assert f"memlane: note: {path}:3: the kernel `parent` was left out: {REASON}\n" in told
    assert "has several kernels: child, other; " in told
    main(["explain", str(path), "--kernel", "parent"])
    assert f"{path}:3: the kernel `parent` was left out: {REASON}" in capsys.readouterr().err.replace("memlane: note: ", "", 1)
