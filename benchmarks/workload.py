"""List the launches that are counted: those of the examples and those of the corpus of small kernels."""

from __future__ import annotations

import corpus_atomics
import corpus_blocks
import corpus_copies
import corpus_divergence
import corpus_hopper
import corpus_tiles
import corpus_today
import corpus_ways
from corpus import Case, Group, run
from running import EXAMPLES, example, example_arguments

from memlane.cli.programs import run_script
from memlane.launch import Launch, Observer, observing
from memlane.record import kernel_label
from memlane.targets import target

GROUPS: dict[str, Group] = {
    f"kernels/{group.name}": group
    for group in (
        corpus_copies.GROUP,
        corpus_tiles.GROUP,
        corpus_blocks.GROUP,
        corpus_atomics.GROUP,
        corpus_ways.GROUP,
        corpus_divergence.GROUP,
        corpus_hopper.GROUP,
        corpus_today.GROUP,
    )
}
NAMES = (*EXAMPLES, *GROUPS)
ABOUT: dict[str, str] = {case.kernel: case.about for group in GROUPS.values() for case in group.cases}
"""Description of what is good or bad, by kernel of the corpus."""


def launch_all(name: str, target_name: str, observer: Observer, quick: bool) -> None:
    """Make the launches of one of `NAMES` with `observer` watching. AssertionError, or an error of the example, if a result is wrong."""
    if name not in GROUPS:
        run_script(example(name), example_arguments(name, quick), target_name, observer)
        return
    loaded = GROUPS[name].load(target(target_name))
    with observing(observer):
        for case in GROUPS[name].cases:
            run(case, loaded, quick)


def labels(name: str, launches: list[Launch]) -> list[str]:
    """Return the names of the launches' rows: `matmul 0: matmul` in an example, the kernel's name in the corpus."""
    titles = [kernel_label(launch.kernel.title) for launch in launches]
    return titles if name in GROUPS else [f"{name} {number}: {title}" for number, title in enumerate(titles)]


def cases() -> list[Case]:
    """Return all kernels of the corpus."""
    return [case for group in GROUPS.values() for case in group.cases]
