"""Rewrite constructs that nvcc accepts and NVRTC refuses in standard C++. Most are extensions of GCC, nvcc's host compiler.

    ({ int a = *p; a + 1; })      ([&]{ int a = *p; return a + 1; }())     a statement expression
    (Point){1, 2}                  Point {1, 2}                            a compound literal
    extern "C"__global__          extern "C" __global__
    const __restrict__ T* p       const T* p                              a pointer qualifier in front of the type, which GCC ignores
    #define UNROLL #pragma unroll  #define UNROLL _Pragma("unroll")        nvcc reads pragmas again behind the preprocessor
    __GNUC__                      _mlGNUC_                                 in files without `__CUDACC_RTC__`; `include/nvcc.h` defines it

Two more depend on types, so the compiler's errors lead to them (`refused_tokens`): `__restrict__` on what is not a pointer, which GCC
ignores in a template, and a constant that is a member of a reference parameter (`f<index.value>()`), which C++23 accepts.

Line numbers do not change; columns change only behind a replacement that is longer. Extensions that a macro can replace (`__typeof__`,
`__builtin_popcount`) are in `include/nvcc.h`. The compiler still refuses statement expressions with a jump out of them and compound
literals of arrays.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice, pairwise

from memlane.compile.nvrtc import errors
from memlane.compile.sources import SourceFile
from memlane.compile.tokens import Token, directive, tokenize

_SUSPECT = re.compile(
    r"""\(\s*(?:\\\s*)?\{ | (?:[=(,?:&|+*/%\[{;<!~-]|\b(?:return|else|case))\s*\([\w:<>,\s]+\)\s*\{ | "__ | __GNU
    | define[ \t]+\w+[ \t]+\#[ \t]*pragma | [(,;{}te]\s*__restrict | \]\s*(?:\\\s*)?[A-Za-z_]\w*\s*(?:[({]|[A-Za-z_])""",
    re.VERBOSE,
)
"""Pattern that every text with such a construct matches; most texts do not, and are returned unchanged."""
_DEFINED_PRAGMA = re.compile(r"\w+\s+#\s*pragma\s+(?P<text>.+)")
_DEFINED_RESTRICT = re.compile(r"(\w+)\s+__restrict(?:__)?")
_PARAMETER_AS_CONSTANT = re.compile(
    r'the value of parameter "(?P<name>\w+)" \(declared at line (?P<line>\d+)\) cannot be used as a constant'
)
_GNU = {"__GNUC__": "_mlGNUC_", "__GNUC_MINOR__": "_mlGNUC_MINOR_", "__GNUC_PATCHLEVEL__": "_mlGNUC_PATCHLEVEL_", "__GNUG__": "_mlGNUG_"}
_GNU_WORD = re.compile(r"\b__GNU(?:C(?:_MINOR|_PATCHLEVEL)?|G)__")
_JUMPS = frozenset({"return", "goto", "co_return"})
_LOOP_JUMPS, _LOOPS = frozenset({"break", "continue"}), frozenset({"for", "while", "do", "switch"})
_WITHOUT_VALUE = frozenset({"if", "for", "while", "do", "switch", "asm", "__asm__", "using", "typedef", "static_assert"})
_BEFORE_OPERAND = frozenset("=(,?:&|+-*/%[{;<!~") | {"return", "else", "case", "&&", "||", "==", "!=", "<=", ">="}
_RESTRICT, _BEFORE_TYPE = frozenset({"__restrict__", "__restrict"}), frozenset({"(", ",", ";", "{", "}", "const", "volatile", "typename"})
_SPACES, _BEHIND_SPACES = frozenset({"__device__", "__host__"}), frozenset({"(", "{", "mutable"})
_LEFT_OUT = frozenset({"const", "struct", "class", "volatile"})
_LONGEST_SYMBOL = 4
"""Maximum tokens in an operator's symbol."""
_LONGEST_TYPE = 40
"""Maximum tokens in the type of a compound literal."""

Edit = tuple[int, int, str]
"""Start and end (exclusive) of the characters to replace, and their replacement."""


@lru_cache(maxsize=256)
def in_standard_cxx(text: str, spaces: frozenset[str] = _SPACES) -> str:
    """Return the text with GCC extensions rewritten in standard C++.

    `spaces` holds the words that mark device code, which nvcc takes on lambdas, with the program's macros for them.
    """
    if _SUSPECT.search(text) is None:
        return text
    if "__GNU" in text and "__CUDACC_RTC__" not in text:  # a header that tests for `__CUDACC_RTC__` supports NVRTC itself
        text = _GNU_WORD.sub(lambda found: _GNU[found[0]], text)
    edits = sorted(_edits(text, 0, spaces | _SPACES))
    pieces, position = [], 0
    for start, end, instead in edits:
        pieces += [text[position:start], instead]
        position = end
    return "".join((*pieces, text[position:]))


def _edits(text: str, offset: int, spaces: frozenset[str]) -> Iterator[Edit]:
    """Yield the edits of a text that begins at `offset`, including those inside macro definitions."""
    tokens = tokenize(text)
    plain = [token for token in tokens if token.kind != "directive"]
    closing = _closing(plain)
    for index, token in enumerate(plain):
        following = plain[index + 1] if index + 1 < len(plain) else None
        if following is None:
            break
        if token.kind == "string" and following.kind == "word" and token.end == following.start and following.text.startswith("__"):
            yield offset + token.end, offset + token.end, " "
        elif following.text in _RESTRICT and token.text in _BEFORE_TYPE and _begins_type(plain, index + 2):
            yield offset + following.start, offset + following.end, " " * len(following.text)
        elif token.text == "]" and following.text in spaces:
            yield from ((offset + start, offset + end, new) for start, end, new in _lambda_spaces(plain, index, spaces))
        elif token.text == "(" and following.text == "{":
            yield from ((offset + start, offset + end, new) for start, end, new in _statement_expression(plain, closing, index))
        elif token.text == "(":
            yield from ((offset + start, offset + end, new) for start, end, new in _compound_literal(plain, closing, index))
    for token in tokens:
        line = directive(token) if token.kind == "directive" and "define" in token.text else None
        if line is not None and line.name == "define" and (pragma := _DEFINED_PRAGMA.fullmatch(line.body)):
            quoted = pragma["text"].replace("\\", "\\\\").replace('"', '\\"')
            yield offset + token.start + token.text.index("#", 1), offset + token.end, f'_Pragma("{quoted}")'
        elif line is not None and line.name == "define" and _SUSPECT.search(token.text):
            yield from _edits(token.text[1:], offset + token.start + 1, spaces)


def refused_tokens(files: Sequence[SourceFile], log: str) -> Iterator[tuple[str, Token]]:
    """Yield the tokens, each with its file's name, without which nvcc's host compiler would take what the errors of a log refuse.

    A token is a `__restrict__` or a macro for it, or the `&` of a parameter, which is then passed by value.
    """
    for error in errors(log):
        file = next((file for file in files if file.name == error.file), None)
        if file is None:
            continue
        start, end = error.place(file.text)
        if '"restrict" is not allowed' in error.message:
            words = _RESTRICT.union(*(_restrict_macro(token) for one in files for token in one.tokens if token.kind == "directive"))
            line = file.text.rfind("\n", 0, start) + 1
            yield from ((file.name, token) for token in file.tokens if line <= token.start < end and token.text in words)
        elif found := _PARAMETER_AS_CONSTANT.search(error.message):
            first = sum(map(len, file.text.splitlines(keepends=True)[: int(found["line"]) - 1]))
            declared = pairwise(token for token in file.tokens if token.start >= first)
            yield from islice(((file.name, one) for one, following in declared if (one.text, following.text) == ("&", found["name"])), 1)


def _restrict_macro(token: Token) -> frozenset[str]:
    found = _DEFINED_RESTRICT.fullmatch(line.body) if (line := directive(token)).name == "define" else None
    return frozenset({found[1]}) if found else frozenset()


def _lambda_spaces(tokens: Sequence[Token], closing: int, spaces: frozenset[str]) -> Iterator[Edit]:
    """Yield edits that blank `__host__`, `__device__` and macros for them behind a lambda's captures, whose `]` is at `closing`.

    Yields nothing if the `]` ends an attribute or an array subscript.
    """
    depth, opening = 0, closing
    while opening >= 0 and (depth := depth + (tokens[opening].text == "]") - (tokens[opening].text == "[")):
        opening -= 1
    end = closing + 1
    while end < len(tokens) and tokens[end].text in spaces:
        end += 1
    if opening >= 0 and tokens[opening + 1].text != "[" and end < len(tokens) and tokens[end].text in _BEHIND_SPACES:
        yield from ((token.start, token.end, " " * len(token.text)) for token in tokens[closing + 1 : end])


def _begins_type(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a type, not a variable's name, begins at `index`: a word followed by another word, `*`, `::` or template arguments."""
    if index + 1 >= len(tokens):
        return False
    first, following = tokens[index], tokens[index + 1]
    return first.kind == "word" and (following.kind == "word" or following.text in ("*", "<", "::"))


def _closing(tokens: Sequence[Token]) -> dict[int, int]:
    """Return a map from the index of each opening bracket to that of its closing bracket."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.text in ("(", "[", "{"):
            opened.append(index)
        elif token.text in (")", "]", "}") and opened:
            found[opened.pop()] = index
    return found


def _statement_expression(tokens: Sequence[Token], closing: dict[int, int], opening: int) -> Iterator[Edit]:
    """Yield edits that turn `({ ...; value; })`, whose `(` is at `opening`, into a lambda call; nothing for an initialiser in a call."""
    brace = opening + 1
    end = closing.get(brace, -1)
    if end < 0 or closing.get(opening) != end + 1:
        return
    starts, index = [brace + 1], brace + 1
    is_one = False
    while index < end:
        text = tokens[index].text
        index = closing.get(index, index) + 1
        follows = tokens[index]
        if text == ";" or (text == "{" and (follows.kind in ("word", "number") or follows.text in ("(", "*", "}"))):
            is_one |= text == ";"
            starts.append(index)
    words = {token.text for token in tokens[brace:end] if token.kind == "word"}
    if not is_one or words & _JUMPS or (words & _LOOP_JUMPS and not words & _LOOPS):
        return
    yield tokens[brace].start, tokens[brace].start, "[&]"
    last = starts[bisect_right(starts, end - 1) - 1]
    if tokens[last].text != ";" and tokens[last].text not in _WITHOUT_VALUE and tokens[end - 1].text == ";":
        yield tokens[last].start, tokens[last].start, "return "
    yield tokens[end].end, tokens[end].end, "()"


def _is_operator_name(tokens: Sequence[Token], end: int) -> bool:
    """Return whether the tokens before `end` are `operator` and its symbol, so that parameters follow."""
    index = end - 1
    while index > 0 and tokens[index].kind == "punct" and end - index < _LONGEST_SYMBOL:
        index -= 1
    return tokens[index].text == "operator"


def _compound_literal(tokens: Sequence[Token], closing: dict[int, int], opening: int) -> Iterator[Edit]:
    """Yield edits that blank the parentheses of `(type){...}`, whose `(` is at `opening`."""
    end = closing.get(opening, -1)
    if not opening < end - 1 < opening + _LONGEST_TYPE or end + 1 >= len(tokens) or tokens[end + 1].text != "{":
        return
    inner = tokens[opening + 1 : end]
    names = [token for token in inner if token.text not in _LEFT_OUT]
    if opening and (tokens[opening - 1].text not in _BEFORE_OPERAND or _is_operator_name(tokens, opening)):
        return
    if any(token.kind not in ("word", "number") and token.text not in ("::", "<", ">", ",") for token in inner):
        return
    if any((one.kind == "word" or one.text == ">") and other.kind == "word" for one, other in pairwise(names)) or not names:
        return
    yield from ((token.start, token.end, " " * len(token.text)) for token in (tokens[opening], tokens[end]))
    yield from ((token.start, token.end, " " * len(token.text)) for token in inner if token.text in _LEFT_OUT)
