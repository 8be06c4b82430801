"""Leave out device functions that launch kernels or call the CUDA runtime (dynamic parallelism), and their callers.

A single such function makes the compiler refuse the whole program. `DeviceLaunches.cut` finds the functions that the compiler's errors are
in and overwrites them: a kernel with blanks, any other function from its body on with `= delete;`. Overload resolution then stays the same,
and each caller becomes an error in turn. Lines and columns of the remaining code do not change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from memlane.compile import nvrtc
from memlane.compile.declarations import Unit, tokens_inside
from memlane.compile.hostbody import Body, HostFunction
from memlane.compile.hostcode import DeviceCode, blank
from memlane.compile.sources import SourceFile
from memlane.compile.tokens import tokenize

RUNTIME_CALL = re.compile(
    r'device-side kernel launch|identifier "cuda(?:Malloc|Free|Mem|Stream|Event|Device|GetLast|PeekAt|Graph)\w*" is'
    r'|function "cuda\w+\([^"]*" was referenced but not defined'
)
"""Pattern of the compiler's errors about a kernel launch or a runtime call in device code."""
_CALL = re.compile(r'(?:identifier|function) "(cuda\w+)')
_NAMED = re.compile(r'([^\W\d]\w*)\s*(?=[<("])')
"""Pattern of a name that is called, or that the compiler quotes."""
_DELETE = "=delete;"
_ROOM = re.compile(" " * len(_DELETE))
_REMEDY = "launch the inner kernel from the host"


class DeviceLaunches:
    """The functions left out of a program so far."""

    def __init__(self) -> None:
        self.log = ""
        """The compiler's first log with such errors; empty while nothing is left out."""
        self.notes: list[str] = []
        """One sentence for each function, in order of discovery."""
        self.kernels: dict[str, str] = {}
        """Name of each kernel that was left out -> the sentence about it."""
        self._functions: dict[str, str] = {}
        """Name of each other function that was left out -> what it does."""

    def cut(self, log: str, files: Sequence[SourceFile], codes: Mapping[str, DeviceCode]) -> dict[str, SourceFile]:
        """Return the files that change, by name, without the functions that the errors of `log` are in.

        Empty if no error is about a launch from the device, a call of the runtime, or a call of a function left out earlier.
        """
        cut: dict[str, SourceFile] = {}
        for error in nvrtc.errors(log):
            file = cut.get(error.file) or next((file for file in files if file.name == error.file), None)
            if file is None:
                continue
            text = self._without(file, error, codes[file.name])
            if text and text != file.text:
                cut[file.name] = _with_text(file, text)
        if cut:
            self.log = self.log or log
        return cut

    def _does(self, error: nvrtc.Diagnostic) -> str:
        """Return what the function with the error does, as the end of a sentence; empty for an error of another kind."""
        if RUNTIME_CALL.search(error.message):
            call = _CALL.search(error.message)
            return f"calls `{call[1]}` of the CUDA runtime" if call else "launches a kernel from the device"
        for name in _NAMED.findall(error.message.partition("error:")[2]):
            if name in self._functions:
                return f"calls `{name}`, which {self._functions[name]}"
        return ""

    def _without(self, file: SourceFile, error: nvrtc.Diagnostic, code: DeviceCode) -> str:
        """Return the text of the file without the function that an error is in; empty if that function cannot be left out alone."""
        start, end = error.place(file.text)
        units = [unit for unit in (*code.functions, *code.kernels) if unit.start < end and unit.end > start]
        unit = min(units, key=lambda unit: unit.end - unit.start, default=None)
        if unit is None:
            return ""
        if any(_is_instance(file, unit, name) for name in (*self.kernels, *self._functions)):
            return blank(file.text, file.tokens, [unit])
        does, where, function = self._does(error), f"{file.name}:{error.line}", _function(file, unit)
        if not does or function is None or not function.name:
            return ""
        sentence = f"`{function.name}` was left out: it {does} (dynamic parallelism); {_REMEDY}"
        if unit in code.kernels:
            self.kernels[function.name] = f"{where}: the kernel {sentence}"
            self.notes.append(self.kernels[function.name])
            return blank(file.text, file.tokens, [unit])
        alike = [one for one in code.functions if one != unit and _is_named(file, one, function.name)]
        declarations = [one for one in alike if _function(file, one) is None]
        text = "" if declarations else _deleted(file, unit, function)
        if not text and len(alike) > len(declarations):  # without its declaration, a call could silently resolve to another overload
            return ""
        self._functions[function.name] = does.rpartition("which ")[2]
        self.notes.append(f"{where}: the function {sentence}")
        return text or blank(file.text, file.tokens, [unit, *declarations])


def _deleted(file: SourceFile, unit: Unit, function: HostFunction) -> str:
    """Return the text of the file with a function's body replaced by `= delete;`; empty if the body holds directives or is too short."""
    if any(token.kind == "directive" for token in tokens_inside(file.tokens, unit)):
        return ""
    text = blank(file.text, file.tokens, [Unit(function.head_end, unit.end, "device")])
    room = _ROOM.search(text, function.head_end, unit.end)
    return f"{text[: room.start()]}{_DELETE}{text[room.end() :]}" if room else ""


def _function(file: SourceFile, unit: Unit) -> HostFunction | None:
    return Body([token for token in tokens_inside(file.tokens, unit) if token.kind != "directive"]).function()


def _is_instance(file: SourceFile, unit: Unit, name: str) -> bool:
    """Return whether a declaration is an explicit instantiation of a template of this name."""
    texts = [token.text for token in tokens_inside(file.tokens, unit)]
    return texts[:1] == ["template"] and texts[1:2] != ["<"] and name in texts


def _is_named(file: SourceFile, unit: Unit, name: str) -> bool:
    """Return whether a declaration declares or defines a function of this name."""
    function = _function(file, unit)
    if function is not None:
        return function.name == name
    tokens = tokens_inside(file.tokens, unit)
    return any(token.text == name and after.text == "(" for token, after in pairwise(tokens))


def _with_text(file: SourceFile, text: str) -> SourceFile:
    """Return the file with another text of the same length and with the same directives."""
    tokens = tokenize(text)
    index_at = {token.start: index for index, token in enumerate(tokens)}
    includes = {index_at[file.tokens[old].start]: name for old, name in file.includes.items() if file.tokens[old].start in index_at}
    return SourceFile(file.name, text, tokens, includes)
