"""A .cu or .ptx file that is named without a launch: the message has one to start from, which fits the kernel."""

from __future__ import annotations

import itertools
import shlex
import textwrap
from pathlib import Path

import pytest

from tests.cli.conftest import EXAMPLES, Command

PARTICLES = """\
    struct Particle { float x, y, z, vx, vy, vz; };
    __global__ void advance(Particle* p, int n, float dt) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) p[i].x += p[i].vx * dt;
    }
    int main() {
        int n = 65536;
        Particle* p;
        cudaMalloc(&p, n * sizeof(Particle));
        advance<<<(n + 255) / 256,
                  256>>>(p, n, 0.01f);
    }
"""


def example(error: str) -> list[str]:
    return shlex.split(error.partition("for example: ")[2].partition(" (the source launches")[0])


def test_the_message_has_a_launch_and_the_one_of_the_source(memlane: Command) -> None:
    Path("particles.cu").write_text(textwrap.dedent(PARTICLES))
    answer = memlane("explain", "particles.cu")
    assert answer.code == 2
    assert answer.err == (
        "memlane: particles.cu: give a launch of advance(Particle*, int, float), because memlane does not run the host code of a .cu "
        "file; for example: --grid 4 --block 256 --arg 'p:u1[1048576]' --arg 1024:i4 --arg 0.01:f4 "
        "(the source launches advance<<<(n + 255) / 256, 256>>>(p, n, 0.01f))\n"
    )
    answer = memlane("explain", "particles.cu", *example(answer.err))
    assert answer.code == 0
    assert "uncoalesced global access, advance" in answer.out


COLUMNS = """\
    template <int N> __global__ void columns(const float* a, float* out, int rows, float scale) {
        int c = blockIdx.x * N + threadIdx.x;
        for (int r = threadIdx.y; r < rows; r += blockDim.y) out[c] += scale * a[r * gridDim.x * N + c];
    }
    __global__ void other(float* out) { out[threadIdx.x] = 1; }
    int main() { columns<32><<<LAUNCH>>>(0, 0, 1000u, 2); other<<<1, 32>>>(0); }
"""


@pytest.mark.parametrize(
    ("written", "shape"),
    [
        ("32, dim3(32, 8)", "--grid 32 --block 32,8"),
        ("dim3{4, 2}, 64, 0, stream", "--grid 4,2 --block 64"),
        ("blocks, dim3(32, 4)", "--grid 32 --block 32,4"),
        ("16, dim3(N, 4)", "--grid 64 --block 16,16"),
    ],
)
def test_numbers_of_the_launch_in_the_source_are_taken_from_there(memlane: Command, written: str, shape: str) -> None:
    Path("k.cu").write_text(textwrap.dedent(COLUMNS.replace("LAUNCH", written)))
    answer = memlane("explain", "k.cu")
    assert answer.err == "memlane: k.cu has several kernels: other, columns; choose one with --kernel\n"
    answer = memlane("explain", "k.cu", "--kernel", "columns")
    reason = "because memlane does not run the host code of a .cu file"
    assert f"give a launch of columns<32>(float const*, float*, int, float), {reason}; for example: {shape} " in answer.err
    assert "--arg 1000:i4 --arg 2.0:f4 (the source launches columns<32><<<" in answer.err


@pytest.mark.parametrize("linkage", ["", 'extern "C" '])
@pytest.mark.parametrize(
    ("head", "arguments"),
    [
        ("const float4* in, double* out, size_t n", ["in:f4[1048576]=random:7", "out:f8[1048576]", "1024:u8"]),
        ("unsigned char* image, short* taps, bool flip", ["image:u1[1048576]", "taps:i2[1048576]", "1:bool"]),
        ("const int* keys, long long* sums, unsigned n, char c", ["keys:i4[1048576]", "sums:i8[1048576]", "1024:u4", "1:i1"]),
        ("void* raw", ["raw:u1[1048576]"]),
        ("const __nv_bfloat16* in, __half* out", ["in:u2[1048576]", "out:f2[1048576]"]),
        (
            "unsigned long long *__restrict__ const seen, const float taps[5], int",
            ["seen:u8[1048576]", "taps:f4[1048576]=random:7", "1024:i4"],
        ),
        ("", []),
    ],
)
def test_arguments_fit_the_types_of_the_parameters(memlane: Command, linkage: str, head: str, arguments: list[str]) -> None:
    """The types are those of the kernel's name, or of its definition where the name has none."""
    Path("k.cu").write_text(f"#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n{linkage}__global__ void k({head}) {{ }}\n")
    words = example(memlane("count", "k.cu").err)
    assert [word for before, word in itertools.pairwise(words) if before == "--arg"] == arguments
    assert memlane("check", "k.cu", *words).code == 0


