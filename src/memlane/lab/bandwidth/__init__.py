"""Measure how fast this machine copies, reads and writes, and the overhead of copies, launches and graphs, for the simple time model.

Copies are measured in chains inside one CUDA graph, each waiting for the one before. The time of one more copy is the difference between a
longer and a shorter chain, so the cost of the graph itself drops out. The rate comes from large copies, the latency is the rest of the time
of small ones. Reads and writes of DRAM, and reads of L2, are streams of 16 bytes per lane; their rate comes from the time of more bytes.
Each number is the median of several measurements; the least and the most are given with it, and in the source that the chip file gets.

Prediction for an H200, before it was measured with this lab:

    pinned memory         55 GB/s and 2 us either way; both ways at once 45 to 55 GB/s each
    ordinary memory       16 GB/s: it is staged by a function on the host, and one processor copies
    inside the device     2.1 TB/s and 1.1 us
    another device        395 GB/s and 2.2 us; both ways at once 370 or more each; to two others at once half of it each
    DRAM, L2              reads of DRAM 4.4 TB/s, writes 3.9; reads of L2 8 to 9 TB/s
    kernels               0.7 us from one to the next, on one queue or alternating on two; with two chains of kernels at the same time no
                          more, because a latency keeps nothing busy; the same for two chains of small copies
    a graph, an event     5 us for a graph of one kernel; 1 us for the two events around a step

On the emulator every number is that of the chip file, from which its copy engine is built. A kernel without instructions takes a few cycles
there, so the time between kernels is longer by that much; graphs and events cost nothing.
"""

from memlane.lab.bandwidth.lab import BANDWIDTH

__all__ = ["BANDWIDTH"]
