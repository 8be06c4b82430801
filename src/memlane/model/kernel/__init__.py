"""Predict the duration of a launch from the events of the clock layer and the chip's shared resources.

prediction = predicted(chip, sampled)      # sampled: the events of a launch, or of some of its blocks

multiprocessor    one multiprocessor by itself: issue slots, pipes, the load-store unit, barriers, waits for operands
memory            shared resources: L2, DRAM, atomic operations at one place
prediction        block starts, launch overhead, and the combination of all parts
"""

from memlane.model.kernel.multiprocessor import Part, Sampled, whole_cycles
from memlane.model.kernel.prediction import NOT_MODELLED, Prediction, Wait, predicted

__all__ = ["NOT_MODELLED", "Part", "Prediction", "Sampled", "Wait", "predicted", "whole_cycles"]
