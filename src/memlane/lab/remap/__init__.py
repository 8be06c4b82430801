"""Repeat and extend the published experiment on remapping arrays on the way to the device: cost to transfers, gain to kernels.

There are four cases, each with its array uploaded unchanged, remapped behind the copy, and remapped chunk by chunk while the next chunk is
copied: points of K-means (columns), similarities of Needleman and Wunsch (diagonal strips), the vector of a sparse product (gathered in the
order of the matrix), and particles (structures to arrays). Results equal NumPy's. The number of kernel runs per upload is chosen so that
kernels and transfer relate as in the paper's figures. Known hand-written code is compared too: Rodinia transposes its points by a kernel of
its own, and its alignment uses tiles in shared memory.

S. Che, J. W. Sheaffer, K. Skadron: "Dymaxion: Optimizing Memory Access Patterns for Heterogeneous Systems", SC 2011, on a GeForce GTX 480:
kernels 3.11 times, by 42.4 % and 4.1 times as fast; transfers 5.8, 16.1 and 10.2 % longer; the whole 30.6, 14.0 and 15.6 % faster, with 16
chunks, asynchronous copies 16.7 % better than synchronous ones. The fourth study of its conference abstract, a CPU and a GPU at once with a
layout each, is not repeated.

Prediction for an H200, before it was measured: K-means' kernel 1.5 times (L1 keeps the rows that a warp comes back to), diagonals 1.2 times
for 8,192 and nothing for 1,024, where launches dominate; the product 1.1 times; particles 1.5 times. Overheads of the transfer below 2 %
where it is longer than 1 ms. Measured (`benchmarks/results/h200/remap.json`): 1.4 to 4.3, 1.2 to 1.3, 1.3 to 1.7 and 1.0 to 2.0 times; the
prediction held where data fit in L2 and launches dominate, and fell short where K-means' points no longer fit.
"""

from memlane.lab.remap.lab import REMAP

__all__ = ["REMAP"]
