"""Defines the runtime that generated kernels call: functions in LLVM IR, compiled once per process when a kernel first needs them.

The docstring of a function that writes IR (it takes an `Emit`) says what the generated code does at run time.

helper.py      what a runtime function (helper) is, and how it is compiled
faults.py      records the first fault of a launch, and stops it
warp_splits.py chooses which lanes of a warp run next
barriers.py    barriers of a block and of a warp, exits
access.py      loads and stores through checked addresses
copies.py      copies from global to shared memory
atomics.py     atomic read-modify-write
arithmetic.py  division, which has no vector instruction
matrices.py    products of matrices spread over a warp
warpgroup.py   one warp's part of a product of its warpgroup
rounding.py    arithmetic rounded in a given direction
schedule.py    chooses which warp of which block runs next
"""
