"""Implement `memlane predict`: predict how long the launches of a program take on other GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from memlane.cli import options as o
from memlane.cli.command import runs_program
from memlane.cli.failure import passing_on, why
from memlane.cli.later import later
from memlane.cli.output import wrong_use
from memlane.cli.programs import Program, nothing_launched
from memlane.cli.stream import for_a_document
from memlane.cli.terminal import show, show_json
from memlane.errors import CommandError

if TYPE_CHECKING:
    from memlane import chip as chip_files
    from memlane.cli import progress
    from memlane.measure import prediction as predicting
    from memlane.report import failures, predictions
else:
    chip_files = later("memlane.chip")
    progress = later("memlane.cli.progress")
    predicting = later("memlane.measure.prediction")
    predictions = later("memlane.report.predictions")
    failures = later("memlane.report.failures")


@runs_program
def predict(
    program: Program,
    chip: Annotated[
        str,
        typer.Option(
            "--chip",
            metavar="NAME[,NAME]",
            help="The chips to predict for, separated by commas, for example h200,a100.",
            autocompletion=o.chip_names,
            rich_help_panel=o.RUN,
        ),
    ] = "h200",
    launch: o.LaunchNumber = None,
    every_block: Annotated[
        bool, typer.Option("--every-block", help="Run all blocks, not a sample of them.", rich_help_panel=o.RUN)
    ] = False,
    most_cycles: Annotated[
        int | None,
        typer.Option("--most-cycles", metavar="N", min=1, help="Stop a kernel as endless after this many cycles.", rich_help_panel=o.RUN),
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Predict how long the launches of a program take on other chips, and what limits them."""
    with wrong_use():
        chips = [chip_files.load(name.strip()) for name in chip.split(",") if name.strip()]
    if not chips:
        raise CommandError(f"--chip is empty; known chips: {', '.join(chip_files.names())}")
    predictor = predicting.Forecaster(chips, every_block=every_block, only_launch=launch, most_cycles=most_cycles)
    with for_a_document(as_json), progress.progress("predicting"):
        failure = program.run(f"emulator:{chips[0].name}", predictor)
    failure = failure or nothing_launched(program, predictor.seen, bool(predictor.forecasts), launch, "predict")
    with passing_on(failure):
        if as_json:
            show_json(predictions.predictions_document(predictor.forecasts, why(failure), predictor.failures))
        elif predictor.forecasts:
            notes = failures.failed_notes(why(failure), predictor.failures, "It is not predicted.")
            show(predictions.render_predictions(predictor.forecasts, predictor.chips, notes))
