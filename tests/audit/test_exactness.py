"""Which sites the assembled code accesses as the PTX does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memlane.audit import site_changes
from memlane.audit.assembled_module import AssembledModule, is_like
from memlane.audit.exact_accesses import EXACT, HINT, MERGED, SiteExactness, exactness
from memlane.audit.missing_accesses import NO_ACCESS
from memlane.audit.proof import prove
from memlane.audit.site_changes import access_changes
from memlane.errors import MemlaneError
from memlane.instrument import trace
from memlane.instrument.sites import site_table
from memlane.ptx import parse
from memlane.record import COMPLETE, Site
from memlane.sass import Access, disassemble
from tests.emulate.test_wgmma import CASES
from tests.instrument.kernels import EXAMPLES, example, instructions, kernel
from tests.sass.code import cubin_of, exchanged, inserted, instruction

HEAD = """
    .reg .u32 %i, %n, %v<9>; .reg .f32 %f<9>; .reg .u64 %a, %o, %d; .reg .pred %q;
    ld.param.u64 %a, [p]; mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 16; add.u64 %a, %a, %o;
"""


LESS_OFTEN = "ptxas moved it to where it is executed less often, out of a loop or behind a branch"
TURNS = "ptxas unrolled its loop, and the lanes of a warp may execute different numbers of iterations, so they may be grouped differently"
UNJOINED = "the assembled code may not bring the lanes of a warp together before it, so they may be grouped differently"


def verdicts(body: str, before: str = "") -> tuple[SiteExactness, ...]:
    module = kernel(HEAD + body, before=before)
    return exactness(module, cubin_of(module))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_exact(path: Path) -> None:
    module = example(path)
    found = exactness(module, cubin_of(module))
    assert [one.site for one in found] == list(range(len(found)))
    fetches = {site.id for sites in site_table(module).of_kernel.values() for site in sites.values() if site.space == "tex"}
    others = [one for one in found if one.site not in fetches and not one.exact_if_full]
    assert {(one.verdict, one.reason) for one in others} == {(EXACT, "")}
    assert {one.reason for one in found if one.exact_if_full} <= {TURNS}
    assert sum(one.exact_if_full for one in found) == (24 if path.stem == "spmv" else 0)
    assert {one.reason for one in found if one.site in fetches} <= {"it is not known which texture fetch of the assembled code this is"}


def test_copies_that_may_read_less_than_they_store_are_exact() -> None:
    """What a profiler counts for lanes that fill their copy with zeros is known; of lanes that copy a part the counts themselves say it."""
    copies = """
    mov.u32 %n, words; shl.b32 %v0, %i, 4; add.u32 %n, %n, %v0; ld.global.u32 %v1, [%a];
    cp.async.cg.shared.global [%n], [%a], 16, %v1; cp.async.cg.shared.global [%n+512], [%a], 16, 16;
    cp.async.wait_all; bar.sync 0; ld.shared.u32 %v2, [words+516]; ld.shared.u32 %v3, [words+4]; add.u32 %v2, %v2, %v3;
    st.global.u32 [%a], %v2; ret;"""
    _, filling, whole, *_ = verdicts(copies, before=".shared .align 16 .b8 words[1024];")
    assert (filling.verdict, whole.verdict) == (EXACT, EXACT)


WORDS = ".shared .align 16 .b8 words[4096];"
FOUR = """
    shl.b32 %i, %i, 2; mov.u32 %n, words; add.u32 %i, %i, %n; st.shared.u32 [%i], %n; bar.sync 0;
    ld.shared.u32 %v0, [words]; ld.shared.u32 %v1, [words+4]; ld.shared.u32 %v2, [words+8]; ld.shared.u32 %v3, [words+12];
    add.u32 %v0, %v0, %v1; add.u32 %v2, %v2, %v3; add.u32 %v0, %v0, %v2; st.global.u32 [%a], %v0; ret;
