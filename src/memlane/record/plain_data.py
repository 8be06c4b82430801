"""Convert plain data (as from JSON) to dataclasses, and check each value against the declared type of its field.

A record file may come from anyone: errors in it are found here, by name, rather than far away where the value is used.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from memlane.number_format import plural

NUMBER_LIMIT = 1 << 64
"""Exclusive upper bound of whole numbers, from 0: counts, sizes, lines and the numbers of streams."""

_T = TypeVar("_T")


def from_plain(kind: type[_T], data: object, where: str) -> _T:
    """Return the object of the dataclass `kind` from `data`, a dict by field name.

    Missing fields get their default, unknown ones are ignored: a newer memlane may write more. Raises ValueError that names the place,
    starting with `where`, for a field that is missing without a default or has a value of the wrong type.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{where} is not an object")
    values = {}
    declared: Any = kind
    for name, (field_type, is_required) in _fields_of(declared).items():
        if name in data:
            values[name] = _value(field_type, data[name], f"{where}.{name}")
        elif is_required:
            raise ValueError(f"{where} has no {name}")
    return kind(**values)


@cache
def _fields_of(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Return the type of each field, and whether it is required."""
    hints = get_type_hints(kind)
    defined = fields(kind)
    return {entry.name: (hints[entry.name], entry.default is MISSING and entry.default_factory is MISSING) for entry in defined}


def _value(kind: Any, value: object, where: str) -> Any:
    """Return a value converted to a declared type. Raises ValueError if it does not fit."""
    if kind in _SIMPLE:
        describe, is_one = _SIMPLE[kind]
        if not is_one(value):
            raise ValueError(f"{where} is not a {describe}")
        return value
    if isinstance(kind, type) and is_dataclass(kind):
        return from_plain(kind, value, where)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is types.UnionType:
        return None if value is None else _value(inner[0], value, where)
    if origin is tuple:
        return _tuple(inner, value, where)
    if origin is Mapping:
        if not isinstance(value, dict):
            raise ValueError(f"{where} is not an object")
        return {name: _value(inner[1], entry, f"{where}[{name!r}]") for name, entry in value.items()}
    raise TypeError(f"{where}: no rule for {kind}")


def _tuple(kinds: tuple[Any, ...], value: object, where: str) -> tuple[Any, ...]:
    """Return a tuple of converted values from a list. Raises ValueError."""
    if not isinstance(value, list):
        raise ValueError(f"{where} is not a list")
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(value)
    if len(kinds) != len(value):
        raise ValueError(f"{where} has {plural(len(value), 'entry')}, not {len(kinds)}")
    return tuple(_value(kind, entry, f"{where}[{number}]") for number, (kind, entry) in enumerate(zip(kinds, value, strict=True)))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < NUMBER_LIMIT


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < NUMBER_LIMIT and math.isfinite(value)


_SIMPLE: dict[type, tuple[str, Callable[[object], bool]]] = {
    str: ("string", lambda value: isinstance(value, str)),
    bool: ("truth value", lambda value: isinstance(value, bool)),
    int: ("whole number from 0 on", _is_whole),
    float: ("number", _is_number),
}
