"""The checker: what a kernel does to memory and at its barriers that no kernel may do, found while it runs.

Order inside: records <- stamps <- notes <- clocks <- conflicts <- cells <- regions, masks, products <- hooks; shadows, findings <- launch.

records     what generated code and Python share
stamps      the time of the checker, and who acted when
notes       the table of findings
clocks      what happens before what: barriers, fences, flags
conflicts   two accesses to one word: ordered, or a data race
cells       the history of each word, looked at and written by a whole access
regions     which lanes of an access stay inside their allocation, in shared, global, local and generic memory
masks       the masks of warp-synchronous instructions
products    products of a warpgroup that are under way, and who touches their registers
hooks       what the checker adds to the code of an instruction
shadows     which bytes of each allocation were ever written, between launches
launch      one launch: the memory that it checks with, and what came of it
findings    from notes to findings in words

**Bounds.** Every lane's address is looked up. Lanes whose access is misaligned or lies outside its allocation, or in one that was freed,
are reported and left out of the access; a load gives them 0.

**Never written.** A bit for each byte of global, shared and local memory. What the host copied or cleared, what a launch without the
checker may have written, and variables of the module count as written. An element (a component of a vector access) is reported if none of
its bytes was ever written: copies of padded structures stay silent, and so does a word of which a part was written.

**Data races.** Two accesses to one byte by two threads, at least one of them a write, not both strong (atomic, volatile, relaxed or
stronger), and neither ordered before the other. Orders, for the threads of a block: a barrier of the block that both arrived at (by warp: a
warp counts as one when its lanes arrive apart); `bar.warp.sync`, which is taken to order all lanes of its warp; a fence and then a strong
write by one thread, a strong read of the same address and then a fence or barrier by the other. For threads of different blocks: the last
of these, with a fence of device scope or wider on the writing side. Shuffles and votes order nothing, as the manual says. The order is that
of the synchronisation, not of the schedule, so most races are found whichever thread comes first.

What may escape: the last write and two reads of each 4-byte word are remembered, so that a race with an earlier access can be missed, as
can one with all but the last of several threads that touch different bytes of one word. Chains of flags are followed by time (whoever
acquires a flag is taken to have seen all that was released before the last release of that flag), so that a race can hide behind a flag
that has nothing to do with it. Writes of the same value are no race. An asynchronous copy is taken to be complete at once; textures and
surfaces are not looked at. Of a launch, the last 2^22 turns of warps are remembered.

**Products of a warpgroup.** Their operands in shared memory are read as by any access, by the warp that comes by, when they are begun.
Their registers are theirs until the group that they are committed to was waited for, exactly as that run went.

**Barriers and masks.** A barrier of the whole block that threads have exited before, or that threads wait at in different places of the
code; a `.sync` instruction executed by a lane that its mask leaves out, or by lanes that name each other in different masks.
"""
