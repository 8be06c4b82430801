"""Predict the time of a stencil on several devices before anything runs.

    regions      the cells that a device computes between two exchanges
    work         the demands of a problem: reach, exchanged fields, bytes of faces
    kawamura     the model of the paper that this package follows
    calibrated   the model fitted to measured kernels
    prediction   the results: the times of a step, and a table of them
    plan         both models over numbers of devices, decompositions and steps between exchanges

Nothing here runs a kernel or needs a device.
"""

from __future__ import annotations

from memlane.stencils.scaling.calibrated import CalibratedModel
from memlane.stencils.scaling.kawamura import CellWork, KawamuraModel, cell_work
from memlane.stencils.scaling.plan import best_exchange, plan_scaling
from memlane.stencils.scaling.prediction import Prediction, ScalingPlan
from memlane.stencils.scaling.work import Demand, presumed_swap

__all__ = [
    "CalibratedModel",
    "CellWork",
    "Demand",
    "KawamuraModel",
    "Prediction",
    "ScalingPlan",
    "best_exchange",
    "cell_work",
    "plan_scaling",
    "presumed_swap",
]
