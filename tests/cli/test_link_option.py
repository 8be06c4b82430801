"""`--link FILE`: a kernel whose functions are in other files."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Command

MAIN = "extern __device__ float f(float x);\n__global__ void k(float* p) { p[threadIdx.x] = f(p[threadIdx.x]); }\n"
OTHER = "__device__ float f(float x) { return x + 1; }\n"
LAUNCH = ("--grid", "1", "--block", "32", "--arg", "f4[32]")


def test_files_are_linked(memlane: Command) -> None:
    Path("main.cu").write_text(MAIN)
    Path("other.cu").write_text(OTHER)
    answer = memlane("count", "main.cu", "--link", "other.cu", *LAUNCH)
    assert answer.code == 0, answer.err
    assert "p[threadIdx.x] = f(p[threadIdx.x])" in answer.out


def test_what_does_not_fit_is_one_sentence(memlane: Command) -> None:
    Path("main.cu").write_text(MAIN)
    answer = memlane("count", "main.cu", "--link", "main.cu", *LAUNCH)
    assert answer.code == 1
    assert answer.err == "memlane: the kernel `k(float*)` is defined in main.cu and again in main.cu; rename one of them\n"
    answer = memlane("count", "main.cu", "--link", "absent.cu", *LAUNCH)
    assert answer.code == 2
    assert "no file absent.cu" in answer.err
    Path("script.py").write_text("")
    answer = memlane("count", "script.py", "--link", "main.cu")
    assert answer.code == 2
    assert "--link is for .cu and .ptx files" in answer.err