"""
"""Loads of four neighbours."""


def test_merged_loads_are_hints() -> None:
    found = verdicts(FOUR, before=WORDS)
    merged = [one for one in found if one.reason]
    assert len(merged) == 4
    assert {one.reason for one in merged} == {"ptxas merged 4 x 4 B into 1 x 16 B"}
    assert sorted(access.nbytes for one in merged for access in one.accesses) == [16]
    assert {(one.verdict, one.assembled, one.merged) for one in merged} == {(MERGED, "1 x 16 B shared load", (1, 2, 3, 4))}


def test_only_neighbours_by_address_are_said_to_be_merged() -> None:
    """A fifth load has the value of one of the four: it is no part of the wide one."""
    again = "ld.shared.u32 %v4, [words+8]; add.u32 %v0, %v0, %v4; st.global.u32 [%a], %v0; ret;"
    found = verdicts(FOUR.replace("st.global.u32 [%a], %v0; ret;", again), before=WORDS)
    merged = [one for one in found if one.verdict == MERGED]
    assert len(merged) == 4
    (group,) = {one.merged for one in merged}
    assert {one.site for one in merged} == set(group)
    (left,) = [one for one in found if one.verdict == HINT]
    assert left.site in (3, 5)
    assert left.reason == "ptxas made no access for it; a wider access may include it"


def test_a_load_that_has_an_access_of_its_own_is_not_merged() -> None:
    """Which loads a wide access stands for is not known where one of four neighbours still has its own."""
    module = kernel(HEAD + FOUR, before=WORDS)
    program = disassemble(cubin_of(module))
    lines = AssembledModule(module, program).lines("k")
    wide = next(node for node, one in enumerate(program.functions["k"].instructions) if one.name == "LDS.128")
    loads = [index for index, one in enumerate(instructions(module)) if one.name == "ld.shared.u32"]
    other = next(lines[index] for index in reversed(loads) if lines[index] != program.functions["k"].instructions[wide].ptx_line)
    changed = inserted(program, "k", wide, replace(instruction("LDS R200, [UR4+0xc]"), ptx_line=other))
    assert [one.merged for one in exactness(module, program) if one.verdict == MERGED] == [(1, 2, 3, 4)] * 4
    found = [one for one in exactness(module, changed) if one.verdict != EXACT]
    assert sorted((one.verdict, one.merged) for one in found) == [(HINT, ()), (HINT, ()), (MERGED, ())]


def test_local_memory_is_a_hint() -> None:
    body = "cvt.u64.u32 %o, %i; and.b64 %o, %o, 12; { .reg .u64 %l; mov.u64 %l, spare; add.u64 %l, %l, %o; st.local.u32 [%l], %i; "
    found = verdicts(".local .align 4 .b8 spare[16];" + body + "ld.local.u32 %v0, [%l]; } st.global.u32 [%a], %v0; ret;")
    assert [(one.verdict, one.reason.partition(":")[0]) for one in found] == [(HINT, "local memory")] * 2 + [(EXACT, "")]


def test_a_value_that_is_known_is_not_loaded_again() -> None:
    found = verdicts("ld.global.u32 %v0, [%a]; ld.global.u32 %v1, [%a]; add.u32 %v0, %v0, %v1; st.global.u32 [%a+4], %v0; ret;")
    assert sorted(one.verdict for one in found[:2]) == [EXACT, HINT]
    absent = next(one for one in found if one.verdict == HINT)
    assert (absent.reason, absent.accesses) == ("ptxas made no access for it: its value was already known, or nothing uses it", ())


def test_an_invariant_load_that_leaves_its_loop() -> None:
    body = """
        ld.global.u32 %n, [%a+8]; mov.u32 %v2, 0; mov.u32 %i, 0;
    again:
        ld.global.nc.u32 %v1, [%a]; mul.lo.u32 %v2, %v2, %v1; add.u32 %v2, %v2, %i; add.u32 %i, %i, 1; setp.lt.u32 %q, %i, %n;
        @%q bra again;
        st.global.u32 [%a+4], %v2; ret;
    """
    found = verdicts(body)
    assert found[1].verdict == HINT
    assert found[1].reason == LESS_OFTEN


def test_unrolled_copies_are_exact() -> None:
    body = """
        mov.u32 %v2, 0; mov.u32 %i, 0;
    again:
        ld.global.u32 %v1, [%a]; add.u32 %v2, %v2, %v1; add.u64 %a, %a, 512; add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 4;
        @%q bra again;
        st.global.u32 [%a], %v2; ret;
    """
    found = verdicts(body)
    assert [(one.verdict, len(one.accesses)) for one in found] == [(EXACT, 4), (EXACT, 1)]


SUM = """
        {turns} mov.u32 %v2, 0; setp.eq.u32 %q, %n, 0;
        @%q bra done;
    again:
        ld.global.u32 %v1, [%a]; add.u32 %v2, %v2, %v1; add.u64 %a, %a, 512; sub.u32 %n, %n, 1; setp.ne.u32 %q, %n, 0;
        @%q bra again;
    done:
        st.global.u32 [%a], %v2; ret;
    """
"""A loop of %n turns, which ptxas unrolls with a rest."""


@pytest.mark.parametrize(
    ("turns", "uniform"),
    [
        ("mov.u32 %n, %ctaid.x;", True),
        ("ld.param.u64 %d, [p]; ld.global.u32 %n, [%d];", True),
        ("ld.global.u32 %n, [%a];", False),
        ("and.b32 %n, %i, 7;", False),
    ],
)
def test_copies_of_a_loop_are_exact_if_all_lanes_run_it_as_often(turns: str, uniform: bool) -> None:
    load, store = verdicts(SUM.replace("{turns}", turns))[-2:]
    assert len(load.accesses) > 1
    assert (load.verdict, load.reason, load.exact_if_full) == ((EXACT, "", False) if uniform else (HINT, TURNS, True))
    assert store.verdict == EXACT


def test_a_load_that_waits_behind_the_branch_that_decides_whether_it_is_needed() -> None:
    found = verdicts(
        """
        ld.global.u32 %v0, [%a]; ld.global.u32 %v1, [%a+4]; setp.eq.u32 %q, %v1, 7;
        @%q bra done;
        mul.lo.u32 %v0, %v0, %v0; st.global.u32 [%a+8], %v0; bar.sync 0;
    done:
        ret;
    """
    )
    assert [one.reason for one in found] == ["ptxas moved it behind a branch, so that only lanes that need it access memory", "", ""]


def test_the_same_in_a_loop() -> None:
    """What stands behind the branch stays exact: the place where its lanes wait for the others belongs to all of them."""
    found = verdicts(
        """
        ld.global.u32 %i, [%a+64]; ld.param.u64 %d, [p];
    again:
        ld.global.u32 %v0, [%a]; ld.global.u32 %v1, [%a+4]; add.u64 %a, %a, 64; setp.eq.u32 %q, %v1, 7;
        @%q bra skip;
        mul.lo.u32 %v0, %v0, %v0; st.global.u32 [%a+8], %v0; membar.gl; st.global.u32 [%a+12], %v0; membar.gl;
    skip:
        sub.u32 %i, %i, 1; setp.ne.u32 %q, %i, 0;
        @%q bra again;
        ret;
    """
    )
    assert [one.reason for one in found] == ["", LESS_OFTEN, "", "", ""]


def test_a_load_that_only_lanes_that_select_it_make() -> None:
    found = verdicts(
        """
        ld.global.u32 %v1, [%a+4]; setp.eq.u32 %q, %v1, 7; ld.global.u32 %v2, [%a+8]; ld.param.u64 %d, [p]; ld.global.u32 %v3, [%d];
        selp.u32 %v2, %v2, %v3, %q; st.global.u32 [%a+12], %v2; ret;
    """
    )
    put = "ptxas put a condition on it, so that only lanes that need it access memory"
    assert sorted(one.reason for one in found) == ["", "", "", put]


@pytest.mark.parametrize("arm", ["ld.shared.u32 %v0, [words+64];", "ld.global.u32 %v0, [%a+64]; st.global.u32 [%a+128], %v0;"])
def test_a_branch_that_became_a_condition_is_exact(arm: str) -> None:
    body = f"ld.global.u32 %v1, [%a]; mov.u32 %v0, 3; setp.eq.u32 %q, %v1, 7; @%q bra done; {arm} done: st.global.u32 [%a+4], %v0; ret;"
    assert {one.reason for one in verdicts(body, before=WORDS)} == {""}


def test_ways_that_the_assembled_code_does_not_join() -> None:
    """Lanes that leave a loop through a block of their own do so at different turns: on the way nobody waits for the next."""
    found = verdicts(
        """
        and.b32 %n, %i, 63; mov.u32 %v2, 0;
    again:
        ld.global.u32 %v1, [%a]; setp.eq.u32 %q, %v1, 9;
        @%q bra leave;
        add.u64 %a, %a, 512; add.u32 %v2, %v2, %v1; sub.u32 %n, %n, 1; setp.ne.u32 %q, %n, 0;
        @%q bra again;
        bra done;
    leave:
        st.global.u32 [%a+4], %v2; st.global.u32 [%a+8], %v2;
    done:
        st.global.u32 [%a+12], %v2; ret;
    """
    )
    assert [one.reason for one in found[-3:]] == [UNJOINED, UNJOINED, ""]


def test_a_condition_of_two_parts_is_joined_before_its_else() -> None:
    found = verdicts(
        """
        ld.global.u32 %v0, [%a]; setp.eq.u32 %q, %v0, 0;
        @%q bra other;
        ld.global.u32 %v1, [%a+4]; setp.eq.u32 %q, %v1, 0;
        @%q bra other;
        st.global.u32 [%a+8], %v1; ret;
    other:
        ld.global.u32 %v2, [%a+12]; st.global.u32 [%a+8], %v2; ret;
    """
    )
    assert {one.reason for one in found} == {""}


def test_what_atomics_become() -> None:
    found = verdicts(
        """
        red.global.add.u32 [%a], 1;
        red.global.add.u32 [%a+4], %i;
        { .reg .f32 %w; cvt.rn.f32.u32 %w, %i; atom.shared.add.f32 %f1, [words], %w; }
        st.global.f32 [%a+8], %f1;
        ret;
        """,
        before=".shared .align 4 .b8 words[4];",
    )
    assert [one.verdict for one in found] == [EXACT, EXACT, HINT, EXACT]
    assert (
        found[2].reason
        == "ptxas turned it into a loop that retries until it succeeds (1 x 4 B shared load and 1 x 4 B shared atomic per iteration)"
    )


def test_minima_of_signed_numbers_of_8_bytes_are_one_access() -> None:
    found = verdicts("atom.global.min.s64 %d, [%a], %o; red.global.max.s64 [%a+8], %d; ret;")
    assert [(one.verdict, one.assembled) for one in found] == [(EXACT, "1 x 8 B global atomic"), (EXACT, "1 x 8 B global reduction")]


def test_a_reduction_to_one_address_is_combined_first() -> None:
    found = verdicts("red.shared.add.u32 [words], %i; ret;", before=".shared .align 4 .b8 words[4];")
    assert found[0].reason == "ptxas first combines the values of a warp's lanes"


def test_dead_components_are_not_loaded() -> None:
    found = verdicts("ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%a]; st.global.v2.f32 [%a], {%f3, %f4}; ret;")
    assert found[0].reason == "ptxas turned its 16 B into 1 x 8 B global load"
    assert found[1].verdict == EXACT


def test_constants_become_operands() -> None:
    found = verdicts("ld.const.u32 %v1, [table+4]; add.u32 %v1, %v1, %i; st.global.u32 [%a], %v1; ret;", before=".const .b32 table[4];")
    assert found[0].reason == "ptxas made it an operand of other instructions"


def test_tracing_unrolls_less() -> None:
    module = example(next(path for path in EXAMPLES if path.stem == "spmv"))
    traced = trace(module)
    found = access_changes(module, cubin_of(module), traced, cubin_of(traced.module))
    assert {str(change) for change in found} == {"7 x 4 B in the original, 1 x 4 B traced"}
    assert all(traced.sites[change.site].kind == "load" for change in found)


def test_tracing_separates_duplicates() -> None:
    """In the original the last load has the value of the first; in the traced code a record is stored in between, which may alias."""
    body = (
        "ld.global.u32 %v0, [%a]; ld.global.u32 %v2, [%a+8]; ld.global.u32 %v1, [%a]; "
        "add.u32 %v0, %v0, %v1; add.u32 %v0, %v0, %v2; st.global.u32 [%a+4], %v0; ret;"
    )
    module = kernel(HEAD + body)
    traced = trace(module)
    found = access_changes(module, cubin_of(module), traced, cubin_of(traced.module))
    assert [str(change) for change in found] == ["none in the original, 1 x 4 B traced"]


def test_probes_do_not_always_separate() -> None:
    """Loads of shared memory may still be merged around the clock reads: then most sites have no access, which the proof says."""
    module = kernel(HEAD + FOUR, before=WORDS)
    traced = trace(module)
    data = cubin_of(traced.module)
    assert access_changes(module, cubin_of(module), traced, data) == ()
    absent = [proof for proof in prove(traced, data) if proof.copies == 0]
    assert [proof.site for proof in absent] == [2, 3, 4]
    neighbour = "merged with a neighbour: the assembler combined it with that of the same line into one access of 16 B"
    assert {proof.reason for proof in absent} == {neighbour}


def test_an_access_that_has_become_another_names_it() -> None:
    """Equal loads are one load; what was just stored is not loaded; of the rest it is said that nothing tells."""
    body = "ld.global.u32 %v0, [%a];\nld.global.u32 %v1, [%a];\nst.global.u32 [%a+4], %v0;\nadd.u32 %v1, %v1, %v0;"
    module = kernel(f"{HEAD}\n{body}\nst.shared.u32 [%i], %v1;\nld.shared.u32 %v2, [%i];\nst.global.u32 [%a+8], %v2; ret;")
    traced = trace(module)
    absent = {proof.site: proof.reason for proof in prove(traced, cubin_of(traced.module)) if proof.copies == 0}
    lines = [site.line for site in traced.sites]
    said = "merged with an equal access: the assembler uses the value of the"
    assert absent == {1: f"{said} load of line {lines[0]}", 4: f"{said} store of line {lines[3]}"}


def test_an_access_cannot_have_become_a_narrower_one() -> None:
    """Behind a load of four bytes one of eight, whose instruction is taken away."""
    body = "ld.global.u32 %v0, [%a];\nld.global.u64 %o, [%a];\nst.global.u32 [%a+16], %v0; st.global.u64 [%a+32], %o; ret;"
    traced = trace(kernel(f"{HEAD}\n{body}"))
    program = disassemble(cubin_of(traced.module))
    assert [proof.completeness for proof in prove(traced, program)][:2] == [COMPLETE] * 2
    (wide,) = AssembledModule(traced.module, program).accesses("k", traced.probes["k"][1].access, "global")
    assert prove(traced, exchanged(program, "k", wide, instruction("NOP")))[1].reason == NO_ACCESS


def test_code_without_lines_is_refused() -> None:
    module = kernel(HEAD + "ld.global.u32 %v0, [%a]; st.global.u32 [%a+4], %v0; ret;")
    other = cubin_of(parse(".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry other() { ret; }\n", "other.ptx"))
    with pytest.raises(MemlaneError, match=r"the assembled code has no kernel k; it was not assembled from k\.ptx"):
        exactness(module, other)


@pytest.mark.parametrize(
    ("space", "kind", "nbytes", "like"),
    [("global", "load", 8, True), ("global", "load", 4, False), ("global", "store", 8, False), ("shared", "load", 8, False)],
)
def test_a_narrower_access_is_not_that_of_a_site(space: str, kind: str, nbytes: int, like: bool) -> None:
    """But for textures, of which the assembler leaves out what nothing reads."""
    site = Site(0, "k", 0, "k.ptx", 1, 1, "ld.global.u64", "load", "global", 8)
    assert is_like(site, Access(kind, space, nbytes, 1)) == like
    fetch = replace(site, op="tex.1d.v4.f32.s32", space="tex", nbytes=16)
    assert is_like(fetch, Access("load", "tex", 8, 2))
    assert not is_like(fetch, Access("load", "tex", 32, 8))


def test_what_was_made_of_a_site_is_said_by_width() -> None:
    class Made:
        def accesses(self, function: str, instruction: int, space: str) -> dict[int, Access]:
            return {number: Access("load", "global", nbytes, 1) for number, nbytes in enumerate((8, 4, 8))}

        def is_combined(self, function: str, instruction: int) -> bool:
            return False

    site = Site(0, "k", 0, "k.ptx", 1, 1, "ld.global.u64", "load", "global", 8)
    assert site_changes._described(Made(), "k", 0, site) == "1 x 4 B + 2 x 8 B"  # type: ignore[arg-type]


def test_products_of_a_function_without_code_have_no_accesses() -> None:
    module = parse(CASES["tf32"].text(), "wgmma.ptx")
    (name,) = module.functions
    index = next(at for at, one in enumerate(module.functions[name].instructions()) if one.name.startswith("wgmma.mma_async"))
    program = disassemble(cubin_of(kernel(HEAD + "st.global.u32 [%a], %i; ret;")))
    assert AssembledModule(module, program)._products[name, index] == {}
