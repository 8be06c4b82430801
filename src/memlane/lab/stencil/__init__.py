"""Repeat the stencil experiments published in 2012: the number of steps between two exchanges of devices, and whether a model predicts it.

T. Kawamura, N. Maruyama, S. Matsuoka: performance model for automatic optimization of communication in data-parallel stencil computations
(IPSJ HPC 2012), on TSUBAME 2.0: one M2050 and one MPI process a node, slabs along Z, strong scaling of a 7-point stencil of 256^3 cells and
of Himeno's kernel on 128 x 128 x 256. The best numbers of steps gained up to 12 % and 21 %.

`scaling` predicts the published machine by two models, on 1 to 32 devices with 1 to 8 steps between exchanges (figures 7 to 9, and the
models of 10 to 13). `measured` runs both rules on the available devices, and compares each time with both models; as in the paper exchanges
are overlapped, and the models get the measured times of exchanges (8, 10 to 13). The same runs with each exchange behind all planes are
shown too: where borders take as long as the work that an exchange hides, these are faster. `kernel` times kernels of one device over the
planes of a slab next to both models (14): ours, and ours tiled as the paper describes its own, XY blocks that march along all of Z with a
plane in registers for the 7-point stencil and a thread for each cell for Himeno's.

On emulated devices the times of `measured` and `kernel` are those of the emulator's clock, and every table and figure says "modelled". They
share one host, through which faces go if the chip has no links to peers; messages between nodes are not emulated. An emulated device
executes one launch at a time, so borders and the planes between them never share its multiprocessors.

Prediction for two H200s, before it was measured: the 7-point stencil of 256^3 takes 16 us a step with 4 steps between exchanges, 1.4 times
as fast as one (the model). Himeno's (256, 128, 128) gains more than 1.75 times by two; through the host 4 steps or more are best and gain
over 21 %. The paper's model, which has no caches, is off by more than half.
"""

from memlane.lab.stencil.lab import STENCIL

__all__ = ["STENCIL"]
