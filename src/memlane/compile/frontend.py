"""Compile a complete `.cu` file, with its `main`, its launches and its standard headers, to PTX."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from memlane.compile import hints, instantiations, libraries, macros, notes, nvrtc, nvrtc_headers, sources, standard, toolkit
from memlane.compile.declarations import Unit
from memlane.compile.device_launches import DeviceLaunches
from memlane.compile.dialect import in_standard_cxx, refused_tokens
from memlane.compile.hostcode import CONSTEXPR, DeviceCode, blank, cut, uncut, with_constexpr
from memlane.compile.sources import Program, SourceFile
from memlane.compile.tokens import tokenize
from memlane.errors import CompileError
from memlane.ptx import demangle
from memlane.titles import plain_name

SOURCE_SUFFIXES = (".cu", ".cuh", ".h", ".hpp")
_ENTRY = re.compile(r"^\s*(?:\.(?:visible|weak|extern)\s+)*\.entry\s+([\w$.]+)", re.MULTILINE)
_STAND_IN = re.compile(r'^[^\n]*: #warning directive: "memlane has no (?P<header>[^"\n]+)"\n[^\n]*\n\s*\^\n\n?', re.MULTILINE)
"""Pattern of the warning that our stand-in for a missing header emits."""
_FAILING_FILE = re.compile(r"^([^\n(]+)\(\d+\): error", re.MULTILINE)
_REMARK = re.compile(r"^Remark: The warnings can be suppressed with [^\n]*\n+", re.MULTILINE)


@dataclass(frozen=True)
class CompiledPtx:
    """The PTX of a program, with its sources and what was left out."""

    text: str = field(repr=False)
    """The PTX. Its `.file` directives use the names in `sources`."""
    sources: Mapping[str, str] = field(repr=False)
    """Name -> text of the program's files, the main file first, including their host code."""
    kernels: Mapping[str, str]
    """Name in the PTX -> name as the programmer wrote it, for example `void block_sum<float>(float*, float const*, int)`."""
    instantiated: Mapping[str, str] = field(default_factory=dict)
    """Each instantiation that was requested or that the host code launches -> the name of its kernel in the PTX."""
    log: str = field(default="", repr=False)
    """The compiler's warnings."""
    notes: tuple[str, ...] = ()
    """Sentences about omissions that matter to the user: headers that were not found, declarations that the compiler refused."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Name of each kernel that was left out because it launches kernels -> the sentence that says so."""


@dataclass(frozen=True)
class Options:
    """Compilation options; see `cuda_to_ptx`."""

    arch: str = "sm_90"
    std: str = "c++17"
    include: tuple[Path, ...] = ()
    define: tuple[str, ...] = ()
    instantiate: tuple[str, ...] = ()
    lineinfo: bool = True
    extra: tuple[str, ...] = ()
    relocatable: bool = False

    def flags(self) -> tuple[str, ...]:
        """Return the compiler's command line. Remaining host declarations (constants, `constexpr` functions) become device code."""
        return (
            f"-arch=compute_{toolkit.compute_capability(self.arch)}",
            f"-std={self.std}",
            *(["-lineinfo"] if self.lineinfo else []),
            *(["-rdc=true"] if self.relocatable else []),
            "-default-device",
            "-device-int128",
            f"--pre-include={standard.PRELUDE}",
            "-diag-suppress=47",  # "incompatible redefinition of macro": CCCL defines limits and INFINITY for NVRTC without asking
            "-diag-suppress=177",  # "declared but never referenced": the host code that refers to it has been cut
            *(f"-D{define}" for define in self.define),
            *(f"-I{directory}" for directory in (*self.include, *toolkit.include_directories())),
            *self.extra,
        )


def is_path(path_or_source: str | os.PathLike[str]) -> bool:
    """Return whether the argument is a file path rather than the text of a program."""
    if not isinstance(path_or_source, str):
        return True
    return "\n" not in path_or_source and path_or_source.endswith(SOURCE_SUFFIXES)


