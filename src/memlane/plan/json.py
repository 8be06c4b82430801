"""Plans as JSON, to be kept in a file, sent to another process, or compared."""

from __future__ import annotations

import json
from dataclasses import MISSING, Field, fields
from typing import Any

from memlane.errors import BadPlan
from memlane.plan.actions import Copy, HostCall, KernelRef, Launch, Scalar, Together
from memlane.plan.buffers import Buffer, View
from memlane.plan.plan import Plan, Repeat, Step

VERSION = 1

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (View, KernelRef, Scalar, Launch, Copy, HostCall, Together, Step, Repeat)}


def to_json(plan: Plan) -> str:
    """Return a plan as JSON text; `from_json` gives an equal plan. Each buffer is written once and then named."""
    buffers = [{"name": one.name, "nbytes": one.nbytes, "home": one.home} for one in plan.buffers]
    return json.dumps({"memlane_plan": VERSION, "buffers": buffers, "steps": _written(plan.steps)}, indent=1)


def from_json(text: str) -> Plan:
    """Return the plan of a JSON text. Raises BadPlan for a text that is none, and for a plan that cannot be."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadPlan(f"this is no plan: {error}") from None
    version = whole.get("memlane_plan") if isinstance(whole, dict) else None
    if version != VERSION:
        raise BadPlan(f"this is no plan of version {VERSION}: it says {version!r} under 'memlane_plan'")
    try:
        buffers = {one["name"]: Buffer(one["name"], one["nbytes"], one["home"]) for one in whole["buffers"]}
        return Plan(_read(whole["steps"], buffers))
    except BadPlan:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        raise BadPlan(f"this plan is damaged: {type(error).__name__} at {error}") from None


def _written(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_written(one) for one in value]
    if isinstance(value, Buffer):
        return {"buffer": value.name}
    if type(value).__name__ in _KINDS:
        named = {field.name: getattr(value, field.name) for field in fields(value)}
        differing = {name: _written(one) for name, one in named.items() if one != _default(value, name)}
        return {"is": type(value).__name__, **differing}
    return value


def _default(value: Any, name: str) -> Any:
    field: Field[Any] = next(field for field in fields(value) if field.name == name)
    return field.default if field.default is not MISSING else MISSING


def _read(value: Any, buffers: dict[str, Buffer]) -> Any:
    if isinstance(value, list):
        return tuple(_read(one, buffers) for one in value)
    if not isinstance(value, dict):
        return value
    if "buffer" in value and "is" not in value:
        if value["buffer"] not in buffers:
            raise BadPlan(f"this plan names buffer {value['buffer']!r}, which is not among its buffers")
        return buffers[value["buffer"]]
    kind = _KINDS.get(value["is"])
    if kind is None:
        raise BadPlan(f"this plan has a part of kind {value['is']!r}, which version {VERSION} does not know")
    return kind(**{name: _read(one, buffers) for name, one in value.items() if name != "is"})
