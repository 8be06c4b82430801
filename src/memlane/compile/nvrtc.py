"""Compile CUDA C++ text to PTX text with one call of the NVRTC library, without a driver."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from memlane.compile import toolkit
from memlane.errors import CompileError


@dataclass(frozen=True)
class Request:
    """A complete compiler input: everything that determines the answer."""

    name: str
    text: str
    headers: tuple[tuple[str, str], ...] = ()
    """Names and texts of headers passed in memory; they take precedence over files on disk."""
    options: tuple[str, ...] = ()
    expressions: tuple[str, ...] = ()
    """Names of kernels with their template arguments, to be instantiated."""
    directory: str = field(default_factory=os.getcwd)
    """Working directory of the compiler. File names in its output contain it, so an answer holds for one directory only."""


@dataclass(frozen=True)
class Answer:
    """The compiler's output. `ptx` is empty if the program does not compile."""

    ptx: str
    log: str
    lowered: tuple[tuple[str, str], ...] = ()
    """Each expression of the request with the name of its kernel in the PTX."""


@dataclass(frozen=True)
class Diagnostic:
    """An error in the compiler's log."""

    file: str
    line: int
    column: int | None
    """Column in the line, from 0; None if the log does not determine it."""
    message: str
    """All lines of the log that belong to the error."""
    source: str = ""
    """The source line that the log quotes."""

    def place(self, text: str) -> tuple[int, int]:
        """Return start and end (exclusive) of the error in the file's text: a single character, or else the whole line."""
        start = 0
        for _ in range(self.line - 1):
            start = text.find("\n", start) + 1 or len(text)
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        # Columns are wrong in a line that `memlane.compile.dialect` made longer.
        if self.column is not None and start + self.column < end and len(self.source.rstrip()) <= end - start:
            return start + self.column, start + self.column + 1
        return start, end


_ERROR = re.compile(r"^(?P<file>[^\n]+)\((?P<line>\d+)\): (?:catastrophic )?error", re.MULTILINE)


def errors(log: str) -> Iterator[Diagnostic]:
    """Yield the errors of a log in order. The compiler indents the source line by two spaces and puts a caret below it."""
    for found in _ERROR.finditer(log):
        message = log[found.start() :].split("\n\n", 1)[0]
        lines = message.split("\n")
        carets = [index for index, line in enumerate(lines) if index and line.strip() == "^"]
        exact = bool(carets) and "\t" not in lines[carets[0] - 1]
        column = len(lines[carets[0]].rstrip()) - 3 if exact else None
        source = lines[carets[0] - 1][2:] if carets else ""
        yield Diagnostic(found["file"], int(found["line"]), column if column is None or column >= 0 else None, message, source)


_WARNING = re.compile(r"[^\n]+\(\d+\): warning |Remark: The warnings can be suppressed ")


def without_warnings(log: str) -> str:
    """Return a log with errors in it without the compiler's warnings, which may precede the first error by pages."""
    return "\n\n".join(block for block in log.split("\n\n") if not _WARNING.match(block.lstrip("\n")))


_BAD_EXPRESSION = re.compile(r"^__nv_name_map\(\d+\): error: [^\n]*\n(?:\s*#pragma nv_mangled_name (?P<expression>[^\n]*))?", re.MULTILINE)


def refused_expressions(log: str) -> Iterator[str]:
    """Yield the name expressions of the request that the log complains about."""
    for found in _BAD_EXPRESSION.finditer(log):
        if found["expression"]:
            yield found["expression"]


@lru_cache(maxsize=64)
def compile_request(request: Request) -> Answer:
    """Compile the program and return the compiler's answer, which has no PTX if the program is wrong.

    Raises MissingDependency, and CompileError if the library itself fails.
    """
    nvrtc = toolkit.nvrtc_bindings()
    names, texts = [name for name, _ in request.headers], [text for _, text in request.headers]
    program = _checked(
        nvrtc,
        nvrtc.nvrtcCreateProgram(
            _encoded(request.text), _encoded(request.name), len(names), [*map(_encoded, texts)], [*map(_encoded, names)]
        ),
    )
    try:
        for expression in request.expressions:
            _checked(nvrtc, nvrtc.nvrtcAddNameExpression(program, _encoded(expression)))
        options = [_encoded(option) for option in request.options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _text(nvrtc, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        if status == nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION:
            raise CompileError("the CUDA compiler does not know an option", log)
        if status == nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION:
            return Answer("", log)
        _checked(nvrtc, (status,))
        ptx = _text(nvrtc, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
        lowered = [(e, _checked(nvrtc, nvrtc.nvrtcGetLoweredName(program, _encoded(e))).decode()) for e in request.expressions]
        return Answer(ptx, log, tuple(lowered))
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogateescape")


def _checked(nvrtc: Any, result: tuple[Any, ...]) -> Any:
    """Return the value that follows the status in a result of the bindings. Raises CompileError if the status is an error."""
    status, *values = result
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        _, message = nvrtc.nvrtcGetErrorString(status)
        raise CompileError(f"the CUDA compiler failed: {message.decode()}")
    return values[0] if values else None


def _text(nvrtc: Any, size: Callable[..., Any], fill: Callable[..., Any], program: Any) -> str:
    # The library writes into this object. For an empty text it is Python's shared one-byte object, which keeps its zero byte.
    buffer = bytes(_checked(nvrtc, size(program)))
    _checked(nvrtc, fill(program, buffer))
    return buffer.partition(b"\0")[0].decode("utf-8", errors="replace")
