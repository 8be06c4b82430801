"""How fast this machine copies, reads and writes, and what a copy, a launch and a graph cost besides: what the first model needs.

Copies are measured in chains inside one CUDA graph, each waiting for the one before. The time of one more copy is what a longer chain takes
more than a shorter one, so what the graph itself costs drops out. The rate is from large copies, the latency is what is left of small
ones. Reads and writes of DRAM, and reads of L2, are streams of 16 bytes a lane; their rate is what more bytes take longer. Each number is
the median of several measurements; the least and the most stand beside it, and in the source that the chip file gets.

Prediction for an H200, before it was measured with this lab:

    pinned memory         55 GB/s and 2 us either way; both ways at once 45 to 55 GB/s each
    ordinary memory       16 GB/s: it is staged by a function on the host, and one processor copies
    inside the device     2.1 TB/s and 1.1 us
    another device        395 GB/s and 2.2 us; both ways at once 370 or more each; to two others at once half of it each
    DRAM, L2              reads of DRAM 4.4 TB/s, writes 3.9; reads of L2 8 to 9 TB/s
    kernels               0.7 us from one to the next, on one queue or two in turn; with two chains of kernels at the same time no more,
                          for a latency keeps nothing busy; the same for two chains of small copies
    a graph, an event     5 us for a graph of one kernel; 1 us for the two events around a step

On the emulator every number is that of the chip file: its engine is made of them. A kernel without instructions takes a few cycles
there, so the time between kernels is longer by so much; graphs and events cost nothing.
"""

from memlane.lab.bandwidth.lab import BANDWIDTH

__all__ = ["BANDWIDTH"]
