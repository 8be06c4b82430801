"""Read the members of structures from a program's text, to find the values that a launch must supply for such an argument.

No compiler is used. A structure that is not plain data (a base class, virtual functions, bit fields, lengths that are not literals) is
unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from memlane.compile.tokens import Token, directive, tokenize

_IGNORED = frozenset(
    {"const", "volatile", "struct", "class", "__restrict__", "__restrict", "mutable", "public", "private", "protected", ":"}
)
_NO_MEMBER = frozenset({"static", "using", "typedef", "friend", "enum", "template", "constexpr"})
_LONGEST_ALIAS = 12
"""Maximum tokens in the definition of an alias, including its `;`."""
_DEEPEST, _MOST_MEMBERS = 4, 256
"""Maximum nesting of structures, and maximum number of members, whose layout is computed."""
_SCALAR_BYTES = {
    "bool": 1, "char": 1, "signed char": 1, "unsigned char": 1, "int8_t": 1, "uint8_t": 1,
    "short": 2, "unsigned short": 2, "int16_t": 2, "uint16_t": 2, "__half": 2, "half": 2, "__nv_bfloat16": 2, "nv_bfloat16": 2,
    "int": 4, "unsigned int": 4, "unsigned": 4, "uint": 4, "int32_t": 4, "uint32_t": 4, "float": 4,
    "long": 8, "unsigned long": 8, "long long": 8, "unsigned long long": 8, "int64_t": 8, "uint64_t": 8, "size_t": 8, "double": 8,
}  # fmt: skip
_VECTOR_ELEMENTS = {
    "char": "char", "uchar": "char", "short": "short", "ushort": "short", "int": "int", "uint": "int", "float": "float",
    "long": "long", "ulong": "long", "longlong": "long", "ulonglong": "long", "double": "double",
}  # fmt: skip
"""Vector type of CUDA C++ without its number of elements -> type of an element."""
_CLOSING = {"{": "}", "(": ")", "[": "]"}


@dataclass(frozen=True)
class Member:
    """A member of a structure, or an array of `count` elements."""

    name: str
    type: str
    """The type without `const` and similar qualifiers; for a pointer, the type it points to."""
    is_pointer: bool
    count: int = 1


def structure_members(texts: Iterable[str], name: str) -> list[Member] | None:
    """Return the members of a structure in order; None if no text defines it, or if its members cannot be determined."""
    for text in texts:
        if name in text and (body := dict(_bodies(_plain(text))).get(name)) is not None:
            return _members(body)
    return None


@dataclass(frozen=True)
class PointerMembers:
    """The pointers of a structure, with its size and alignment in bytes."""

    names: Mapping[int, str]
    """Offset in bytes -> member as an expression, such as `inner.from` or `tables[1]`."""
    nbytes: int
    alignment: int


def pointer_members(texts: Sequence[str], name: str, depth: int = _DEEPEST) -> PointerMembers | None:
    """Return where the pointers of a structure are; None if a member's size is unknown. `depth`: maximum nesting."""
    declared = structure_members(texts, name) if depth else None
    if not declared or sum(one.count for one in declared) > _MOST_MEMBERS:
        return None
    aliases = type_aliases(texts)
    names: dict[int, str] = {}
    size, widest = 0, 1
    for member in declared:
        kind = aliases.get(member.type, member.type)
        inner = PointerMembers({0: ""}, 8, 8) if member.is_pointer else _scalar(kind) or pointer_members(texts, _last(kind), depth - 1)
        if inner is None:
            return None
        size = -(-size // inner.alignment) * inner.alignment
        for number in range(member.count):
            element = f"{member.name}[{number}]" if member.count > 1 else member.name
            names |= {size + offset: f"{element}.{one}" if one else element for offset, one in inner.names.items()}
            size += inner.nbytes
        widest = max(widest, inner.alignment)
    return PointerMembers(names, -(-size // widest) * widest, widest)


def _scalar(kind: str) -> PointerMembers | None:
    """Return the size and alignment of a scalar or vector type without pointers; None for any other type."""
    nbytes = _SCALAR_BYTES.get(kind)
    if nbytes is not None:
        return PointerMembers({}, nbytes, nbytes)
    element = _SCALAR_BYTES.get(_VECTOR_ELEMENTS.get(kind[:-1], ""))
    if element is None or kind[-1] not in "1234":
        return None
    lanes = int(kind[-1])
    # A vector of three elements is aligned like one element, and no vector is aligned to more than 16 bytes.
    return PointerMembers({}, element * lanes, element if lanes == 3 else min(element * lanes, 16))


def _last(kind: str) -> str:
    return kind.rpartition("::")[2]


def type_aliases(texts: Iterable[str]) -> Mapping[str, str]:
    """Return the types that simple `typedef float T;`, `using T = float;` and `#define T float` stand for, by alias."""
    found: dict[str, str] = {}
    for text in texts:
        for token in tokenize(text):
            line = directive(token) if token.kind == "directive" else None
            words = line.body.split() if line is not None and line.name == "define" else []
            if len(words) > 1 and all(word.isidentifier() for word in words):
                found.setdefault(words[0], " ".join(words[1:]))
        tokens = [token.text for token in _plain(text)]
        for index, word in enumerate(tokens):
            part = tokens[index + 1 : index + _LONGEST_ALIAS] if word in ("typedef", "using") else []
            part = part[: part.index(";")] if ";" in part else []
            if word == "typedef" and len(part) > 1 and all(one.isidentifier() for one in part):
                found.setdefault(part[-1], " ".join(part[:-1]))
            elif word == "using" and part[1:2] == ["="] and all(one.isidentifier() for one in part[2:]):
                found.setdefault(part[0], " ".join(part[2:]))
    return found


def _plain(text: str) -> list[Token]:
    return [token for token in tokenize(text) if token.kind != "directive"]


def _bodies(tokens: Sequence[Token]) -> Iterator[tuple[str, Sequence[Token]]]:
    """Yield the name of each structure, or of a `typedef` of one, and the tokens between its braces."""
    for index, token in enumerate(tokens[:-2]):
        if token.text not in ("struct", "class"):
            continue
        opening = index + 1
        while opening < len(tokens) and (tokens[opening].kind == "word" or tokens[opening].text == "("):
            opening = _behind_group(tokens, opening)
        if opening >= len(tokens) or tokens[opening].text != "{":
            continue
        end = _behind_group(tokens, opening)
        body = tokens[opening + 1 : end - 1]
        if opening > index + 1:
            yield tokens[opening - 1].text, body
        if index and tokens[index - 1].text == "typedef" and end < len(tokens) and tokens[end].kind == "word":
            yield tokens[end].text, body


def _behind_group(tokens: Sequence[Token], index: int) -> int:
    """Return the index past the bracketed group, or the single token, at `index`."""
    depth = 0
    while index < len(tokens):
        depth += (tokens[index].text in _CLOSING) - (tokens[index].text in _CLOSING.values())
        index += 1
        if depth <= 0:
            break
    return index


def _members(body: Sequence[Token]) -> list[Member] | None:
    found: list[Member] = []
    for declaration in _declarations(body):
        texts = [token.text for token in declaration]
        if "virtual" in texts or ":" in texts[2:]:
            return None
        if _NO_MEMBER.intersection(texts) or "(" in texts:
            continue
        members = _of_declaration([text for text in texts if text not in _IGNORED])
        if members is None:
            return None
        found += members
    return found


def _declarations(body: Sequence[Token]) -> Iterator[list[Token]]:
    """Yield the declarations in a body that end in `;`; function definitions are skipped."""
    index, declaration = 0, list[Token]()
    while index < len(body):
        end = _behind_group(body, index)
        if body[index].text == ";":
            if declaration:
                yield declaration
            declaration = []
        elif body[index].text == "{" and any(token.text == "(" for token in declaration):
            declaration = []
        else:
            declaration += body[index:end] if body[index].text != "{" else ()
        index = end


def _of_declaration(texts: Sequence[str]) -> list[Member] | None:
    """Return the members declared by a text like `float2 *a, b[3], c`; None if it has another form."""
    parts: list[list[str]] = [[]]
    for text in texts:
        if text == ",":
            parts.append([])
        else:
            parts[-1].append(text)
    named = parts[0].index("=") if "=" in parts[0] else len(parts[0])
    words = [text for text in parts[0][:named] if text.isidentifier() or text == "::"]
    kind, found = "".join(f"{word} " for word in words[:-1]).strip().replace(" :: ", "::"), list[Member]()
    for part in parts:
        lengths = [part[at + 1] for at, text in enumerate(part[:-1]) if text == "["]
        if not kind or "<" in part or "&" in part or not all(length.isdigit() for length in lengths):
            return None
        count = 1
        for length in lengths:
            count *= int(length)
        identifiers = words[-1:] if part is parts[0] else [text for text in part if text.isidentifier()]
        found.append(Member(identifiers[0] if identifiers else "", kind, "*" in part, count))
    return found
