"""Format the help of a command: its options in groups, followed by example command lines."""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.core import TyperCommand

EXAMPLES = {
    "trace": (
        "memlane trace script.py",
        "memlane trace transpose.cu --kernel naive --grid 8,8 --block 32,32 --arg f4[256,256] --arg f4[256,256]=random:7 --arg 256:i4",
        "memlane trace script.py --every 32 --executions 0-3 --output small.parquet -- --size 4096",
    ),
    "count": (
        "memlane count script.py",
        "memlane count script.py --launch 2 --output counts.json",
        "memlane count scale.cu --grid 8 --block 128 --arg '{f4[1024]=arange, f4[1024], 1024:i4}'",
    ),
    "check": ("memlane check script.py", "memlane check stencil.ptx --grid 4,4 --block 16,16 --arg f4[64,64] --stop"),
    "explain": (
        "memlane explain script.py",
        "memlane explain scale.cu --grid 8 --block 128 --arg f4[1024] --arg f4[1024]=random:7 --arg 1024:i4",
        "memlane explain transpose.parquet --why",
    ),
    "compare": ("memlane compare before.parquet after.parquet", "memlane compare transpose.parquet transpose.parquet --kernel naive=tiled"),
    "predict": ("memlane predict script.py --chip h200,a100", "memlane predict script.py --chip h100 --launch 2 --json -- --size 4096"),
    "fix": ("memlane fix script.py", "memlane fix script.py --launch 1 --array tile --columns 32"),
    "show": (
        "memlane show transpose.cu:18 transpose.parquet",
        "memlane show transpose.cu:33 script.py --op ld.shared --warp 0 --svg conflict.svg",
    ),
    "export": ("memlane export transpose.parquet --to csv", "memlane export transpose.parquet --to perfetto --output trace.pftrace"),
    "report": (
        "memlane report script.py",
        "memlane report transpose.parquet --output page.html --force",
        "memlane report before.parquet after.parquet",
    ),
    "banks": (
        "memlane banks",
        "memlane banks --patterns row,column,diagonal --layouts 'row-major,pad(1),xor' --width 4,16 --chip h200,v100",
    ),
    "doctor": ("memlane doctor",),
    "layout search": (
        "memlane layout search --patterns row,column,diagonal",
        "memlane layout search --patterns 'column,(t, 2 * t + c)' --width 16 --padding",
    ),
    "layout show": ("memlane layout show xor", "memlane layout show 'Swizzle<3, 2, 3>' --rows 64 --columns 64 --element 2"),
    "stencil plan": (
        "memlane stencil plan heat.py:heat --shape 4096x4096 --devices 1,2,4",
        "memlane stencil plan 7-point --shape 256x256x256 --devices 1-8 --network h200-nvlink --axes 1",
        "memlane stencil plan himeno -s 256x128x128 -n 1,2,4,8,16 -k 1-4 --chip m2050 --network tsubame2 --model kawamura",
    ),
    "lab bandwidth": ("memlane lab bandwidth --quick", "memlane lab bandwidth --target cuda:0 --write-chip"),
    "lab latency": ("memlane lab latency --quick", "memlane lab latency --target cuda:0 --write-chip"),
    "lab reduction": ("memlane lab reduction --quick", "memlane lab reduction --size 2^20 --size 2^24 --block 256"),
    "lab remap": ("memlane lab remap --quick", "memlane lab remap --only 'k-means; particles'", "memlane lab remap --matrix pwtk.mtx"),
    "lab shift": ("memlane lab shift --quick --out shift-results",),
    "lab stencil": (
        "memlane lab stencil --quick --target emulator:m2050",
        "memlane lab stencil --only scaling --size L",
        "memlane lab stencil --devices 2",
    ),
    "lab volume": ("memlane lab volume --quick", "memlane lab volume --shape 8x16 --shape 32x4 --view 90,0,90"),
}
"""Example command lines by command."""


_TYPE = re.compile(r" <.*>$")
"""Pattern of the type that Typer writes after an argument's name; `<list[str]>` does not help users."""
_RANGE = re.compile(r"\s*\[x>=\d+\]$")
"""Pattern of the lower bound that Typer appends to a help text, which already states it in words."""


class HelpfulCommand(TyperCommand):
    """Command whose help lists its options by `rich_help_panel`, in order of first use, and ends with examples."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Print the help if it is the first argument, before any value is converted.

        Loading Typer's converters takes as long as everything else.
        """
        if args and args[0] in ctx.help_option_names and not ctx.resilient_parsing:
            typer.echo(self.get_help(ctx))
            ctx.exit()
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the pieces of the usage line `[OPTIONS] INPUT [-- ARGS]`."""
        arguments = [one for one in self.get_params(ctx) if one.param_type_name == "argument"]
        names = [str(getattr(one, "metavar", None) or one.name) for one in arguments]
        return [
            "[OPTIONS]",
            *(name if one.required or name[:1] == "[" else f"[{name}]" for name, one in zip(names, arguments, strict=True)),
        ]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            group = "Arguments" if parameter.param_type_name == "argument" else getattr(parameter, "rich_help_panel", None) or "Options"
            groups.setdefault(group, []).append((_TYPE.sub("", record[0]), _RANGE.sub("", record[1])))
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write each example on one line, without wrapping."""
        if self.epilog:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in self.epilog.splitlines()))


def examples(command: str) -> str:
    """Return the examples of a command, one per line."""
    return "\n".join(EXAMPLES[command])
