"""Define the options shared by commands that run a program: what to compile and launch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_args

from typer.models import ArgumentInfo

from memlane.cli import options as o
from memlane.cli.programs import CompileOptions, LaunchOptions, Program


def _program(
    source: o.Input,
    arguments: o.ScriptArguments = None,
    kernel: o.KernelName = "",
    grid: o.Grid = "",
    block: o.BlockShape = "",
    arg: o.KernelArguments = [],
    shared: o.SharedBytes = 0,
    cluster: o.ClusterShape = "",
    define: o.Define = [],
    include: o.Include = [],
    std: o.Standard = "c++17",
    arch: o.Arch = "",
    instantiate: o.Instantiate = [],
    link: o.Link = [],
    patience: o.Patience = None,
) -> Program:
    launch = LaunchOptions(kernel, grid, block, arg, shared, cluster)
    return Program(source, arguments or (), CompileOptions(define, include, std, arch, instantiate, link), launch, patience or 0)


def runs_program_or_file(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command like `runs_program`, but also accept a record file in place of a program."""
    return runs_program(command, o.InputOrRecord)


def runs_program(command: Callable[..., None], source: Any = o.Input) -> Callable[..., None]:
    """Return the command with the options that describe a program in place of its first parameter, a `Program`.

    Its positional arguments come before those of the program; its other options follow them.
    """
    shared = dict(inspect.signature(_program, eval_str=True).parameters)
    shared["source"] = shared["source"].replace(annotation=source)
    _, *own = inspect.signature(command, eval_str=True).parameters.values()

    def run(**options: Any) -> None:
        program = _program(**{name: options.pop(name) for name in (*shared, "patience")})
        command(program, **options)

    before = [one for one in own if any(isinstance(note, ArgumentInfo) for note in get_args(one.annotation))]
    last = shared.pop("patience")  # after the command's own options for where it runs
    everything = [*before, *shared.values(), *(one for one in own if one not in before), last]
    run.__signature__ = inspect.Signature(everything)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in everything}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run
