"""Find the instantiations of template kernels that a program launches, by having the device compiler compile its host code.

Which kernel `run<4>()` launches can depend on template arguments, defaults, overloads and the types of variables, so only a C++ compiler
can tell. NVRTC is one, and with `-default-device` it compiles host functions too. It therefore gets the functions from which a template
kernel is reachable, with each `kernel<<<grid, block>>>(...)` turned into a call in a branch that is not taken. What it would refuse because
it has no meaning on the device is declared in `include/containers.h` (the runtime, containers, streams), as far as most programs use it;
of the rest, the smallest part that contains each error is left out until all compiles. The kernels in the resulting
PTX are the ones that the program launches. That PTX is discarded, and the kernels are instantiated by name.

A parser without types does not help here. tree-sitter with its CUDA grammar (MIT, tree-sitter-cuda 0.21.2, wheels for Python 3.10 and
later) finds `<<<` and the template arguments written in front of it, which the tokens give as well. It has no deduction, no defaults, no
overloads and no constant expressions, and it does not expand macros.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from memlane.compile.declarations import Unit, tokens_inside
from memlane.compile.dialect import in_standard_cxx
from memlane.compile.hostbody import ANY_VALUE, Body, HostFunction, Part
from memlane.compile.hostcode import DeviceCode, with_constexpr
from memlane.compile.nvrtc import Answer, errors
from memlane.compile.sources import SourceFile
from memlane.compile.tokens import Token, directive
from memlane.ptx import Directive, called_functions, demangle, names_in, parse, print_module
from memlane.ptx.initializers import initial_values
from memlane.walks import reachable

_ROUNDS = 40
"""Maximum number of compilations; each reports up to a hundred errors."""
_KERNEL = re.compile(r"^\s*(?:\.(?:visible|weak)\s+)*\.entry\s+(_Z[\w$.]+)", re.MULTILINE)
_MACRO_LAUNCH = re.compile(r"<<<[^;]*?>>>(?=\s*\()")
_MACRO_THROW = re.compile(r"\bthrow\b(?=\s*[\w:])")
_HOST = "__host__"
"""The mark of host functions, which the device compiler refuses where no `__device__` is beside it."""
_HOST_WORD = re.compile(rf"\b{_HOST}\b")
_UNKNOWN_TYPE = "memlane_value"
"""Name of the type of `ANY_VALUE`."""
_MAIN = "_mln"
"""Name that replaces `main`, which cannot be `inline`."""
_BEFORE_INLINE = frozenset({"template", "inline", "static", "friend"})
_CONDITIONAL = frozenset({"if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif", "define", "undef"})


@dataclass
class _File:
    """A file of the program with the parts of its host code."""

    source: SourceFile
    code: DeviceCode
    parts: list[Part] = field(default_factory=list)
    """Parts that can be left out."""
    left_out: list[Part] = field(default_factory=list)
    without_code: list[Part] = field(default_factory=list)
    """Edits that save compile time: empty kernel bodies, and `inline` host functions, for which no code is generated. Launches stay."""


@dataclass(frozen=True)
class Launched:
    """The template kernels that the host code launches."""

    kernels: tuple[str, ...]
    """Template kernels with their arguments, as expressions that are valid at file scope."""
    lost: tuple[str, ...]
    """Compiler errors for which a part was left out that may lead to a launch."""
    unnamed: bool = False
    """Whether there are kernels whose arguments cannot be named at file scope: lambdas of the functions that launch them."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """File texts with the host code that compiled; these instantiate all of the kernels."""


def launched(
    files: Sequence[SourceFile],
    codes: Mapping[str, DeviceCode],
    device_words: frozenset[str],
    compiler: Callable[[Mapping[str, str]], Answer],
) -> Launched | None:
    """Return the template kernels, with their arguments, that the host code launches.

    `codes` holds each file without its host code, by name, and `device_words` the words that mark device code. `compiler` compiles the
    texts of the files, given by name. Returns None if the compiler finds errors outside the host code, or new ones in every round.
    """
    program = {file.name: _File(file, codes[file.name]) for file in files}
    reaching = _reaching(program.values(), {name for code in codes.values() for name in code.templates})
    for file in program.values():
        _take_apart(file, reaching)
    lost: list[str] = []
    replaced: list[str] = []
    for _ in range(_ROUNDS):
        answer = compiler({name: in_standard_cxx(_text(file, file.without_code), device_words) for name, file in program.items()})
        if answer.ptx:
            kernels = _KERNEL.findall(answer.ptx)
            names = dict.fromkeys(filter(None, map(_expression, kernels)))
            if len(known := [name for name in names if _UNKNOWN_TYPE not in name]) < len(names):
                lost += replaced
            texts = {name: in_standard_cxx(_text(file), device_words) for name, file in program.items()}
            return Launched(tuple(known), tuple(lost), any("<" in title and "{" in title for title in map(demangle, kernels)), texts)
        refused = _refused(program, answer.log)
        if not refused:
            return None
        for (name, part), message in refused.items():
            program[name].left_out.append(part)
            words = {token.text for token in tokens_inside(program[name].source.tokens, Unit(part.start, part.end, "host"))}
            lost += [] if reaching.isdisjoint(words) else [message]
            replaced += [message] if part.instead == f"={ANY_VALUE}" else []
    return None


def undecided(files: Sequence[SourceFile], codes: Mapping[str, DeviceCode]) -> bool:
    """Return whether the host code names a template kernel other than in a launch whose arguments are valid at file scope."""
    templates = {name for code in codes.values() for name in code.templates}
    if not templates:
        return False
    direct = sum(code.direct_launches for code in codes.values())
    named = 0
    for file in files:
        for unit in codes[file.name].host:
            named += sum(token.text in templates for token in tokens_inside(file.tokens, unit))
        if codes[file.name].is_piece:
            named += sum(token.text in templates for token in file.tokens)
        named += sum(
            any(name in token.text for name in templates) or _pastes_a_launch(token) for token in file.tokens if token.kind == "directive"
        )
    return named > direct


def kernels_alone(ptx: str, without: str) -> str:
    """Return the PTX of `Launched.texts` reduced to its kernels and what they use, without the host functions in it.

    `without` is the PTX of the files without their host code; its functions and variables stay too, because other modules may use them.
    """
    module, known = parse(ptx, "<ptx>"), parse(without, "<ptx>")
    roots = [one for name, one in module.functions.items() if one.is_entry or name in known.functions]
    functions = {called.name: called for root in roots for called in (root, *called_functions(module, root))}
    used = {name for one in functions.values() for each in one.instructions() for operand in each.operands for name in names_in(operand)}
    used |= set(known.variables)
    pending = [module.variables[name] for name in used if name in module.variables]
    while pending:
        named = {value.name for value in initial_values(pending.pop())} - used
        used |= named
        pending += [module.variables[name] for name in named if name in module.variables]
    items = [one for one in module.items if isinstance(one, Directive) or one.name in functions or one.name in used]
    return print_module(replace(module, items=tuple(items)))


# -- which functions are compiled


def _reaching(program: Iterable[_File], templates: Iterable[str]) -> frozenset[str]:
    """Return the words that lead to a template kernel: its name, functions and macros that use it, and so on transitively.

    Functions that launch a parameter or variable lead there too.
    """
    program = list(program)
    users: dict[str, list[str]] = {}
    launchers: list[str] = []
    kernels = {function.name for file in program for unit in file.code.kernels if (function := _body(file, unit).function())}
    for file in program:
        for unit in file.code.host:
            body = _body(file, unit)
            function = body.function()
            if function is not None and body.launches_other_than(kernels):
                launchers.append(function.name)
            for word in _words(file, unit):
                users.setdefault(word, []).append(function.name if function else "")
        for word in {token.text for token in file.source.tokens if token.kind == "word"} if file.code.is_piece else ():
            users.setdefault(word, []).append(file.source.name)
        for token in file.source.tokens:
            if token.kind == "directive" and (line := directive(token)).name == "define":
                macro, *words = re.findall(r"[^\W\d]\w*", line.body) or [""]
                if _pastes_a_launch(token):
                    launchers.append(macro)
                for word in words:
                    users.setdefault(word, []).append(macro)
    return frozenset(reachable((*templates, *launchers), lambda word: users.get(word, ())))


def _body(file: _File, unit: Unit) -> Body:
    """Return the tokens of a declaration, without directives."""
    return Body([token for token in tokens_inside(file.source.tokens, unit) if token.kind != "directive"])


def _pastes_a_launch(token: Token) -> bool:
    """Return whether a directive defines a macro that launches a kernel whose name it may paste together (`name##_kernel<N><<<...>>>`)."""
    return "<<<" in token.text and "##" in token.text


def _words(file: _File, unit: Unit) -> set[str]:
    """Return the words of a declaration, and the names of the files that are included in it."""
    tokens = file.source.tokens
    first = bisect_left(tokens, unit.start, key=lambda token: token.start)
    inside = range(first, bisect_left(tokens, unit.end, key=lambda token: token.start))
    words = {tokens[index].text for index in inside if tokens[index].kind == "word"}
    return words | {name for index, name in file.source.includes.items() if index in inside}


def _take_apart(file: _File, reaching: frozenset[str]) -> None:
    """Fill in the parts of a file: host functions that reach a kernel are compiled whole, others only by their heads."""
    file.parts += [Part(unit.start, unit.end) for unit in file.code.removable]
    file.parts += _device_functions(file)
    for unit in file.code.kernels:
        kernel = _body(file, unit).function()
        file.without_code += [] if kernel is None else [replace(kernel.body, instead="{}")]
    if file.code.is_piece:
        whole = Body([token for token in file.source.tokens if token.kind != "directive"])
        _take_statements_apart(file, whole, whole, reaching)
    for unit in file.code.host:
        body = _body(file, unit)
        function = body.function()
        file.parts.append(Part(unit.start, unit.end))
        if function is None:
            file.left_out += body.launch_configurations()
        elif function.name and reaching.isdisjoint(_words(file, unit)) and not _returns_deduced(body, function):
            # Without its code, an `inline` or `static` function needs an empty body. A constructor keeps one too, because without it the
            # compiler passes over a class template's virtual functions; if its initialisers do not compile, it becomes a declaration.
            if function.head_end < function.body.start:
                file.parts.append(Part(function.head_end, unit.end, ";"))
            file.left_out.append(Part(function.body.start, unit.end, "{}"))
        else:
            _take_function_apart(file, body, function, reaching)


def _returns_deduced(body: Body, function: HostFunction) -> bool:
    """Return whether the function's return type is deduced from its body, so that callers need the body (`auto make() { ... }`)."""
    head = [token.text for token in body.tokens if token.start < function.head_end]
    return "auto" in head and "->" not in head


