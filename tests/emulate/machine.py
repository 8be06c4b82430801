"""Runs single helpers of the emulator's runtime from Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import llvmlite.ir as ir

from memlane.emulate.code.jit import engine
from memlane.emulate.runtime.helper import Helper, compile_helpers

_TYPES = {32: ctypes.c_uint32, 64: ctypes.c_int64}


def callable_of(helper: Helper) -> Callable[..., int]:
    """The compiled helper; pointers are given as integers."""
    compile_helpers([helper])
    arguments = [ctypes.c_void_p if isinstance(kind, ir.PointerType) else _TYPES[kind.width] for kind in helper.arguments]
    return ctypes.CFUNCTYPE(_TYPES[helper.result.width], *arguments)(engine().address(helper.name))
