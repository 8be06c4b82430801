"""How long a launch takes: what the clock layer saw of it, combined with what all multiprocessors share.

prediction = predicted(chip, sampled)      # sampled: the events of a launch, or of some of its blocks

multiprocessor    one multiprocessor for itself: issue slots, pipes, the load-store unit, barriers, waiting for operands
memory            what all share: L2, DRAM, atomic operations at one place
prediction        blocks that begin, what a launch takes besides, and the combination of all
"""

from memlane.model.kernel.multiprocessor import Part, Sampled, whole_cycles
from memlane.model.kernel.prediction import NOT_MODELLED, Prediction, Wait, predicted

__all__ = ["NOT_MODELLED", "Part", "Prediction", "Sampled", "Wait", "predicted", "whole_cycles"]