def _device_functions(file: _File) -> Iterator[Part]:
    """Yield the device functions and their bodies, which may be left out.

    The launched kernels hardly depend on them, and the compiler may refuse one that no kernel needs.
    """
    for unit in file.code.functions:
        yield Part(unit.start, unit.end)
        function = _body(file, unit).function()
        if function is not None:
            yield Part(function.head_end, unit.end, ";")


def _take_function_apart(file: _File, body: Body, function: HostFunction, reaching: frozenset[str]) -> None:
    file.without_code += _without_code(file, body, function)
    inner = Body([token for token in body.tokens if function.body.start <= token.start < function.body.end])
    _take_statements_apart(file, body, inner, reaching)
    file.left_out += inner.static_words()
    file.parts.append(function.body)


def _without_code(file: _File, body: Body, function: HostFunction) -> Iterator[Part]:
    """Yield the edits that make the compiler check a function without generating code for it: it becomes `inline`, and nothing calls it.

    The compiler cannot generate the call of a kernel that takes a class with a copy constructor (`half2`). A one-line function stays
    unchanged, because its columns identify the part that an error is in.
    """
    first = body.tokens[2] if body.text(0) == "extern" and body.tokens[1].kind == "string" else body.tokens[0]
    if first.text in _BEFORE_INLINE or first.kind != "word" or "\n" not in file.source.text[function.body.start : function.body.end]:
        return
    yield Part(first.start, first.end if first.text == _HOST else first.start, "inline ")
    if function.name == "main":
        yield from (Part(one.start, one.end, _MAIN) for one in body.tokens if one.text == "main" and one.start < function.head_end)


