"""Serialise plans as JSON, to store, send or compare them."""

from __future__ import annotations

import json
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from memlane.errors import BadPlan
from memlane.plan.actions import Copy, DeviceCall, HostCall, KernelRef, Launch, Put, Scalar, Together, Wait
from memlane.plan.buffers import Buffer, Home, View
from memlane.plan.plan import Plan, Repeat, Step
from memlane.source import shortened

VERSION = 1

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (View, KernelRef, Scalar, Launch, Copy, HostCall, DeviceCall, Together, Put, Wait, Step, Repeat)
}
_LARGEST = (1 << 64) - 1
"""Largest integer in a plan: integers are sizes, positions, counts, and arguments of at most 64 bits."""


@dataclass(frozen=True)
class _Buffer:
    """A serialised buffer; each is written once per plan."""

    name: str
    nbytes: int
    home: Home = 0


def to_json(plan: Plan) -> str:
    """Return a plan as JSON text; `from_json` returns an equal plan. Each buffer is written once and referenced by name."""
    buffers = [{"name": one.name, "nbytes": one.nbytes, "home": one.home} for one in plan.buffers]
    return json.dumps({"memlane_plan": VERSION, "buffers": buffers, "steps": _to_plain(plan.steps)}, indent=1)


def from_json(text: str) -> Plan:
    """Return the plan of a JSON text. Raises BadPlan for a text that is not a plan, and for an invalid plan."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadPlan(f"this is not a plan: {shortened(str(error))}") from None
    version = whole.get("memlane_plan") if isinstance(whole, dict) else None
    if version != VERSION:
        which = "no version" if version is None else f"version {shortened(repr(version))}"
        raise BadPlan(f"this is not a plan that memlane can read: it has {which} in 'memlane_plan', but must have {VERSION}")
    try:
        known = {one.name: one for one in _from_plain(tuple[_Buffer, ...], whole.get("buffers"), {}, "buffers")}
        buffers = {name: Buffer(name, one.nbytes, one.home) for name, one in known.items()}
        return Plan(_from_plain(tuple[Step | Repeat, ...], whole.get("steps"), buffers, "steps"))
    except RecursionError:
        raise BadPlan("this plan is damaged: its parts are nested too deeply") from None


def _to_plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_to_plain(one) for one in value]
    if isinstance(value, Buffer):
        return {"buffer": value.name}
    if type(value).__name__ in _KINDS:
        named = {field.name: getattr(value, field.name) for field in fields(value)}
        differing = {name: _to_plain(one) for name, one in named.items() if one != _default(value, name)}
        return {"is": type(value).__name__, **differing}
    return value


def _default(value: Any, name: str) -> Any:
    field: Field[Any] = next(field for field in fields(value) if field.name == name)
    return field.default if field.default is not MISSING else MISSING


def _from_plain(kind: Any, value: Any, buffers: dict[str, Buffer], where: str) -> Any:
    """Return the value of a field checked against its type. Raises BadPlan, naming the place: a plan may come from an untrusted source."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    for one in kinds:
        if get_origin(one) is tuple and isinstance(value, list):
            inner = get_args(one)
            each = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
            if len(each) == len(value):
                return tuple(
                    _from_plain(of, part, buffers, f"{where}[{at}]") for at, (of, part) in enumerate(zip(each, value, strict=True))
                )
        elif one is Buffer and isinstance(value, dict) and isinstance(value.get("buffer"), str):
            if value["buffer"] not in buffers:
                raise BadPlan(f"{where} of this plan names buffer {shortened(value['buffer'])!r}, which is not among its buffers")
            return buffers[value["buffer"]]
        elif isinstance(one, type) and is_dataclass(one) and isinstance(value, dict) and value.get("is", _Buffer.__name__) == one.__name__:
            return _object(one, value, buffers, where)
        elif (get_origin(one) is Literal and value in get_args(one)) or _is_plain(one, value):
            return value
    named = value.get("is") if isinstance(value, dict) else None
    if isinstance(named, str) and named not in _KINDS:
        raise BadPlan(f"{where} of this plan is of kind {shortened(named)!r}, which version {VERSION} does not support")
    raise BadPlan(f"this plan is damaged: {where} is {'missing' if value is None else shortened(json.dumps(value))}")


def _object(kind: Any, value: dict[str, Any], buffers: dict[str, Buffer], where: str) -> Any:
    hints = _hints(kind)
    for field in fields(kind):
        if field.name not in value and field.default is MISSING:
            raise BadPlan(f"this plan is damaged: {where} has no {field.name}")
    unknown = next((name for name in value if name not in hints and name != "is"), None)
    if unknown is not None:
        raise BadPlan(f"{where} of this plan has {shortened(unknown)!r}, which version {VERSION} does not support")
    return kind(**{name: _from_plain(hints[name], one, buffers, f"{where}.{name}") for name, one in value.items() if name != "is"})


_hints = cache(get_type_hints)


def _is_plain(kind: Any, value: Any) -> bool:
    if kind is NoneType:
        return value is None
    if kind is bool or kind is float:
        return isinstance(value, kind)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST
    return kind is str and isinstance(value, str)
