// Kernels by which devices signal each other without the host: a put stores elements into memory of other devices and raises flags there, a
// wait polls flags in the memory of its own device. Flags count how often they were raised, and each side counts for itself, so that
// the same launch can be replayed again and again.

typedef unsigned long long u64;

struct Box {            // elements on both sides: `units` words side by side, `rows` of them, and `layers` of those
    u64 to, of;
    long long to_row, of_row, to_layer, of_layer;   // bytes from one to the next
    unsigned units, rows, first, unused;            // first: how many words all boxes before this one have
};

struct Put {
    unsigned boxes, flags, words, bytes;            // how many; bytes of a word: 16, 8, 4, 2 or 1
    Box box[BOXES];
    u64 flag[FLAGS];
};

struct Wait {
    unsigned flags, step, polls, naps;              // polls without a pause, and polls with one behind each, before it gives up
    u64 flag[FLAGS];
};

template <typename Word> __device__ void copy_words(const Put& put) {
    const unsigned step = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < put.words; i += step) {
        unsigned at = 0;
        while (at + 1 < put.boxes && i >= put.box[at + 1].first) ++at;
        const Box& box = put.box[at];
        const unsigned word = i - box.first, row = word / box.units, unit = word - row * box.units, layer = row / box.rows;
        const u64 to = box.to + layer * box.to_layer + (row - layer * box.rows) * box.to_row + (u64)unit * sizeof(Word);
        const u64 of = box.of + layer * box.of_layer + (row - layer * box.rows) * box.of_row + (u64)unit * sizeof(Word);
        *reinterpret_cast<Word*>(to) = *reinterpret_cast<const Word*>(of);
    }
}

// state: blocks that are done in this launch, and how often the put has run.
extern "C" __global__ void __launch_bounds__(256) memlane_put(const __grid_constant__ Put put, unsigned* state) {
    if (put.bytes == 16) copy_words<uint4>(put);
    else if (put.bytes == 8) copy_words<uint2>(put);
    else if (put.bytes == 4) copy_words<unsigned>(put);
    else if (put.bytes == 2) copy_words<unsigned short>(put);
    else copy_words<unsigned char>(put);
    __syncthreads();
    if (threadIdx.x) return;
    __threadfence_system();                         // what the block stored is there before its ticket
    if (atomicAdd(state, 1u) != gridDim.x - 1) return;
    __threadfence_system();                         // and what all blocks stored before the flags
    state[0] = 0;
    const unsigned count = state[1] + 1;
    state[1] = count;
    for (unsigned at = 0; at < put.flags; ++at) asm volatile("st.release.sys.global.u32 [%0], %1;" :: "l"(put.flag[at]), "r"(count) : "memory");
}

// state: how often the wait has run. failure: the step that gave up, plus one; which of its flags; what was seen there; what was waited for.
extern "C" __global__ void __launch_bounds__(32) memlane_wait(const __grid_constant__ Wait wait, unsigned* state, unsigned* failure) {
    const unsigned expected = *state + 1, lane = threadIdx.x;
    bool gone = *(volatile unsigned*)failure != 0;  // a run that has failed ends soon
    __syncwarp();
    if (lane < wait.flags) {
        unsigned seen = 0;
        for (unsigned poll = 0; !gone; ++poll) {
            asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(wait.flag[lane]) : "memory");
            if ((int)(seen - expected) >= 0) break;
            if (poll < wait.polls) continue;
            gone = *(volatile unsigned*)failure != 0;
            if (!gone && poll >= wait.polls + wait.naps && atomicCAS(failure, 0u, wait.step + 1) == 0) {
                failure[1] = lane;
                failure[2] = seen;
                failure[3] = expected;
            }
            __nanosleep(500000);
        }
    }
    __syncwarp();
    if (lane == 0) *state = expected;
}
