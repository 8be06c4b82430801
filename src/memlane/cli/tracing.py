"""Define the options of `memlane trace`: how to measure, and which part of a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from memlane.cli.options import WHAT, one_of

SCHEMES = ("dependent", "exposed", "consume", "simple", "paper")
STORES = ("issued", "block", "device")
STAGINGS = ("auto", "shared", "global")
SPACES = ("global", "shared", "shared::cluster", "local", "const", "tex", "surf", "generic")
KINDS = ("load", "store", "atomic", "reduction", "copy", "wait")
"""Choices of this option. These five tuples equal those of `memlane.instrument`, which takes too long to load for a help text."""
PROBE = "Probes"
"""Name of the option group for how to measure."""


def _named(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


Scheme = Annotated[
    str,
    typer.Option(
        "--scheme", metavar="NAME", help=f"The probe: {', '.join(SCHEMES)}.", autocompletion=one_of(*SCHEMES), rich_help_panel=PROBE
    ),
]
Stores = Annotated[
    str,
    typer.Option(
        "--stores",
        metavar="UNTIL",
        help="Time stores until they are issued, visible to their block, or visible to the device.",
        autocompletion=one_of(*STORES),
        rich_help_panel=PROBE,
    ),
]
Staging = Annotated[
    str,
    typer.Option(
        "--staging",
        metavar="WHERE",
        help=f"Where records are buffered: {', '.join(STAGINGS)}; auto chooses the faster one, based on measurements.",
        autocompletion=one_of(*STAGINGS),
        rich_help_panel=PROBE,
    ),
]
WithCounts = Annotated[
    bool,
    typer.Option(
        "--counts",
        help="On a GPU, also count transactions, with one more launch before each traced one. The emulator always counts.",
        rich_help_panel=PROBE,
    ),
]
Perturbation = Annotated[
    bool,
    typer.Option(
        "--perturbation",
        help="Also time each launch without and with probes, in extra launches before the traced one.",
        rich_help_panel=PROBE,
    ),
]
Spaces = Annotated[
    list[str],
    typer.Option(
        "--space",
        metavar="SPACE",
        help=f"Only accesses to {_named(SPACES)}; repeat for several.",
        autocompletion=one_of(*SPACES),
        rich_help_panel=WHAT,
    ),
]
Kinds = Annotated[
    list[str],
    typer.Option(
        "--kind", metavar="KIND", help=f"Only {_named(KINDS)}; repeat for several.", autocompletion=one_of(*KINDS), rich_help_panel=WHAT
    ),
]
Lines = Annotated[
    list[int],
    typer.Option("--line", metavar="N", min=1, help="Only accesses of this source line; repeat for several.", rich_help_panel=WHAT),
]
Blocks = Annotated[
    str,
    typer.Option("--blocks", metavar="A-B,C", help="Trace these blocks, by linear index, including both ends.", rich_help_panel=WHAT),
]
Warps = Annotated[str, typer.Option("--warps", metavar="A-B,C", help="Trace these warps of each block, from 0.", rich_help_panel=WHAT)]
Multiprocessors = Annotated[str, typer.Option("--sms", metavar="A-B,C", help="Trace the warps on these SMs, from 0.", rich_help_panel=WHAT)]
Executions = Annotated[
    str,
    typer.Option(
        "--executions",
        metavar="A-B",
        help="Record only the A-th to B-th execution of each access by a thread, counted from 0.",
        rich_help_panel=WHAT,
    ),
]
Every = Annotated[
    int,
    typer.Option("--every", metavar="N", help="Trace one in N warps; the others run the original code.", rich_help_panel=WHAT),
]
WholeBlocks = Annotated[
    bool,
    typer.Option(
        "--whole-blocks",
        help="With `--every`: trace all warps of one in N blocks, so that no other block waits for a traced warp.",
        rich_help_panel=WHAT,
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="The seed for the random choice of `--every`.", rich_help_panel=WHAT)]
