"""Assembled code for the tests, and cubins with instructions exchanged."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from memlane.compile import assemble, cuda
from memlane.errors import MissingDependency
from memlane.ptx import Module, parse
from memlane.sass import Control, Function, Instruction, Program, disassemble, with_control
from memlane.sass.control import decode_control
from memlane.sass.listing import parse_listing

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "ptx").glob("*.ptx"))

BREADTH = r"""
#include <cuda_fp16.h>
__device__ __noinline__ float called(const float* p, int i) { return p[i] * 2.0f + 1.0f / p[i + 1]; }
__device__ __forceinline__ float inlined(const float* p, int i) {
    return p[i] * 3.0f;
}
extern "C" __global__ void paths(float* out, const float* in, int n, int which) {
    int i = threadIdx.x;
    float sum = 0;
    switch (which) {
        case 0: sum = inlined(in, i); break;
        case 1: sum = in[i] / in[i + n]; break;
        case 2: sum = called(in, i); break;
        case 3: sum = atomicAdd(out + i, 1.0f); break;
        case 4: sum = __shfl_xor_sync(~0u, sum, 3) + n; break;
        case 5: sum = in[i * i]; break;
        case 6: sum = sqrtf(in[3 * i]); break;
    }
    for (int j = 0; j < n; ++j) {
        sum += in[j * i + 1];
        if (sum > 3) break;
        __syncthreads();
    }
    out[i] = sum;
}
extern "C" __global__ void kinds(double* d, float* f, long long* l, int* i, __half* h, unsigned long long* u, const int* index) {
    __shared__ double wide[64];
    __shared__ int narrow[64];
    int t = threadIdx.x;
    double scratch[32];
    wide[t] = d[t];
    narrow[t] = i[t];
    for (int k = 0; k < 32; ++k) scratch[k] = d[k + 9];
    __syncthreads();
    for (int k = 0; k < t; ++k) scratch[index[k] & 31] += wide[index[k]];
    l[t] = (long long)d[t];
    d[t + 1] = (double)l[t + 32];
    f[t] = (float)d[t + 64];
    f[t + 9] = (float)l[t + 99];
    l[t + 33] = (long long)f[t + 43];
    d[t + 2] = rint(scratch[t & 31]);
    h[t] = __hadd(h[t + 8], (__half)f[t + 200]);
    u[t + 3] = __umul64hi(u[t + 4], u[t + 5]) + (u[t + 1] >> i[t + 9]);
    u[t + 90] = atomicCAS(u + t + 91, u[t], u[t + 1]);
    atomicAdd(d + t + 50, d[t]);
    atomicAdd(&narrow[t ^ 1], 3);
    i[t + 70] = atomicMax(i + 71, t) + __popcll(u[t + 66]) + __match_any_sync(~0u, t) + __reduce_add_sync(~0u, t);
    i[t + 98] = __byte_perm(i[t], i[t + 1], narrow[t]);
    reinterpret_cast<float4*>(f)[t + 300] = reinterpret_cast<const float4*>(f)[t + 600];
}
extern "C" __global__ void fetches(float4* out, cudaTextureObject_t texture) {
    int i = threadIdx.x;
    out[i] = tex2D<float4>(texture, i, i + 1);
    out[i + 1].x = tex1Dfetch<float>(texture, i);
}
extern "C" __global__ void copies(float* out, const float* in) {
    extern __shared__ float staged[];
    int t = threadIdx.x;
    unsigned there = __cvta_generic_to_shared(staged + t * 4), a, b, c, d;
    for (int part = 0; part < 2; ++part) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 16;\n\tcp.async.commit_group;" ::"r"(there + 512 * part), "l"(in + t * 4));
    }
    asm volatile("cp.async.wait_group 1;");
    __syncthreads();
    out[t] = staged[t];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(there));
    out[t + 7] = a + b + c + d;
}
"""
"""Control flow and instructions of all sorts."""


@cache
def cubin(ptx: str) -> bytes:
    """The cubin of a PTX text; skips the test where the assembler or the disassembler is absent."""
    return cubin_of(parse(ptx, "code.ptx"))


def cubin_of(module: Module) -> bytes:
    try:
        data = assemble(module).data
        disassemble(data)
    except MissingDependency as absent:
        pytest.skip(str(absent))
    return data


@cache
def breadth() -> bytes:
    """The cubin of `BREADTH`."""
    try:
        return cubin_of(cuda(BREADTH))
    except MissingDependency as absent:
        pytest.skip(str(absent))


@cache
def program(ptx: str) -> Program:
    return disassemble(cubin(ptx))


def kernel(body: str, params: str = ".param .u64 p", before: str = "", name: str = "k") -> str:
    """PTX of one kernel."""
    return f".version 8.0\n.target sm_90\n.address_size 64\n{before}\n.visible .entry {name}({params})\n{{\n{body}\n}}\n"


def mutated(data: bytes, function: Function, changed: dict[int, int]) -> bytes:
    """The cubin with some instructions of a function replaced: by index the 128 bits."""
    old = [one.encoding for one in function.instructions]
    new = [changed.get(index, encoding) for index, encoding in enumerate(old)]
    where = _bytes(old)
    assert data.count(where) == 1, "the function must be found once"
    return data.replace(where, _bytes(new))


def reread(data: bytes, program: Program, function: Function, changed: dict[int, int]) -> Program:
    """What the disassembler makes of `mutated`. It takes long to start, so it is asked only about what it has not written in `program`: an
    instruction with another control word reads as before, and one without an address in its text reads the same elsewhere."""
    known = {_meaning(one.encoding): one for one in function.instructions if "(" not in one.text}
    known |= {(index, _meaning(one.encoding)): one for index, one in enumerate(function.instructions)}
    code = list(function.instructions)
    for index, encoding in changed.items():
        same = known.get((index, _meaning(encoding))) or known.get(_meaning(encoding))
        if same is None:
            return disassemble(mutated(data, function, changed))
        old = code[index]
        moved = {"offset": old.offset, "place": old.place, "ptx_line": old.ptx_line}
        code[index] = replace(same, encoding=encoding, control=decode_control(encoding), **moved)
    return replace(program, functions={**program.functions, function.name: replace(function, instructions=tuple(code))})


def _meaning(encoding: int) -> int:
    """An instruction without what the scheduler is told."""
    return with_control(encoding, Control(reuse=decode_control(encoding).reuse))


def nop_of(function: Function) -> int:
    """The encoding of a NOP that waits for nothing."""
    padding = next(one for one in reversed(function.instructions) if one.opcode == "NOP")
    assert not padding.control.waits
    return padding.encoding


def without_wait(one: Instruction, scoreboard: int) -> int:
    """The encoding of an instruction that no longer waits for a scoreboard."""
    control = one.control
    assert scoreboard in control.waits
    return with_control(one.encoding, replace(control, wait_mask=control.wait_mask & ~(1 << scoreboard)))


def with_write_scoreboard(one: Instruction, scoreboard: int | None) -> int:
    """The encoding of an instruction that raises another scoreboard for its result."""
    return with_control(one.encoding, replace(one.control, write_scoreboard=scoreboard))


def instruction(text: str, write: int | None = None, wait: int | None = None) -> Instruction:
    """An instruction from its text, with the scoreboard that it raises for its result and the one that it waits for."""
    program = listing(("f", f"{'-' if write is None else write} {'-' if wait is None else wait} {text}"))
    return program.functions["f"].instructions[0]


def inserted(program: Program, function: str, index: int, *added: Instruction, label: str = "") -> Program:
    """The program with instructions in front of the one at `index`, where they are what labels there lead to; `label` leads behind them."""
    old = program.functions[function]
    new = (*old.instructions[:index], *added, *old.instructions[index:])
    labels = {name: place + (len(added) if place > index else 0) for name, place in old.labels.items()}
    labels |= {label: index + len(added)} if label else {}
    placed = tuple(replace(one, offset=16 * place) for place, one in enumerate(new))
    return replace(program, functions={**program.functions, function: replace(old, instructions=placed, labels=labels)})


def exchanged(program: Program, function: str, index: int, by: Instruction) -> Program:
    """The program with another instruction at `index`, which has the place and the lines of the one that was there."""
    old = program.functions[function]
    was = old.instructions[index]
    new = replace(by, offset=was.offset, place=was.place, ptx_line=was.ptx_line)
    instructions = (*old.instructions[:index], new, *old.instructions[index + 1 :])
    return replace(program, functions={**program.functions, function: replace(old, instructions=instructions)})


def _bytes(encodings: list[int]) -> bytes:
    return b"".join(encoding.to_bytes(16, "little") for encoding in encodings)


def listing(*functions: tuple[str, str]) -> Program:
    """A program of functions, each a name and a text of lines: a label with `:`, or `<write> <wait> instruction`, where `-` is none."""
    text = ""
    for name, body in functions:
        text += f"\t.section\t.text.{name},\n"
        offset = 0
        for line in body.strip().split("\n"):
            line = line.strip()
            if line.endswith(":"):
                text += f"{line}\n"
                continue
            write, wait, instruction = line.split(" ", 2)
            raised = 7 if write == "-" else int(write)
            word = raised << 5 | 7 << 8 | (0 if wait == "-" else 1 << int(wait)) << 11
            text += f"        /*{offset:04x}*/   {instruction} ;  /* 0x0000000000000000 */\n     /* 0x{word << 41:016x} */\n"
            offset += 16
    return parse_listing(text)
