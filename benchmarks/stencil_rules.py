"""Define the rules of the stencil benchmark."""

# mypy: ignore-errors

from __future__ import annotations

import memlane as ml


@ml.stencil
def seven(new, u, a):
    new[0, 0, 0] = (a[0] * u[0, 0, 0] + a[1] * u[-1, 0, 0] + a[2] * u[1, 0, 0] + a[3] * u[0, -1, 0] + a[4] * u[0, 1, 0]
                    + a[5] * u[0, 0, -1] + a[6] * u[0, 0, 1])  # fmt: skip


@ml.stencil
def thirteen(new, u, a):
    near = (a[0] * u[0, 0, 0] + a[1] * u[-1, 0, 0] + a[2] * u[1, 0, 0] + a[3] * u[0, -1, 0] + a[4] * u[0, 1, 0]
            + a[5] * u[0, 0, -1] + a[6] * u[0, 0, 1])  # fmt: skip
    far = a[7] * u[-2, 0, 0] + a[8] * u[2, 0, 0] + a[9] * u[0, -2, 0] + a[10] * u[0, 2, 0] + a[11] * u[0, 0, -2] + a[12] * u[0, 0, 2]
    new[0, 0, 0] = near + far


@ml.stencil
def box(new, u, a):
    corners = u[-1, -1, -1] + u[-1, -1, 1] + u[-1, 1, -1] + u[-1, 1, 1] + u[1, -1, -1] + u[1, -1, 1] + u[1, 1, -1] + u[1, 1, 1]
    edges = (u[-1, -1, 0] + u[-1, 1, 0] + u[1, -1, 0] + u[1, 1, 0] + u[-1, 0, -1] + u[-1, 0, 1] + u[1, 0, -1] + u[1, 0, 1]
             + u[0, -1, -1] + u[0, -1, 1] + u[0, 1, -1] + u[0, 1, 1])  # fmt: skip
    faces = u[-1, 0, 0] + u[1, 0, 0] + u[0, -1, 0] + u[0, 1, 0] + u[0, 0, -1] + u[0, 0, 1]
    new[0, 0, 0] = a[0] * u[0, 0, 0] + a[1] * faces + a[2] * edges + a[3] * corners


@ml.stencil
def five(new, u, a):
    new[0, 0] = a[0] * u[0, 0] + a[1] * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1])


@ml.stencil
def himeno(p_new, p, a0, a1, a2, a3, b0, b1, b2, c0, c1, c2, wrk1, bnd, omega, gosa):
    s0 = (a0[0, 0, 0] * p[1, 0, 0] + a1[0, 0, 0] * p[0, 1, 0] + a2[0, 0, 0] * p[0, 0, 1]
          + b0[0, 0, 0] * (p[1, 1, 0] - p[1, -1, 0] - p[-1, 1, 0] + p[-1, -1, 0])
          + b1[0, 0, 0] * (p[0, 1, 1] - p[0, -1, 1] - p[0, 1, -1] + p[0, -1, -1])
          + b2[0, 0, 0] * (p[1, 0, 1] - p[-1, 0, 1] - p[1, 0, -1] + p[-1, 0, -1])
          + c0[0, 0, 0] * p[-1, 0, 0] + c1[0, 0, 0] * p[0, -1, 0] + c2[0, 0, 0] * p[0, 0, -1] + wrk1[0, 0, 0])  # fmt: skip
    ss = (s0 * a3[0, 0, 0] - p[0, 0, 0]) * bnd[0, 0, 0]
    gosa += ss * ss
    p_new[0, 0, 0] = p[0, 0, 0] + omega * ss


RULES = {"seven": seven, "thirteen": thirteen, "box": box, "five": five, "himeno": himeno}
