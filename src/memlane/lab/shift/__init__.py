"""Repeat and extend the published experiment on random address shifts: the gain of layouts of shared memory, and their cost.

Warps of one block access a tile of 32 x 32 elements: contiguous, stride (a column), diagonal, anti-diagonal, random; each access at a
random offset in the tile. Clock cycles are between two clock reads of each warp, the first when its addresses have arrived, the second when
its last value has (for stores: when a load behind them has). With the address *excluded* it is computed before the first read, which is
what a shift in hardware would give; *included*, between the two. There is one access per warp, as was published, or 16 back to back. Random
shifts are drawn anew for each run. The speed-up is over the tile without a shift, with the 95 % interval of the mean over the runs. The
published probe, two bare clock reads, is compared; and so are three places for the table of shifts, because the slides do not say in words
where theirs lay.

T. Fujita: "Rigorous evaluation of random address shifts by PTX code of GPUs" (slides, Hiroshima University), on a GeForce GTX 680: stride
2.3 times as fast with the computation of the address included and about 23 times with it excluded; other patterns slower, or hardly
different.

Prediction for an H200, 32 warps, before it was measured:

    16 accesses, excluded     stride of 4 bytes 22 to 28 times, for 16 x 32 accesses of 32 wavefronts take 16,384 cycles and those of 1 take
                              512 and a latency; of 8 bytes 13 to 15 times with the searched layout, for 2 wavefronts are its least; RAP of
                              8 bytes 6 to 8 times, since 32 shifts are no longer different in 16 banks. Diagonals: the searched layout
                              (2 wavefronts at most) 1.5 times as fast as RAP (3.6). RAS, stride, 4 bytes: 8 times.
    16 accesses, included     stride 6 to 10 times for layouts of arithmetic, 4 to 6 for tables in shared memory; contiguous and diagonal
                              slower than without a shift: the address costs 3 to 6 instructions, which 32 warps issue at 4 a cycle
    one access, excluded      stride 10 times, by the mean over the warps
    table in constant memory  the slowest for stride, where all lanes look up other rows: 32 passes; in shared memory the quickest
    whole kernels             transpose 1.1 to 1.3 times (memory bounds it), product 4 times, butterfly 1.1; XOR as padding, and padding
                              takes room. `align` is without conflicts as it is, and every shift makes it slower: 0.5 times by padding,
                              which puts its anti-diagonals into one bank

The first runs agreed for 4 bytes (21 times) and 8 bytes (13), but revealed two errors. Loads of 8 bytes of which only one half was used
were loaded as 4. And one access of each of 32 warps took 270 cycles from the first start to the last end, where 32 wavefronts lie between:
the warps left the barrier together and then waited for their addresses and their instructions. Since then all of a value is used, and each
run is made twice, of which the second counts. Prediction for that: 4 bytes 27 times, 8 bytes 14.5. The result was 28.7 and 15.3 (reads),
and a discovery: a warp alone takes two cycles for each wavefront of a conflict, and two warps together still only two. 32 warps that start
in the same cycle do not pair so well at first.

On the emulator with the chip GTX 680 in its mode of 8-byte banks the order of these equals the slides', and its times are a model's.
"""

from memlane.lab.shift.lab import SHIFT

__all__ = ["SHIFT"]
