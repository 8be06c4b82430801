"""Implement `memlane stencil plan`: predict the time of a stencil's step on several devices, without running it."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memlane.cli import options as o
from memlane.cli.later import later
from memlane.cli.output import wrong_use
from memlane.cli.stream import for_a_document
from memlane.cli.terminal import show, show_json
from memlane.errors import CommandError
from memlane.number_format import plural

if TYPE_CHECKING:
    from memlane import network as networks
    from memlane import report, stencils, timeloop
    from memlane.stencils import problem as problems
    from memlane.stencils import published, scaling
    from memlane.stencils.rule import Rule
else:
    networks = later("memlane.network")
    problems = later("memlane.stencils.problem")
    published = later("memlane.stencils.published")
    report = later("memlane.report")
    scaling = later("memlane.stencils.scaling")
    stencils = later("memlane.stencils")
    timeloop = later("memlane.timeloop")

_MACHINE, _PROBLEM, _PREDICTED = "Machine", "Problem", "What to predict"
_MOST = {"--devices": 4096, "--steps-per-exchange": 64, "--axes": 3}
"""Maximum number in a list, by option."""
_EXTENTS = {1: "1048576", 2: "4096x4096", 3: "256x256x256"}
"""Example of a shape, by its number of axes."""


_Rule = Annotated[
    str,
    typer.Argument(
        metavar="RULE",
        help=(
            "A stencil in a Python file, such as heat.py:heat (heat.py if it has only one), or one of the published ones: 7-point, himeno."
        ),
    ),
]
_Shape = Annotated[
    str, typer.Option("--shape", "-s", metavar="ZxYxX", help="Cells of the whole grid along each axis.", rich_help_panel=_PROBLEM)
]
_Devices = Annotated[
    str, typer.Option("--devices", "-n", metavar="LIST", help="Numbers of devices, such as 1,2,4,8 or 1-4.", rich_help_panel=_MACHINE)
]
_StepsPerExchange = Annotated[
    str,
    typer.Option("--steps-per-exchange", "-k", metavar="LIST", help="Steps between two exchanges.", rich_help_panel=_PREDICTED),
]
_Chip = Annotated[
    str,
    typer.Option(
        "--chip",
        metavar="NAME",
        help="The chip of each device, or a .toml file.",
        autocompletion=o.chip_names,
        rich_help_panel=_MACHINE,
    ),
]
_Network = Annotated[
    str,
    typer.Option(
        "--network",
        metavar="NAME",
        help="The network between the devices, such as h200-nvlink, or a .toml file; default: the peer links in the chip file.",
        autocompletion=lambda incomplete: o.one_of(*networks.names())(incomplete),
        rich_help_panel=_MACHINE,
    ),
]
_Transport = Annotated[
    str,
    typer.Option(
        "--transport", metavar="NAME", help="A link of the network, nccl or mpi-cuda; default: its first.", rich_help_panel=_MACHINE
    ),
]
_Model = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="NAME",
        help="The model: memlane (fitted to measured kernels) or kawamura (of the 2012 paper).",
        autocompletion=o.one_of("memlane", "kawamura"),
        rich_help_panel=_PREDICTED,
    ),
]
_Axes = Annotated[
    str,
    typer.Option("--axes", metavar="LIST", help="How many axes to divide among the devices: 1 makes slabs.", rich_help_panel=_PREDICTED),
]
_StepsPerLaunch = Annotated[
    int | None,
    typer.Option(
        "--steps-per-launch",
        metavar="N",
        min=1,
        help="Steps per launch; default: the number that is predicted to be fastest.",
        rich_help_panel=_PREDICTED,
    ),
]
_Schedule = Annotated[
    str,
    typer.Option(
        "--schedule",
        metavar="NAME",
        help=(
            "Whether the planes between the borders read values that the borders computed (linked) or not (independent); default: the "
            "choice of the model."
        ),
        autocompletion=o.one_of("linked", "independent"),
        rich_help_panel=_PREDICTED,
    ),
]
_NoOverlap = Annotated[
    bool,
    typer.Option("--no-overlap", help="Run all launches of a device after the exchange.", rich_help_panel=_PREDICTED),
]
_Dtype = Annotated[
    str,
    typer.Option("--dtype", metavar="TYPES", help="Types of fields: f8, or f4,hole=u1.", rich_help_panel=_PROBLEM),
]
_Boundary = Annotated[
    str,
    typer.Option(
        "--boundary",
        metavar="NAMES",
        help="fixed, periodic or reflecting: one for all axes, or one per axis, separated by commas.",
        rich_help_panel=_PROBLEM,
    ),
]
_Swap = Annotated[
    str,
    typer.Option(
        "--swap",
        metavar="NEW,OLD",
        help="Fields to swap after each step; default: the field that is written and the one field that is read from neighbours.",
        rich_help_panel=_PROBLEM,
    ),
]
_FlopPerCell = Annotated[
    float | None,
    typer.Option("--flop-per-cell", metavar="N", help="For the model kawamura: operations per cell.", rich_help_panel=_PROBLEM),
]
_BytesPerCell = Annotated[
    float | None,
    typer.Option("--bytes-per-cell", metavar="N", help="For the model kawamura: bytes per cell.", rich_help_panel=_PROBLEM),
]


def plan(
    rule: _Rule,
    shape: _Shape,
    devices: _Devices = "1,2,4,8",
    steps_per_exchange: _StepsPerExchange = "1-8",
    chip: _Chip = "h200",
    network: _Network = "",
    transport: _Transport = "",
    model: _Model = "memlane",
    axes: _Axes = "1-3",
    steps_per_launch: _StepsPerLaunch = None,
    schedule: _Schedule = "",
    no_overlap: _NoOverlap = False,
    dtype: _Dtype = "f4",
    boundary: _Boundary = "fixed",
    swap: _Swap = "",
    flop_per_cell: _FlopPerCell = None,
    bytes_per_cell: _BytesPerCell = None,
    as_json: o.Json = False,
) -> None:
    """Predict the time of a step for each number of devices, decomposition and number of steps between exchanges. Nothing runs."""
    work = _work(flop_per_cell, bytes_per_cell)
    with wrong_use():
        rules, grid, dtypes = _problem(rule, shape, dtype, boundary, as_json)
        found = scaling.plan_scaling(
            rules, grid, _numbers("--devices", devices), _numbers("--steps-per-exchange", steps_per_exchange), chip=chip, network=network,
            model=model, transport=transport, dtypes=dtypes, swap=tuple(one.strip() for one in swap.split(",")) if swap else (),
            axes=_numbers("--axes", axes), steps_per_launch=steps_per_launch, schedule=schedule, overlap=not no_overlap, work=work,
        )  # fmt: skip
    if as_json:
        show_json({**report.document_head("stencil plan"), **found.document()})
    else:
        show(found)


class _Rules:
    """Rules applied one after the other in a step."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules


