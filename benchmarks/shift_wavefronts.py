"""Do the chip's rule, the clock and Nsight Compute agree on the wavefronts of the accesses of `memlane lab shift`?

Every pattern under every layout by 4 and 8 bytes, loads and stores, at a few offsets of the pattern; measured and counted as `shared_rule`
does, with the same kernels.

Prediction (written before the first run): no difference anywhere. All lanes are active and no two of them agree but by chance, so nothing
that was hard about the rule comes into play.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from harness import store
from patterns import Pattern
from running import machine
from shared_rule import OPERATIONS, Setting, arguments, compared

from memlane.chip import Chip, load
from memlane.lab.shift.cases import LAYOUTS, PATTERNS, WIDTHS, accesses, drawn

SOURCES = [
    "src/memlane/chip/access.py",
    "src/memlane/chip/lanes.py",
    "src/memlane/lab/shift/cases.py",
    "benchmarks/shift_wavefronts.py",
    "benchmarks/shared_rule.py",
]

OFFSETS = 4
"""Number of offsets for each pattern."""
NAMES = ("ld_4", "ld_8", "st_4", "st_8")


@dataclass(frozen=True)
class Placed(Pattern):
    """A pattern whose elements lie where a layout says, one for each width."""

    of_width: Mapping[int, npt.NDArray[np.int64]] = field(default_factory=dict)

    def offsets(self, nbytes: int) -> npt.NDArray[np.uint32]:
        return (self.of_width[nbytes] * nbytes).astype(np.uint32)


def placed(chip: Chip, offsets: int) -> Iterator[Placed]:
    for name in PATTERNS:
        places = accesses(name, 1, 1, offsets)
        for layout in LAYOUTS:
            of_width = {width: places.offsets(drawn(layout, width, chip, offsets))[:, 0].astype(np.int64) for width in WIDTHS}
            for number in range(offsets):
                own = {width: found[number] for width, found in of_width.items()}
                yield Placed(f"{name}, {layout}, {number}", own[4], of_width=own)


def setting(options: argparse.Namespace) -> Setting:
    found = tuple(placed(load("h200"), 1 if options.quick else OFFSETS))
    operations = tuple(op for op in OPERATIONS if op.name in NAMES)
    return Setting(operations, found, 4, (1, 3), 1) if options.quick else Setting(operations, found, 64, (2, 6), 7)


def main() -> None:
    options = arguments(__doc__).parse_args()
    found = compared(Path(__file__), setting(options), options)
    if not options.once:
        store("shift_wavefronts", found, **machine(options))


if __name__ == "__main__":
    main()