def _take_statements_apart(file: _File, body: Body, inner: Body, reaching: frozenset[str]) -> None:
    """Add the parts of the statements in `inner`: those of the function `body`, or of a file that is included in a function."""
    file.parts += inner.statements()
    file.parts += inner.names_of_calls(reaching)
    file.left_out += body.launch_configurations()
    file.left_out += body.exception_handling()


# -- what the compiler refuses


def _refused(files: Mapping[str, _File], log: str) -> dict[tuple[str, Part], str]:
    """Return the smallest parts in which the compiler found errors, each with its file name -> the error."""
    chosen: dict[tuple[str, Part], str] = {}
    for error in errors(log):
        if file := files.get(error.file):
            start, end = error.place(file.source.text)
            parts = [part for part in file.parts if part.start < end and part.end > start and part not in file.left_out]
            if parts:
                chosen.setdefault((error.file, min(parts, key=lambda part: part.end - part.start)), error.message)
    return chosen


def _text(file: _File, also_left_out: Sequence[Part] = ()) -> str:
    """Return the text of the file with the omitted parts replaced, so that the remaining code keeps its lines and columns."""
    pieces: list[str] = []
    position = 0
    text, tokens = with_constexpr(file.source.text, file.code.removable), file.source.tokens
    includes = [Part(tokens[index].start, tokens[index].end, f'#include "{name}"') for index, name in file.source.includes.items()]
    host = [Part(token.start, token.end) for token in tokens if token.text == _HOST]
    edits = [*also_left_out, *file.left_out, *includes, *_macros(tokens), *host]
    for part in sorted(edits, key=lambda part: (part.start, -part.end)):
        if part.start >= position:
            pieces += [text[position : part.start], part.instead, *_remains(text, tokens, part)]
            position = part.end
    return "".join((*pieces, text[position:]))


