"""Define options that several commands share, so that their wording is the same everywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memlane.cli.later import later
from memlane.errors import CommandError

if TYPE_CHECKING:
    from memlane import chip as chips
    from memlane.chip import AccessKind
else:
    chips = later("memlane.chip")

KERNEL = "Launch of a .cu or .ptx file"
COMPILE = "Compilation of a .cu file"
WHAT = "What to observe"
RUN = "Where and how to run"
RESULT = "Result"
"""Headings of option groups in a help, in this order; groups of single commands come before the last one."""


def one_of(*words: str) -> Callable[[str], list[str]]:
    """Return a shell completion function for one of `words`."""

    def completed(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return completed


def chip_names(incomplete: str) -> list[str]:
    """Return the chip names that begin with `incomplete`, for shell completion."""
    return one_of(*chips.names())(incomplete)


def target_names(incomplete: str) -> list[str]:
    """Return the target names that begin with `incomplete`, for shell completion."""
    return one_of("cuda", "cuda:0", "emulator", *(f"emulator:{name}" for name in chips.names()))(incomplete)


TARGETS_HELP = "cuda:0, emulator:h200, ... Default: $MEMLANE_TARGET, else the first GPU, else the emulator."
LAYOUT_FUNCTION = "place"
"""Name of the function in which a command prints a layout."""

Input = Annotated[
    Path, typer.Argument(metavar="INPUT", help="A Python script that launches kernels through memlane, or a .cu or .ptx file.")
]
InputOrRecord = Annotated[
    Path,
    typer.Argument(
        metavar="INPUT",
        help="A Python script that launches kernels through memlane, a .cu or .ptx file, or a record file written by `memlane trace`.",
    ),
]
ScriptArguments = Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments of the script, after `--`.")]
RecordFile = Annotated[Path, typer.Argument(metavar="FILE", help="A record file written by `memlane trace`.")]
TargetName = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        metavar="NAME",
        autocompletion=target_names,
        help=f"Where to run: {TARGETS_HELP}",
        rich_help_panel=RUN,
    ),
]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic",
        help=(
            "On the emulator: run every launch on one core, so that results that depend on block order are the same in every run. "
            "Traced, counted and checked launches always run that way."
        ),
        rich_help_panel=RUN,
    ),
]
Patience = Annotated[
    int | None,
    typer.Option(
        "--patience",
        metavar="TURNS",
        min=1,
        help="On the emulator: stop a launch as endless after this many loop iterations without progress; default: 65536.",
        rich_help_panel=RUN,
    ),
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite an output file that exists.", rich_help_panel=RESULT)]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Where to write; default: named after the input, in the working directory.",
        rich_help_panel=RESULT,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.", rich_help_panel=RESULT)]
KernelName = Annotated[
    str,
    typer.Option(
        "--kernel", "-k", metavar="NAME", help="The kernel, for example 'red<256>'; default: the only one.", rich_help_panel=KERNEL
    ),
]
Grid = Annotated[str, typer.Option("--grid", metavar="X[,Y[,Z]]", help="Blocks in the grid.", rich_help_panel=KERNEL)]
BlockShape = Annotated[str, typer.Option("--block", metavar="X[,Y[,Z]]", help="Threads per block.", rich_help_panel=KERNEL)]
ClusterShape = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="X[,Y[,Z]]",
        help="Blocks per cluster, for a kernel that does not declare its cluster size.",
        rich_help_panel=KERNEL,
    ),
]
KernelArguments = Annotated[
    list[str],
    typer.Option(
        "--arg",
        metavar="SPEC",
        help=(
            "The next argument of the kernel. An array: [NAME:]DTYPE[SHAPE][=FILL], for example f4[1024] or in:f4[1024,1024]=random:7. "
            "FILL: zeros, arange, FILE.npy, or random:SEED (drawn by numpy.random.default_rng(SEED): floats from 0 to 1, integers from 0 "
            "to 255). A number: VALUE:DTYPE, for example 1024:i4. A structure: its members in braces, for example "
            "'{f4[1024]=arange, 1024:i4}'. A texture: 'texture(f4[64,64]=random:7, filter=linear)'."
        ),
        rich_help_panel=KERNEL,
    ),
]
SharedBytes = Annotated[
    int, typer.Option("--shared", metavar="BYTES", help="Bytes of dynamic shared memory per block.", rich_help_panel=KERNEL)
]
Define = Annotated[list[str], typer.Option("--define", "-D", metavar="NAME[=VALUE]", help="Define a macro.", rich_help_panel=COMPILE)]
Include = Annotated[
    list[Path], typer.Option("-I", "--include", metavar="DIR", help="Search a directory for headers.", rich_help_panel=COMPILE)
]
Standard = Annotated[str, typer.Option("--std", metavar="NAME", help="C++ standard.", rich_help_panel=COMPILE)]
Arch = Annotated[
    str,
    typer.Option("--arch", metavar="NAME", help="Architecture, for example sm_90; default: that of the target.", rich_help_panel=COMPILE),
]
Instantiate = Annotated[
    list[str],
    typer.Option("--instantiate", metavar="NAME", help="Instantiate a template, for example 'red<256>'.", rich_help_panel=COMPILE),
]
Link = Annotated[
    list[Path],
    typer.Option(
        "--link",
        metavar="FILE",
        help=(
            "Link another .cu or .ptx file that defines functions or variables of the kernel. For a GPU, it may also be assembled code "
            "from nvcc -rdc=true."
        ),
        rich_help_panel=COMPILE,
    ),
]
Checked = Annotated[
    bool,
    typer.Option("--check", help="On the emulator: also check every launch, and stop at the first finding.", rich_help_panel=RUN),
]
WithCounts = Annotated[
    bool,
    typer.Option(
        "--counts",
        help=(
            "On a GPU: count the transactions of every launch, even if the memory it writes cannot be restored. Such a "
            "launch then writes its results twice."
        ),
        rich_help_panel=RUN,
    ),
]
LaunchNumber = Annotated[
    int | None,
    typer.Option("--launch", metavar="N", min=0, help="Only the N-th launch of the script, from 0; default: all.", rich_help_panel=WHAT),
]
TileRows = Annotated[int, typer.Option("--rows", metavar="N", help="Rows of the tile.")]
TileColumns = Annotated[int, typer.Option("--columns", metavar="N", help="Columns of the tile.")]
AccessKinds = Annotated[
    str, typer.Option("--access", metavar="KINDS", help="load, store or load,store.", autocompletion=one_of("load", "store", "load,store"))
]


def kernel_pairs(texts: Sequence[str]) -> dict[str, str] | None:
    """Return pairs of kernel names, first file -> second file, from texts such as `naive=tiled`; None without texts.

    Raises CommandError for a text that is not a pair.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        one, _, other = text.partition("=")
        if not one or (not other and "=" in text):
            raise CommandError(f"--kernel {text}: pair the name in the first file with the name in the second, as in naive=tiled")
        pairs[one] = other or one
    return pairs or None


def access_kinds(text: str) -> list[AccessKind]:
    """Return the access kinds that `--access` lists. Raises CommandError for anything else."""
    kinds: dict[str, list[AccessKind]] = {
        "load": ["load"],
        "store": ["store"],
        "load,store": ["load", "store"],
        "store,load": ["load", "store"],
    }
    found = kinds.get(text.replace(" ", ""))
    if found is None:
        raise CommandError(f"--access {text}: choose load, store or load,store")
    return found
