"""Check what a kernel does to memory and at barriers while it runs: out-of-bounds and misaligned accesses, uninitialised reads, data races,
barriers and masks.

Order inside: records <- stamps <- notes <- clocks <- conflicts <- cells <- regions, masks, wgmma <- hooks; shadows, findings <- launch.

    records     records that generated code and Python share
    stamps      the checker's logical time, and which warp ran at each stamp
    notes       the table of findings
    clocks      happens-before order: barriers, fences, flags
    conflicts   whether two accesses to one word are ordered or a data race
    cells       the access history of each word, compared and updated by an access of a warp
    regions     which lanes of an access stay inside their allocation, in shared, global, local and generic memory
    masks       the masks of warp-synchronous instructions
    wgmma       wgmma products in flight, and accesses to their registers
    hooks       code that the checker adds to an instruction
    shadows     which bytes of each allocation were ever written, kept between launches
    declared_access  accesses of a launch outside the ranges that its plan step declares
    launch      one checked launch: its records and its reports
    findings    notes turned into reports in words

**Bounds.** Every lane's address is looked up. Lanes whose access is misaligned, or lies outside its allocation or in a freed one, are
reported and left out of the access; a load gives them 0.

**Never written.** A bit for each byte of global, shared and local memory. Bytes that the host copied or cleared, that a launch without the
checker may have written, and variables of the module count as written. An element (a component of a vector access) is reported if none of
its bytes was ever written, so copies of padded structures and partly written words are not reported.

**Data races.** Two accesses to one byte by two threads, at least one of them a write, not both strong (atomic, volatile, relaxed or
stronger), and neither ordered before the other. Orders between the threads of a block: a block barrier at which both arrived (by warp: a
warp counts as one if its lanes arrive separately); `bar.warp.sync`, which is taken to order all lanes of its warp; a fence and then a
strong write by one thread, a strong read of the same address and then a fence or barrier by the other. Between threads of different blocks
only the last of these counts, with a fence of device scope or wider on the writing side. Shuffles and votes order nothing, as the manual
says. The order is that of the synchronisation, not of the schedule, so most races are found whichever thread comes first.

False negatives: the last write and two reads of each 4-byte word are remembered, so a race with an earlier access can be missed, as can a
race with any but the last of several threads that touch different bytes of one word. Chains of flags are followed by time (a thread that
acquires a flag is taken to have seen everything released before the last release of that flag), so an unrelated flag can hide a race.
Writes of the same value are not a race. An asynchronous copy is taken to be complete at once; textures and surfaces are not checked. The
last 2^22 turns of warps of a launch are remembered.

**Products of a warpgroup.** Their shared-memory operands are checked like any access, by the warp that executes the instruction, when the
product starts. Their registers must not be touched until their group was waited for, exactly as executed.

**Barriers and masks.** A barrier of the whole block after threads have exited, or at which threads wait at different instructions; a
`.sync` instruction executed by a lane outside its mask, or by lanes that name each other in different masks.
"""
