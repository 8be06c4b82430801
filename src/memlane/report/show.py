"""Which access of a line is drawn, and pictures of all lines of a trace."""

from __future__ import annotations

from collections.abc import Sequence

from memlane.chip import Chip, load
from memlane.record import AccessExample, Trace
from memlane.report.picture import drawing_of, to_svg


def access_pictures(trace: Trace) -> dict[tuple[str, int], str]:
    """The costliest access of each source line as SVG, by file (as `Trace.sites` names it) and line.

    Empty for a trace of a target that saw no addresses, as a GPU: the emulator does.
    """
    chip, found = load(trace.chip), {}
    for place, examples in by_line(trace).items():
        found[place] = to_svg(drawing_of(trace, costliest(examples), chip))
    return found


def by_line(trace: Trace) -> dict[tuple[str, int], list[AccessExample]]:
    """The examples of a trace by file and line, in their order."""
    found: dict[tuple[str, int], list[AccessExample]] = {}
    for example in trace.examples:
        site = trace.sites[example.site]
        found.setdefault((site.file, site.line), []).append(example)
    return found


def costliest(examples: Sequence[AccessExample]) -> AccessExample:
    """The one with the most transactions beyond what would do, then with the most at all; of equals the first."""
    return max(examples, key=lambda one: (one.transactions - one.ideal, one.transactions))


def drawn(trace: Trace, example: AccessExample, chip: Chip | None = None) -> str:
    """One access as SVG, by the rules of `chip` or else of that on which it was traced."""
    return to_svg(drawing_of(trace, example, chip or load(trace.chip)))
