"""Which macros the messages ask for where code lies behind a conditional that does not hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlane.compile import cuda_to_ptx
from memlane.errors import CompileError


def message(source: str, **options: object) -> str:
    with pytest.raises(CompileError) as raised:
        cuda_to_ptx(source, name="guarded.cu", **options)  # type: ignore[arg-type]
    return str(raised.value)


GUARDED = """#ifdef SAVE_PATHS
#define DEPTH 4
struct Path { float length[DEPTH]; };
__device__ inline void save(Path* p, float x) { p->length[0] = x; }
__constant__ float scale = 2.f;
#endif
__global__ void trace(float* out) {
  Path p;
  save(&p, scale);
  out[threadIdx.x % DEPTH] = p.length[0];
}
"""


def test_what_a_conditional_guards_is_named_with_the_macro_and_the_lines() -> None:
    assert (
        "guarded.cu:1: `#ifdef SAVE_PATHS` does not hold, so what it guards is not defined: `DEPTH` (line 2), `Path` (line 3), "
        "`save` (line 4), `scale` (line 5); pass -D SAVE_PATHS (define=['SAVE_PATHS'] in Python), as the program's build does."
    ) in message(GUARDED)
    assert list(cuda_to_ptx(GUARDED, define=["SAVE_PATHS"]).kernels.values()) == ["trace(float*)"]


def test_a_header_of_the_program_is_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / "sizes.h").write_text(
        "#ifndef SIZES_H\n#define SIZES_H\n#if defined(GPU) || defined(BOTH)\n#define BLOCK 512\n#endif\n#endif\n"
    )
    told = message('#include "sizes.h"\n__global__ void k(int* p) { *p = BLOCK; }\n', include=[tmp_path])
    assert "sizes.h:3: `#if defined(GPU) || defined(BOTH)` does not hold" in told
    assert "pass the one of GPU, BOTH that the program's build passes, for example -D GPU (define=['GPU'] in Python)" in told


@pytest.mark.parametrize(
    "definition",
    [
        "#ifndef FAST\n#undef N\n#else\n#define N 3\n#endif",  # wants FAST, but `#else` is not reasoned about
        "#if 0\n#define N 3\n#endif",
        "#if !defined(FAST) && defined(SLOW)\n#define N 3\n#endif",
        "#if __CUDA_ARCH__ > 1000000\n#define N 3\n#endif",
        "#define OWN 1\n#if OWN > 2\n#define N 3\n#endif",
    ],
)
def test_no_macro_is_asked_for_where_none_is_known_to_help(definition: str) -> None:
    told = message(f"{definition}\n__global__ void k(int* p) {{ *p = N; }}\n")
    assert 'identifier "N" is undefined' in told
    assert "-D" not in told


def test_a_use_is_not_taken_for_a_definition() -> None:
    told = message("__global__ void k(int* p) {\n#ifdef LOUD\n  *p = f(N);\n  return N;\n#endif\n  *p = N;\n}\n")
    assert 'identifier "N" is undefined' in told
    assert "-D" not in told


def test_an_error_directive_is_named_with_the_macros_of_its_conditional() -> None:
    loops = "#if defined(BY_GRID)\n  *p = 1;\n#elif defined(BY_BLOCK)\n  *p = 2;\n#else\n#error Pick a loop\n#endif\n"
    source = f"__global__ void k(int* p) {{\n{loops}}}\n"
    assert (
        "guarded.cu:7 stops the compiler (`#error Pick a loop`): pass the one of BY_GRID, BY_BLOCK that the program's build passes, "
        "for example -D BY_GRID (define=['BY_GRID'] in Python)."
    ) in message(source)


def test_a_branch_that_another_one_follows_is_named_with_its_own_macro() -> None:
    """The branches behind the definition, `#else` among them, used to decide the macro, or ended in a traceback."""
    told = message("#ifdef GPU\n#define BLOCK 512\n#else\n#include <cstdio>\n#endif\n__global__ void k(int* p) { *p = BLOCK; }\n")
    assert "guarded.cu:1: `#ifdef GPU` does not hold, so what it guards is not defined: `BLOCK` (line 2); pass -D GPU (" in told
    told = message("#ifdef CPU\n#define N 1\n#elif defined(GPU)\n#define BLOCK 2\n#endif\n__global__ void k(int* p) { *p = BLOCK; }\n")
    assert "guarded.cu:3: `#elif defined(GPU)` does not hold, so what it guards is not defined: `BLOCK` (line 4); pass -D GPU (" in told


def test_a_name_that_several_branches_define_asks_for_one_of_their_macros() -> None:
    source = "#ifdef REAL32\ntypedef float real;\n#elif REAL64\ntypedef double real;\n#endif\n__global__ void k(real* p) { *p = 1; }\n"
    assert (
        "guarded.cu:1: `#ifdef REAL32` does not hold, so what it guards is not defined: `real` (line 2); "
        "pass the one of REAL32, REAL64 that the program's build passes, for example -D REAL32 ("
    ) in message(source)
    assert list(cuda_to_ptx(source, define=["REAL64"]).kernels.values()) == ["k(double*)"]


def test_kernels_that_a_conditional_skips_are_named_with_its_macro() -> None:
    source = "#ifdef GPU\n__global__ void __launch_bounds__(64) scale(float* p) { *p = 2; }\n#endif\nint main() { return 0; }\n"
    assert message(source) == (
        "guarded.cu has no kernel\nguarded.cu:1: `#ifdef GPU` does not hold, so the kernels that it guards are not compiled: "
        "`scale` (line 2); pass -D GPU (define=['GPU'] in Python), as the program's build does."
    )
    several = "".join(f"#ifdef WITH_{n}\ntemplate <int N> __global__ void k{n}(int* p) {{ *p = N; }}\n#endif\n" for n in range(6))
    assert message(several).count("pass -D WITH_") == 3
    assert message(several).endswith("\nOther conditionals guard 3 more kernels, the first of them `k3`.")
    assert "-D" not in message("#if 0\n__global__ void scale(float* p) { *p = 2; }\n#endif\n")


BUILDS = {
    "Makefile": "# -DSIDE=1\nWIDTH ?= 96 # bytes\nCFLAGS := $(EXTRA) -DNDEBUG \\\n  -DSIDE=64 -DTILE=$(WIDTH) -DDEEP=$(call deep)\n",
    "CMakeLists.txt": "add_compile_definitions(FAST)\ntarget_compile_definitions(main\n  PRIVATE SIDE=64 TILE=96 DEEP=${DEEP})\n",
    "compile.sh": "nvcc -o main -D SIDE=64 -D'TILE=96' -DDEEP=\"$1\" main.cu\n",
}


@pytest.mark.parametrize("build", BUILDS)
def test_the_macros_of_a_build_file_are_read_with_their_values(tmp_path: Path, build: str) -> None:
    """Expected: the line of the option in the file, counted by hand in the texts above."""
    line = {"Makefile": 4, "CMakeLists.txt": 3, "compile.sh": 1}[build]
    program = tmp_path / "src" / "main.cu"
    program.parent.mkdir()
    program.write_text("__global__ void k(int* p) { p[SIDE] = TILE + DEEP + MORE; }\n")
    (tmp_path / build).write_text(BUILDS[build])
    with pytest.raises(CompileError) as raised:
        cuda_to_ptx(program)
    told = str(raised.value)
    for option in ("SIDE=64", "TILE=96", "DEEP=VALUE"):
        name = option.partition("=")[0]
        assert f"`{name}` is not defined in the program's files: pass -D {option} (define=['{option}'] in Python), as " in told
    assert f"{tmp_path / build}:{line} does." in told
    assert "pass -D MORE" not in told


def test_of_several_macros_the_one_is_asked_for_that_the_build_passes(tmp_path: Path) -> None:
    program = tmp_path / "main.cu"
    program.write_text("#ifdef R32\ntypedef float R;\n#elif R64\ntypedef double R;\n#endif\n__global__ void k(R* p) { *p = 1; }\n")
    (tmp_path / "Makefile").write_text("all:\n\tnvcc -DR64 main.cu\n")
    with pytest.raises(CompileError) as raised:
        cuda_to_ptx(program)
    assert f"`R` (line 2); pass -D R64 (define=['R64'] in Python), as {tmp_path / 'Makefile'}:2 does." in str(raised.value)
