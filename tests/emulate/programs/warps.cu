// Lanes of one warp that go different ways and meet again.
__global__ void meet(int* out, const int* in) {
    __shared__ int cells[64];
    int lane = threadIdx.x % 32, *mine = cells + threadIdx.x / 32 * 32;
    if (lane < 16) {
        mine[lane] = in[threadIdx.x] * 2;
        __syncwarp();
        out[threadIdx.x] = mine[31 - lane];
    } else {
        mine[lane] = in[threadIdx.x] + 1;
        __syncwarp();
        out[threadIdx.x] = mine[31 - lane];
    }
}

__global__ void hand_over(int* out, const int* in) {
    __shared__ volatile int flag[2], cell[2];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) flag[warp] = 0;
    __syncwarp();
    if (lane == 0) {
        while (flag[warp] == 0) {}
        out[warp] = cell[warp];
    } else if (lane == 17) {
        cell[warp] = in[threadIdx.x];
        __threadfence_block();
        flag[warp] = 1;
    }
}

__global__ void leaders(int* first, unsigned* peers, const int* in) {
    int value = in[threadIdx.x] % 5;
    unsigned mask = __match_any_sync(__activemask(), value);
    peers[threadIdx.x] = mask;
    first[threadIdx.x] = __shfl_sync(mask, threadIdx.x, __ffs(mask) - 1);
    if (threadIdx.x % 2) first[threadIdx.x] += 1000 * __popc(__ballot_sync(0xAAAAAAAA, value == 1));
}
