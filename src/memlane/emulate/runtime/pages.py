"""Append rows to pages of records that Python allocates while a kernel runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import llvmlite.ir as ir
import numpy as np

from memlane.emulate.code.build import I64, VOID, Emit, Value, constant
from memlane.emulate.layout import CONTEXT

_NEW_PAGE = ir.FunctionType(VOID, [])


@dataclass(frozen=True)
class Pages:
    """The fields of `CONTEXT` that describe the present page of one kind of record."""

    dtype: np.dtype[Any]
    rows: str
    """Address of the page."""
    count: str
    """Rows in it."""
    room: str
    """Rows that it can hold."""
    new_page: str
    """Callback that makes room for more rows."""

    def begin_row(self, e: Emit, context: Value) -> Value:
        """Return the address of the next row. If no page has room for it, the function that `e` writes returns nothing at once."""

        def full() -> Value:
            return e.icmp_unsigned("==", e.get(context, CONTEXT, self.count), e.get(context, CONTEXT, self.room))

        with e.if_then(full(), likely=False):
            e.call_through(e.get_pointer(context, CONTEXT, self.new_page), _NEW_PAGE, [])
            with e.if_then(full(), likely=False):
                e.ret_void()
        count = e.get(context, CONTEXT, self.count)
        row = e.at(e.get_pointer(context, CONTEXT, self.rows), e.mul(count, constant(I64, self.dtype.itemsize)))
        e.put(e.add(count, constant(I64, 1)), context, CONTEXT, self.count)
        return row

    def fill(self, e: Emit, row: Value, values: Mapping[str, Value]) -> None:
        """Store the fields of a row, each in its own width."""
        for name, value in values.items():
            place, kind = e.place(row, self.dtype, name)
            e.store(e.trunc(value, kind) if value.type.width > kind.width else value, place)
