"""What generated kernels call: functions that are compiled once for the process, the first time that a kernel needs them.

helper.py     what such a function is, and how it gets compiled
faults.py     a launch that went wrong: remember where, and stop
fragments.py  which lanes of a warp run next
barriers.py   barriers of a block and of a warp, exits
access.py     loads and stores through checked addresses
copies.py     from global to shared memory
atomics.py    read-modify-write
arithmetic.py division, which has no vector instruction
matrices.py   products of matrices spread over a warp
warpgroup.py  the part of a warp in a product of its warpgroup
rounding.py   arithmetic rounded in a given direction
schedule.py   which warp of which block runs next
"""
