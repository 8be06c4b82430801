"""Repeat and extend the reduction course: seven steps to a fast sum, why each is faster, and what beats the libraries today.

A sum of 2^22 int32 was made faster in seven steps by M. Harris, "Optimizing Parallel Reduction in CUDA", and again in a course of Tokyo
Institute of Technology (N. Maruyama, on a GPU of a Tesla S1070: 3.51, 1.62, 0.81, 0.47, 0.28, 0.25 and 0.22 ms, 16 times). Each step is a
file in `steps` that can be read by itself; where warps no longer run in lockstep, the last steps synchronise their lanes. Five more steps
follow. Times are to the single final value, all launches included, of replayed graphs of ten sums (two of the largest), interleaved with
each other; they are compared with a copy of two arrays and the datasheet, and explained by counts from the emulator.

    from memlane.lab.reduction import reduce
    total = reduce(array)                      # an array of one element; total.item() waits for it

Prediction for an H200, blocks of 128, before it was measured:

    steps 1 to 7   2^28: 3.5, 2.2, 1.5, 0.75, 0.45, 0.42 and 0.27 ms; step 1 to step 7 13 times, less than the course's 16, for branches
                   and conflicts cost less than they did. 2^22 lies in the second cache, and launches take a third of the time of step 7
    steps 8 to 12  2^28: within 5 % of each other but for step 10 (0.25 ms), for bandwidth is what is left; 2^22: step 11 saves 2 us and
                   step 12 another 1.2
    peers          int32, 2^30 and 2^28: 1.02 to 1.06 times as quick as the better one; 2^24 17 us, 2^20 3.1 us, 2^16 2.6 us in graphs;
                   axis 0 1.05 and axis 1 1.06 times as quick
    one call       7 us between events, of which 3 are the driver's way to start a graph
    same bits      reproducible sums take 1.3 times as long for 2^20, 1.1 for 2^24 and 1.03 for 2^28
    ideas          a word for sum and count saves 1 us; a cluster is quicker than a ticket and slower than the word; half the array kept in
                   the second cache makes the replayed sum of 2^24 1.15 times as quick; bulk copies gain nothing, for loads fill the
                   memory already

The numbers of peers, graphs and ideas are predicted after a run that chose the launch shapes (`benchmarks/reduction_tuning.py`).
"""

from memlane.lab.reduction.lab import REDUCTION
from memlane.lab.reduction.reducer import Reducer, reduce

__all__ = ["REDUCTION", "Reducer", "reduce"]
