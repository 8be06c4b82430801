// The kernels of the four cases. `place` says where an element of the remapped array lies: it stands in front of this text, made from the
// layout. CASE chooses one.

#if CASE == 1
// K-means: the nearest of some centres for each point; WORK points a thread.
extern "C" __global__ void assign(const float* points, const float* centres, int* members, int count, int features, int clusters) {
    for (int turn = 0; turn < WORK; ++turn) {
        int p = (turn * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
        if (p >= count) return;
        int best = 0;
        float least = 3.4e38f;
        for (int c = 0; c < clusters; ++c) {
            float distance = 0;
            for (int f = 0; f < features; ++f) {
                float step = points[place(p, f)] - centres[c * features + f];
                distance += step * step;
            }
            if (distance < least) {
                least = distance;
                best = c;
            }
        }
        members[p] = best;
    }
}

// What Rodinia does by hand: one thread a point turns the array round, feature by feature.
extern "C" __global__ void invert_mapping(const float* points, float* turned, int count, int features) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p < count)
        for (int f = 0; f < features; ++f) turned[(long long)count * f + p] = points[(long long)p * features + f];
}
#endif

#if CASE == 2
// Needleman-Wunsch: one anti-diagonal of the table of scores, a thread for each element.
extern "C" __global__ void diagonal(const int* similarity, int* score, int number, int side, int penalty) {
    int first = number < side ? 0 : number - side + 1;
    int i = first + blockIdx.x * blockDim.x + threadIdx.x, j = number - i;
    if (i >= side || j < 0) return;
    int corner = i && j ? score[place(i - 1, j - 1)] : -(i + j) * penalty;
    int up = i ? score[place(i - 1, j)] : -(j + 1) * penalty, left = j ? score[place(i, j - 1)] : -(i + 1) * penalty;
    score[place(i, j)] = max(corner + similarity[place(i, j)], max(up, left) - penalty);
}

// What is done by hand: tiles of 16 x 16 in shared memory, one anti-diagonal of tiles a launch; both arrays are row-major.
extern "C" __global__ void tiles(const int* similarity, int* score, int number, int side, int penalty) {
    __shared__ int table[17][17], alike[16][16];
    int across = side / 16, first = number < across ? 0 : number - across + 1;
    int i0 = (first + blockIdx.x) * 16, j0 = number * 16 - i0, t = threadIdx.x;
    for (int row = 0; row < 16; ++row) alike[row][t] = similarity[(long long)(i0 + row) * side + j0 + t];
    table[0][t + 1] = i0 ? score[(long long)(i0 - 1) * side + j0 + t] : -(j0 + t + 1) * penalty;
    table[t + 1][0] = j0 ? score[(long long)(i0 + t) * side + j0 - 1] : -(i0 + t + 1) * penalty;
    if (!t) table[0][0] = i0 && j0 ? score[(long long)(i0 - 1) * side + j0 - 1] : -(i0 + j0) * penalty;
    __syncthreads();
    for (int d = 0; d < 31; ++d) {
        int i = t, j = d - t;
        if (j >= 0 && j < 16) table[i + 1][j + 1] = max(table[i][j] + alike[i][j], max(table[i][j + 1], table[i + 1][j]) - penalty);
        __syncthreads();
    }
    for (int row = 0; row < 16; ++row) score[(long long)(i0 + row) * side + j0 + t] = table[row + 1][t + 1];
}
#endif

#if CASE == 3
// A sparse matrix times a vector, a warp for each row. With GATHERED the vector's elements lie in the order of the matrix's.
extern "C" __global__ void product(const int* begins, const int* columns, const float* values, const float* x, float* y, int rows) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0;
    for (int k = begins[row] + lane; k < begins[row + 1]; k += 32) {
#if GATHERED
        sum += values[k] * x[k];
#else
        sum += values[k] * x[columns[k]];
#endif
    }
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
    if (!lane) y[row] = sum;
}
#endif

#if CASE == 4
// Particles of seven floats: position, velocity and mass. The extent of one component, for each block: what bounding boxes and time steps
// are made of. A launch for each component.
extern "C" __global__ void extent(const float* particles, float* least, float* most, int component, int count) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    float low = 3.4e38f, high = -3.4e38f;
    if (p < count) low = high = particles[place(p, component)];
    for (int step = 16; step; step /= 2) {
        low = fminf(low, __shfl_xor_sync(0xffffffff, low, step));
        high = fmaxf(high, __shfl_xor_sync(0xffffffff, high, step));
    }
    if (threadIdx.x % 32 == 0 && p < count) {
        least[(component * gridDim.x + blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32] = low;
        most[(component * gridDim.x + blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32] = high;
    }
}

// What is done by hand where the structures stay: all components in one launch, a thread for each particle.
extern "C" __global__ void extents(const float* particles, float* least, float* most, int count) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    for (int component = 0; component < 7; ++component) {
        float low = 3.4e38f, high = -3.4e38f;
        if (p < count) low = high = particles[place(p, component)];
        for (int step = 16; step; step /= 2) {
            low = fminf(low, __shfl_xor_sync(0xffffffff, low, step));
            high = fmaxf(high, __shfl_xor_sync(0xffffffff, high, step));
        }
        if (threadIdx.x % 32 == 0 && p < count) {
            least[(component * gridDim.x + blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32] = low;
            most[(component * gridDim.x + blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32] = high;
        }
    }
}
#endif
