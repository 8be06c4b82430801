"""Run the program of a command: a script that launches kernels itself, or one kernel of a .cu or .ptx file."""

from __future__ import annotations

import builtins
import gc
import io
import shlex
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TextIO

from memlane.cli.failure import Failure, failure_of, failure_of_script, message, unseen_launches
from memlane.cli.later import later
from memlane.cli.notes import compile_notes
from memlane.cli.output import wrong_use
from memlane.errors import CommandError, MemlaneError
from memlane.number_format import plural

if TYPE_CHECKING:
    from memlane import compile as front_ends
    from memlane import launch as launching
    from memlane import record, targets
    from memlane.cli import arguments, launch_example, specs
    from memlane.launch import LoadedModule, Observer, Target
    from memlane.ptx import Module
else:
    arguments = later("memlane.cli.arguments")
    front_ends = later("memlane.compile")
    launch_example = later("memlane.cli.launch_example")
    launching = later("memlane.launch")
    record = later("memlane.record")
    specs = later("memlane.cli.specs")
    targets = later("memlane.targets")

SOURCE_SUFFIXES = (".cu", ".cuh", ".ptx")
_ASSEMBLED = (b"\x7fELF", b"\x50\xed\x55\xba")
"""Magic numbers of ELF files (cubins and executables) and of fat binaries."""
_SOON_S = 0.05
"""Seconds to wait for a thread; one that takes longer may be waiting for something."""
OLDEST_COMPILED = (7, 5)
"""Lowest compute capability that the compiler supports. Older chips are emulated with code for this one."""


@dataclass(frozen=True)
class CompileOptions:
    """Options for compiling a .cu file."""

    define: Sequence[str] = ()
    include: Sequence[Path] = ()
    std: str = "c++17"
    arch: str = ""
    instantiate: Sequence[str] = ()
    link: Sequence[Path] = ()


@dataclass(frozen=True)
class LaunchOptions:
    """The launch of a .cu or .ptx file, as given on the command line."""

    kernel: str = ""
    grid: str = ""
    block: str = ""
    arguments: Sequence[str] = ()
    shared_bytes: int = 0
    cluster: str = ""


@dataclass(frozen=True)
class Program:
    """The program to run: a script with its arguments, or a .cu or .ptx file with options to compile and launch it."""

    path: Path
    arguments: Sequence[str] = ()
    compile: CompileOptions = CompileOptions()
    launch: LaunchOptions = LaunchOptions()
    patience: int = 0
    """Number of loop budgets without progress after which an emulator ends a launch as endless; 0 for the default."""

    @property
    def is_record(self) -> bool:
        """Return whether the path is a record file, or has the suffix of one."""
        return self.path.suffix == ".parquet" or (self.path.is_file() and record.is_record(self.path))

    @property
    def is_script(self) -> bool:
        return self.path.suffix not in SOURCE_SUFFIXES

    @property
    def launch_words(self) -> str:
        """Return the compilation and launch options as typed on the command line."""
        words = [f"--{name}={value}" for name in ("define", "include", "instantiate", "link") for value in getattr(self.compile, name)]
        words += [
            f"--{name}={value}" for name in ("std", "arch") if (value := getattr(self.compile, name)) != getattr(CompileOptions, name)
        ]
        words += [f"--{name}={getattr(self.launch, name)}" for name in ("kernel", "grid", "block", "cluster") if getattr(self.launch, name)]
        words += [f"--arg={one}" for one in self.launch.arguments]
        words += [f"--shared={self.launch.shared_bytes}"] if self.launch.shared_bytes else []
        words += ["--", *self.arguments] if self.arguments else []
        return "".join(f" {shlex.quote(one)}" for one in words) if not self.is_record else ""

    def without_kernel(self) -> Program:
        """Return a script without its kernel name, which selects findings for a script and not the kernel to launch."""
        return replace(self, launch=replace(self.launch, kernel="")) if self.is_script else self

    def refuse_options(self, **others: object) -> None:
        """Raise CommandError for options that do not apply to a record file: those of launches, and `others` by name."""
        given = [one for one in self._given() if one != "--kernel"]
        given += [f"--{name}" for name, value in {"patience": self.patience, **others}.items() if value]
        if self.arguments:
            given.append(" ".join(["--", *self.arguments]))
        if given:
            raise CommandError(f"{given[0]} is for programs; {self.path} is a record file of a program that has already run")

    def _given(self) -> Iterator[str]:
        """Yield the names of the launch and compilation options that were given."""
        without = {**vars(CompileOptions()), **vars(LaunchOptions())}
        for name, value in {**vars(self.compile), **vars(self.launch)}.items():
            if value and value != without[name]:
                yield _OPTION.get(name, f"--{name}")

    def check(self) -> None:
        """Raise CommandError if the file does not exist, holds assembled code, or is not a program."""
        if not self.path.is_file():
            raise CommandError(f"{self.path} is a directory; name a file" if self.path.is_dir() else f"no file {self.path}")
        for linked in self.compile.link:
            if not linked.is_file():
                raise CommandError(f"{linked} is a directory; name a file" if linked.is_dir() else f"no file {linked}")
        with self.path.open("rb") as stream:
            start = stream.read(4096)
        if start[:4] in _ASSEMBLED:
            raise CommandError(
                f"{self.path} holds assembled code (SASS), and memlane needs PTX: name the .cu file, or the .ptx file "
                f"that `nvcc -ptx -lineinfo` or `cuobjdump -xptx all` writes. A file with SASS alone cannot be traced "
                f"or counted"
            )
        if record.is_record(self.path):
            raise CommandError(f"{self.path} is a record file, not a program: name the script, .cu or .ptx file that it was recorded from")
        if self.path.suffix not in SOURCE_SUFFIXES and b"\0" in start:
            raise CommandError(f"{self.path} is not a text file; name a Python script, or a .cu or .ptx file")
        if self.path.suffix.lower() in _CPP:
            raise CommandError(
                f"{self.path} is not compiled as CUDA C++, because its name does not end in .cu or .cuh; "
                f"copy it to {self.path.with_suffix('.cu')}"
            )
        if self.path.suffix.lower() in _NO_PROGRAM:
            raise CommandError(f"{self.path} is not a program; name a Python script, or a .cu or .ptx file")

    def run(self, target_name: str, observer: Observer, deterministic: bool = False) -> Failure | None:
        """Run the program with every launch under `observer`, on single-core emulators if `deterministic`; return its failure, None if it
        completed.

        Raises CommandError, before anything is launched, for errors that `check` finds and for options that do not apply.
        """
        self.check()
        with targets.override(None, everywhere=True, patience=self.patience), compile_notes():
            return self._run(target_name, observer, deterministic)

    def _run(self, target_name: str, observer: Observer, deterministic: bool) -> Failure | None:
        if self.path.suffix in SOURCE_SUFFIXES:
            if self.arguments:
                raise CommandError(
                    f"{self.path} is not a script: give the arguments of its kernel with --arg, not {' '.join(self.arguments)!r}"
                )
            return run_kernel(self.path, self.compile, self.launch, target_name, observer, deterministic)
        for option in self._given():
            raise CommandError(f"{option} is for .cu and .ptx files; {self.path} is a Python script, which launches its kernels itself")
        return run_script(self.path, self.arguments, target_name, observer, deterministic)


