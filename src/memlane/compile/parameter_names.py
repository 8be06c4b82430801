"""Find the names of a kernel's parameters in its source; PTX does not have them.

Numba and Triton store the names in the kernel's `Convention`. For CUDA C++ they are read from the text of the definition, because the
compiler numbers its parameters (`norms_param_0`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
"""Words of a type, after which a parameter may have no name."""
_SAYS_NOTHING = frozenset({"__restrict__", "__restrict", "restrict", "volatile", "struct", "typename", "enum", "__grid_constant__"})


def parameter_names(module: Module, kernel: Function) -> tuple[str, ...]:
    """Return the names of a kernel's parameters in the source, in order; empty if the source is unknown.

    A parameter that the declaration leaves unnamed has an empty name. The result is empty if kernels of the same name disagree.
    """
    if kernel.convention is not None:
        return kernel.convention.names
    fitting = {tuple(one.name for one in parameters) for parameters in _fitting(module, kernel)}
    return fitting.pop() if len(fitting) == 1 else ()


def parameter_types(module: Module, kernel: Function) -> tuple[str, ...]:
    """Return the types of a kernel's parameters as the source writes them, `const float*`, in order; empty if they are unknown.

    A mangled kernel name contains the types, unless the kernel is `extern "C"`. Types that depend on template parameters keep the
    template's names for them.
    """
    fitting = {tuple(one.type for one in parameters) for parameters in _fitting(module, kernel)}
    return fitting.pop() if len(fitting) == 1 and kernel.convention is None else ()


@dataclass(frozen=True)
class _Parameter:
    name: str
    type: str


def _fitting(module: Module, kernel: Function) -> list[tuple[_Parameter, ...]]:
    """Return the parameters of each definition of the kernel's name that has as many parameters as the kernel."""
    declared = _declared(module).get(plain_name(kernel.title).rpartition("::")[2], ())
    return [parameters for parameters in declared if len(parameters) == len(kernel.params)]


@once_for_each
def _declared(module: Module) -> dict[str, tuple[tuple[_Parameter, ...], ...]]:
    """Return the parameters of each kernel definition, by the plain name of the kernel."""
    files = {name: tokenize(text) for name, text in module.sources.items()}
    marks = collect(files.values()).device
    found: dict[str, tuple[tuple[_Parameter, ...], ...]] = {}
    for tokens in files.values():
        plain = [token for token in tokens if token.kind != "directive"]
        for place, token in enumerate(plain):
            if token.text == "__global__" or (token.text in marks and token.text not in ("__device__", "__constant__", "__shared__")):
                for name, parameters in _definition(plain, place + 1):
                    found[name] = (*found.get(name, ()), parameters)
    return found


def _definition(tokens: Sequence[Token], place: int) -> Iterator[tuple[str, tuple[_Parameter, ...]]]:
    """Yield name and parameters of the function defined after a mark; nothing for a declaration without body, or if no function follows."""
    while place < len(tokens) and tokens[place].text not in (";", "{", "}", "="):
        if tokens[place].text != "(":
            place += 1
            continue
        before, end = tokens[place - 1], _end(tokens, place)
        if before.kind == "word" and before.text not in PARENTHESISED:
            if end < len(tokens) and tokens[end].text == "{":
                yield before.text, tuple(_parameters(tokens[place + 1 : end - 1]))
            return
        place = end


def _end(tokens: Sequence[Token], place: int) -> int:
    """Return the index past the parenthesised group that begins at `place`."""
    depth = 0
    for at in range(place, len(tokens)):
        depth += (tokens[at].text == "(") - (tokens[at].text == ")")
        if not depth:
            return at + 1
    return len(tokens)


def _parameters(tokens: Sequence[Token]) -> Iterator[_Parameter]:
    """Yield each parameter. Its name is its last identifier in front of a default value or array extents."""
    depth, words, is_over = 0, 0, False
    name, named_at = "", 0
    written: list[str] = []
    for token in (*tokens, Token("punct", ",", 0, 0)):
        if token.text == "," and depth == 0:
            if words:
                type_words = [word for at, word in enumerate(written) if at != named_at or words == 1 or not name]
                yield _Parameter(name if words > 1 else "", _type(type_words))
            name, words, is_over, written = "", 0, False, []
            continue
        if depth == 0 and token.text == "(" and not is_over:  # a pointer or reference to a function or array
            name, is_over = "", True
        is_array = depth == 0 and token.text == "["
        is_over |= is_array or (depth == 0 and token.text == "=")
        if is_array or not is_over:
            written.append("*" if is_array else token.text)
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        if token.kind == "word" and depth == 0 and not is_over:
            name, words = "" if token.text in _NO_NAMES or token.text.startswith("__") else token.text, words + 1
            named_at = len(written) - 1
        elif token.text in ("*", "&") and depth == 0:
            name = ""


def _type(words: Sequence[str]) -> str:
    """Return the words of a type in C++ spelling, `unsigned char*`, without qualifiers that do not affect its values."""
    text = ""
    for word in words:
        if word in _SAYS_NOTHING:
            continue
        text += f" {word}" if text and (word[0].isalpha() or word[0] == "_") and (text[-1].isalnum() or text[-1] in "_*>&") else word
    return text.removesuffix(" const") if text.endswith("* const") else text  # a pointer's own `const` does not matter
