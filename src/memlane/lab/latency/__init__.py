"""Measure how long accesses take on this machine, and compare with what each tracing scheme records.

Truth is the average over a chain of dependent accesses in a kernel without probes (`chains`). It is measured for loads from shared memory,
L1, L2, DRAM, local memory, constants and textures, for atomics whose result is used, and for a store followed by a load of the same
address. Stores and reductions return nothing to wait for: theirs is the time from issue to issue. It is compared with the records of each
scheme for the same chain at the same place in the same round: mean and median as they are in a trace, the empty window of its probe
(`window`), and the mean less the window. Nothing else is subtracted anywhere.

A second table tests an assumption of the scheme of 2012 about fences: that code between an access and the second clock read makes the clock
wait. The first clock read is ordered after the address there, so that only the access and the fence lie between.

Prediction for an H200, before it was measured:

    truth           shared 24, L1 34, L2 280, DRAM 700, texture 94: as other chains of ours gave on that chip. Local 34 to 36, for it lies
                    in L1. Constants 20 to 35, a miss of the first cache about 100. An atomic in shared memory 50 to 70, in global memory
                    280 to 350 (L2 does it). Store then load: shared 30, global 330 (volatile, so past L1).
    dependent       the truth and 3 to 6 cycles, raw; within 5 cycles or 2 % of it less the window, for loads and atomics.
    consume         as near, or nearer
    simple, paper   a few cycles everywhere, or the wait of the access before; `paper` for constants and textures, with its dummy process
                    instead of the fence, is as good as `dependent` at the end, and begins too early
    fences          membar.cta 13 to 14 cycles at every level: it does not wait. fence.acq_rel.cta and a predicate on the value wait.
                    membar.gl costs 270 to 530 by itself, also without an access.

On the emulator every truth equals the chip file, to the cycle: its clock is built from these numbers. The exception is constants, which
never miss there.
"""

from memlane.lab.latency.lab import LATENCY

__all__ = ["LATENCY"]