STRUCTURES = """
typedef float real;
#define Index int
enum Kind { ONE };
struct Point { real x, y; };
namespace sim {
struct Grid {
    Index nx, ny;              // its sizes
    const real *__restrict__ in; double *out;
    Point corners[2];
    bool periodic = true;
    __host__ __device__ Index size() const { return nx * ny; }
    static const int RANK = 2;
};
}
typedef struct { unsigned char *bytes; unsigned long long length; char tag; } Text;
struct Odd { int a; float2 b; };
struct Based : Point { int c; };
struct Bits { int a : 3; };
struct Sized { float w[SIZE]; };
struct Named { Kind kind; };
"""


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        ("Point", "{1.0:f4, 1.0:f4}"),
        (
            "sim::Grid",
            "{1024:i4, 1024:i4, f4[1048576], f8[1048576], {1.0:f4, 1.0:f4}, {1.0:f4, 1.0:f4}, 1:bool}",
        ),
        ("const Text", "{u1[1048576], 1024:u8, 1:i1}"),
        *((one, "{MEMBERS}") for one in ("Odd", "Based", "Bits", "Sized", "Named")),  # their members are not known for certain
    ],
)
def test_a_structure_is_written_out_where_its_definition_is_plain(memlane: Command, kind: str, members: str) -> None:
    text = f"#define SIZE 4\n{STRUCTURES}__global__ void k({kind} p, float* out) {{ out[0] = sizeof(p) + *(const char*)&p; }}\n"
    Path("k.cu").write_text(text)
    answer = memlane("count", "k.cu")
    assert f"--arg '{members}' --arg 'out:f4[1048576]'" in answer.err
    if members != "{MEMBERS}":
        assert memlane("count", "k.cu", *example(answer.err)).code == 0


def test_without_a_source_the_types_are_those_of_the_ptx(memlane: Command) -> None:
    text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u32 n, .param .f32 x) { ret; }\n"
    Path("k.ptx").write_text(text)
    answer = memlane("count", "k.ptx")
    assert answer.err.startswith(
        "memlane: k.ptx: give a launch of k; for example: --grid 1 --block 256 --arg 'f4[1048576]' --arg 1024:i4 --arg 1.0:f4"
    )


def test_a_kernel_with_dynamic_shared_memory_gets_some(memlane: Command) -> None:
    Path("k.cu").write_text(
        "namespace sim { extern __shared__ float tile[]; __device__ __noinline__ float* row() { return tile; } }\n"
        "__global__ void k(float* out) { float* s = sim::row(); s[threadIdx.x] = 1; out[threadIdx.x] = s[threadIdx.x]; }\n"
        "__global__ void plain(float* out) { *out = 1; }\n"
    )
    answer = memlane("count", "k.cu", "-k", "k")
    assert "--arg 'out:f4[1048576]' --shared 4096" in answer.err
    assert "--shared" not in memlane("count", "k.cu", "-k", "plain").err
    words = ("count", "k.cu", "-k", "k", "--grid", "1", "--block", "64", "--arg", "f4[64]")
    assert "the launch gives none to `tile`: pass --shared BYTES" in memlane(*words).err
    assert memlane(*words, "--shared", "256").code == 0


@pytest.mark.parametrize("file", ["transpose", "histogram", "stencil"])
def test_examples_take_the_launch_of_the_message(memlane: Command, file: str) -> None:
    """Code 2 would be a wrong command line; 1 is an access out of bounds, because the sizes are only a start."""
    source = EXAMPLES / f"{file}.cu"
    answer = memlane("count", source)
    if "several kernels" in answer.err:
        answer = memlane("count", source, "--kernel", answer.err.partition("kernels: ")[2].partition(";")[0].split(", ")[0])
    assert answer.code == 2
    assert memlane("count", source, "--kernel", answer.err.partition("launch of ")[2].partition("(")[0], *example(answer.err)).code in (
        0,
        1,
    )


@pytest.mark.parametrize(
    ("axes", "shape"),
    [("x", "--grid 4 --block 256"), ("xy", "--grid 16,16 --block 16,16"), ("xyz", "--grid 8,8,8 --block 8,8,8")],
)
def test_the_launch_has_the_dimensions_whose_thread_indices_the_kernel_reads(memlane: Command, axes: str, shape: str) -> None:
    index = " + ".join(f"threadIdx.{axis} + blockDim.{axis} * blockIdx.{axis}" for axis in axes)
    Path("k.cu").write_text(f"__global__ void k(float* out) {{ out[{index}] = 1; }}\n")
    answer = memlane("explain", "k.cu")
    assert f"for example: {shape} --arg" in answer.err
    assert memlane("count", "k.cu", *example(answer.err), "--deterministic").code == 0


