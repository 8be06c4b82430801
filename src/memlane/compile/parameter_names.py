"""What the parameters of a kernel are called in its source, which PTX does not say.

Numba and Triton leave the names in the kernel's `Convention`. Those of CUDA C++ are read here from the text of the definition; the
compiler has numbered them (`norms_param_0`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memlane.compile.declarations import PARENTHESISED
from memlane.compile.macros import collect
from memlane.compile.tokens import Token, tokenize
from memlane.ptx import Function, Module
from memlane.ptx.once import once_for_each
from memlane.titles import plain_name

_OPENING, _CLOSING = frozenset("([{<"), frozenset(")]}>")
_NO_NAMES = frozenset(
    ("auto", "bool", "char", "const", "double", "enum", "float", "int", "long", "restrict", "short", "signed", "struct", "typename",
     "union", "unsigned", "void", "volatile", "wchar_t")
)  # fmt: skip
"""Words of a type, behind which a parameter may be left without a name."""


def parameter_names(module: Module, kernel: Function) -> tuple[str, ...]:
    """Return the names of a kernel's arguments as the source has them, in order; nothing where the source is not known.

    A name that the declaration leaves out is empty. Nothing is returned where kernels of the same name disagree.
    """
    if kernel.convention is not None:
        return kernel.convention.names
    declared = _declared(module).get(plain_name(kernel.title).rpartition("::")[2], ())
    fitting = {names for names in declared if len(names) == len(kernel.params)}
    return fitting.pop() if len(fitting) == 1 else ()


@once_for_each
def _declared(module: Module) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return by plain name of a kernel the lists of names that its definitions have."""
    files = {name: tokenize(text) for name, text in module.sources.items()}
    marks = collect(files.values()).device
    found: dict[str, tuple[tuple[str, ...], ...]] = {}
    for tokens in files.values():
        plain = [token for token in tokens if token.kind != "directive"]
        for place, token in enumerate(plain):
            if token.text == "__global__" or (token.text in marks and token.text not in ("__device__", "__constant__", "__shared__")):
                for name, names in _definition(plain, place + 1):
                    found[name] = (*found.get(name, ()), names)
    return found


def _definition(tokens: Sequence[Token], place: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name and the parameters of the function defined behind a mark; nothing of a mere declaration, or of no function."""
    while place < len(tokens) and tokens[place].text not in (";", "{", "}", "="):
        if tokens[place].text != "(":
            place += 1
            continue
        before, end = tokens[place - 1], _end(tokens, place)
        if before.kind == "word" and before.text not in PARENTHESISED:
            if end < len(tokens) and tokens[end].text == "{":
                yield before.text, tuple(_names(tokens[place + 1 : end - 1]))
            return
        place = end


def _end(tokens: Sequence[Token], place: int) -> int:
    """Return the place behind the group that an opening parenthesis begins."""
    depth = 0
    for at in range(place, len(tokens)):
        depth += (tokens[at].text == "(") - (tokens[at].text == ")")
        if not depth:
            return at + 1
    return len(tokens)


def _names(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the name of each parameter: the last word of its own in front of a default value or the extents of an array."""
    depth, words, is_over = 0, 0, False
    name = ""
    for token in (*tokens, Token("punct", ",", 0, 0)):
        if token.text == "," and depth == 0:
            if words:
                yield name if words > 1 else ""
            name, words, is_over = "", 0, False
            continue
        if depth == 0 and token.text == "(" and not is_over:  # a pointer or reference to something that has brackets of its own
            name, is_over = "", True
        is_over |= depth == 0 and token.text in ("=", "[")
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        if token.kind == "word" and depth == 0 and not is_over:
            name, words = "" if token.text in _NO_NAMES or token.text.startswith("__") else token.text, words + 1
        elif token.text in ("*", "&") and depth == 0:
            name = ""
