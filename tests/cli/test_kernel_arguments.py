"""Kernels that take structures, textures and vectors, launched from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command

KERNELS = """\
struct Params { const float* in; float* out; int n; float scale; };
struct Pair { int count; double weight; };
__global__ void by_structure(Params p) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < p.n) p.out[i * 8] = p.scale * p.in[i];
}
__global__ void pair(double* out, Pair p) { out[threadIdx.x] = p.count * p.weight; }
__global__ void vectors(float4* out, int3 a, float4 b) { out[threadIdx.x * a.y] = b; }
__global__ void fetched(cudaTextureObject_t image, float* out) { out[threadIdx.x] = tex1Dfetch<float>(image, threadIdx.x); }
"""
SHAPE = ("--grid", 2, "--block", 64, "--json")


@pytest.fixture
def kernels() -> Path:
    path = Path("kernels.cu")
    path.write_text(KERNELS)
    return path


def sectors(text: str) -> dict[str, int]:
    """Of each access of the only launch, by its opcode."""
    return {site["op"]: site["counts"]["sectors"] for site in json.loads(text)["launches"][0]["sites"]}


def test_a_structure_is_its_members_in_braces(memlane: Command, kernels: Path) -> None:
    structure = "{in:f4[128]=arange, out:f4[1024], 100:i4, 2.0:f4}"
    answer = memlane("count", kernels, "--kernel", "by_structure", *SHAPE, "--arg", structure)
    assert (answer.code, answer.err) == (0, "")
    assert sectors(answer.out) == {"ld.global.f32": 13, "st.global.f32": 100}  # 100 floats in a row; every eighth is a sector of its own


def test_vector_types_are_structures_that_say_their_alignment(memlane: Command, kernels: Path) -> None:
    words = ("count", kernels, "--kernel", "vectors", *SHAPE, "--arg", "f4[1024]", "--arg", "{1:i4, 2:i4, 3:i4}", "--arg")
    answer = memlane(*words, "{1:f4, 2:f4, 3:f4, 4:f4}@16")
    assert (answer.code, answer.err) == (0, "")
    assert sectors(answer.out) == {"st.global.v4.f32": 2 * 64}
    refused = memlane(*words, "{1:f4, 2:f4, 3:f4, 4:f4}")
    assert refused.code == 2
    assert "argument 3 of vectors(float4*, int3, float4) is aligned to 16 bytes, but these members to 4" in refused.err
    assert "'{...}@16'" in refused.err


def test_a_texture_is_an_argument(memlane: Command, kernels: Path) -> None:
    words = ("count", kernels, "--kernel", "fetched", *SHAPE, "--arg", "texture(f4[64]=arange, memory=linear)", "--arg", "f4[64]")
    answer = memlane(*words)
    assert (answer.code, answer.err) == (0, "")
    assert sectors(answer.out)["st.global.f32"] == 2 * 8  # two blocks write the same 64 floats


@pytest.mark.parametrize(
    ("kernel", "arguments", "message"),
    [
        (
            "by_structure",
            ("f4[8]", "f4[8]", "8:i4", "2:f4"),
            "kernel by_structure(Params) takes 1 argument (structure of 24 bytes), got 4; pass one --arg per argument, in order: "
            "an array (u64) as f4[1024], a number as 1024:i4, a structure as '{f4[1024], 1024:i4}'",
        ),
        ("pair", ("f8[64]",), "takes 2 arguments (u64, structure of 16 bytes), got 1"),
        (
            "pair",
            ("f8[64]", "3:i4"),
            "--arg 3:i4: argument 2 of pair(double*, Pair) is a structure of 16 bytes: write its members in braces, in order, for "
            "example '{f4[1024]=arange, 1024:i4}'",
        ),
        (
            "pair",
            ("f8[64]", "{3:i4, 2:f4}"),
            "--arg {3:i4, 2:f4}: argument 2 of pair(double*, Pair) has 16 bytes, but these members take 8 (their offsets are 0, 4)",
        ),
        ("pair", ("{f8[64]}", "{3:i4, 2:f8}"), "--arg {f8[64]}: argument 1 of pair(double*, Pair) is u64, not a structure"),
    ],
)
def test_what_does_not_fit_a_parameter(memlane: Command, kernels: Path, kernel: str, arguments: tuple[str, ...], message: str) -> None:
    options = [word for text in arguments for word in ("--arg", text)]
    answer = memlane("count", kernels, "--kernel", kernel, *SHAPE, *options)
    assert answer.code == 2
    assert answer.err.startswith("memlane: ")
    assert message in answer.err
    assert answer.err.count("\n") == 1


def test_a_source_file_with_a_name_beyond_ascii(memlane: Command, kernels: Path) -> None:
    """NVRTC writes such a name in octal digits, and as an absolute path."""
    folder = Path("größe")
    folder.mkdir()
    path = kernels.rename(folder / "käse.cu")
    answer = memlane("trace", path, "--kernel", "pair", *SHAPE[:-1], "--arg", "f8[64]", "--arg", "{3:i4, 2:f8}")
    assert (answer.code, answer.err) == (0, "")
    assert answer.lines[1].startswith("  käse.cu; 1 launch of ")
    assert "   7  __global__ void pair(double* out, Pair p) { out[threadIdx.x] = p.count * p.weight; }" in answer.lines
    assert memlane("show", "käse.cu:7", "käse.parquet").lines[0] == "käse.cu:7  st.global.f64 of out (argument 1)"
