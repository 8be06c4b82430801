"""Options that several commands share, declared once so that they read the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memlane.chip import AccessKind
from memlane.errors import CommandError

Input = Annotated[
    Path, typer.Argument(metavar="INPUT", help="A Python script that launches kernels through memlane, or a .cu or .ptx file.")
]
ScriptArguments = Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments of the script, behind `--`.")]
TargetName = Annotated[
    str, typer.Option("--target", "-t", help="Where to run: `cuda:0`, `emulator:h200`, ... Default: the first GPU, else the emulator.")
]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic",
        help="On the emulator: run every launch on one core, so that what depends on the order of blocks is the same each time. Launches "
        "that are traced, counted or checked always are.",
    ),
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite an output file that exists.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Where to write; default: named after the input, in the working directory.")
]
KernelName = Annotated[str, typer.Option("--kernel", "-k", help="Kernel to launch, for a .cu or .ptx file.")]
Grid = Annotated[str, typer.Option("--grid", help="Grid as X[,Y[,Z]].")]
BlockShape = Annotated[str, typer.Option("--block", help="Block as X[,Y[,Z]].")]
ClusterShape = Annotated[str, typer.Option("--cluster", help="Blocks of a cluster as X[,Y[,Z]], for a kernel that does not say so itself.")]
KernelArguments = Annotated[
    list[str],
    typer.Option(
        "--arg",
        metavar="SPEC",
        help="A kernel argument, in order: [NAME:]DTYPE[SHAPE][=zeros|arange|random:SEED|FILE.npy], for example "
        "in:f4[1024,1024]=random:7; a number as VALUE:DTYPE, for example 1024:i4.",
    ),
]
SharedBytes = Annotated[int, typer.Option("--shared", help="Dynamic shared memory per block, in bytes.")]
Define = Annotated[list[str], typer.Option("--define", "-D", metavar="NAME[=VALUE]", help="Define a macro.")]
Include = Annotated[list[Path], typer.Option("-I", "--include", metavar="DIR", help="Search a directory for headers.")]
Standard = Annotated[str, typer.Option("--std", help="C++ standard.")]
Arch = Annotated[str, typer.Option("--arch", help="Architecture to compile for; default: that of the target.")]
Instantiate = Annotated[list[str], typer.Option("--instantiate", metavar="NAME", help="Instantiate a template, for example 'red<256>'.")]
Checked = Annotated[bool, typer.Option("--check", help="On the emulator: check every launch too, and stop where something is found.")]
LaunchNumber = Annotated[
    int | None, typer.Option("--launch", metavar="N", help="Only the N-th launch of the script, from 0; default: all.")
]
TileRows = Annotated[int, typer.Option("--rows", help="Rows of the tile.")]
TileColumns = Annotated[int, typer.Option("--columns", help="Columns of the tile.")]
AccessKinds = Annotated[str, typer.Option("--access", help="`load`, `store` or `load,store`.")]


def access_kinds(text: str) -> list[AccessKind]:
    """What `--access` says. CommandError for anything else."""
    kinds: dict[str, list[AccessKind]] = {
        "load": ["load"],
        "store": ["store"],
        "load,store": ["load", "store"],
        "store,load": ["load", "store"],
    }
    found = kinds.get(text.replace(" ", ""))
    if found is None:
        raise CommandError(f"--access {text}: it is load, store or load,store")
    return found
