"""Define stencil rules that publications measure, by their usual names.

`7-point` and `himeno` are those of Kawamura, Maruyama and Matsuoka (2012), figures 5 and 6; Himeno without the sum of residuals, as there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from memlane.errors import StencilError
from memlane.stencils.language import read_rule
from memlane.stencils.rule import Rule


def seven_point(new: Any, u: Any, a: Any) -> None:
    """Add a cell and its six neighbours, each times a coefficient of its own."""
    new[0, 0, 0] = (
        a[0] * u[0, 0, 0]
        + a[1] * u[-1, 0, 0]
        + a[2] * u[1, 0, 0]
        + a[3] * u[0, -1, 0]
        + a[4] * u[0, 1, 0]
        + a[5] * u[0, 0, -1]
        + a[6] * u[0, 0, 1]
    )


def himeno(
    p_new: Any, p: Any, a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any, b2: Any, c0: Any, c1: Any, c2: Any, wrk1: Any, bnd: Any,
    omega: Any,
) -> None:  # fmt: skip
    """Make a step of Jacobi's method for a pressure equation with coefficients in each cell."""
    s0 = (
        a0[0, 0, 0] * p[1, 0, 0]
        + a1[0, 0, 0] * p[0, 1, 0]
        + a2[0, 0, 0] * p[0, 0, 1]
        + b0[0, 0, 0] * (p[1, 1, 0] - p[1, -1, 0] - p[-1, 1, 0] + p[-1, -1, 0])
        + b1[0, 0, 0] * (p[0, 1, 1] - p[0, -1, 1] - p[0, 1, -1] + p[0, -1, -1])
        + b2[0, 0, 0] * (p[1, 0, 1] - p[-1, 0, 1] - p[1, 0, -1] + p[-1, 0, -1])
        + c0[0, 0, 0] * p[-1, 0, 0]
        + c1[0, 0, 0] * p[0, -1, 0]
        + c2[0, 0, 0] * p[0, 0, -1]
        + wrk1[0, 0, 0]
    )
    ss = (s0 * a3[0, 0, 0] - p[0, 0, 0]) * bnd[0, 0, 0]
    p_new[0, 0, 0] = p[0, 0, 0] + omega * ss


PUBLISHED: dict[str, Callable[..., Any]] = {"7-point": seven_point, "himeno": himeno}
"""Functions of the rules, by name."""


@cache
def published_rule(name: str) -> Rule:
    """Return the rule of a name. Raise StencilError, with the known names, if there is none."""
    if name not in PUBLISHED:
        raise StencilError(f"no published rule is called {name!r}; known: {', '.join(PUBLISHED)}")
    return read_rule(PUBLISHED[name])