def nothing_launched(program: Program, seen: int, any_taken: bool, launch: int | None, verb: str) -> Failure | None:
    """Return the failure of a program without any launch, or without launch number `launch`; `verb` is the command's action, `count`."""
    if not seen:
        text = f"{program.path} launched no kernel through memlane, so there is nothing to {verb}"
        return failure_of(CommandError(f"{text}{unseen_launches(sys.modules)}", exit_code=1))
    if not any_taken:
        made = "one launch, number 0" if seen == 1 else f"{plural(seen, 'launch')}, numbered from 0"
        return failure_of(CommandError(f"{program.path} made {made}; there is no launch {launch}", exit_code=1))
    return None


_CPP = {".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp"}
_NO_PROGRAM = {".csv", ".html", ".ipynb", ".json", ".ll", ".log", ".md", ".npy", ".npz", ".rst", ".svg", ".toml", ".txt", ".yaml", ".yml"}
"""Suffixes of files that users name by mistake. Any other file, even without a suffix, is treated as a Python script."""
_OPTION = {"arguments": "--arg", "shared_bytes": "--shared", "include": "-I"}
"""Options whose name differs from that of their field."""


def load_source(path: Path, options: CompileOptions, default_arch: str) -> Module:
    """Return the module in a .cu or .ptx file, linked with the files of `--link`."""
    if options.link:
        return front_ends.link(
            *(path, *options.link),
            arch=options.arch or default_arch,
            std=options.std,
            include=tuple(map(str, options.include)),
            define=tuple(options.define),
            instantiate=tuple(options.instantiate),
        )
    if path.suffix == ".ptx":
        return _parsed(path)
    return front_ends.cuda(
        path,
        arch=options.arch or default_arch,
        std=options.std,
        include=tuple(map(str, options.include)),
        define=tuple(options.define),
        instantiate=tuple(options.instantiate),
    )


