"""The proof on assembled code: what it shows of the schemes, and that it sees through probes that do not wait and code that was changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from memlane.audit.assembled_module import AssembledModule
from memlane.audit.proof import SiteProof, prove, proved_sites
from memlane.errors import MemlaneError
from memlane.instrument import SCHEMES, Sampling, Selection, Traced, TraceOptions, trace
from memlane.instrument.schemes import Access, Scheme, Stamps
from memlane.ptx import Module, parse
from memlane.ptx.edit import with_items
from memlane.record import COMPLETE, ISSUE_ONLY
from memlane.sass import Register, disassemble, effects
from tests.audit.mutations import mutations
from tests.instrument.kernels import EXAMPLES, example, kernel
from tests.sass.code import cubin_of, mutated, reread

BY_NAME = {path.stem: path for path in EXAMPLES}


@cache
def traced(path: Path, scheme: str) -> tuple[Traced, bytes]:
    found = trace(example(path), TraceOptions(scheme))
    return found, cubin_of(found.module)


def claimed_complete(found: Traced) -> Traced:
    """As if the scheme promised everything: what is left is what the code shows."""
    return replace(found, sites=tuple(replace(site, completeness=COMPLETE, reason="") if site.scheme else site for site in found.sites))


def loads(found: Traced, proofs: tuple[SiteProof, ...]) -> list[SiteProof]:
    return [proof for proof in proofs if found.sites[proof.site].kind in ("load", "atomic")]


# -- the schemes ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["dependent", "consume"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_loads_of_the_examples_are_complete(path: Path, scheme: str) -> None:
    found, data = traced(path, scheme)
    proofs = prove(found, data)
    assert [proof.site for proof in proofs] == [site.id for site in found.sites if site.scheme]
    assert {(proof.completeness, proof.reason) for proof in loads(found, proofs)} == {(COMPLETE, "")}
    assert all(proof.copies >= 1 for proof in proofs)


@pytest.mark.parametrize("whole_blocks", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_loads_of_sampled_examples_are_complete(path: Path, whole_blocks: bool) -> None:
    """The traced body stands behind the original one, and registers may be limited to what the original's blocks leave it."""
    options = TraceOptions(sampling=Sampling(every=32, whole_blocks=whole_blocks), tagged=True)
    found = trace(example(path), options)
    for module in (found.module, limited(found.module)):
        proofs = prove(replace(found, module=module), cubin_of(module))
        assert [proof.site for proof in proofs] == [site.id for site in found.sites if site.scheme]
        assert {(proof.completeness, proof.reason) for proof in loads(found, proofs)} == {(COMPLETE, "")}


def limited(module: Module) -> Module:
    """With no more than 40 registers for each kernel."""
    kernels = {name: replace(one, attributes=(*one.attributes, ".maxnreg 40")) for name, one in module.kernels.items()}
    return with_items(module, kernels)


@pytest.mark.parametrize("name", ["chase", "matmul", "spmv", "transpose"])
def test_naive_stamps_complete_nowhere(name: str) -> None:
    """Shown by the code alone: the scheme's own word is not asked."""
    found, data = traced(BY_NAME[name], "simple")
    proofs = prove(claimed_complete(found), data)
    assert {proof.completeness for proof in proofs} == {ISSUE_ONLY}
    waits = {reason.split(" at 0x")[0] for reason in (proof.reason for proof in loads(found, proofs))}
    assert waits <= {"the second clock read", "the access"}, "too early, or without anything to wait for"


def test_stores_are_issue_only() -> None:
    found, data = traced(BY_NAME["transpose"], "dependent")
    stores = [proof for proof in prove(claimed_complete(found), data) if found.sites[proof.site].kind == "store"]
    assert len(stores) == 5
    assert all("sets no scoreboard to wait for" in proof.reason for proof in stores)