def _work(flop_per_cell: float | None, bytes_per_cell: float | None) -> scaling.CellWork | None:
    """Return the work per cell for the model of the paper, None if not given. Raises CommandError for one number without the other."""
    for option, value in (("--flop-per-cell", flop_per_cell), ("--bytes-per-cell", bytes_per_cell)):
        if value is not None and not 0 < value < 1e9:
            raise CommandError(f"{option} {value:g}: it must be a positive number")
    if flop_per_cell is None and bytes_per_cell is None:
        return None
    if flop_per_cell is None or bytes_per_cell is None:
        raise CommandError("pass --flop-per-cell and --bytes-per-cell together, or neither")
    return scaling.CellWork(flop_per_cell, bytes_per_cell)


def _problem(rule: str, shape: str, dtype: str, boundary: str, as_json: bool) -> tuple[_Rules, stencils.Grid, dict[str, str]]:
    """Return the rules, the grid, and the types of single fields that differ from the grid's default type."""
    extents = _numbers("--shape", shape, "x")
    default, dtypes = _types(dtype)
    with for_a_document(as_json):
        rules = _rules(rule)
    _check_extents(rules[0], extents, shape)
    return _Rules(rules), stencils.Grid(tuple(extents), default, _boundary(boundary)), dtypes


def _numbers(option: str, text: str, between: str = ",") -> list[int]:
    """Return the numbers of a list such as `1,2,4-8`, in the order given. Raises CommandError for anything else, and for numbers outside
    the range of the option."""
    found: list[int] = []
    most, example = _MOST.get(option), _EXTENTS[3] if option == "--shape" else "1,2" if option == "--axes" else "1,2,4 or 1-8"
    for part in text.lower().split(between):
        first, dash, last = (one.strip() for one in part.partition("-"))
        if not _is_number(first) or (dash and not _is_number(last)):
            raise CommandError(f"{option} {text}: {part.strip() or 'an empty entry'} is not a whole number; write {example}")
        low, high = int(first), int(last or first)
        if high < low:
            raise CommandError(f"{option} {text}: {part.strip()} is an empty range; write the smaller number first, as in {last}-{first}")
        if low < 1 or (most is not None and high > most):
            bounds = "of 1 or more" if most is None else f"from 1 to {most:,}"
            raise CommandError(f"{option} {text}: write whole numbers {bounds}, such as {example}")
        found += range(low, high + 1)
    return found


