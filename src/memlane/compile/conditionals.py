"""Suggest macros to pass with -D where code is skipped by a conditional that does not hold.

A build passes such macros (`nvcc -DSAVE_DETECTORS`); they are missing when a file is compiled by itself. The compiler then reports
"identifier is undefined" for a function or constant whose definition it skipped, or stops at an `#error`. Conditionals are not evaluated:
one is taken not to hold if it asks, without a negation, for macros that neither the files nor the command line define.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from memlane.compile.build_files import PassedMacro
from memlane.compile.nvrtc import errors
from memlane.compile.sources import SourceFile
from memlane.compile.tokens import Token, directive

_UNDEFINED = re.compile(r'identifier "(\w+)" is undefined')
_ERROR_DIRECTIVE = re.compile(r"#error directive: *(?P<told>[^\n]*)")
_BEHIND_A_NAME = frozenset({"(", "=", ";", "[", "{", ":", ","})
_NOT_TYPES = frozenset({"return", "else", "do", "case", "goto", "throw", "new", "typename"})
_WORD = re.compile(r"\b[A-Za-z]\w*")
_BRANCHES = frozenset({"if", "ifdef", "ifndef", "else", "elif", "elifdef", "elifndef"})
_ATTRIBUTES = frozenset({"__launch_bounds__", "__maxnreg__", "__cluster_dims__", "__block_size__", "__attribute__"})
_LONGEST_HEAD = 400
"""Maximum tokens from `__global__` to the body of a kernel."""
_LISTED = 6
_MOST_CONDITIONALS = 3
"""Number of conditionals that are told of the kernels they guard."""


@dataclass
class _Guarded:
    """Names that the branches of one `#if` define and that no other code defines."""

    place: str
    text: str
    """The directive of the first branch that defines one of them."""
    passed: Mapping[str, PassedMacro]
    names: dict[str, int] = field(default_factory=dict)
    """Name -> the line of its first definition."""
    macros: dict[str, None] = field(default_factory=dict)
    """The macros that the branches ask for."""

    def sentence(self, consequence: str) -> str:
        """Return the hint, which names the consequence and then the remedy."""
        names = [f"`{name}` (line {line})" for name, line in self.names.items()]
        shown = ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
        return f"{self.place}: `{self.text}` does not hold, {consequence}: {shown}; {_remedy([*self.macros], self.passed)}."


@dataclass
class _Conditional:
    """An `#if` and the branches read so far."""

    opened: int
    """The line of the `#if`."""
    line: int
    text: str
    """The directive that begins the current branch, and its line, as messages quote them."""
    conditions: list[str] = field(default_factory=list)
    """The condition of each branch; empty for `#else`."""
    negated: bool = False
    """Whether the current branch is compiled if a macro is not defined."""


def hints(log: str, files: Iterable[SourceFile], defines: Iterable[str], passed: Mapping[str, PassedMacro]) -> list[str]:
    """Return hints that name the macros to pass with -D for the errors of a log.

    `defines` holds those given, `NAME` or `NAME=VALUE`, and `passed` those of the program's build files.
    """
    files = list(files)
    known = _known(files, defines)
    undefined = dict.fromkeys(_UNDEFINED.findall(log))
    guarded = [*_of_guarded(files, known, passed, lambda tokens, index: _defined_at(tokens, index, undefined))]
    found = {name for one in guarded for name in one.names}
    told = [one.sentence("so what it guards is not defined") for one in guarded]
    told += [
        f"`{name}` is not defined in the program's files: {_remedy([name], passed)}."
        for name in undefined
        if name in passed and name not in found | known
    ]
    return [*dict.fromkeys((*told, *_of_error_directives(log, files, known, passed)))]


def of_kernels(files: Sequence[SourceFile], defines: Iterable[str], passed: Mapping[str, PassedMacro]) -> list[str]:
    """Return hints that name the macros to pass with -D for kernels in code that is skipped."""
    guarded = _of_guarded(files, _known(files, defines), passed, _kernel_at)
    told = [one.sentence("so the kernels that it guards are not compiled") for one in guarded[:_MOST_CONDITIONALS]]
    more = [name for one in guarded[_MOST_CONDITIONALS:] for name in one.names]
    return told + ([f"Other conditionals guard {len(more)} more kernels, the first of them `{more[0]}`."] if more else [])


def _known(files: Iterable[SourceFile], defines: Iterable[str]) -> set[str]:
    return {define.partition("=")[0] for define in defines}.union(*(_defined(file) for file in files))


def _of_guarded(
    files: Sequence[SourceFile], known: set[str], passed: Mapping[str, PassedMacro], name_at: Callable[[Sequence[Token], int], str]
) -> list[_Guarded]:
    """Return what conditionals that do not hold guard; `name_at` returns the name that a token defines, empty if none."""
    found: list[_Guarded] = []
    earlier: set[str] = set()
    for file in files:
        guarded: dict[int, _Guarded] = {}
        for index, around in _with_conditionals(file):
            name = name_at(file.tokens, index)
            failing = next((one for one in reversed(around) if _missing(one, known)), None) if name not in ("", *earlier) else None
            if failing is not None:
                one = guarded.setdefault(failing.opened, _Guarded(f"{file.name}:{failing.line}", failing.text, passed))
                one.names.setdefault(name, file.text.count("\n", 0, file.tokens[index].start) + 1)
                one.macros |= dict.fromkeys(_missing(failing, known))
        for one in guarded.values():
            one.names = {name: line for name, line in one.names.items() if name not in earlier}
            earlier.update(one.names)
            found += [one] if one.names else []
    return found


def _of_error_directives(log: str, files: list[SourceFile], known: set[str], passed: Mapping[str, PassedMacro]) -> Iterator[str]:
    for error in errors(log):
        told = _ERROR_DIRECTIVE.search(error.message)
        file = next((file for file in files if file.name == error.file), None)
        if told is None or file is None:
            continue
        for index, around in _with_conditionals(file):
            if around and file.text.count("\n", 0, file.tokens[index].start) + 1 == error.line:
                words = dict.fromkeys(word for condition in around[-1].conditions for word in _words(condition) if word not in known)
                if words:
                    yield f"{file.name}:{error.line} stops the compiler (`#error {told['told'].strip()}`): {_remedy([*words], passed)}."
                break


def _remedy(macros: list[str], passed: Mapping[str, PassedMacro]) -> str:
    """Return the macro to pass, as the end of a sentence; one that the build is known to pass comes first."""
    if found := next((passed[name] for name in macros if name in passed), None):
        return f"pass -D {found.option} (define=[{found.option!r}] in Python), as {found.place} does"
    example = f"-D {macros[0]} (define=[{macros[0]!r}] in Python)"
    if len(macros) == 1:
        return f"pass {example}, as the program's build does"
    return f"pass the one of {', '.join(macros[:_LISTED])} that the program's build passes, for example {example}"


def _missing(conditional: _Conditional, known: set[str]) -> list[str]:
    """Return the undefined macros that keep the current branch from being compiled; empty if it may be compiled."""
    condition = conditional.conditions[-1]
    if conditional.negated or "!" in condition or "#" in condition:
        return []
    words = list(dict.fromkeys(_words(condition)))
    return words if words and not known.intersection(words) else []


def _words(condition: str) -> list[str]:
    return [word for word in _WORD.findall(condition) if word != "defined"]


def _with_conditionals(file: SourceFile) -> Iterator[tuple[int, list[_Conditional]]]:
    """Yield the index of each token of a file with its enclosing conditionals, innermost last."""
    stack: list[_Conditional] = []
    for index, token in enumerate(file.tokens):
        line = directive(token) if token.kind == "directive" else None
        if line is not None and line.name in _BRANCHES:
            text = " ".join(f"#{line.name} {line.body}".split())
            number = file.text.count("\n", 0, token.start) + 1
        if line is not None and line.name in ("if", "ifdef", "ifndef"):
            stack.append(_Conditional(number, number, text, [line.body], line.name == "ifndef"))
        elif line is not None and line.name in _BRANCHES and stack:
            stack[-1].conditions.append(line.body if line.name != "else" else "")
            stack[-1].negated = line.name == "elifndef"
            stack[-1].line, stack[-1].text = number, text
        elif line is not None and line.name == "endif":
            del stack[-1:]
        else:
            yield index, stack


def _defined(file: SourceFile) -> set[str]:
    """Return the macros that a file may define."""
    return {name for token in file.tokens if (name := _macro(token))}


def _macro(token: Token) -> str:
    """Return the macro that a token defines; empty if it defines none."""
    if token.kind != "directive" or "define" not in token.text:
        return ""
    line = directive(token)
    name = re.match(r"\w+", line.body) if line.name == "define" else None
    return name.group() if name else ""


def _kernel_at(tokens: Sequence[Token], index: int) -> str:
    """Return the name of the kernel whose `__global__` a token is; empty if it is none, or if the kernel has no body."""
    if tokens[index].text != "__global__":
        return ""
    name = ""
    for token, following in pairwise(tokens[index : index + _LONGEST_HEAD]):
        if token.kind == "word" and following.text == "(" and not name and token.text not in _ATTRIBUTES:
            name = token.text
        if token.text in ("{", ";"):
            return name if token.text == "{" else ""
    return name


def _defined_at(tokens: Sequence[Token], index: int, names: Container[str]) -> str:
    """Return the name in `names` that a token defines as a macro, function, type or variable, judging by its neighbours; empty if none."""
    token = tokens[index]
    if token.kind == "directive":
        return name if (name := _macro(token)) in names else ""
    if token.kind != "word" or token.text not in names or not 0 < index < len(tokens) - 1:
        return ""
    before = tokens[index - 1]
    typed = before.text in ("*", "&", ">") or (before.kind == "word" and before.text not in _NOT_TYPES)
    return token.text if typed and tokens[index + 1].text in _BEHIND_A_NAME else ""
