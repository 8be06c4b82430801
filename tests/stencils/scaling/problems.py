"""The two stencils of the paper, and networks of round numbers."""

from __future__ import annotations

import memlane as ml
from memlane.network import Link, Network, Transfer

# mypy: disable-error-code="no-untyped-def"


@ml.stencil
def seven(new, u, a):
    new[0, 0, 0] = (a[0] * u[0, 0, 0] + a[1] * u[-1, 0, 0] + a[2] * u[1, 0, 0] + a[3] * u[0, -1, 0] + a[4] * u[0, 1, 0]
                    + a[5] * u[0, 0, -1] + a[6] * u[0, 0, 1])  # fmt: skip


@ml.stencil
def himeno(p_new, p, a0, a1, a2, a3, b0, b1, b2, c0, c1, c2, wrk1, bnd, omega):
    s0 = (a0[0, 0, 0] * p[1, 0, 0] + a1[0, 0, 0] * p[0, 1, 0] + a2[0, 0, 0] * p[0, 0, 1]
          + b0[0, 0, 0] * (p[1, 1, 0] - p[1, -1, 0] - p[-1, 1, 0] + p[-1, -1, 0])
          + b1[0, 0, 0] * (p[0, 1, 1] - p[0, -1, 1] - p[0, 1, -1] + p[0, -1, -1])
          + b2[0, 0, 0] * (p[1, 0, 1] - p[-1, 0, 1] - p[1, 0, -1] + p[-1, 0, -1])
          + c0[0, 0, 0] * p[-1, 0, 0] + c1[0, 0, 0] * p[0, -1, 0] + c2[0, 0, 0] * p[0, 0, -1] + wrk1[0, 0, 0])  # fmt: skip
    ss = (s0 * a3[0, 0, 0] - p[0, 0, 0]) * bnd[0, 0, 0]
    p_new[0, 0, 0] = p[0, 0, 0] + omega * ss


@ml.stencil
def wide(new, u):
    new[0, 0, 0] = u[-3, 0, 0] + u[2, 0, 0] + u[0, 1, 0] + u[0, 0, -1]


@ml.stencil
def diagonal(new, u):
    new[0, 0, 0] = u[-1, -1, 0] + u[1, 1, 0]


def wires(latency_us: float, gb_per_s: float = 1e6, name: str = "copies") -> Network:
    """Return a network of one link between any number of devices."""
    link = Link(name, Transfer(latency_us, gb_per_s), "share the rate")
    return Network("wires", "A network for tests", 1 << 12, {name: link})