def _check_extents(rule: Rule, extents: list[int], shape: str) -> None:
    """Raise CommandError if a grid of these extents has another number of axes than a rule. `shape`: the extents as written."""
    axes = rule.dimensions
    if len(extents) != axes:
        needed = f"{rule.name} has {plural(axes, 'dimension')}; write {plural(axes, 'extent')}"
        raise CommandError(f"--shape {shape}: {needed}, such as {_EXTENTS[axes]}")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


def _types(text: str) -> tuple[str, dict[str, str]]:
    """Return the default type of the fields, and the types of single fields, from a text such as `f4,hole=u1`."""
    first, *others = (one.strip() for one in text.split(","))
    single = dict(one.partition("=")[::2] for one in others)
    if "=" in first or not all(single.values()):
        raise CommandError(f"--dtype {text}: write the default type first, then the exceptions, as in f4,hole=u1")
    return first, {name: problems.field_type(dtype, name) for name, dtype in single.items()}


def _boundary(text: str) -> str | list[str]:
    words = [one.strip() for one in text.split(",")]
    return words[0] if len(words) == 1 else words


def _rules(text: str) -> tuple[Rule, ...]:
    """Return the rules of the stencil that the command line names. Raises CommandError for a file without stencils."""
    path, name = text, ""
    if not text.endswith(".py") and ".py:" in text:
        path, _, name = text.rpartition(":")
    if not path.endswith(".py"):
        if text in published.PUBLISHED:
            return (published.published_rule(text),)
        raise CommandError(f"{text} is neither a Python file nor one of {', '.join(published.PUBLISHED)}; write FILE.py:NAME")
    found = _stencils_of(Path(path))
    if not found:
        raise CommandError(f"{path} has no stencil: mark a function of it with @ml.stencil")
    if not name and len(found) > 1:
        raise CommandError(f"{path} has several stencils: {', '.join(found)}; choose one, as {path}:{next(iter(found))}")
    if name and name not in found:
        raise CommandError(f"{path} has no stencil {name!r}; it has {', '.join(found)}")
    return tuple(found[name or next(iter(found))].rules)


def _stencils_of(path: Path) -> dict[str, Any]:
    """Return the stencils of a Python file by name. The file is loaded as a module, so code guarded by `__main__` does not run."""
    if not path.is_file():
        raise CommandError(f"{path} is a directory; name a file" if path.is_dir() else f"no file {path}")
    folder = str(path.resolve().parent)
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a file may raise anything when it is loaded, even SystemExit
        raise CommandError(f"{path} cannot be loaded: {_said(error, path)}") from error
    finally:
        with suppress(ValueError):
            sys.path.remove(folder)
    return {name: one for name, one in vars(module).items() if isinstance(one, timeloop.Stencil)}


def _said(error: BaseException, path: Path) -> str:
    """Return the message of an error in one line, with the line of the file where it was raised."""
    lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if Path(one.filename) == path.resolve()]
    if isinstance(error, SyntaxError) and error.lineno:
        lines = [error.lineno]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if text else ''}{text}" + (f" (line {lines[-1]})" if lines else "")