def _parsed(path: Path) -> Module:
    try:
        return front_ends.ptx_module(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError:
        raise CommandError(f"{path} is not a text file, so it cannot be PTX") from None


def arch_of(target: Target) -> str:
    """Return the architecture to compile for: `sm_90` for compute capability 9.0."""
    major, minor = target.chip.compute_capability
    if target.modelled:
        major, minor = max((major, minor), OLDEST_COMPILED)
    return f"sm_{major}{minor}"


def run_kernel(
    path: Path, compile_options: CompileOptions, options: LaunchOptions, target_name: str, observer: Observer, deterministic: bool = False
) -> Failure | None:
    """Launch one kernel of a .cu or .ptx file under `observer`, and return the failure of the launch; None if it completed.

    Raises CommandError for wrong launch options.
    """
    with wrong_use():
        where = targets.target(target_name or None, deterministic=deterministic)
    loaded = where.load(load_source(path, compile_options, arch_of(where)))
    with wrong_use():
        kernel = loaded[options.kernel or _only_kernel(path, loaded)]
        if not (options.grid or options.block or options.arguments):
            example = launch_example.launch_example(kernel)
            reason = "" if path.suffix == ".ptx" else ", because memlane does not run the host code of a .cu file"
            raise CommandError(f"{path}: give a launch of {kernel.title.removeprefix('void ')}{reason}; for example: {example}")
        grid, block = specs.parse_extent("--grid", options.grid), specs.parse_extent("--block", options.block)
        cluster = specs.parse_extent("--cluster", options.cluster) if options.cluster else None
        given = [specs.parse_argument(text) for text in options.arguments]
        arguments.check_arguments(kernel, given)
        values = [one.on(where) for one in given]
        call = kernel[grid, block, None, options.shared_bytes, cluster]
        call.bind(*values)  # raises here if the arguments do not fit; later errors are not errors of the command line
    try:
        with launching.observing(observer):
            call(*values)
            where.sync()
    except (MemlaneError, KeyboardInterrupt) as error:
        return failure_of(error)
    return None


def _only_kernel(path: Path, loaded: LoadedModule) -> str:
    """Return the name of the file's only kernel. Raises CommandError if it has none or several."""
    if len(loaded) == 1:
        return next(iter(loaded))
    if not loaded:
        raise CommandError(f"{path} has no kernel")
    raise CommandError(f"{path} has several kernels: {launching.listed_kernels(loaded.module)}; choose one with --kernel")


def run_script(path: Path, arguments: Sequence[str], target_name: str, observer: Observer, deterministic: bool = False) -> Failure | None:
    """Run a Python script as `python path arguments...` would, with every launch under `observer`.

    Returns its failure (an exception, an exit code other than 0, or Ctrl-C); None if it completed.
    """
    file = str(path.absolute())  # absolute, as in Python: a script that changes the working directory may still open files beside it
    try:
        with (
            _as_main(path, file, arguments),
            targets.override(target_name or None, everywhere=True, deterministic=deterministic),
            launching.observing(observer, everywhere=True),
        ):
            _execute(file)
            _join_threads()
    except BaseException as error:  # a script may raise anything, and some errors of libraries do not derive from Exception
        return failure_of_script(path, file, error)
    return None


def _execute(file: str) -> None:
    """Run the code of a file in the current `__main__` module. `runpy` would replace the name that the user typed by the file's path."""
    with io.open_code(file) as stream:
        code = compile(stream.read(), file, "exec", dont_inherit=True)
    exec(code, sys.modules["__main__"].__dict__)


@contextmanager
def _as_main(path: Path, file: str, arguments: Sequence[str]) -> Iterator[None]:
    """Set up `sys` and `__main__` inside the `with` block as Python does to run a script, and restore them afterwards.

    The report then goes to the command's own output. A MemlaneError that ends a thread prints one message, as one that ends the script
    does.
    """
    before = sys.argv, list(sys.path), sys.stdout, sys.stderr, threading.excepthook

    def of_thread(ended: threading.ExceptHookArgs) -> None:
        failure = failure_of_script(path, file, ended.exc_value) if isinstance(ended.exc_value, MemlaneError) else None
        if failure is None:
            before[-1](ended)
        else:
            print(message(failure.error), file=sys.stderr)

    main, module = sys.modules["__main__"], ModuleType("__main__")
    module.__dict__.update(__file__=file, __cached__=None, __builtins__=builtins)
    sys.argv, sys.modules["__main__"], threading.excepthook = [str(path), *arguments], module, of_thread
    sys.path.insert(0, str(path.resolve().parent))
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        sys.argv, sys.path[:], out, err, threading.excepthook = before
        sys.stdout, sys.stderr = _reopened(out, 2 if out is err else 1), _reopened(err, 2)


def _reopened(stream: TextIO, descriptor: int) -> TextIO:
    """Return the stream; if the script closed it, a new one for the same file descriptor, which Python leaves open."""
    if stream is None or not stream.closed:
        return stream
    return open(descriptor, "w", encoding=stream.encoding, errors="replace", closefd=False)


def _join_threads() -> None:
    """Wait for threads that the script left running, as Python does at exit; shut down executors, because their threads wait for work."""
    for thread in _running():
        thread.join(_SOON_S)
    if _running():
        for executor in [one for one in gc.get_objects() if issubclass(type(one), Executor)]:
            executor.shutdown()
    while running := _running():
        running[0].join()


def _running() -> list[threading.Thread]:
    """Return the other threads that keep the process alive."""
    return [one for one in threading.enumerate() if one is not threading.current_thread() and not one.daemon]
