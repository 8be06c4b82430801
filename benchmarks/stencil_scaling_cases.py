"""List the cases of the benchmark of stencils on several devices, and what H200s are to reach in them."""

from __future__ import annotations

from memlane.lab.stencil.cases import HIMENO, HIMENO_SIZES, SEVEN, Case

EVERY = tuple(range(1, 9))
"""Steps between two exchanges."""
CASES = {
    "7-point 256^3": Case(SEVEN, (256, 256, 256)),
    "Himeno M": Case(HIMENO, HIMENO_SIZES["M"]),
    "7-point 512^3": Case(SEVEN, (512, 512, 512)),
    "Himeno L": Case(HIMENO, HIMENO_SIZES["L"]),
}
"""Grids that devices share: strong scaling."""
WEAK = "7-point 512^3 a device"
"""Each device has as much as one alone."""
REACHES = {("7-point 256^3", 2): 11.0, ("7-point 256^3", 4): 7.0, ("7-point 256^3", 8): 5.5}
"""Times of a step in us that are to be reached with the best k and transport, by case and devices."""
SPEED_UPS = {("7-point 256^3", 2): 1.5, ("7-point 512^3", 2): 1.95, ("Himeno M", 2): 1.75, ("Himeno M", 4): 3.0}
"""Times that several devices are as fast as one, each at its best."""
SPEED_UPS_EACH_STEP = {("7-point 256^3", 4): 3.2, ("7-point 256^3", 8): 5.2}
"""Speed-ups of several devices where each step is a launch that an exchange follows."""
WEAK_REACH = {2: 0.98, 4: 0.97, 8: 0.97}
GAINS = {("Himeno M", 2, "host"): 1.21}
"""Speed-ups that the best k should reach over an exchange after each step."""
_SMALL = {SEVEN: (32, 16, 32), HIMENO: (24, 8, 32)}


def case_of(name: str, count: int, quick: bool = False) -> Case:
    """Return a case for so many devices; `quick`: a size that emulated devices step through in no time."""
    case = CASES.get(name, CASES["7-point 512^3"])
    z, y, x = _SMALL[case.rule] if quick else case.shape
    return Case(case.rule, (z * count if name == WEAK else z, y, x))


def named(name: str, count: int) -> str:
    """Return what a row calls a case."""
    return f"{name}, {count} device{'s' if count > 1 else ''}"
