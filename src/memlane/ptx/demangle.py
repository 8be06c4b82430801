"""Demangle names of kernels to what the programmer wrote.

The machine's C++ runtime demangles if there is one (`mangling.runtime_demangle`). The parser below is used where there is none, where the
runtime's text is further from the source (a function as a template argument), and where a name may expand to more than fits into memory. It
reads the part of the Itanium C++ ABI's mangling that kernel names use: namespaces, classes, templates with types and constants as
arguments, packs, pointers, references, arrays, functions, lambdas. Names with anything else are returned unchanged.

Types are printed as `c++filt` prints them, `float const*`; integers as template arguments without a suffix, `red<256>`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from memlane.ptx.mangling import Cursor, Name, Type, UnreadError, runtime_demangle

_BUILTIN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short", "t": "unsigned short",
    "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long", "y": "unsigned long long", "n": "__int128",
    "o": "unsigned __int128", "f": "float", "d": "double", "e": "long double", "g": "__float128", "z": "...",
}  # fmt: skip
_BUILTIN_D = {"h": "half", "i": "char32_t", "s": "char16_t", "u": "char8_t", "n": "decltype(nullptr)", "a": "auto", "c": "decltype(auto)"}
_INTEGERS = frozenset({"int", "unsigned int", "long", "unsigned long", "long long", "unsigned long long"})
_QUALIFIERS = {"K": " const", "V": " volatile", "r": " __restrict__"}
_STANDARD = {"t": "std", "a": "std::allocator", "b": "std::basic_string", "s": "std::string", "i": "std::istream", "o": "std::ostream"}
_OPERATORS = {
    "nw": "new", "dl": "delete", "ps": "+", "ng": "-", "ad": "&", "de": "*", "co": "~", "pl": "+", "mi": "-", "ml": "*", "dv": "/",
    "rm": "%", "an": "&", "or": "|", "eo": "^", "aS": "=", "pL": "+=", "mI": "-=", "mL": "*=", "dV": "/=", "ls": "<<", "rs": ">>",
    "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=", "nt": "!", "aa": "&&", "oo": "||", "pp": "++", "mm": "--",
    "cm": ",", "pt": "->", "cl": "()", "ix": "[]",
}  # fmt: skip
_SUFFIX = re.compile(r"[.$]")
"""Start of the suffix that a compiler appends for a clone of a function."""


@lru_cache(maxsize=4096)
def demangle(name: str) -> str:
    """Return the name as the programmer wrote it, with parameters: `_Z5naivePfPKfi` -> `naive(float*, float const*, int)`.

    Returns the name unchanged if it is not mangled or has an unsupported part.
    """
    if not name.startswith("_Z"):
        return name
    return ("L_Z" not in name and runtime_demangle(_SUFFIX.split(name)[0])) or read(name)


def read(name: str) -> str:
    """Return the result of this module's parser for a mangled name; the name unchanged if it has an unsupported part."""
    try:
        reader = _Reader(name[2:])
        result = reader.encoding()
        return result if reader.at == len(reader.text) or reader.text[reader.at] in ".$" else name
    except (UnreadError, IndexError, RecursionError):
        return name


