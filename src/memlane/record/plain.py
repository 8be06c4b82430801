"""From plain data (what JSON holds) to dataclasses, each value checked against the type that its field declares.

A record file may come from anyone: what is wrong in it is found here, by name, and not far away where it is used.
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
"""Whole numbers are from 0 to below this: counts, sizes, lines and the numbers of streams all are."""

_T = TypeVar("_T")


def from_plain(kind: type[_T], data: object, where: str) -> _T:
    """The object of the dataclass `kind` in `data`, a dict by field name.

    Fields that are missing take their default, unknown ones are skipped: a newer memlane may write more. ValueError that names the place,
    from `where` on, for a field that is missing without a default or that does not hold what its type says.
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
    """Type of each field, and whether it must be there."""
    hints = get_type_hints(kind)
    defined = fields(kind)
    return {entry.name: (hints[entry.name], entry.default is MISSING and entry.default_factory is MISSING) for entry in defined}


def _value(kind: Any, value: object, where: str) -> Any:
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
