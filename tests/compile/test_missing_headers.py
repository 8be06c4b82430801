"""What the messages for a header that was not found say to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlane.compile import cuda_to_ptx
from memlane.errors import CompileError


def test_a_header_that_lies_nearby_is_named_with_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "common" / "inc").mkdir(parents=True)
    (tmp_path / "common" / "inc" / "real.h").write_text("typedef float real;\n")
    (tmp_path / "cuda").mkdir()
    Path("cuda/k.cu").write_text('#include "real.h"\n__global__ void k(real* p) { *p = 1; }\n')
    told = (
        r'^cuda/k.cu:1: the header "real.h" was not found; name its directory with -I common/inc \(include=\[\'common/inc\'\] in Python\)$'
    )
    with pytest.raises(CompileError, match=told):
        cuda_to_ptx("cuda/k.cu")
    assert cuda_to_ptx("cuda/k.cu", include=["common/inc"]).kernels


def test_a_header_that_several_directories_have_is_taken_from_the_one_that_the_build_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for directory in ("alone", "beside", "main"):
        Path(directory).mkdir()
        Path(directory, "main.cu").write_text('#include "reference_sum.h"\n__global__ void k(int* p) { *p = 1; }\n')
    for directory in ("alone", "beside"):
        Path(directory, "reference_sum.h").write_text("\n")
    Path("main/Makefile").write_text("SHARED = ../beside\nmain: main.cu\n\tnvcc -O3 -I/usr/include -I $(SHARED) -o main main.cu\n")
    with pytest.raises(CompileError) as raised:
        cuda_to_ptx("main/main.cu")
    assert str(raised.value) == (
        'main/main.cu:1: the header "reference_sum.h" was not found; name its directory with -I beside '
        "(include=['beside'] in Python), as main/Makefile:3 does"
    )


def test_a_header_that_the_build_makes_is_named_with_its_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("include").mkdir()
    Path("include/generated_sizes.h.in").write_text("#define SIDE @SIDE@\n")
    Path("k.cu").write_text('#include "generated_sizes.h"\n__global__ void k(int* p) { *p = SIDE; }\n')
    told = (
        r'^k.cu:1: the header "generated_sizes.h" was not found; the program\'s build makes it from include/generated_sizes.h.in: '
        r"run its configuration \(cmake or configure\), and name the directory of the result with -I DIR \(include=\[DIR\] in Python\)$"
    )
    with pytest.raises(CompileError, match=told):
        cuda_to_ptx("k.cu")


def test_a_file_without_a_kernel_and_without_a_header_names_the_file_with_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("save.cu").write_text('#include "store.h"\nvoid save() { }\n')
    Path("kernels.cu").write_text("__global__ void k(int* p) { *p = 1; }\n")
    told = r'"store.h" was not found; [^\n]*\nsave.cu has no kernel of its own; name a file that defines one: kernels.cu$'
    with pytest.raises(CompileError, match=told):
        cuda_to_ptx("save.cu")
