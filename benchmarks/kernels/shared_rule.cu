// Accesses to shared memory at addresses that the host chooses lane by lane: one operation a kernel, timed, and once for the profiler.
//
// `offsets` holds 32 byte offsets for each pattern and `masks` its active lanes (bit i is lane i). The operations are volatile, so that the
// assembler leaves each of them alone, and nothing they compute is needed: `sink` is never written, as no sum is `NEVER`.
//
// UNROLL: how many accesses stand in the timed loop. PATTERNS: how many patterns `once` knows, each with an instruction of its own.

#ifndef UNROLL
#define UNROLL 64
#endif
#ifndef PATTERNS
#define PATTERNS 1
#endif
#define NEVER 0x7e57ab1eu

struct Times {
    unsigned long long begin, end;
};

#define OPERATION(name) \
    struct name { \
        static __device__ __forceinline__ unsigned access(unsigned at, unsigned value); \
    }; \
    __device__ __forceinline__ unsigned name::access(unsigned at, unsigned value)

// -- loads ---------------------------------------------------------------------------------------------------------------------

OPERATION(ld_1) {
    unsigned result;
    asm volatile("ld.volatile.shared.u8 %0, [%1];" : "=r"(result) : "r"(at) : "memory");
    return result;
}
OPERATION(ld_2) {
    unsigned result;
    asm volatile("ld.volatile.shared.u16 %0, [%1];" : "=r"(result) : "r"(at) : "memory");
    return result;
}
OPERATION(ld_4) {
    unsigned result;
    asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(result) : "r"(at) : "memory");
    return result;
}
OPERATION(ld_8) {
    unsigned long long result;
    asm volatile("ld.volatile.shared.u64 %0, [%1];" : "=l"(result) : "r"(at) : "memory");
    return (unsigned)result ^ (unsigned)(result >> 32);
}
OPERATION(ld_16) {
    unsigned a, b, c, d;
    asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(at) : "memory");
    return a ^ b ^ c ^ d;
}

// -- stores --------------------------------------------------------------------------------------------------------------------

OPERATION(st_1) {
    asm volatile("st.volatile.shared.u8 [%0], %1;" ::"r"(at), "r"(value) : "memory");
    return 0;
}
OPERATION(st_2) {
    asm volatile("st.volatile.shared.u16 [%0], %1;" ::"r"(at), "r"(value) : "memory");
    return 0;
}
OPERATION(st_4) {
    asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(at), "r"(value) : "memory");
    return 0;
}
OPERATION(st_8) {
    asm volatile("st.volatile.shared.v2.u32 [%0], {%1, %1};" ::"r"(at), "r"(value) : "memory");
    return 0;
}
OPERATION(st_16) {
    asm volatile("st.volatile.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(value) : "memory");
    return 0;
}

// -- atomics without a result --------------------------------------------------------------------------------------------------

OPERATION(red_add_one) {
    asm volatile("red.shared.add.u32 [%0], 1;" ::"r"(at) : "memory");
    return 0;
}
OPERATION(red_add_u32) {
    asm volatile("red.shared.add.u32 [%0], %1;" ::"r"(at), "r"(value) : "memory");
    return 0;
}
OPERATION(red_max_u32) {
    asm volatile("red.shared.max.u32 [%0], %1;" ::"r"(at), "r"(value) : "memory");
    return 0;
}
OPERATION(red_add_u64) {
    asm volatile("red.shared.add.u64 [%0], %1;" ::"r"(at), "l"((unsigned long long)value) : "memory");
    return 0;
}
OPERATION(red_add_f32) {
    asm volatile("red.shared.add.f32 [%0], %1;" ::"r"(at), "f"(__uint_as_float(value)) : "memory");
    return 0;
}

// -- atomics whose result is used ----------------------------------------------------------------------------------------------

#define ATOMIC_4(name, instruction) \
    OPERATION(name) { \
        unsigned result; \
        asm volatile(instruction " %0, [%1], %2;" : "=r"(result) : "r"(at), "r"(value) : "memory"); \
        return result; \
    }
#define ATOMIC_8(name, instruction) \
    OPERATION(name) { \
        unsigned long long result; \
        asm volatile(instruction " %0, [%1], %2;" : "=l"(result) : "r"(at), "l"((unsigned long long)value) : "memory"); \
        return (unsigned)result; \
    }

ATOMIC_4(atom_add_u32, "atom.shared.add.u32")
ATOMIC_4(atom_max_u32, "atom.shared.max.u32")
ATOMIC_4(atom_and_b32, "atom.shared.and.b32")
ATOMIC_4(atom_inc_u32, "atom.shared.inc.u32")
ATOMIC_4(atom_exch_b32, "atom.shared.exch.b32")
ATOMIC_8(atom_add_u64, "atom.shared.add.u64")
ATOMIC_8(atom_exch_b64, "atom.shared.exch.b64")
OPERATION(atom_cas_b32) {
    unsigned result;
    asm volatile("atom.shared.cas.b32 %0, [%1], %2, %2;" : "=r"(result) : "r"(at), "r"(value) : "memory");
    return result;
}
OPERATION(atom_cas_b64) {
    unsigned long long result;
    asm volatile("atom.shared.cas.b64 %0, [%1], %2, %2;" : "=l"(result) : "r"(at), "l"((unsigned long long)value) : "memory");
    return (unsigned)result;
}
OPERATION(atom_add_f32) {
    float result;
    asm volatile("atom.shared.add.f32 %0, [%1], %2;" : "=f"(result) : "r"(at), "f"(__uint_as_float(value)) : "memory");
    return __float_as_uint(result);
}

// -- kernels -------------------------------------------------------------------------------------------------------------------

__device__ unsigned long long clock_now() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
    return now;
}