def test_proved_sites_carry_the_verdict() -> None:
    found, data = traced(BY_NAME["transpose"], "simple")
    proofs = prove(claimed_complete(found), data)
    sites = proved_sites(claimed_complete(found), proofs)
    assert [(site.completeness, site.reason) for site in sites] == [(proof.completeness, proof.reason) for proof in proofs]
    # What was not traced stays as it is.
    assert proved_sites(found, ()) == found.sites


def test_the_word_of_the_scheme_is_kept() -> None:
    found, data = traced(BY_NAME["chase"], "simple")
    assert {proof.reason for proof in prove(found, data)} == {"the scheme does not order the second clock read after the access"}


def test_code_of_another_module_is_refused() -> None:
    found, _ = traced(EXAMPLES[0], "dependent")
    other = cubin_of(parse(".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry other() { ret; }\n", "other.ptx"))
    with pytest.raises(MemlaneError, match=r"the assembled code has no kernel \S+; it was not assembled from \S+\.ptx"):
        prove(found, other)


# -- probes that look as if they waited -----------------------------------------------------------------------------------------------


INDEXED = """
    .reg .u32 %i, %v; .reg .u64 %a, %b, %o;
    ld.param.u64 %a, [p];
    mov.u32 %i, %tid.x;
    mul.wide.u32 %o, %i, 4;
    add.u64 %a, %a, %o;
    ld.global.u32 %i, [%a];
    mul.wide.u32 %o, %i, 4;
    add.u64 %b, %a, %o;
    {op} %v, [%b];
    st.global.u32 [%a], %v;
    ret;
"""
"""A load whose address is loaded."""


def with_probe(monkeypatch: pytest.MonkeyPatch, after: str, before: str = "", op: str = "ld.global.u32", body: str = INDEXED) -> SiteProof:
    """The proof of the second load of `body` between clock reads with this PTX behind it, and this before the first clock read."""

    def stamps(access: Access) -> Stamps:
        words = {"NAME": access.registers, "ADDRESS": access.sources[0][0], "VALUE": access.value[0] if access.value else ""}
        clocks = [f"mov.u64 {access.registers}{end}, %clock64;\n" for end in ("start", "end")]
        return Stamps(filled(before, words), clocks[0], filled(after, words), clocks[1], COMPLETE)

    monkeypatch.setitem(SCHEMES, "planted", Scheme("planted", stamps))
    module = kernel(body.replace("{op}", op), before=".shared .align 16 .b8 slot[16];")
    found = trace(module, TraceOptions("planted", Selection(sites={1})))
    (proof,) = prove(found, cubin_of(found.module))
    return proof


def filled(text: str, words: dict[str, str]) -> str:
    for word, by in words.items():
        text = text.replace(word, by)
    return text


ORDERED = "st.shared.b64 [slot], ADDRESS;\n"
"""Makes the first clock read wait for the address."""