def cuda_to_ptx(
    path_or_source: str | os.PathLike[str],
    *,
    name: str | None = None,
    arch: str = "sm_90",
    std: str = "c++17",
    include: Sequence[str | os.PathLike[str]] = (),
    define: Sequence[str] = (),
    instantiate: Sequence[str] = (),
    lineinfo: bool = True,
    options: Sequence[str] = (),
    relocatable: bool = False,
    text: str | None = None,
) -> CompiledPtx:
    """Compile CUDA C++ to PTX. Neither a GPU nor a driver is needed.

    `path_or_source` is a path that ends in .cu, .cuh, .h or .hpp, or the text of a program. `name` is the program's name in messages and in
    the line table. `define` holds `NAME` or `NAME=VALUE`. `instantiate` names kernels with their template arguments, `"reduce<float,
    256>"`; kernels that the file itself launches need not be named if their arguments are known at file scope. `options` are passed to
    NVRTC unchanged. `relocatable` keeps functions and variables that no kernel of the file uses, for other modules, and needs no kernel.
    `text` is compiled in place of the program's own text, with the headers beside that program.

    Raises CompileError with the compiler's log, whose line numbers are those of the file, also if a quoted header or a directory of
    `include` is missing; and MissingDependency.
    """
    path = Path(path_or_source) if is_path(path_or_source) else None
    if path is not None:
        text, directory = sources.read(path) if text is None else text, path.parent
        name = name or sources.display(path)
    else:
        text, directory = str(path_or_source) if text is None else text, Path()
        name = name or "<cuda>"
    for entry in include:
        if not Path(entry).is_dir():
            raise CompileError(f"there is no directory {entry} to search for headers; correct -I (include=... in Python)")
    settings = Options(arch, std, tuple(map(Path, include)), tuple(define), tuple(instantiate), lineinfo, tuple(options), relocatable)
    program = sources.gather(name, text, directory, settings.include)
    compilation = _Compilation(program, settings, path)
    try:
        return compilation.run()
    except CompileError:
        if not compilation.asks_for_all_headers:
            raise
    return _Compilation(sources.gather(name, text, directory, settings.include, read_all=True), settings, path).run()