// A block for each pattern. Each warp has `region` bytes of its own, so that no two of them meet at an address.
template <class Operation>
__device__ void timed(Times* times, const unsigned* offsets, const unsigned* masks, unsigned region, int repeats, unsigned value,
                      unsigned* sink) {
    extern __shared__ __align__(128) unsigned char memory[];
    unsigned warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (unsigned i = threadIdx.x; i < warps * region / 4; i += blockDim.x) {
        reinterpret_cast<unsigned*>(memory)[i] = 0;
    }
    unsigned at = (unsigned)__cvta_generic_to_shared(memory) + warp * region + offsets[blockIdx.x * 32 + lane];
    unsigned mask = masks[blockIdx.x];
    __syncthreads();
    unsigned sum = 0;
    if (mask >> lane & 1) {
        unsigned long long begin = clock_now();
#pragma unroll 1
        for (int i = 0; i < repeats; ++i) {
#pragma unroll
            for (int j = 0; j < UNROLL; ++j) {
                sum ^= Operation::access(at, value);
            }
        }
        unsigned long long end = clock_now();
        if (lane == __ffs(mask) - 1) {
            times[blockIdx.x * warps + warp].begin = begin;
            times[blockIdx.x * warps + warp].end = end;
        }
    }
    if (sum == NEVER) {
        *sink = sum;
    }
}

// One warp, one access a pattern, each pattern an instruction of its own.
template <class Operation>
__device__ void once(const unsigned* offsets, const unsigned* masks, unsigned value, unsigned* sink) {
    extern __shared__ __align__(128) unsigned char memory[];
    unsigned base = (unsigned)__cvta_generic_to_shared(memory), sum = 0;
#pragma unroll
    for (int i = 0; i < PATTERNS; ++i) {
        if (masks[i] >> threadIdx.x & 1) {
            sum ^= Operation::access(base + offsets[i * 32 + threadIdx.x], value);
        }
    }
    if (sum == NEVER) {
        *sink = sum;
    }
}

#define KERNELS(name) \
    extern "C" __global__ void __launch_bounds__(256, 1) timed_##name(Times* times, const unsigned* offsets, const unsigned* masks, \
                                                                      unsigned region, int repeats, unsigned value, unsigned* sink) { \
        timed<name>(times, offsets, masks, region, repeats, value, sink); \
    } \
    extern "C" __global__ void __launch_bounds__(32, 1) once_##name(const unsigned* offsets, const unsigned* masks, unsigned value, \
                                                                    unsigned* sink) { \
        once<name>(offsets, masks, value, sink); \
    }

KERNELS(ld_1)
KERNELS(ld_2)
KERNELS(ld_4)
KERNELS(ld_8)
KERNELS(ld_16)
KERNELS(st_1)
KERNELS(st_2)
KERNELS(st_4)
KERNELS(st_8)
KERNELS(st_16)
KERNELS(red_add_one)
KERNELS(red_add_u32)
KERNELS(red_max_u32)
KERNELS(red_add_u64)
KERNELS(red_add_f32)
KERNELS(atom_add_u32)
KERNELS(atom_max_u32)
KERNELS(atom_and_b32)
KERNELS(atom_inc_u32)
KERNELS(atom_exch_b32)
KERNELS(atom_add_u64)
KERNELS(atom_exch_b64)
KERNELS(atom_cas_b32)
KERNELS(atom_cas_b64)
KERNELS(atom_add_f32)
