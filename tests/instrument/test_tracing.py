"""The trace pass: what it adds, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable, Set
from pathlib import Path

import pytest

from memlane.errors import MemlaneError
from memlane.instrument import SCHEMES, Selection, TraceOptions, trace
from memlane.ptx import Directive, Label, Module, memory_access, parse, print_module, verify
from memlane.record import Site
from tests.instrument.kernels import EXAMPLES, SCALE, example, instructions, is_access, kernel

REGISTERS = ".reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .f32 %f<8>; .reg .b64 %rd<8>; .reg .f64 %d<4>; .reg .b128 %q<2>;"


def timed(module: Module, scheme: str = "dependent", **selection: Set[object]) -> list[Site]:
    """The sites that carry a probe."""
    sites = trace(module, TraceOptions(scheme, Selection(**selection))).sites  # type: ignore[arg-type]
    return [site for site in sites if site.scheme]


def traced_text(body: str, scheme: str = "dependent") -> str:
    """The traced kernel with this body, with declared registers, as text; it verifies."""
    address = "ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; add.u64 %rd1, %rd1, %rd2;"
    module = trace(kernel(REGISTERS + address + body, ".param .u64 p, .param .u64 q"), TraceOptions(scheme)).module
    verify(module)
    return print_module(module)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_text_of_a_traced_kernel(scheme: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{scheme}.ptx", print_module(trace(parse(SCALE, "scale.ptx"), TraceOptions(scheme)).module))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_traced_module_verifies_and_reads_back(path: Path, scheme: str) -> None:
    original = example(path)
    traced = trace(original, TraceOptions(scheme)).module
    verify(traced)
    assert parse(print_module(traced), path.name) == traced


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_instructions_of_the_kernel_stay_in_order_with_their_lines(path: Path) -> None:
    original = example(path)
    traced = trace(original)
    for name in original.kernels:
        accesses = set(traced.positions.get(name, {}).values())
        now = [one for at, one in enumerate(instructions(traced.module, name)) if at in accesses or "ml_" not in repr(one)]
        assert all(map(is_access, now, instructions(original, name)))
        assert len(now) == len(instructions(original, name))


def test_labels_debug_sections_and_line_directives_stay() -> None:
    original = parse(SCALE.replace("\t.loc 1 5 1", "DONE:\n\t.loc 1 5 1") + ".section .debug_str { .b8 65, 0 }\n", "scale.ptx")
    traced = trace(original).module
    body, before = traced.kernels["scale"].body, original.kernels["scale"].body
    assert body is not None
    assert before is not None
    kept = [one for one in body.statements if isinstance(one, Directive | Label)]
    assert kept == [one for one in before.statements if isinstance(one, Directive | Label)]
    assert [one for one in traced.items if isinstance(one, Directive)] == [one for one in original.items if isinstance(one, Directive)]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_positions_lead_to_the_accesses(path: Path, scheme: str) -> None:
    original = example(path)
    traced = trace(original, TraceOptions(scheme))
    assert [site.id for site in traced.sites] == list(range(len(traced.sites)))
    for name, positions in traced.positions.items():
        now, before = instructions(traced.module, name), instructions(original, name)
        for number, position in positions.items():
            assert is_access(now[position], before[traced.sites[number].instruction])
            assert memory_access(now[position]) is not None
    assert sum(map(len, traced.positions.values())) == len(traced.sites) > 0


def test_what_an_access_measures() -> None:
    body = """
        ld.global.u32 %r1, [%rd1];
        ld.global.u32 %r2, [%rd1+4];
        atom.global.add.u32 %r3, [%rd1], 1;
        atom.global.add.u32 %r4, [%rd1], 1;
        red.global.add.u32 [%rd1], 1;
        st.global.v2.u32 [%rd1], {%r1, %r3};
        ret;"""
    sites = timed(kernel(REGISTERS + "ld.param.u64 %rd1, [p];" + body))
    assert [(site.kind, site.completeness) for site in sites] == [
        ("load", "complete"),
        ("load", "issue-only"),
        ("atomic", "complete"),
        ("reduction", "issue-only"),
        ("reduction", "issue-only"),
        ("store", "issue-only"),
    ]
    assert sites[1].reason == "no instruction reads the loaded value, so nothing waits for it"
    assert sites[3].reason == "a reduction returns no value to wait for"
    assert [site.nbytes for site in sites] == [4, 4, 4, 4, 4, 8]


def test_a_value_that_is_overwritten_before_it_is_read_is_not_waited_for() -> None:
    (load,) = timed(
        kernel(REGISTERS + "ld.param.u64 %rd1, [p]; ld.global.u32 %r1, [%rd1]; mov.u32 %r1, 7; st.shared.u32 [0], %r1; ret;"),
        spaces={"global"},
    )
    assert load.completeness == "issue-only"


@pytest.mark.parametrize(
    ("scheme", "complete"), [("simple", []), ("paper", ["ld.global.nc.f32"]), ("consume", ["ld.global.f32", "ld.global.nc.f32"])]
)
def test_what_the_other_schemes_measure(scheme: str, complete: list[str]) -> None:
    sites = timed(parse(SCALE, "scale.ptx"), scheme)
    assert [site.op for site in sites if site.completeness == "complete"] == complete
    assert all(site.reason for site in sites if site.completeness != "complete")
    assert [(site.file, site.line) for site in sites] == [("scale.cu", 3), ("scale.cu", 3), ("scale.cu", 4)]


def test_both_ends_of_the_dependent_scheme_hang_on_registers_of_the_access() -> None:
    text = traced_text("ld.global.u32 %r1, [%rd1]; add.u32 %r2, %r1, 1; st.global.u32 [%rd1], %r2; ret;")
    load = text.index("ld.global.u32 %r1, [%rd1];")
    assert "mov.b64 {%ml_s0x, %ml_s0y}, %rd1;" in text[:load]
    assert text[:load].rstrip().endswith("@%ml_start_ready mov.u64 %ml_start, %clock64;")
    assert text[load:].index("mov.b32 %ml_v0, %r1;") < text[load:].index("@%ml_end_ready mov.u64 %ml_end, %clock64;")
    store = text.index("st.global.u32 [%rd1], %r2;")
    assert "mov.b32 %ml_s1, %r2;" in text[load:store], "the start of a store waits for its data"


@pytest.mark.parametrize(("architecture", "waits"), [("sm_80", False), ("sm_90", True)])
def test_where_shared_memory_begins_is_asked_beforehand(architecture: str, waits: bool) -> None:
    """Before sm_90 the address of a variable in shared memory is a constant."""
    head = f".version 8.0\n.target {architecture}\n.address_size 64"
    module = kernel(".reg .b32 %r<3>; ld.shared.u32 %r1, [s+4]; st.shared.u32 [s], %r1; ret;", before=".shared .b32 s[4];", head=head)
    text = print_module(trace(module).module)
    before = text[: text.index("ld.shared.u32 %r1, [s+4];")].rstrip()
    assert ("mov.u32 %ml_address, s;" in before) == waits
    assert before.endswith("@%ml_start_ready mov.u64 %ml_start, %clock64;" if waits else "\tmov.u64 %ml_start, %clock64;")


def test_a_shared_variable_may_have_any_name() -> None:
    body = ".reg .b32 %r; .shared .b32 NEW[8]; ld.shared.u32 %r, [NEW+4]; st.shared.u32 [NEW], %r; ret;"
    text = print_module(trace(kernel(body)).module)
    assert "mov.u32 %ml_address, NEW;" in text
    assert "ld.shared.u32 %r, [NEW+4];" in text


@pytest.mark.parametrize(
    ("made", "tied"),
    [
        ("ld.param.u64 %rd1, [p];", True),
        ("ld.param.u64 %rd2, [p]; cvta.to.global.u64 %rd3, %rd2; add.u64 %rd1, %rd3, 16;", True),
        ("ld.param.u64 %rd2, [p]; add.u64 %rd1, %rd2, %rd3;", False),
        ("ld.param.u64 %rd2, [p]; cvt.u64.u32 %rd3, %r1; add.u64 %rd1, %rd2, %rd3;", False),
        ("ld.param.u64 %rd1, [p]; add.u64 %rd1, %rd1, 4;", False),
        ("ld.param.u64 %rd2, [p]; setp.eq.u64 %p1, %rd2, 0; @%p1 mov.u64 %rd1, %rd2;", False),
        ("ld.global.u64 %rd1, [total];", False),
    ],
)
def test_parameters_are_not_loaded_again_for_an_access(made: str, tied: bool) -> None:
    module = kernel(f"{REGISTERS} {made} ld.global.u32 %r2, [%rd1+4]; st.shared.u32 [0], %r2; ret;", before=".global .u64 total;")
    assert f"ld.global.u32 %r2, [{'%ml_address' if tied else '%rd1'}+4];" in print_module(trace(module).module)


@pytest.mark.parametrize(
    ("load", "use", "bits"),
    [
        ("ld.global.u8 %r1, [%rd1];", "st.shared.u32 [0], %r1;", "mov.b32 %ml_v0, %r1;"),
        ("ld.global.u16 %h1, [%rd1];", "st.shared.u16 [0], %h1;", "mov.b32 %ml_v0, {%h1, %h1};"),
        ("ld.global.f64 %d1, [%rd1];", "st.shared.f64 [0], %d1;", "mov.b64 {%ml_v0x, %ml_v0y}, %d1;"),
        ("ld.global.b128 %q1, [%rd1];", "st.shared.b128 [0], %q1;", "mov.b128 {%ml_v0l, %ml_v0h}, %q1;"),
        ("ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];", "st.shared.f32 [0], %f3;", "mov.b32 %ml_v0, %f3;"),
        ("ld.u64 %rd1, [%rd1];", "st.shared.u64 [0], %rd1;", "mov.b64 {%ml_v0x, %ml_v0y}, %rd1;"),
    ],
)
def test_the_probe_waits_for_the_raw_bits_of_a_live_component(load: str, use: str, bits: str) -> None:
    assert bits in traced_text(f"{load} {use} ret;")
    traced_text(f"{load} {use} ret;", "consume")
    traced_text(f"{load} {use} ret;", "paper")


def test_a_guarded_access_is_probed_under_its_guard() -> None:
    text = traced_text("setp.eq.u64 %p1, %rd1, 0; @!%p1 ld.global.u32 %r1, [%rd1]; @%p1 st.global.u32 [%rd1], %r1; ret;")
    assert "@%p1 bra $ml_skip_0;" in text
    assert "@!%p1 bra $ml_skip_1;" in text
    assert "\tld.global.u32 %r1, [%rd1];" in text
    assert (
        text.index("@%p1 bra $ml_skip_0;")
        < text.index("ld.global.u32 %r1")
        < text.index("$ml_skip_0:")
        < text.index("st.global.u32 [%rd1], %r1")
    )


def test_every_way_out_closes_the_slice() -> None:
    text = traced_text("""
        ld.global.u32 %r1, [%rd1];
        setp.eq.u32 %p1, %r1, 0;
        @%p1 exit;
        setp.eq.u32 %p2, %r1, 1;
        @!%p2 bra ON;
        ret;
    ON: st.global.u32 [%rd1], %r1;""")
    assert text.count("red.global.max.u64") == 2 * 3, "a guarded exit, a return, and the end of the text"
    assert "@!%p1 bra $ml_stays_" in text


def test_an_exit_in_an_inner_block_closes_the_slice() -> None:
    assert (
        traced_text("ld.global.u32 %r1, [%rd1]; { .reg .b32 t; mov.b32 t, %r1; st.shared.u32 [0], t; ret; }").count("red.global.max.u64")
        == 2
    )


def test_names_of_the_kernel_are_left_alone() -> None:
    body = ".reg .b32 %ml_x<3>; .reg .b64 %rd<2>; ld.param.u64 %rd1, [p]; ld.global.u32 %ml_x1, [%rd1]; st.shared.u32 [0], %ml_x1; ret;"
    module = trace(kernel(body)).module
    verify(module)
    assert "%ml2_start" in print_module(module)


def test_a_variable_tells_where_the_buffer_is() -> None:
    module = trace(parse(SCALE, "scale.ptx")).module
    assert print_module(module).count(".visible .const .align 32 .b32 memlane_trace[8];") == 1
    assert trace(kernel("ret;")).positions == {}


@pytest.mark.parametrize(("own", "space"), [((1 << 16) - 64, "const"), ((1 << 16) - 60, "global")])
def test_that_variable_is_in_global_memory_where_the_module_fills_its_constants(own: int, space: str) -> None:
    body = ".reg .b32 %r<2>; ld.const.u32 %r1, [table]; st.shared.u32 [0], %r1; ret;"
    text = print_module(trace(kernel(body, before=f".const .align 4 .b8 table[{own}];")).module)
    assert f".visible .{space} .align 32 .b32 memlane_trace[8];" in text
    assert text.count(f"ld.{space}.v4.u32") == 2


def test_only_consume_needs_shared_memory() -> None:
    extra = {scheme: trace(parse(SCALE, "scale.ptx"), TraceOptions(scheme)).extra_shared_bytes for scheme in SCHEMES}
    assert extra == {"dependent": 0, "exposed": 0, "consume": 32, "simple": 0, "paper": 0}


def test_the_slot_does_not_move_the_dynamic_shared_memory_of_the_kernel() -> None:
    own = ".extern .shared .align 4 .b8 mine[];"
    module = trace(
        kernel(".reg .b32 %r<2>; ld.shared.u32 %r1, [mine]; st.shared.u32 [mine+4], %r1; ret;", before=own), TraceOptions("consume")
    ).module
    assert ".extern .shared .align 4 .b8 memlane_dynamic[];" in print_module(module)


def test_selections() -> None:
    module = parse(SCALE, "scale.ptx")
    assert [site.op for site in timed(module, kinds=frozenset({"store"}))] == ["st.global.f32"]
    assert [site.line for site in timed(module, lines=frozenset({("cale.cu", 3)}))] == [3, 3]
    assert [site.id for site in timed(module, sites=frozenset({1}))] == [1]
    assert timed(module, spaces=frozenset({"shared"})) == []
    assert timed(module, kernels=frozenset({"other"})) == []
    assert len(timed(module, kernels=frozenset({"scale"}))) == 3


def test_kernels_without_a_chosen_site_stay_as_they_are() -> None:
    module = parse(SCALE, "scale.ptx")
    traced = trace(module, TraceOptions(selection=Selection(spaces={"shared"})))
    assert traced.module.kernels == module.kernels


def test_parameters_are_no_sites() -> None:
    assert [site.op for site in trace(parse(SCALE, "scale.ptx")).sites] == ["ld.global.f32", "ld.global.nc.f32", "st.global.f32"]


def test_what_cannot_be_timed_is_listed_with_the_reason() -> None:
    code = "ld.param.u64 %rd1, [a]; ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd1], %r1; ret;"
    function = f".func f(.param .b64 a) {{ .reg .b64 %rd<2>; .reg .b32 %r<2>; {code} }}"
    body = REGISTERS + "ld.param.u64 %rd1, [p]; prefetch.global.L1 [%rd1]; ret;"
    skipped = trace(kernel(body, before=function)).skipped
    assert [(one.function, one.op, one.reason) for one in skipped] == [
        ("f", "ld.global.u32", "no kernel calls it"),
        ("f", "st.global.u32", "no kernel calls it"),
        ("k", "prefetch.global.L1", "a prefetch returns nothing"),
    ]
    assert [one.kernels for one in skipped] == [(), (), ("k",)], "nobody calls f"
    assert skipped[0].file == "k.ptx"
    assert skipped[0].line == 4


def test_an_old_version_of_ptx_is_raised_to_one_that_knows_the_instructions() -> None:
    old = kernel(".reg .b32 %r<2>; ld.shared.u32 %r1, [0]; ret;", head=".version 6.0\n.target sm_70\n.address_size 64")
    assert trace(old).module.version == (6, 2)


def test_refusals() -> None:
    with pytest.raises(
        MemlaneError, match=r"scale.ptx is already instrumented \(it declares memlane_trace\); instrument the original module"
    ):
        trace(trace(parse(SCALE, "scale.ptx")).module)
    with pytest.raises(MemlaneError, match=r"k.ptx has addresses of 32 bits; only .address_size 64 can be instrumented"):
        trace(kernel("ret;", head=".version 8.0\n.target sm_90\n.address_size 32"))
    with pytest.raises(MemlaneError, match=r"unknown scheme 'fence'; choose from dependent, exposed, consume, simple, paper"):
        TraceOptions("fence")
    with pytest.raises(MemlaneError, match=r"unknown space of accesses: 'Global'; choose from global, shared"):
        Selection(spaces={"Global"})
    with pytest.raises(MemlaneError, match=r"unknown kind of accesses: 'read'; choose from load, store, atomic, reduction"):
        Selection(kinds={"read"})