class _Compilation:
    """The compilation of one program, which cuts what the compiler refuses and tries again.

    Code that is certainly host code is cut first. A declaration that may be for either side (a constant, an alias, a struct) is cut only
    when the compiler refuses it. So is an instantiation that the host code launches with arguments that have no meaning at file scope.
    Where a header is missing, a device function that needs it is cut too: a kernel that calls the function then fails, and that error is
    reported.
    """

    def __init__(self, program: Program, options: Options, path: Path | None) -> None:
        """Prepare the program. `path` is that of the main file; None if the program is text."""
        self.program, self.path = program, path
        self.sources = {file.name: file.text for file in program.files}
        self.device_launches = DeviceLaunches()
        self.options = options
        library_macros = nvrtc_headers.macros_of(program.whole, options.include)
        self.macros = macros.collect([*(file.tokens for file in program.files), library_macros], options.define)
        self.code: dict[str, DeviceCode] = {}
        pieces: set[str] = set()
        for file in program.files:
            code = cut(file.text, file.tokens, self.macros) if file.name not in pieces else uncut(file.text)
            self.code[file.name] = code
            pieces |= {file.includes[index] for index in code.inner_includes if index in file.includes}
        self.removed: dict[str, list[Unit]] = {file.name: [] for file in program.files}
        self.launches = [e for code in self.code.values() for e in code.launches if _plain(e) not in map(_plain, options.instantiate)]
        self.refusals: list[str] = []
        self.dropped: list[str] = []
        self.absent: tuple[str, ...] = ()
        self.asked_host = False
        self.constexpr = False
        self.asks_for_all_headers = False
        self.host: instantiations.Launched | None = None
        self.raised: tuple[str, ...] = ()
        self.unnamed_log = ""

    def run(self) -> CompiledPtx:
        """Compile until the compiler reports no error. Raises CompileError if it does and nothing is left to cut."""
        if instantiations.undecided(self.program.files, self.code):
            self._ask_host_code()
        while True:
            answer = self._without_stand_ins(nvrtc.compile_request(self._request(device := self._device_texts(), device)))
            if answer.ptx:
                return self._result(self._with_unnamed(answer, device))
            if self._raise_standard(answer.log):
                continue
            self.asks_for_all_headers = self._fails_in_library(answer.log)
            if told := hints.missing_header(answer.log, self.path):
                has_kernels = any(code.kernels or code.is_piece for code in self.code.values())
                elsewhere = f"{self.program.files[0].name} has no kernel of its own{hints.elsewhere(self.path)}"
                raise CompileError(told, "" if has_kernels else elsewhere)
            if self._replace_libraries(answer.log) or self._leave_out_device_launches(answer.log) or self._leave_out_tokens(answer.log):
                continue
            # A declaration that does not compile may hide the kernels behind it. One that fails for the arguments of a launch need not go.
            if (
                not self._remove_refused(answer.log, in_instantiations=False)
                and not self._drop_launches(answer.log)
                and not self._remove_refused(answer.log)
            ):
                raise self._refusal(answer.log)

    def _raise_standard(self, log: str) -> bool:
        """Compile as C++20 from here on if the compiler refuses a line because of what C++20 adds; return whether it does.

        The program's build passes that standard to nvcc.
        """
        errors = nvrtc.errors(log) if self.options.std in standard.BEFORE_CXX20 else ()
        found = next((error for error in errors if error.file in self.sources and standard.asks_for_cxx20(error.source)), None)
        if found is not None:
            self.raised = (f"{found.file}:{found.line} is C++20, so the program was compiled with --std c++20 and not {self.options.std}",)
            self.options = replace(self.options, std="c++20")
        return found is not None

    def _fails_in_library(self, log: str) -> bool:
        """Return whether the compiler refuses a header that was passed to it unchanged, independently of the program's instantiations."""
        own = [error for error in nvrtc.errors(log) if error.file not in self.sources and "detected during" not in error.message]
        return any(nvrtc_headers.is_left_whole(Path(error.file), self.options.include) for error in own)

    def _replace_libraries(self, log: str) -> bool:
        """Replace CUDA's host library headers that do not compile (a wheel of another version) by stand-ins; return whether any were."""
        if not (there := [name for name in self.program.library if libraries.is_for_host(name)]) or not any(
            libraries.is_for_host(Path(found).name) for found in _FAILING_FILE.findall(log)
        ):
            return False
        others = tuple(name for name in self.program.library if name not in there)
        self.program = replace(self.program, absent=(*self.program.absent, *there), library=others)
        return True

    def _leave_out_device_launches(self, log: str) -> bool:
        """Leave out kernels that launch kernels, and functions that do; return whether the log led to any."""
        if not (changed := self.device_launches.cut(log, self.program.files, self.code)):
            return False
        self.program = replace(self.program, files=tuple(changed.get(file.name, file) for file in self.program.files))
        self.code |= {name: cut(file.text, file.tokens, self.macros) for name, file in changed.items()}
        self.launches = [launch for launch in self.launches if plain_name(launch) not in self.device_launches.kernels]
        if self.asked_host:
            self._ask_host_code()
        return True

    def _leave_out_tokens(self, log: str) -> bool:
        """Leave out words that nvcc ignores where the compiler refuses them; return whether there were any."""
        found = {(name, Unit(token.start, token.end, "either")) for name, token in refused_tokens(self.program.files, log)}
        fresh = [(name, unit) for name, unit in found if unit not in self.removed[name]]
        for name, unit in fresh:
            self.removed[name].append(unit)
        return bool(fresh)

    def _ask_host_code(self) -> None:
        """Add the instantiations that only compiling the host code reveals. Runs once; adds nothing if it fails."""
        self.asked_host = True
        device, logs = self._device_texts(), [""]

        def compiler(texts: Mapping[str, str]) -> nvrtc.Answer:
            request = self._host_request(texts, device)
            # Unoptimised code (-G) compiles faster. Relocatable code would make NVRTC declare the runtime functions that host code calls.
            options = (*(option for option in request.options if option not in ("-lineinfo", "-rdc=true")), "-G")
            logs.append((answer := nvrtc.compile_request(replace(request, options=options, expressions=()))).log)
            return answer

        known = {_plain(launch) for launch in (*self.options.instantiate, *self.launches, *self.dropped)}
        self.host = instantiations.launched(self.program.files, self.code, self.macros.device, compiler)
        if self._raise_standard("\n\n".join(logs)):
            return self._ask_host_code()
        if self.host is None and self._leave_out_device_launches(logs[-1]):
            return None
        if self.host:
            self.launches += [launch for launch in self.host.kernels if _plain(launch) not in known]

    def _host_request(self, texts: Mapping[str, str], device: Mapping[str, str]) -> nvrtc.Request:
        """Return the compiler request for texts that include host code; `device` holds the texts without it."""
        request = self._request(texts, device)
        host = standard.host_containers(texts.values(), standard.names_in_thrust(device.values()), self.program.absent)
        headers = tuple((name, text + host if name == standard.PRELUDE else text) for name, text in request.headers)
        return replace(request, headers=headers)

    def _with_unnamed(self, answer: nvrtc.Answer, device: Mapping[str, str]) -> nvrtc.Answer:
        """Return the answer, extended by kernels that host code instantiates with its lambdas; those cannot be requested by name."""
        if self.host is None or not self.host.unnamed:
            return answer
        again = nvrtc.compile_request(self._host_request(self.host.texts, device))
        self.unnamed_log = again.log if not again.ptx else ""
        return replace(again, ptx=instantiations.kernels_alone(again.ptx, answer.ptx)) if again.ptx else answer

    def _device_texts(self) -> dict[str, str]:
        return {file.name: self._device_text(file) for file in self.program.files}

    def _request(self, texts: Mapping[str, str], device: Mapping[str, str]) -> nvrtc.Request:
        """Return the compiler request for `texts`; `device` holds the texts without host code, which decide which libraries are needed."""
        tokens = [tokenize(text) for text in texts.values()]
        types = standard.global_names(tokens) - {define.partition("=")[0] for define in self.options.define}
        thrust = standard.names_in_thrust(device.values())
        names = standard.names_in_std(tokens) | standard.needed_by_thrust(thrust)
        prelude = standard.prelude(names, types, limits=bool(self.program.absent))
        headers = {standard.PRELUDE: f"#define {CONSTEXPR} constexpr\n{prelude}", **standard.stand_ins()}
        headers |= standard.library_stand_ins(self.program.library, thrust)
        headers |= {header: f'#warning "memlane has no {header}"\n{libraries.stand_in(header)}' for header in self.program.absent}
        main = self.program.files[0]
        headers |= {file.name: texts[file.name] for file in self.program.files[1:]}
        expressions = (*self.options.instantiate, *self.launches)
        flags = self.options.flags()
        if self.options.std in standard.BEFORE_CXX20 and standard.has_designators(tokens):
            flags = replace(self.options, std="c++20").flags()
        return nvrtc.Request(main.name, texts[main.name], tuple(headers.items()), flags, expressions)

    def _device_text(self, file: SourceFile) -> str:
        text = self.code[file.name].text
        if self.constexpr:
            text = with_constexpr(text, self.code[file.name].removable)
        if self.removed[file.name]:
            text = blank(text, file.tokens, self.removed[file.name])
        return in_standard_cxx(sources.with_includes(file, text), self.macros.device)

    def _drop_launches(self, log: str) -> bool:
        """Drop the launches of the host code whose kernels the compiler refuses to instantiate; return whether there were any."""
        refused = {*map(_plain, nvrtc.refused_expressions(log))}
        dropped = [launch for launch in self.launches if _plain(launch) in refused]
        self.launches = [launch for launch in self.launches if launch not in dropped]
        self.dropped += dropped
        if dropped and not self.asked_host:
            self._ask_host_code()
        return bool(dropped)

    def _remove_refused(self, log: str, in_instantiations: bool = True) -> bool:
        """Cut the smallest removable declarations in which the compiler found errors; return whether there were any."""
        if not self.constexpr and "dynamic initialization is not supported" in log:
            self.constexpr = True
            return True
        chosen: dict[tuple[str, Unit], str] = {}
        for error in nvrtc.errors(log):
            if not in_instantiations and "detected during" in error.message:
                continue
            file = next((file for file in self.program.files if file.name == error.file), None)
            unit = self._removable(file, error) if file else None
            if file is not None and unit is not None:
                chosen.setdefault((file.name, unit), error.message)
        for name, unit in chosen:
            self.removed[name].append(unit)
        self.refusals += chosen.values()
        return bool(chosen)

    def _removable(self, file: SourceFile, error: nvrtc.Diagnostic) -> Unit | None:
        start, end = error.place(file.text)
        code = self.code[file.name]
        units = (*code.removable, *code.functions) if self.absent else code.removable
        candidates = [unit for unit in units if unit.start < end and unit.end > start and unit not in self.removed[file.name]]
        return min(candidates, key=lambda unit: unit.end - unit.start, default=None)

    def _refusal(self, log: str) -> CompileError:
        name = self.program.files[0].name
        refused = {*map(_plain, nvrtc.refused_expressions(log))}
        asked = [expression for expression in self.options.instantiate if _plain(expression) in refused]
        parts = [nvrtc.without_warnings(log).rstrip()]
        parts += self.device_launches.notes
        if self.refusals:
            parts += ["Before that, these declarations were left out because they did not compile:", *notes.few(self.refusals)]
        parts += self._absent_headers()
        parts += hints.hints(log, self.program.files, self.path, self.options.define, self.refusals)
        message = f"{name} cannot instantiate {', '.join(asked)}" if asked else f"{name} does not compile"
        return CompileError(message, "\n".join(parts))

    def _without_stand_ins(self, answer: nvrtc.Answer) -> nvrtc.Answer:
        """Return the answer without warnings of stand-ins. Store the headers they stand for, which the compiler included, in `absent`."""
        self.absent = tuple(dict.fromkeys(found["header"] for found in _STAND_IN.finditer(answer.log)))
        if not self.absent:
            return answer
        log = _STAND_IN.sub("", answer.log)
        return replace(answer, log=log if ": warning" in log else _REMARK.sub("", log))

    def _absent_headers(self) -> list[str]:
        return [f"Header not found: {header}; {hints.remedy_for_header(header, self.path)}" for header in self.absent]

    def _result(self, answer: nvrtc.Answer) -> CompiledPtx:
        kernels = kernel_names(answer.ptx)
        if not kernels and not self.options.relocatable:
            if log := self.device_launches.log or self.unnamed_log:
                raise self._refusal(log)
            lost = notes.of_lost_launches(self.host.lost) if self.host else []
            followed = not lost and (self.host is not None or not (self.asked_host or self.dropped))
            main = self.program.files[0].name
            if skipped := hints.skipped_kernels(self.program.files, self.path, self.options.define):
                raise CompileError(f"{main} has no kernel", "\n".join(skipped))
            hint = notes.of_templates_alone({name: code.templates for name, code in self.code.items()}, main, followed)
            reasons = (*self._absent_headers(), *lost, *hints.textures(self.program.files), *hints.of_pieces(self.path))
            raise CompileError(f"{main} has no kernel{hint or hints.elsewhere(self.path)}", "\n".join(reasons) if hint else "")
        told = [*self.raised, *notes.of_headers(self.absent), *self.device_launches.notes, *notes.of_refusals(self.refusals)]
        told += notes.of_lost_launches(self.host.lost) if self.host else notes.of_dropped_launches(self.dropped)
        told += notes.of_lambdas(nvrtc.errors(self.unnamed_log))
        titles = [demangle(kernel) for kernel in kernels]
        unused = [name for code in self.code.values() for name in code.templates if not any(f"{name}<" in title for title in titles)]
        return CompiledPtx(
            text=sources.with_short_names(answer.ptx, self.sources),
            sources=self.sources | nvrtc_headers.texts(sources.file_names(answer.ptx), self.options.include),
            kernels=dict(zip(kernels, titles, strict=True)),
            instantiated=dict(answer.lowered),
            log=answer.log,
            notes=(*told, *notes.of_templates(unused)),
            left_out={**notes.of_templates_by_name(unused), **self.device_launches.kernels},
        )


def kernel_names(ptx: str) -> list[str]:
    """Return the names of the kernels in PTX text, in order."""
    return _ENTRY.findall(ptx)


def _plain(expression: str) -> str:
    return "".join(expression.split())