class _Reader(Cursor):
    """Parser of one mangled name, from left to right. `seen` holds the components that `S_`, `S0_`, ... refer to."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.seen: list[Type] = []
        self.arguments: list[Type] = []

    # -- names

    def encoding(self, part: str = "all") -> str:
        """Parse a function with its parameters, or a variable. `part` is `all`, `without result`, or `name` alone."""
        outer, self.arguments = self.arguments, []
        name = self.name()
        if self.at == len(self.text) or self.peek() in ("E", ".", "$"):
            self.arguments = outer or self.arguments
            return name.text
        result = self.type() if name.has_arguments and not name.returns_nothing else None
        parameters = self.parameters()
        self.arguments = outer
        if part == "name":
            return name.text
        function = f"{name.text}({parameters}){name.qualifiers}"
        if result is None or part == "without result":
            return function
        return f"{result.left}{'' if result.left.endswith('(*') else ' '}{function}{result.right}"

    def parameters(self) -> str:
        """Parse types up to the end of the function; `v` alone means none."""
        types: list[Type] = []
        while self.at < len(self.text) and self.peek() not in ("E", ".", "$"):
            types.append(self.type())
        texts = [str(item) for item in types]
        self.check_length(sum(map(len, texts)))
        return ", ".join(text for text in texts if text) if texts != ["void"] else ""

    def name(self) -> Name:
        if self.peek() == "N":
            return self.nested()
        if self.take("Z"):
            return self.local()
        if self.peek() == "S" and self.peek(2) != "St":
            name = Name(str(self.substitution()))
        else:
            name = Name("std::" if self.take("St") else "")
            name.text += self.unqualified(name)
            if self.peek() == "I":
                self.seen.append(Type(name.text))
        if self.peek() == "I":
            self._give_arguments(name)
        return name

    def nested(self) -> Name:
        self.need("N")
        name = Name("")
        while self.peek() in _QUALIFIERS and self.peek(2) != "rs":
            name.qualifiers = _QUALIFIERS[self.next()] + name.qualifiers
        while not self.take("E"):
            if self.peek() == "I":
                self._give_arguments(name)
            elif self.peek() == "T":
                name.text = str(self.type())
                continue
            elif self.peek() == "S" and self.peek(2) != "St" and not name.text:
                name.text = str(self.substitution())
                continue
            elif self.take("St"):
                name.text = "std"
                continue
            else:
                name.has_arguments = False
                part = self.unqualified(name)
                name.text = f"{name.text}::{part}" if name.text else part
            if self.peek() != "E":
                self.seen.append(Type(name.text))
        return name

    def _give_arguments(self, name: Name) -> None:
        arguments = self.template_arguments()
        self.arguments = list(arguments)
        text = ", ".join(text for text in map(str, arguments) if text)
        name.text += f"<{text}>"
        name.has_arguments = True
        self.check_length(len(name.text))

    def local(self) -> Name:
        """Parse a static variable or a type inside a function."""
        function = self.encoding("without result")
        self.need("E")
        if self.take("s"):
            return Name(f"{function}::string literal")
        if self.take("d"):
            self.at += self.peek().isdigit()
            self.need("_")
        name = self.name()
        if self.take("_"):
            self.number()
        name.text = f"{function}::{name.text}"
        return name

    def unqualified(self, name: Name) -> str:
        """Parse one identifier, operator, constructor or lambda."""
        self.take("L")
        if self.peek().isdigit():
            text = self.source_name()
        elif self.peek(2) in ("C1", "C2", "C3", "D0", "D1", "D2"):
            destructor = self.next() == "D"
            self.at += 1
            name.returns_nothing = True
            text = ("~" if destructor else "") + name.text.rsplit("::", 1)[-1].split("<", 1)[0]
        elif self.take("Ul"):
            outer, self.arguments = self.arguments, [Type(f"auto:{number}") for number in range(1, 10)]
            parameters = self.parameters()
            self.arguments = outer
            self.need("E")
            text = f"{{lambda({parameters})#{self._discriminator()}}}"
        elif self.take("Ut"):
            text = f"{{unnamed type#{self._discriminator()}}}"
        elif self.take("cv"):
            name.returns_nothing = True
            text = f"operator {self.type()}"
        else:
            code = self.peek(2)
            self.at += 2
            sign = _OPERATORS.get(code)
            if sign is None:
                raise UnreadError
            text = f"operator{' ' if sign[0].isalpha() else ''}{sign}"
        while self.take("B"):
            text += f"[abi:{self.source_name()}]"
        return text

    def _discriminator(self) -> int:
        if self.take("_"):
            return 1
        value = self.number() + 2
        self.need("_")
        return value

    def source_name(self) -> str:
        length = self.number()
        text = self.text[self.at : self.at + length]
        if not 0 < length == len(text):
            raise UnreadError
        self.at += length
        return "(anonymous namespace)" if text.startswith(("_GLOBAL__N_", "_INTERNAL_")) else text

    def substitution(self) -> Type:
        self.need("S")
        if self.peek() in _STANDARD and self.peek() != "t":
            return Type(_STANDARD[self.next()])
        index = self.index()
        if index >= len(self.seen):
            raise UnreadError
        found = self.seen[index]
        if found.parameter is not None and found.parameter < len(self.arguments):
            return self.arguments[found.parameter]
        return found

    # -- types

    def type(self) -> Type:
        code = self.peek()
        if code in _BUILTIN:
            self.at += 1
            return Type(_BUILTIN[code])
        if code == "D" and self.text[self.at + 1] in _BUILTIN_D:
            self.at += 2
            return Type(_BUILTIN_D[self.text[self.at - 1]])
        if code == "S" and self.peek(2) != "St":
            return self._substituted_type()
        reader = self._COMPOUND.get(code)
        result = reader(self) if reader else self._named_type()
        self.seen.append(result)
        return result

    def _substituted_type(self) -> Type:
        result = self.substitution()
        if self.peek() == "I":
            name = Name(str(result))
            self._keep_arguments(name)
            result = Type(name.text)
            self.seen.append(result)
        return result

    def _named_type(self) -> Type:
        if self.peek() == "D":
            return self._pack_or_decltype()
        outer = self.arguments
        name = self.name()
        self.arguments = outer
        return Type(name.text)

    def _keep_arguments(self, name: Name) -> None:
        """Parse the template arguments of a type; `T_` still refers to those of the function afterwards."""
        outer = self.arguments
        self._give_arguments(name)
        self.arguments = outer

    def _pack_or_decltype(self) -> Type:
        if self.take("Dp"):
            return self.type()
        if self.take("Dv"):
            count = self.number()
            self.need("_")
            return Type(f"{self.type()} __vector({count})")
        if self.take("DF"):
            bits = self.number()
            return Type("__bf16" if self.take("b") else f"_Float{bits}") if self.take("_") or self.peek() == "b" else Type("")
        raise UnreadError

    def _pointer(self) -> Type:
        return self._prefixed("P", lambda inner: inner.pointed("*"))

    def _reference(self) -> Type:
        return self._prefixed("R", lambda inner: inner.pointed("&"))

    def _rvalue_reference(self) -> Type:
        return self._prefixed("O", lambda inner: inner if inner.left.endswith("&") else inner.pointed("&&"))

    def _const(self) -> Type:
        return self._prefixed("K", lambda inner: inner.qualified("const"))

    def _volatile(self) -> Type:
        return self._prefixed("V", lambda inner: inner.qualified("volatile"))

    def _restrict(self) -> Type:
        return self._prefixed("r", lambda inner: inner.qualified("__restrict__"))

    def _prefixed(self, code: str, wrap: Callable[[Type], Type]) -> Type:
        self.need(code)
        if code == "V" and self.take("K"):
            wrap_const, inner = Type.qualified, self.type()
            return wrap_const(inner, "const").qualified("volatile")
        inner = self.type()
        if inner.items is not None:
            return Type("", items=tuple(map(wrap, inner.items)))
        return wrap(inner)

    def _array(self) -> Type:
        self.need("A")
        extent = "" if self.peek() == "_" else str(self.number())
        self.need("_")
        inner = self.type()
        tail = inner.right.removeprefix(" ")
        return Type(inner.left, f" [{extent}]{tail}")

    def _function(self) -> Type:
        self.need("F")
        self.take("Y")
        result = self.type()
        parameters = self.parameters()
        self.need("E")
        return Type(f"{result} ", f"({parameters})")

    def _member_pointer(self) -> Type:
        self.need("M")
        owner, member = self.type(), self.type()
        return member.pointed(f"{owner}::*") if member.right else Type(f"{member.left} {owner}::*")

    def _template_parameter(self) -> Type:
        self.need("T")
        index = 0 if self.peek() == "_" else self.number() + 1  # a decimal number, unlike those of substitutions
        self.need("_")
        if index >= len(self.arguments):
            raise UnreadError
        result = replace(self.arguments[index], parameter=index)
        if self.peek() == "I":
            self.seen.append(result)
            name = Name(str(result))
            self._keep_arguments(name)
            return Type(name.text)
        return result

    def _vendor(self) -> Type:
        self.need("u")
        return Type(self.source_name())

    _COMPOUND: dict[str, Callable[[_Reader], Type]] = {
        "P": _pointer, "R": _reference, "O": _rvalue_reference, "K": _const, "V": _volatile, "r": _restrict, "A": _array, "F": _function,
        "M": _member_pointer, "T": _template_parameter, "u": _vendor,
    }  # fmt: skip

    # -- template arguments

    def template_arguments(self) -> tuple[Type, ...]:
        self.need("I")
        arguments: list[Type] = []
        while not self.take("E"):
            arguments.append(self._template_argument())
        return tuple(arguments)

    def _template_argument(self) -> Type:
        if self.take("J"):
            items: list[Type] = []
            while not self.take("E"):
                items.append(self._template_argument())
            return Type("", items=tuple(items))
        if self.peek() == "L":
            return Type(self.literal())
        if self.take("X"):
            self.take("ad")
            result = Type(self.literal())
            self.need("E")
            return result
        return self.type()

    def literal(self) -> str:
        """Parse a constant: `Li256E`, `Lb1E`, the value of an enumeration, or the function `L_Z3fooiE`."""
        self.need("L")
        if self.take("_Z"):
            function = self.encoding("name")
            self.need("E")
            return function
        kind = str(self.type())
        if kind == "decltype(nullptr)":
            self.take("0")
            self.need("E")
            return "nullptr"
        value = self.number()
        self.need("E")
        if kind == "bool":
            return "true" if value else "false"
        return str(value) if kind in _INTEGERS else f"({kind}){value}"
