"""Modules linked into one: what is found across them, whose names stay apart, and what is refused as nvlink refuses it."""

from __future__ import annotations

import re

import pytest

from memlane.errors import LinkError
from memlane.ptx import Function, Location, Module, Variable, link_modules, parse, print_module, verify

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
GET = ".func (.param .b32 r) get (.param .b32 a)"
KERNEL = """
.visible .entry k (.param .u64 out) {
  .reg .b32 %r<3>; .reg .b64 %rd<2>;
  .param .b32 a; .param .b32 r;
  ld.param.u64 %rd1, [out];
  mov.b32 %r1, 5;
  st.param.b32 [a], %r1;
  call (r), get, (a);
  ld.param.b32 %r2, [r];
  st.global.u32 [%rd1], %r2;
  ret;
}
"""
BODY = " { .reg .b32 %r<2>; ld.param.b32 %r1, [a]; st.param.b32 [r], %r1; ret; }"


def module(text: str, name: str = "a.ptx", head: str = HEAD) -> Module:
    return parse(head + text, name)


def linked(*texts: str) -> Module:
    result = link_modules([module(text, f"{letter}.ptx") for letter, text in zip("abc", texts, strict=False)])
    verify(result)
    assert parse(print_module(result)) == result
    return result


def refusal(*texts: str) -> str:
    with pytest.raises(LinkError) as caught:
        linked(*texts)
    return str(caught.value)


def test_a_function_of_another_module_is_called() -> None:
    result = linked(f".extern {GET};{KERNEL}", f".visible {GET}{BODY}")
    assert set(result.functions) == {"k", "get"}
    assert not any("extern" in item.linkage for item in result.items if isinstance(item, Function))
    assert result.name == "a.ptx + b.ptx"


def test_order_of_the_modules_does_not_matter() -> None:
    names = [
        set(linked(*texts).functions)
        for texts in ((f".extern {GET};{KERNEL}", f".visible {GET}{BODY}"), (f".visible {GET}{BODY}", f".extern {GET};{KERNEL}"))
    ]
    assert names[0] == names[1]


def test_variables_come_before_what_names_them() -> None:
    result = linked(
        ".extern .global .u32 t[2]; .visible .global .u64 p[1] = {t};",
        ".visible .global .u32 t[2] = {1, 2};",
    )
    assert [item.name for item in result.items if isinstance(item, Variable)] == ["t", "p"]
    assert result.variables["t"].initial == "{1, 2}"


def test_names_of_one_module_alone_stay_apart() -> None:
    use = ".visible .entry k{n} () {{ .reg .b32 %r<2>; ld.global.u32 %r1, [count]; ret; }}"
    result = linked(*(f'.file {n + 1} "/count/{n}.cu"\n.global .u32 count = {n};{use.format(n=n)}' for n in range(3)))
    assert {name: one.initial for name, one in result.variables.items()} == {"count": "0", "count__1": "1", "count__2": "2"}
    names = [
        one for name in ("k0", "k1", "k2") for one in re.findall(r"\[(\w+)\]", print_module(result).partition(f".entry {name}")[2])[:1]
    ]
    assert names == ["count", "count__1", "count__2"]
    assert list(result.files.values()) == ["/count/0.cu", "/count/1.cu", "/count/2.cu"]


def test_a_name_of_one_module_is_not_what_another_one_declares() -> None:
    text = refusal(f".extern {GET};{KERNEL}", f"{GET}{BODY}")
    assert text == "`get`, which `k` (a.ptx) uses, is not defined in a.ptx and b.ptx; link the file that defines it too"


def test_of_weak_definitions_the_first_is_kept_unless_one_is_not_weak() -> None:
    weak = ".weak .global .u32 w = {};"
    assert linked(weak.format(1), weak.format(2)).variables["w"].initial == "1"
    assert linked(weak.format(1), ".visible .global .u32 w = 3;").variables["w"].initial == "3"
    twice = linked(f".weak {GET}{BODY}", f".weak {GET}{BODY}{KERNEL}")
    assert sum(isinstance(item, Function) and item.body is not None and item.name == "get" for item in twice.items) == 1


def test_of_common_variables_the_largest_is_kept() -> None:
    assert linked(".common .global .b8 c[4];", ".common .global .b8 c[16];").variables["c"].nbytes == 16


