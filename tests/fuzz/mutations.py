"""What is done to an input: to its bytes, to its tokens, and to its structure.

Every function takes a random generator and gives a new input, so that a seed and a number name an input for good.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random
from typing import Any

NUMBERS = (
    *("0", "1", "-1", "2", "3", "7", "8", "31", "32", "33", "64", "127", "255", "256", "65535", "65536", "999999999"),
    *("2147483647", "2147483648", "4294967295", "4294967296", "9223372036854775807", "9223372036854775808", "18446744073709551615"),
    *("18446744073709551616", "1" + "0" * 40, "9" * 400, "9" * 5000, "-9223372036854775809", "1e999", "-1e999", "nan", "inf", "0.0"),
    *("0x", "0x0", "0xFFFFFFFFFFFFFFFFFF", "0b1", "0b", "08", "0f3F800000", "0d3FF0000000000000", "0f", "1U", "0x1U", "1_0", ".5"),
    *("5.", "1e5", "1e-400"),
    *("\u0661\u0662", "\u00b2", "\u0be7", "\uff11"),
)
"""Numbers at the ends of types and beyond, in every notation, some in digits of other scripts."""
ODD_TEXT = (
    *("", " ", "\n", "\r\n", "\t", "\0", "\x1a", "\x7f", "\ufeff", "\u00e9", "\U0001f600", "\udc80", "\u2028", "\x0b", "\x0c", "\x85"),
    *("/*", "*/", "//", "'", '"', "`", "\\", "\\\n", "#", "$", "%", "@", "~", "^", "?", "!", "|", "&", ".", "..", "...", ":", "::"),
    *(";", ",", "=", "(", ")", "[", "]", "{", "}", "<", ">", "<<<", ">>>", "+", "-", "*", "/", "_", "a", "%s", "%d", "{}", "{0}", "NUL"),
    *("../x", "a" * 300),
)
_OPENERS = ("(", "[", "{", "<", "((", "{ {", "[{", "-", "!", "~", "/*", "'", '"', "#if 1\n", "+-", "a(", "a<", "a,", ".b", "@")
_DEPTHS = (3, 30, 300, 3000, 30_000, 100_000)
TOKEN = re.compile(r"[A-Za-z_$%][\w$]*|\d[\w.]*|\s+|.", re.DOTALL)


def tokens(text: str) -> list[str]:
    """Return words, numbers, white space and single characters, which joined are the text."""
    return TOKEN.findall(text)


# -- tokens ----------------------------------------------------------------------------------------------------------------------


def _cut(random: Random, parts: list[str], other: Sequence[str]) -> None:
    first = random.randrange(len(parts))
    del parts[first : first + 1 + _few(random)]


def _repeat(random: Random, parts: list[str], other: Sequence[str]) -> None:
    first = random.randrange(len(parts))
    parts[first:first] = parts[first : first + 1 + _few(random)]


def _exchange(random: Random, parts: list[str], other: Sequence[str]) -> None:
    one, two = random.randrange(len(parts)), random.randrange(len(parts))
    parts[one], parts[two] = parts[two], parts[one]


def _move(random: Random, parts: list[str], other: Sequence[str]) -> None:
    first, goal = random.randrange(len(parts)), random.randrange(len(parts))
    piece = parts[first : first + 1 + _few(random)]
    del parts[first : first + len(piece)]
    parts[goal:goal] = piece


def _splice(random: Random, parts: list[str], other: Sequence[str]) -> None:
    at, first = random.randrange(len(parts)), random.randrange(len(other))
    parts[at : at + random.choice((0, 0, 1, 3))] = other[first : first + 1 + _few(random)]


def _renumber(random: Random, parts: list[str], other: Sequence[str]) -> None:
    places = [place for place, part in enumerate(parts) if part[:1].isdigit()]
    at = random.choice(places) if places else random.randrange(len(parts))
    parts[at] = random.choice(NUMBERS)


def _word(random: Random, parts: list[str], other: Sequence[str]) -> None:
    at = random.randrange(len(parts))
    parts[at] = random.choice(other) if random.random() < 0.7 else random.choice(ODD_TEXT)


def _insert(random: Random, parts: list[str], other: Sequence[str]) -> None:
    parts.insert(random.randrange(len(parts)), random.choice(ODD_TEXT))


def _nest(random: Random, parts: list[str], other: Sequence[str]) -> None:
    """Deep nesting is slow to make, so it is rare."""
    depth = random.choices(_DEPTHS, (50, 30, 15, 3, 1, 1))[0]
    parts.insert(random.randrange(len(parts)), random.choice(_OPENERS) * depth)


def _end(random: Random, parts: list[str], other: Sequence[str]) -> None:
    del parts[random.randrange(len(parts)) :]


def _character(random: Random, parts: list[str], other: Sequence[str]) -> None:
    at = random.randrange(len(parts))
    part = parts[at]
    place = random.randrange(len(part)) if part else 0
    parts[at] = part[:place] + chr(random.choice((random.randrange(128), random.randrange(0x3000)))) + part[place + 1 :]


def _few(random: Random) -> int:
    return random.choice((0, 0, 0, 1, 2, 5, 20))


_ON_TOKENS: tuple[Callable[[Random, list[str], Sequence[str]], None], ...] = (
    *(_cut, _repeat, _exchange, _move, _splice, _splice, _renumber, _renumber, _word, _word, _insert, _character),
)
_SELDOM: tuple[Callable[[Random, list[str], Sequence[str]], None], ...] = (_nest, _end)


def mutated_tokens(random: Random, parts: Sequence[str], other: Sequence[str]) -> str:
    """Return a text with one to four changes; `other` is where strange tokens come from."""
    changed = list(parts)
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 4))):
        changed = changed or [" "]
        change = random.choice(_SELDOM if random.random() < 0.04 else _ON_TOKENS)
        change(random, changed, other or [" "])
    return "".join(changed)


# -- bytes -----------------------------------------------------------------------------------------------------------------------


def mutated_bytes(random: Random, data: bytes, other: bytes) -> bytes:
    """Return bytes with one to four changes: bits, runs, words of 2 to 8 bytes at the ends of their range, the end."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 4))):
        if not changed:
            break
        at, way = random.randrange(len(changed)), random.randrange(9)
        if way <= 1:
            changed[at] ^= 1 << random.randrange(8)
        elif way == 2:
            changed[at] = random.randrange(256)
        elif way <= 4:
            size = random.choice((2, 4, 8))
            number = random.choice((0, 1, -1, 1 << 31, (1 << 31) - 1, 1 << 63, (1 << 63) - 1, len(changed), len(changed) - 1, 4096, 65536))
            at -= at % size
            changed[at : at + size] = (number & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        elif way == 5:
            del changed[at : at + 1 + _few(random)]
        elif way == 6:
            changed[at:at] = changed[at : at + 1 + _few(random)]
        elif way == 7:
            first = random.randrange(len(other))
            changed[at : at + 16] = other[first : first + 16]
        elif random.random() < 0.3:
            del changed[at:]
    return bytes(changed)


# -- trees -----------------------------------------------------------------------------------------------------------------------

VALUES = (
    *(None, True, False, 0, 1, -1, 2, 31, 32, 33, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63),
    *((1 << 64) - 1, 1 << 64, 10**30, 10**400, 0.0, -0.5, 1.5, 1e308, float("inf"), float("nan"), "", "x", "0", "\0", "\udc80", "a\nb"),
    *("global", "shared", "load", "store", "<b>", "%s", "x" * 5000, [], {}, [0], [1, 1, 1], [0, 0, 0], [[]], {"": 0}, [None]),
)
"""What JSON and TOML can hold, at the ends of types and of the wrong type."""


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Return every place of a tree as a container and its key."""
    found: list[tuple[Any, Any]] = []
    pending = [tree]
    while pending:
        inside = pending.pop()
        keys: Any = list(inside) if isinstance(inside, dict) else range(len(inside)) if isinstance(inside, list) else ()
        for key in keys:
            found.append((inside, key))
            pending.append(inside[key])
    return found


def mutate_tree(random: Random, tree: Any) -> None:
    """Change one to four places of a tree of dicts and lists."""
    for _ in range(random.choice((1, 1, 1, 2, 3, 4))):
        known = places(tree)
        if not known:
            return
        inside, key = random.choice(known)
        way = random.randrange(10)
        if way <= 4:
            inside[key] = deepcopy(random.choice(VALUES))  # a list in two places would change in both
        elif way == 5:
            del inside[key]
        elif way == 6:
            there, other = random.choice(known)
            inside[key] = json.loads(json.dumps(there[other]))
        elif way == 7 and isinstance(inside[key], int):
            inside[key] += random.choice((-1, 1, 2, 1 << 16))
        elif way == 8 and isinstance(inside, list):
            inside.insert(key, json.loads(json.dumps(inside[key])))
        elif isinstance(inside[key], str):
            inside[key] = mutated_tokens(random, tokens(inside[key]), ["x", "7", "."])
        elif isinstance(inside, dict):
            inside[random.choice(ODD_TEXT)] = inside.pop(key)


def deep(opening: str, closing: str, depth: int = 100_000) -> str:
    """Return `depth` nested brackets."""
    return opening * depth + closing * depth
