"""PTX texts, and what takes a module behind the parser."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random

from memlane.chip import load
from memlane.emulate.emulator import compiled_kernel
from memlane.emulate.layers import layers_for
from memlane.instrument import SCHEMES, CountOptions, TraceOptions, count, site_table, trace
from memlane.launch import Layers
from memlane.ptx import (
    TABLE,
    ControlFlow,
    Copies,
    Liveness,
    Module,
    flatten_scopes,
    inline_calls,
    parse,
    print_module,
    special_registers,
    verify,
)
from memlane.ptx.divergence import diverging_branches
from memlane.targets import target
from tests.fuzz.mutations import mutated_tokens, tokens
from tests.ptx.examples_of_rows import instruction_from, registers

ROOT = Path(__file__).parents[2]
_DIRECTIVES = (
    ".maxntid 256, 1, 1", ".reqntid 32", ".minnctapersm 2", ".pragma \"nounroll\";", ".loc 1 2 3",
    ".loc 1 2 3, function_name L, inlined_at 1 4 5", ".file 1 \"a.cu\"", ".file 2 \"\\303\\244.cu\", 1, 2",
    ".section .debug_str { .b8 1 }", ".alias f, g;", "{ .reg .b32 q; mov.b32 q, 1; }", "T: .branchtargets L, M;", "brx.idx %b32_1, T;",
    ".local .align 8 .b8 stack[64];", ".shared .align 16 .b8 tile[1024];", "@%pred_1 bra L;", "@!%pred_2 ret;", "call (r), f, (a);",
    "P: .callprototype (.param .b32 _) _ (.param .b32 _);", ".global .u32 g[4] = {1, 2, 3, 4};", ".const .f32 c = 0f3F800000;",
    ".extern .shared .b8 dynamic[];", ".explicitcluster", ".reqnctapercluster 2, 1, 1", "L:", "ret;", "exit;",
)  # fmt: skip


@cache
def corpus() -> tuple[tuple[str, ...], ...]:
    """Return small texts as tokens: the cases and examples as they are and by kernel, and modules made of rows of the table."""
    texts = [
        path.read_text(encoding="utf-8") for path in (*sorted((ROOT / "tests/cases/ptx").glob("*.ptx")), ROOT / "tests/gpu/programs.ptx")
    ]
    for path in sorted((ROOT / "examples" / "ptx").glob("*.ptx")):
        texts += _by_kernel(path.read_text(encoding="utf-8"))
    rows = [row for opcode in TABLE.opcodes for row in TABLE.rows(opcode)]
    random = Random("rows of the table")
    for _ in range(200):
        body = [f"\t{instruction_from(random.choice(rows), random.choice)}" for _ in range(6)]
        body += random.sample(_DIRECTIVES, 2)
        texts.append(_with_body("\n".join(body)))
    return tuple(tuple(tokens(text)) for text in texts)


def _with_body(body: str) -> str:
    head = ".version 9.0\n.target sm_90a\n.address_size 64\n"
    head += ".func (.param .b32 r) f (.param .b32 a) { ret; }\n.visible .entry k(.param .u64 a)\n"
    return f"{head}{{\n{registers()}\n\t.param .b32 r;\n{body}\nL:\n\tret;\nT:\t.branchtargets L;\n}}\n"


def _by_kernel(text: str) -> Iterator[str]:
    """The text of an example cut to one kernel each, and to at most 60 lines of its body."""
    head, *kernels = text.split(".visible .entry")
    for kernel in kernels:
        lines = kernel.split("\n")
        yield "\n".join([f"{head}.visible .entry{lines[0]}", *lines[1:50], *lines[-40:]])
        yield "\n".join([".version 9.0\n.target sm_90\n.address_size 64", f".visible .entry{lines[0]}", *lines[1:45], "\tret;", "}"])


def mutated(random: Random, texts: Sequence[Sequence[str]]) -> str:
    """A text, often shortened first, with some changes."""
    parts = random.choice(texts)
    if len(parts) > 400 and random.random() < 0.7:
        ends = [place for place, part in enumerate(parts) if part == ";"]
        first = random.randrange(len(ends))
        last = min(len(ends) - 1, first + random.choice((3, 10, 40)))
        parts = (*parts[: ends[first]], *parts[ends[last] :])
    other = list(random.choice(texts))
    if random.random() < 0.2:
        other = tokens(random.choice(_DIRECTIVES))
    return mutated_tokens(random, parts, other)


def read(text: str) -> Module:
    """Parse and verify, as the assembler's road does."""
    module = parse(text, "fuzz.ptx")
    verify(module)
    return module


def follow(module: Module) -> None:
    """Print a module, and give it to everything that takes one without running it."""
    printed = print_module(module)
    again = parse(printed, "printed.ptx")
    assert again == module, f"printed and parsed again it is another module: {_difference(module, again)}"
    look_at(module)


def _difference(one: Module, other: Module) -> str:
    if len(one.items) != len(other.items):
        return f"{len(one.items)} items and {len(other.items)}"
    return next((f"{a!r} and {b!r}"[:1500] for a, b in zip(one.items, other.items, strict=True) if a != b), "its head")


def look_at(module: Module) -> None:
    """Titles, places, control flow, registers and sites of a module."""
    str(module)
    str(module.files)
    for function in module.functions.values():
        str(function.title)
        for directive in (".maxntid", ".reqntid", ".reqnctapercluster"):
            function.extents(directive)
        flow = ControlFlow(flatten_scopes(function))
        liveness = Liveness(flow)
        Copies(flow, liveness)
        diverging_branches(flow)
        special_registers(module, function)
        str((flow.immediate_dominators, flow.immediate_postdominators, flow.loops))
    inline_calls(module)
    site_table(module)


def read_leniently(text: str) -> Module:
    """Parse only, as the emulator's road does: what follows must refuse what it cannot use."""
    return parse(text, "fuzz.ptx")


def instrument(module: Module) -> None:
    """Trace and count a module by every scheme, and print what came of it."""
    chip = load("h200")
    for scheme in SCHEMES:
        traced = trace(module, TraceOptions.of(scheme=scheme))
        parse(print_module(traced.module), "traced.ptx")
    verify(trace(module).module)
    parse(print_module(count(module, chip, CountOptions()).module), "counted.ptx")


def lower(module: Module) -> None:
    """Load a module into the emulator and write the machine code of its kernels, without and with layers."""
    os.environ["MEMLANE_CACHE"] = "0"
    emulator = target("emulator:h200", deterministic=True)
    loaded = emulator.load(module)
    for name in loaded:
        kernel = loaded[name]
        for layers in (Layers(), Layers(counts=True, clock=True, check=True)):
            compiled_kernel(kernel.module, kernel.function, layers_for(layers, kernel.module, kernel.function), emulator.chip)