def test_dynamic_shared_memory_is_one_and_as_aligned_as_any_module_needs() -> None:
    result = linked(".extern .shared .align 4 .b8 s[];", ".extern .shared .align 16 .b8 s[];")
    assert result.variables["s"].alignment == 16


def test_places_in_the_source_stay_what_they_are() -> None:
    def text(file: str, kernel: str) -> str:
        place = ".loc 1 7 2, function_name $L__info_string0, inlined_at 1 9 4"
        strings = ".section .debug_str\n{\n$L__info_string0:\n.b8 102,0\n}"
        return f'.visible .entry {kernel} () {{\n.loc 1 9 4\n{place}\nbar.sync 0;\nret; }}\n.file 1 "{file}"\n{strings}\n'

    result = linked(text("a.cu", "ka"), text("b.cu", "kb"))
    for kernel, file in (("ka", "a.cu"), ("kb", "b.cu")):
        location = next(result.functions[kernel].instructions()).location
        assert location == Location(location.file, 7, 2, Location(location.file, 9, 4))  # type: ignore[union-attr]
        assert result.files[location.file] == file
    labels = re.findall(r"^(\$\w+):", print_module(result), re.MULTILINE)
    assert len(labels) == len(set(labels)) == 2
    assert all(f"function_name {label}," in print_module(result) for label in labels)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            (f".visible {GET}{BODY}", f".visible {GET}{BODY}"),
            "the function `get` is defined in a.ptx and again in b.ptx; keep one definition, or make it `static`",
        ),
        (
            (".visible .global .u32 v;", ".visible .global .u32 v;"),
            "the variable `v` is defined in a.ptx and again in b.ptx; keep one definition, or make it `static`",
        ),
        (
            (".visible .entry k () { ret; }", ".visible .entry k () { ret; }"),
            "the kernel `k` is defined in a.ptx and again in b.ptx; rename one of them",
        ),
        (
            (".extern .global .b8 t[16];", ".visible .global .b8 t[32];"),
            "`t` is a variable of 16 bytes in global memory where a.ptx declares it and a variable of 32 bytes in global memory where "
            "b.ptx defines it; make the declaration the same as the definition",
        ),
        (
            (".extern .const .b8 t[16];", ".visible .global .b8 t[16];"),
            "`t` is a variable of 16 bytes in const memory where a.ptx declares it and a variable of 16 bytes in global memory where b.ptx",
        ),
        (
            (f".extern {GET};{KERNEL}", ".visible .func (.param .b32 r) get (.param .b32 a, .param .b64 b) { ret; }"),
            "`get` is a function of 4 bytes of parameters that returns 4 where a.ptx declares it and a function of 4, 8 bytes of",
        ),
        (
            (f".extern {GET};", ".visible .global .u32 get;"),
            "`get` is a function of 4 bytes of parameters that returns 4 where a.ptx declares",
        ),
        (
            (".extern .global .u32 t; .visible .global .u64 p = t;", ""),
            "`t`, which `p` in a.ptx uses, is not defined in a.ptx and b.ptx; link the file that defines it too",
        ),
    ],
)
def test_refused_as_nvlink_does(texts: tuple[str, str], message: str) -> None:
    assert refusal(*texts).startswith(message)


def test_what_is_declared_and_never_used_needs_no_definition() -> None:
    assert linked(f".extern {GET}; .extern .global .u32 v;", ".visible .entry k () { ret; }").kernels


def test_functions_of_the_runtime_are_defined_nowhere() -> None:
    printf = ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);"
    call = ".visible .entry k () { .param .b64 f; .param .b64 a; .param .b32 r; call (r), vprintf, (f, a); ret; }"
    assert linked(printf + call, printf).kernels


def test_architectures() -> None:
    old, new, only = (module("", f"{arch}.ptx", HEAD.replace("sm_90", arch)) for arch in ("sm_80", "sm_90", "sm_90a"))
    assert link_modules([old, new]).target == ("sm_90",)
    assert link_modules([only, only]).target == ("sm_90a",)
    with pytest.raises(LinkError, match=r"^sm_90a.ptx is for sm_90a alone and sm_100.ptx for sm_100; compile both for one architecture$"):
        link_modules([only, module("", "sm_100.ptx", HEAD.replace("sm_90", "sm_100"))])
    with pytest.raises(LinkError, match=r"^a.ptx and b.ptx have addresses of different sizes; compile all of them for 64 bits$"):
        link_modules([module("", "a.ptx"), module("", "b.ptx", HEAD.replace("64", "32"))])
