"""Assembled probes, changed so that their times no longer mean what is said of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memlane.audit.assembled_module import AssembledModule
from memlane.audit.windows import Window, Windows
from memlane.instrument import Traced
from memlane.sass import Instruction, disassemble, effects, waits_for
from tests.sass.code import nop_of, with_write_scoreboard, without_wait


@dataclass(frozen=True)
class Mutation:
    name: str
    kernel: str
    site: int
    changed: dict[int, int]
    """By index in the kernel: another encoding."""


def mutations(found: Traced, data: bytes) -> Iterator[Mutation]:
    """What a proof must not survive, for every load of every kernel."""
    code = AssembledModule(found.module, disassemble(data))
    for name, of_kernel in found.probes.items():
        windows = Windows(code, name)
        function = code.program.functions[name]
        first = code.flow.entry(name)
        for number, probe in of_kernel.items():
            if found.sites[number].kind != "load":
                continue
            window = windows.window(found.sites[number], probe)
            if not len(window.starts) == len(window.accesses) == len(window.ends) == 1:
                continue  # Copies of an unrolled loop: another would have to be changed along.
            for label, changed in _changes(code, window, nop_of(function)):
                yield Mutation(label, name, number, {node - first: encoding for node, encoding in changed.items()})


def _changes(code: AssembledModule, window: Window, nop: int) -> Iterator[tuple[str, dict[int, int]]]:
    nodes: tuple[Instruction, ...] = code.flow.nodes
    (access,), (start,), (end,) = window.accesses, window.starts, window.ends
    scoreboard = nodes[access].control.write_scoreboard
    assert scoreboard is not None
    waiter = next(node for node in range(access + 1, end + 1) if scoreboard in waits_for(nodes[node]))
    yield "wait cleared", {waiter: without_wait(nodes[waiter], scoreboard)}
    yield "access without a scoreboard", {access: with_write_scoreboard(nodes[access], None)}
    awaited = {other for node in range(access, end + 1) for other in waits_for(nodes[node])}
    yield "access with another scoreboard", {access: with_write_scoreboard(nodes[access], min({*range(6)} - awaited))}
    yield "access removed", {access: nop}
    yield "first clock read removed", {start: nop}
    yield "second clock read removed", {end: nop}
    yield "clock read before the access", {access: nodes[end].encoding, end: nodes[access].encoding}
    yield "clock reads exchanged with the access", {access: nodes[start].encoding, start: nodes[access].encoding}
    if waiter != end:
        yield "waiting instruction replaced", {waiter: nop}
        yield "waiting instruction behind the clock read", {waiter: nodes[end].encoding, end: nodes[waiter].encoding}
    for store in window.labels:
        (written,) = code.scoreboards.definitions(store, nodes[store].operands[-1].register)  # type: ignore[arg-type]
        if any(one.kind == "immediate" for one in nodes[written].operands) and not nodes[written].opcode.startswith("HFMA2"):
            yield "number of another site", {written: nodes[written].encoding ^ 1 << 40}
    yield from _address_changes(code, window)


def _address_changes(code: AssembledModule, window: Window) -> Iterator[tuple[str, dict[int, int]]]:
    """The waits for what the address is made of, taken away."""
    nodes = code.flow.nodes
    (access,), (start,) = window.accesses, window.starts
    seen: set[int] = set()
    work = [access]
    while work:
        node = work.pop()
        for register in effects(nodes[node]).reads:
            for producer in code.scoreboards.definitions(node, register) - seen:
                seen.add(producer)
                scoreboard = nodes[producer].control.write_scoreboard
                if scoreboard is None:
                    work.append(producer)
                elif scoreboard in nodes[node].control.waits and producer < node:
                    yield "wait of the address cleared", {node: without_wait(nodes[node], scoreboard)}
                    yield "address without a scoreboard", {producer: with_write_scoreboard(nodes[producer], None)}
                    if node < start:
                        yield "first clock read before the address", {node: nodes[start].encoding, start: nodes[node].encoding}