COMPUTED = """\
    #include <cstdlib>
    #define SIDE 8  // of a tile
    #define THREADS (SIDE * SIDE)
    typedef unsigned char pixel;
    enum Mode { FAST, EXACT };
    __global__ void tiles(pixel* image, int side, int rows, float by) { image[blockIdx.x * side + threadIdx.x] = rows; }
    template <Mode m> __global__ void __launch_bounds__(96) moded(unsigned n, pixel* image) { if (threadIdx.x < n) image[threadIdx.x] = m; }
    extern "C" __global__ void plain(pixel* image, float* sums) {
      extern __shared__ float s[];
      s[threadIdx.x] = image[threadIdx.x];
      atomicAdd(&sums[threadIdx.x], s[threadIdx.x] + blockIdx.x);
    }
    __global__ void computed(float* p, int n) { if (blockIdx.x * blockDim.x + threadIdx.x < n) p[0] = 1; }
    void unrelated() {
      int count = 7;
      dim3 block(3, 3);
    }
    int main(int argc, char** argv) {
      int rows = atoi(argv[1]), count = 2 * THREADS, n = 1 << 20;
      const dim3 grid(SIDE, 3), block = dim3(SIDE, SIDE / 2);
      dim3 line;
      line.x = THREADS;
      tiles<<<grid, block>>>(nullptr, SIDE, rows, 2);
      moded<EXACT><<<grid, rows>>>(3, nullptr);
      plain<<<SIDE, line, (count + 1) * sizeof(float)>>>(nullptr,
    #ifdef FIRST
                  nullptr,
    #endif
                  nullptr);
      computed<<<(n + 255) / 256, 256>>>(nullptr, n);
    }
"""


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ("tiles", "--grid 8,3 --block 8,4 --arg 'image:u1[1048576]' --arg 8:i4 --arg 256:i4 --arg 2.0:f4"),
        ("moded<(Mode)1>", "--grid 1 --block 64 --arg 3:u4 --arg 'image:u1[1048576]'"),
        ("plain", "--grid 8 --block 64 --arg 'image:u1[1048576]' --arg 'sums:f4[1048576]' --shared 516"),
        ("computed", "--grid 4 --block 256 --arg 'p:f4[1048576]' --arg 1024:i4"),
    ],
)
def test_what_the_source_computes_of_constants_is_taken_from_there(memlane: Command, kernel: str, options: str) -> None:
    """By hand: 2 * 64 + 1 floats are 516 bytes; 256 and 128 are more than the 96 of the bounds; a million threads are too many to try."""
    Path("k.cu").write_text(textwrap.dedent(COMPUTED))
    answer = memlane("explain", "k.cu", "--kernel", kernel)
    assert f"for example: {options} (the source launches {kernel.partition('<')[0]}" in answer.err
    assert "#ifdef" not in answer.err
    assert memlane("check", "k.cu", "--kernel", kernel, *example(answer.err)).code == 0


def test_many_numbers_are_smaller_because_each_may_be_the_length_of_a_loop(memlane: Command) -> None:
    body = "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) for (int h = 0; h < k; h++) p[threadIdx.x] += i * j * h;"
    Path("k.cu").write_text(f"__global__ void k(int* p, int n, int m, int k) {{ {body} }}\n")
    assert (
        "for example: --grid 1 --block 256 --arg 'p:i4[1048576]' --arg 256:i4 --arg 256:i4 --arg 256:i4\n" in memlane("count", "k.cu").err
    )


def test_arguments_with_which_nothing_is_accessed_are_told(memlane: Command) -> None:
    Path("k.cu").write_text("__global__ void k(int* p, int n) { if (threadIdx.x < n) p[threadIdx.x] = n; }\n")
    answer = memlane("explain", "k.cu", "--grid", "1", "--block", "32", "--arg", "i4[32]", "--arg", "0:i4")
    assert answer.code == 1
    assert "with these arguments every thread left before its first access: give other numbers with --arg, or other sizes" in answer.err


def test_what_a_command_line_cannot_know_is_told(memlane: Command) -> None:
    Path("k.cu").write_text(
        "struct Base { int a; };\nstruct Bound : Base { float* p; };\n"
        "__global__ void rows(float* const* rows, Bound b) { rows[blockIdx.x][threadIdx.x] = b.a; }\n"
    )
    assert memlane("count", "k.cu").err.endswith(
        "for example: --grid 1024 --block 256 --arg 'rows:u8[1048576]' --arg '{MEMBERS}'; write the values of the structure in place of "
        "MEMBERS, in their order: '{f4[1024], 1024:i4}'; rows points to pointers: launch the kernel from a script, with an array of the "
        "addresses of other arrays\n"
    )
