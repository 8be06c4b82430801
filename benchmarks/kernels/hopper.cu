// What kernels for Hopper do by hand: copies of boxes through tensor maps, pipelines of bulk copies that barriers complete, clusters of
// blocks that reach into each other's shared memory, and products of tiles from asynchronous copies.

#include <cstdint>

struct alignas(64) TensorMap {
    uint64_t words[16];
};

__device__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// -- barriers that count bytes ---------------------------------------------------------------------------------------------------

__device__ void init(uint64_t* barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)));
    asm volatile("fence.mbarrier_init.release.cluster;");
}

__device__ void expect(uint64_t* barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

__device__ void wait(uint64_t* barrier, uint32_t parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra over;\nbra again;\nover:\n}" ::"r"(
            shared_address(barrier)),
        "r"(parity)
        : "memory");
}

// -- tensor maps -----------------------------------------------------------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(128) doubled_boxes(const __grid_constant__ TensorMap out, const __grid_constant__ TensorMap in) {
    __shared__ alignas(128) float tile[32][32];
    __shared__ uint64_t barrier;
    int x = blockIdx.x * 32, y = blockIdx.y * 32;
    if (threadIdx.x == 0) {
        init(&barrier);
        expect(&barrier, sizeof tile);
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                         shared_address(tile)),
                     "l"(&in), "r"(x), "r"(y), "r"(shared_address(&barrier))
                     : "memory");
    }
    __syncthreads();
    wait(&barrier, 0);
    for (int turn = 0; turn < 8; turn++) {
        tile[turn * 4 + threadIdx.x / 32][threadIdx.x % 32] *= 2;
    }
    asm volatile("fence.proxy.async.shared::cta;");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&out), "r"(x), "r"(y),
                     "r"(shared_address(tile))
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// -- bulk copies in a ring -------------------------------------------------------------------------------------------------------

constexpr int STAGES = 3, CHUNK = 512;

extern "C" __global__ void __launch_bounds__(128) ring_of_chunks(float* out, const float* in, int chunks) {
    __shared__ alignas(128) float ring[STAGES][CHUNK];
    __shared__ uint64_t full[STAGES];
    in += blockIdx.x * chunks * CHUNK;
    auto fetch = [&](int chunk) {
        int stage = chunk % STAGES;
        expect(&full[stage], sizeof ring[0]);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         shared_address(ring[stage])),
                     "l"(in + chunk * CHUNK), "r"(uint32_t(sizeof ring[0])), "r"(shared_address(&full[stage]))
                     : "memory");
    };
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            init(&full[stage]);
        }
        for (int chunk = 0; chunk < STAGES && chunk < chunks; chunk++) {
            fetch(chunk);
        }
    }
    __syncthreads();
    float sum = 0;
    for (int chunk = 0; chunk < chunks; chunk++) {
        wait(&full[chunk % STAGES], chunk / STAGES % 2);
        for (int turn = 0; turn < CHUNK / 128; turn++) {
            sum += ring[chunk % STAGES][turn * 128 + threadIdx.x];
        }
        __syncthreads();
        if (threadIdx.x == 0 && chunk + STAGES < chunks) {
            fetch(chunk + STAGES);
        }
    }
    out[blockIdx.x * 128 + threadIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(256) added_by_the_bulk(uint32_t* sums, const uint32_t* in) {
    __shared__ alignas(128) uint32_t part[256];
    part[threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x] + 1;
    asm volatile("fence.proxy.async.shared::cta;");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;" ::"l"(sums), "r"(shared_address(part)),
                     "r"(uint32_t(sizeof part))
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// -- clusters --------------------------------------------------------------------------------------------------------------------

__device__ uint32_t in_block(uint32_t address, uint32_t rank) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

__device__ uint32_t cluster_rank() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(128) cluster_sums(float* out, const float* in) {
    __shared__ float part[128];
    part[threadIdx.x] = in[blockIdx.x * 128 + threadIdx.x];
    cluster_sync();
    float sum = 0;
    for (uint32_t rank = 0; rank < 4; rank++) {
        float value;
        asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(in_block(shared_address(&part[threadIdx.x]), rank)));
        sum += value;
    }
    cluster_sync();
    out[blockIdx.x * 128 + threadIdx.x] = sum * (cluster_rank() + 1);
}

extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(128) cluster_bins(uint32_t* out, const uint32_t* in) {
    __shared__ uint32_t bins[64];
    if (threadIdx.x < 64) {
        bins[threadIdx.x] = 0;
    }
    cluster_sync();
    uint32_t value = in[blockIdx.x * 128 + threadIdx.x] % 256;
    asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], 1;" ::"r"(in_block(shared_address(&bins[value % 64]), value / 64))
                 : "memory");
    cluster_sync();
    if (threadIdx.x < 64) {
        out[blockIdx.x * 64 + threadIdx.x] = bins[threadIdx.x];
    }
}

// -- asynchronous copies of lanes --------------------------------------------------------------------------------------------------

__device__ void copy(void* to, const void* from, int bytes = 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
}

__device__ void copy_all(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

__device__ void copied() {
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
}

__device__ void load(uint32_t (&fragment)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(shared_address(row)));
}

// Of 64 x 64 halves each, b by its columns; a warp does 16 rows. Pieces of 16 bytes change places by their row.
extern "C" __global__ void __launch_bounds__(128) staged_product(float* c, const uint16_t* a, const uint16_t* b) {
    __shared__ alignas(128) uint16_t left[64][64], right[64][64];
    for (int piece = threadIdx.x, turn = 0; turn < 4; turn++, piece += 128) {
        int row = piece / 8, column = piece % 8;
        copy_all(&left[row][(column ^ row % 8) * 8], a + (blockIdx.x * 64 + row) * 64 + column * 8);
        copy_all(&right[row][(column ^ row % 8) * 8], b + row * 64 + column * 8);
    }
    copied();
    __syncthreads();
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float sums[8][4] = {};
    for (int k = 0; k < 8; k += 2) {
        uint32_t rows[4];
        int row = warp * 16 + lane % 16;
        load(rows, &left[row][((k + lane / 16) ^ row % 8) * 8]);
        for (int n = 0; n < 8; n += 2) {
            uint32_t columns[4];
            int column = (n + lane / 16) * 8 + lane % 8;
            load(columns, &right[column][((k + lane / 8 % 2) ^ column % 8) * 8]);
            for (int half = 0; half < 2; half++) {
                float* sum = sums[n + half];
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                             : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                             : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(columns[2 * half]), "r"(columns[2 * half + 1]));
            }
        }
    }
    for (int n = 0; n < 8; n++) {
        float* to = c + (blockIdx.x * 64 + warp * 16 + lane / 4) * 64 + n * 8 + lane % 4 * 2;
        *reinterpret_cast<float2*>(to) = make_float2(sums[n][0], sums[n][1]);
        *reinterpret_cast<float2*>(to + 8 * 64) = make_float2(sums[n][2], sums[n][3]);
    }
}

// Rows that end inside a copy: what is behind their end is filled with zeros.
extern "C" __global__ void __launch_bounds__(128) ragged_rows(float* out, const float* in, const int* lengths, int pitch) {
    __shared__ alignas(128) float row[512];
    int length = lengths[blockIdx.x], first = threadIdx.x * 4;
    int bytes = min(max(length - first, 0), 4) * 4;
    copy(&row[first], in + blockIdx.x * pitch + (bytes ? first : 0), bytes);
    copied();
    __syncthreads();
    for (int i = threadIdx.x, turn = 0; turn < 4; turn++, i += 128) {
        out[blockIdx.x * 512 + i] = row[i] + 1;
    }
}
