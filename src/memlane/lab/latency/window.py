"""Measure the empty window of a scheme: the cycles that its probe records in addition to the access.

The instrumented module is kept, and each timed access in it is replaced by a filler that holds no access. Everything else stays: probes,
records, loops.

    switched off    @never ld.global.u64 d, [a];            the access itself under a predicate that is false
    one operation   xor.b64 d, a, zero;                     the least that needs the address and gives the value
    chain of n      rcp.approx.ftz.f64 d, a; ...            n dependent operations from the address to the value; one instruction each
                                                            once assembled (ex2.approx where the value has 32 bits)
    nothing                                                 in place of stores and reductions, which return no value for a chain, and
                                                            for schemes whose end does not wait for it

`zero` is 0, known only at launch; it has been through a shuffle, because ptxas would otherwise load it again between the clock reads.

The code between the two clock reads of `dependent` in the assembled chase, for sm_90, with the cycles until the next may issue:

    CS2R start                       1
    LDG value, [address]             3 to 5, raises scoreboard k
    SEL, SEL                         2 each: the start, kept under the predicate; behind the access, and done before its value arrives
    LOP3 ready, value & zero         2, waits for scoreboard k
    CS2R end

Instructions issue in order, so it is 1 cycle from the start to the issue of the access, and 2 from the arrival of its value to the end: by
the control words alone (`scheduled_window`) the window is 3 cycles, or up to 5 where ptxas moved an operation on predicates in between. The
chains, extrapolated to length 0, measure the same, and define the window.

The operations of a chain need some length. With `add.f32` and its 4 cycles, the two SEL stand between the first and the second operation
and are not hidden: by the control words the window would be 8 then, and 8 was measured on an H200 and an H100, for shared atomics and
textures. `ex2.approx` signals its value by a scoreboard, as an access does, and takes long enough: 3 on an H200, which leaves 0.0 cycles of
a shared atomic and +2.7 of a texture.

Values of 64 bits once had chains of `add.f64`, which has a fixed latency: by the control words 8 cycles to the next addition, and 10 to the
LOP3, which is in another pipe. So n of them took 1 + 8 (n - 1) + 10 + 2 cycles, 5 at length 0, where an access has 3; and `dependent` less
its window was 2.0 below the truth in shared memory and L1 on an H200. `rcp.approx.ftz.f64` is one instruction of the pipe of `ex2.approx`,
on the upper half, and signals its value in the same way. Prediction, before it was measured: 3, so that `dependent` less its window is
within 0.5 cycles of the truth in shared memory and L1, within 1.5 in L2 and DRAM, and 2.5 below that of a global atomic (4.5 before).

Neither of the other fillers is empty. An instruction that overwrites a register of the two 16-byte stores of the previous record has to
wait until it has been read, and that may be the filler itself or the second clock read; next to the wait for a loaded value such waits do
not show. A switched-off load still goes through the pipe of loads and stores and back.

The stores themselves once stood right in front of the next first clock read. Loads of the chase then recorded 8 to 10 cycles too much at
every level. To test whether the stores caused it, fillers and loads are also recorded after a pause: a chain of operations from the value
of one load to the address of the next, outside the window, in which the stores leave the pipe (`with_pauses`). Prediction: loads record 5
cycles, not 13 to 15, more than the chain average. It held (3 more, as the control words say), so the address of a record is now computed in
front of the access (`instrument.warp.reserve`): the same instructions, but between the stores and the next clock read.

Prediction for that, before it was measured: without the pause, too, loads record 3 to 6 cycles more than the chain average.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from memlane.audit.assembled_module import AssembledModule
from memlane.audit.windows import Windows
from memlane.compile import assemble
from memlane.instrument import TraceOptions, site_table
from memlane.instrument.registers import Scope, read
from memlane.launch import LoadedModule
from memlane.measure.instrumented_module import InstrumentedModule, probe
from memlane.ptx import SCALAR_TYPES, Address, Block, Function, Guard, Instruction, Operand, Register, Statement, Vector
from memlane.ptx.edit import placed, rewrite_body, with_items
from memlane.sass import disassemble, waits_for

NOTHING = -1
SWITCHED_OFF = 0
ONE_OPERATION = 1
CHAINS = (16, 48)
"""Lengths of the chains."""
FILLERS = (SWITCHED_OFF, ONE_OPERATION, *CHAINS)
"""Fillers by their number of operations: 0 for the access that is switched off, `NOTHING` for none at all."""
PAUSE = 12
"""Iterations of the pause, of at least 20 cycles each: long enough for two stores to leave the pipe."""


def with_fillers(probed: InstrumentedModule, kernel: str, filler: int, start: str = "") -> InstrumentedModule:
    """Return `probed` with a filler in place of every timed access of `kernel`, whose last parameter is a `.u32` that the launch sets to 0.

    Fillers begin with the address, or with the register `start`: from an address that stays the same ptxas would compute them once.
    """
    module = probed.traced.module
    function = module.functions[kernel]
    places = frozenset(probed.traced.positions[kernel].values())

    def rewrite(index: int, instruction: Instruction, scope: Scope) -> Sequence[Statement]:
        return _fill(instruction, filler, scope, start) if index in places else (instruction,)

    prologue = f"{_zero(function, 'filler')}.reg .pred %filler_never;\nsetp.ne.u32 %filler_never, %filler_word, 0;\n"
    traced = replace(probed.traced, module=with_items(module, {kernel: rewrite_body(function, prologue, rewrite)}))
    return InstrumentedModule(traced, replace(probed.twin, loaded=probed.original.target.load(traced.module)))


def with_pauses(loaded: LoadedModule, kernel: str, options: TraceOptions) -> InstrumentedModule:
    """Return `loaded` with probes by `options`, and in front of each probe of `kernel` a pause on which the address depends.

    It is a loop, because in straight-line code ptxas moves the stores of the record to its end.
    """
    module = loaded.module
    function = module.functions[kernel]
    timed = {index for index, site in site_table(module).of_kernel[kernel].items() if options.selection.takes(site, kernel)}

    def rewrite(index: int, instruction: Instruction, scope: object) -> Sequence[Statement]:
        if index not in timed:
            return (instruction,)
        base = _address_register(instruction)
        loop = f"""\