@pytest.mark.parametrize(
    "after",
    [
        "bar.sync 0;",
        "bar.warp.sync 0xffffffff;",
        "membar.cta;",
        ".reg .b32 NAMEx; xor.b32 NAMEx, VALUE, VALUE; .reg .b64 NAMEw; cvt.u64.u32 NAMEw, NAMEx; add.u64 NAMEstart, NAMEstart, NAMEw;",
        ".reg .pred NAMEp; setp.eq.u32 NAMEp, VALUE, 12345; @NAMEp bra next; next:",
        "",
    ],
    ids=["bar.sync", "bar.warp.sync", "membar.cta", "folded xor", "deleted branch", "nothing"],
)
def test_a_probe_that_does_not_wait_is_caught(monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    proof = with_probe(monkeypatch, after + "\n", ORDERED)
    assert proof.completeness == ISSUE_ONLY
    assert "can execute without a wait for scoreboard" in proof.reason


def test_a_magic_value_out_of_range_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    after = ".reg .pred NAMEp; setp.eq.u32 NAMEp, VALUE, 12345; @NAMEp trap;\n"
    assert with_probe(monkeypatch, after, ORDERED).completeness == COMPLETE
    # A byte is never 12345, which the assembler knows.
    assert "without a wait" in with_probe(monkeypatch, after, ORDERED, op="ld.global.u8").reason


@pytest.mark.parametrize(
    "after",
    [
        "st.shared.b32 [slot+8], VALUE;",
        "fence.acq_rel.cta;",
        ".reg .pred NAMEp; setp.eq.u32 NAMEp, VALUE, 12345; @NAMEp trap;",
    ],
)
def test_probes_that_wait_are_known(monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    proof = with_probe(monkeypatch, after + "\n", ORDERED)
    assert (proof.completeness, proof.reason) == (COMPLETE, "")


INDEPENDENT = """
    .reg .u32 %i, %w, %v; .reg .u64 %a, %o;
    ld.param.u64 %a, [p];
    mov.u32 %i, %tid.x;
    mul.wide.u32 %o, %i, 4;
    add.u64 %a, %a, %o;
    ld.shared.u32 %w, [slot];
    {op} %v, [%a+1024];
    add.u32 %v, %v, %w;
    st.global.u32 [%a], %v;
    ret;
"""


def test_what_a_fence_awaits_besides_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fenced = with_probe(monkeypatch, "fence.acq_rel.cta;\n", ORDERED, body=INDEPENDENT)
    stored = with_probe(monkeypatch, "st.shared.b32 [slot+8], VALUE;\n", ORDERED, body=INDEPENDENT)
    assert (fenced.completeness, stored.completeness) == (COMPLETE, COMPLETE)
    assert any(text.endswith("LDS") for text in fenced.also_waits)
    assert not any(text.endswith("LDS") for text in stored.also_waits)


# -- code that was changed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "scheme"), [("chase", "dependent"), ("transpose", "consume")])
def test_changed_code_is_caught(name: str, scheme: str) -> None:
    found, data = traced(BY_NAME[name], scheme)
    program = disassemble(data)
    caught: set[str] = set()
    for mutation in mutations(found, data):
        if mutation.name not in caught:  # The first of each name: every one takes a proof of the whole kernel.
            changed = reread(data, program, program.functions[mutation.kernel], mutation.changed)
            (proof,) = [one for one in prove(found, changed) if one.site == mutation.site]
            assert proof.completeness == ISSUE_ONLY, f"{mutation.name} of site {mutation.site} survives"
            assert proof.reason
            caught.add(mutation.name)
    assert len(caught) >= 12, caught


def test_changed_code_is_what_the_disassembler_would_read() -> None:
    """Each change of each name, as many at a time as do not touch the same instruction."""
    found, data = traced(BY_NAME["chase"], "dependent")
    program = disassemble(data)
    by_name = {mutation.name: mutation for mutation in mutations(found, data)}
    kernels = {mutation.kernel for mutation in by_name.values()}
    for name in kernels:
        together: dict[int, int] = {}
        for mutation in by_name.values():
            if mutation.kernel == name and together.keys().isdisjoint(mutation.changed):
                together |= mutation.changed
        function = program.functions[name]
        assert reread(data, program, function, together) == disassemble(mutated(data, function, together))


def test_unchanged_code_survives_the_rewriting() -> None:
    found, data = traced(BY_NAME["chase"], "dependent")
    program = disassemble(data)
    function = next(iter(program.functions.values()))
    same = mutated(data, function, {0: function.instructions[0].encoding})
    assert prove(found, same) == prove(found, data)


# -- shapes of code -------------------------------------------------------------------------------------------------------------------


def check(body: str, expect: Callable[[Traced, tuple[SiteProof, ...]], None], before: str = "", scheme: str = "dependent") -> None:
    found = trace(kernel(body, before=before), TraceOptions(scheme))
    expect(found, prove(found, cubin_of(found.module)))


def test_every_copy_of_an_unrolled_loop_is_proved() -> None:
    body = """
        .reg .u32 %i, %v, %s; .reg .u64 %a; .reg .pred %q;
        ld.param.u64 %a, [p]; mov.u32 %i, %tid.x; mov.u32 %s, 0;
        { .reg .u64 %o; mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o; }
        mov.u32 %i, 0;
    again:
        ld.global.u32 %v, [%a]; add.u32 %s, %s, %v; add.u64 %a, %a, 128; add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 3;
        @%q bra again;
        st.global.u32 [%a], %s; ret;
    """

    def expect(found: Traced, proofs: tuple[SiteProof, ...]) -> None:
        assert proofs[0].completeness == COMPLETE
        assert proofs[0].copies >= 1

    check(body, expect)


DIVIDED = """
    .reg .f32 %f<9>; .reg .u32 %i; .reg .u64 %a, %o;
    ld.param.u64 %a, [p];
    mov.u32 %i, %tid.x;
    mul.wide.u32 %o, %i, 4;
    add.u64 %a, %a, %o;
    ld.global.f32 %f1, [%a]; ld.global.f32 %f2, [%a+512]; div.rn.f32 %f3, %f1, %f2;
    ld.global.f32 %f4, [%a+1024]; div.rn.f32 %f5, %f3, %f4;
    ld.global.f32 %f6, [%a+1536]; div.rn.f32 %f7, %f5, %f6;
    st.global.f32 [%a], %f7;
    ret;
"""
"""Records and clocks stay in registers while a division calls its slow path."""


@cache
def divided() -> tuple[Traced, bytes]:
    found = trace(kernel(DIVIDED))
    return found, cubin_of(found.module)


def test_what_is_held_over_a_call_is_followed() -> None:
    found, data = divided()
    assert [proof.completeness for proof in loads(found, prove(found, data))] == [COMPLETE] * 4
    functions = disassemble(data).functions
    (slow,) = (function for name, function in functions.items() if name != "k")
    call = next(index for index, one in enumerate(functions["k"].instructions) if one.opcode == "CALL")
    stored = next(one for one in functions["k"].instructions[call:] if one.name == "STG.E.EF.128").operands[-1].register
    assert stored is not None
    for word in range(3):
        # The slow path now writes a word of the record that is stored behind it.
        changed = mutated(data, slow, {0: slow.instructions[0].encoding & ~(0xFF << 16) | stored.number + word << 16})
        assert effects(disassemble(changed).functions[slow.name].instructions[0]).writes == {Register("R", stored.number + word)}
        missed = [proof.reason for proof in prove(found, changed) if "the record" in proof.reason]
        assert missed
        assert all("does not come from the clock read of the site" in reason or "another site" in reason for reason in missed)


@pytest.mark.parametrize("half", ["lo", "hi"])
def test_a_function_that_returns_elsewhere_is_caught(half: str) -> None:
    found, data = divided()
    function = disassemble(data).functions["k"]
    handed = [index for index, one in enumerate(function.instructions) if one.text.startswith("MOV") and f"32@{half}((" in one.text]
    assert len(handed) == 3
    # Under a predicate, which not all lanes have.
    changed = mutated(data, function, {handed[0]: function.instructions[handed[0]].encoding & ~(7 << 12)})
    assert disassemble(changed).functions["k"].instructions[handed[0]].guard is not None
    assert any("does not come from the clock read of the site" in proof.reason for proof in prove(found, changed))


def test_texture_fetches_are_found_without_a_line() -> None:
    body = """
        .reg .b32 %r<6>; .reg .u64 %a, %o;
        ld.param.u64 %a, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %o, %r1, 4; add.u64 %a, %a, %o;
        tex.1d.v4.u32.s32 {%r2, %r3, %r4, %r5}, [texture, {%r1}];
        add.u32 %r2, %r2, %r4; st.global.u32 [%a], %r2; ret;
    """

    def expect(found: Traced, proofs: tuple[SiteProof, ...]) -> None:
        assert (found.sites[0].space, proofs[0].completeness) == ("tex", COMPLETE)

    check(body, expect, before=".global .texref texture;")


LATE = {
    "shared": ".shared .align 8 .u32 s[8]; bar.sync 0; ld.shared.u32 %v, [s+4]; st.global.u32 [%a+8], %v; ret;",
    "parameter": "ld.global.u32 %v, [%a]; st.global.u32 [%a+4], %v; ret;",
    "load": "mapa.shared::cluster.u32 %w, %w, 1; ld.shared::cluster.u32 %v, [%w]; st.global.u32 [%a+4], %v; ret;",
    "two loads": "ld.shared::cluster.u32 %v, [%w]; ld.shared::cluster.u32 %w, [%w+64]; add.u32 %v, %v, %w; st.global.u32 [%a+4], %v; ret;",
    "atomic": "atom.shared::cluster.add.u32 %v, [%w], 1; st.global.u32 [%a+4], %v; ret;",
    "scope": "mul.wide.u32 %b, %w, 8; { .reg .u64 %b; mov.u64 %b, %a; ld.global.u32 %v, [%b]; } st.global.u32 [%a], %v; ret;",
    "operand": "mul.wide.u32 %b, %w, 8; add.u64 %b, %b, %a; atom.global.max.u64 %b, [%b+8], %a; st.global.u64 [%a], %b; ret;",
    "operand in shared memory": ".shared .align 8 .u64 s[8]; atom.shared.exch.b64 %b, [s+8], %a; st.global.u64 [%a], %b; ret;",
}
"""Accesses to whose address or operand the assembler adds something that comes late: where shared memory begins, a parameter, a window."""


@cache
def late(name: str, waits: bool) -> tuple[Traced, bytes]:
    body = f".reg .u32 %v, %w; .reg .u64 %a, %b; ld.param.u64 %a, [p]; mov.u32 %w, %tid.x; {LATE[name]}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCHEMES, "dependent", SCHEMES["dependent"] if waits else replace(SCHEMES["dependent"], zero=""))
        found = trace(kernel(body))
    return found, cubin_of(found.module)


@pytest.mark.parametrize("name", LATE)
def test_late_parts_of_an_address_are_waited_for(name: str) -> None:
    found, data = late(name, True)
    assert {(proof.completeness, proof.reason) for proof in loads(found, prove(found, data))} == {(COMPLETE, "")}


@pytest.mark.parametrize("name", LATE)
def test_an_address_made_after_the_clock_read_is_caught(name: str) -> None:
    """By a probe that does not wait for them."""
    found, data = late(name, False)
    first = loads(found, prove(found, data))[0]
    assert first.completeness == ISSUE_ONLY
    assert "after the first clock read" in first.reason or "does not wait for" in first.reason


@pytest.mark.parametrize("name", ["load", "two loads", "atomic"])
def test_an_access_by_a_window_address_is_the_same_instruction(name: str) -> None:
    body = f".reg .u32 %v, %w; .reg .u64 %a, %b; ld.param.u64 %a, [p]; mov.u32 %w, %tid.x; {LATE[name]}"
    plain = disassemble(cubin_of(kernel(body))).functions["k"]
    made, data = late(name, True)
    sites = {proof.site for proof in loads(made, prove(made, data))}
    code = AssembledModule(made.module, disassemble(data))
    found = [code.flow.nodes[node] for site in sites for node in code.accesses("k", made.positions["k"][site], "shared::cluster")]
    wanted = [one for one in plain.instructions if one.opcode in ("LD", "ATOM")]
    assert [(one.name, "desc" in one.text) for one in found] == [(one.name, "desc" in one.text) for one in wanted]
    assert len(found) == len(sites)


def test_an_access_that_is_never_executed() -> None:
    body = """
        .reg .u32 %v; .reg .u64 %a; .reg .pred %q;
        ld.param.u64 %a, [p]; mov.u32 %v, 5; setp.eq.u32 %q, %v, 6;
        @!%q bra done;
        ld.global.u32 %v, [%a];
    done:
        st.global.u32 [%a+4], %v; ret;
    """

    def expect(found: Traced, proofs: tuple[SiteProof, ...]) -> None:
        assert (proofs[0].copies, proofs[0].completeness) == (0, ISSUE_ONLY)
        assert "never executed" in proofs[0].reason

    check(body, expect)
