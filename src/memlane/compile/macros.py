"""Find the macros that stand for execution spaces or whole functions.

Macros can hide execution spaces (`#define HD __host__ __device__`) and whole functions. Definitions are collected without evaluating
conditionals: a macro that is `__device__` in one branch and empty in the other counts as `__device__`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from memlane.compile.tokens import Token, directive
from memlane.walks import reachable

DEVICE_WORDS = frozenset({"__device__", "__global__", "__constant__", "__shared__", "__managed__"})
"""Words that mark a declaration as existing on the device."""

_LIBRARY_MACRO = re.compile(r"(_CCCL|_CUB|_THRUST|THRUST|CUB|TORCH|C10|EIGEN|KOKKOS)_\w*(DEVICE|API)\w*\Z")
"""Pattern of macros of well-known libraries whose headers are not read."""

_BRACES = re.compile(r'(?:\s|inline\b|namespace\b[\s\w:]*(?=\{)|extern\s*"C(?:\+\+)?"|using\s+namespace\s+[\w:]+\s*;|[{}])*[{}]\s*')
"""Pattern of expansions that consist of the braces of namespaces and of `extern "C"`."""

_DEFINITION = re.compile(r"(?P<name>\w+)(?P<parameters>\([^)]*\))?\s*(?P<body>[\s\S]*)")


@dataclass(frozen=True)
class Macros:
    """The macros defined anywhere in a set of files."""

    device: frozenset[str] = frozenset()
    """Words that expand to `__device__`, `__global__` and the like, including those words."""
    declarations: Mapping[str, str] = field(default_factory=dict)
    """Function-like macros that expand to whole declarations -> their expansion."""
    braces: frozenset[str] = frozenset()
    """Macros that open or close a namespace (`#define BEGIN namespace mine {`, `#define END }`)."""

    def marks_device(self, word: str) -> bool:
        """Return whether this word marks a declaration as existing on the device."""
        return word in self.device or _LIBRARY_MACRO.match(word) is not None


def collect(files: Iterable[list[Token]], defines: Iterable[str] = ()) -> Macros:
    """Return the macros of all files together. `defines` holds the command line's macros, `NAME` or `NAME=text`."""
    bodies: dict[str, str] = {}
    functions: dict[str, str] = {}
    for define in defines:
        name, _, body = define.partition("=")
        bodies[name] = body
    for tokens in files:
        for token in tokens:
            if token.kind != "directive" or "define" not in token.text:
                continue
            line = directive(token)
            found = _DEFINITION.match(line.body) if line.name == "define" else None
            if found is None:
                continue
            name, body = found["name"], found["body"]
            bodies[name] = f"{bodies.get(name, '')} {body}"
            if found["parameters"] is not None:
                functions[name] = bodies[name]
    device = _closure(bodies)
    braces = frozenset(name for name, body in bodies.items() if _BRACES.fullmatch(body) and body.count("{") != body.count("}"))
    return Macros(device, {name: body for name, body in functions.items() if name not in braces and _is_declaration(body)}, braces)


def _closure(bodies: Mapping[str, str]) -> frozenset[str]:
    """Return the words that expand, also indirectly, to an execution or memory space, except those that expand to declarations."""
    users: dict[str, list[str]] = {}
    for name, body in bodies.items():
        if not _is_declaration(body):
            for word in _words(body):
                users.setdefault(word, []).append(name)
    return frozenset(DEVICE_WORDS | reachable(DEVICE_WORDS, lambda word: users.get(word, ())))


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W\d]\w*", text))


def _is_declaration(body: str) -> bool:
    return body.rstrip().endswith((";", "}")) and not body.lstrip().startswith(("{", "do", "("))