.reg .b32 %pause_left;
.reg .pred %pause_more;
add.u32 %pause_left, %pause_word, {PAUSE};
$pause_{index}:
.pragma "nounroll";
add.f64 {base}, {base}, %pause_zero;
sub.u32 %pause_left, %pause_left, 1;
setp.ne.u32 %pause_more, %pause_left, 0;
@%pause_more bra $pause_{index};
"""
        return (Block((*placed(loop, instruction.location),)), instruction)

    slower = with_items(module, {kernel: rewrite_body(function, _zero(function, "pause"), rewrite)})
    return probe(loaded.target.load(slower), options)


def scheduled_window(probed: InstrumentedModule, kernel: str, arch: str) -> tuple[int, int]:
    """Return the least and the most cycles of the empty window by the control words of the machine code, over the copies of the accesses.

    The window is the time between the first clock read and the access, plus that between the instruction that waits for its value and the
    second clock read.
    """
    traced = probed.traced
    code = AssembledModule(traced.module, disassemble(assemble(traced.module, arch=arch).data))
    windows, nodes = Windows(code, kernel), code.flow.nodes
    sums = []
    for site, lines in traced.probes[kernel].items():
        window = windows.window(traced.sites[site], lines)
        for access in window.accesses:
            start = max(node for node in window.starts if node < access)
            end = min(node for node in window.ends if node > access)
            scoreboard = nodes[access].control.write_scoreboard
            waiter = next((node for node in range(access + 1, end) if scoreboard in waits_for(nodes[node])), end)
            apart = [*range(start, access), *range(waiter, end)]
            sums.append(sum(nodes[node].control.stall for node in apart))
    return min(sums), max(sums)


def _zero(function: Function, stem: str) -> str:
    """Return PTX that makes `%<stem>_zero`, a 64-bit zero unknown to ptxas, from the last parameter."""
    return f"""\
.reg .b32 %{stem}_word;
.reg .b64 %{stem}_zero;
ld.param.u32 %{stem}_word, [{function.params[-1].name}];
shfl.sync.idx.b32 %{stem}_word, %{stem}_word, 0, 31, -1;
mov.b64 %{stem}_zero, {{%{stem}_word, %{stem}_word}};
"""


def _address_register(access: Instruction) -> str:
    _, address = access.operands
    assert isinstance(address, Address)
    assert isinstance(address.base, Register)
    return address.base.name


def _fill(access: Instruction, filler: int, scope: Scope, start: str) -> Sequence[Statement]:
    if filler == SWITCHED_OFF:
        return (replace(access, guard=Guard("%filler_never")),)
    if filler == NOTHING or access.opcode in ("st", "red"):
        return ()
    value, base = _value_register(access.operands[0]), start or read(access)[-1 if access.opcode == "tex" else 0]
    bits = SCALAR_TYPES[scope.type_of(value)].bits
    if filler == ONE_OPERATION:
        return placed(f"xor.b{bits} {value}, {base}, {'%filler_zero' if bits == 64 else '%filler_word'};", access.location)
    operation = "rcp.approx.ftz.f64 {}, {};" if bits == 64 else "ex2.approx.ftz.f32 {}, {};"
    sources = [base, *[value] * (filler - 1)]
    return placed("\n".join(operation.format(value, source) for source in sources), access.location)


def _value_register(operand: Operand) -> str:
    first = operand.items[0] if isinstance(operand, Vector) else operand
    assert isinstance(first, Register)
    return first.name


def extrapolated(records: Mapping[int, float], chains: tuple[int, int] = CHAINS) -> float:
    """Return the record of a chain of length 0, extrapolated from two lengths."""
    short, long = chains
    slope = (records[long] - records[short]) / (long - short)
    return records[short] - slope * short