def _remains(text: str, tokens: list[Token], part: Part) -> Iterator[str]:
    """Yield what stays of an omitted part: directives (a conditional may end in another statement), line ends and width."""
    position = part.start
    for token in tokens_inside(tokens, Unit(part.start, part.end, "host")):
        if token.kind == "directive" and token.start > part.start and directive(token).name in _CONDITIONAL:
            yield "\n" * text.count("\n", position, token.start)
            yield token.text
            position = token.end
    yield "\n" * (text.count("\n", position, part.end) - part.instead.count("\n"))
    line = text.rfind("\n", part.start, part.end) + 1
    yield " " * (part.end - line if line else part.end - part.start - len(part.instead))


def _macros(tokens: Iterable[Token]) -> Iterator[Part]:
    """Yield edits of macro definitions that launch kernels, throw exceptions or mark host functions, with the signs of that removed."""
    for token in tokens:
        if token.kind != "directive" or not any(sign in token.text for sign in ("<<<", "throw", _HOST)):
            continue
        if (line := directive(token)).name == "define" and not line.body.startswith(_HOST):
            without = _MACRO_LAUNCH.sub(lambda found: "\\\n" * found.group().count("\n"), token.text)
            yield Part(token.start, token.end, _HOST_WORD.sub("", _MACRO_THROW.sub("(void)", without)))


# -- the names of what was found


def _expression(kernel: str) -> str:
    """Return a kernel with its template arguments as a C++ expression; empty if it is not a template or an argument's type has no name."""
    title = demangle(kernel)
    if "<" not in title or "{" in title or title == kernel:
        return ""
    depth = 0
    name, begin = "", 0
    for index, character in enumerate(title):
        depth += (character in "<([{") - (character in ">)]}")
        if character == " " and depth == 0 and not name:
            begin = index + 1
        if character == "(" and depth == 1 and title[index - 1] in ">":
            name = title[begin:index]
            break
    return name.replace("(anonymous namespace)::", "")
