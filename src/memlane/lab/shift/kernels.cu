// Four kernels whose tiles in shared memory lie as `place(i, j)` says, in ROOM elements.
//
// In front of this text stand ROOM and the function `place`.

#define SIDE 32

// out = transpose of in; both n x n, n a multiple of 32. Blocks of 32 x 8.
extern "C" __global__ void transpose(float* out, const float* in, int n)
{
    __shared__ float tile[ROOM];
    const int column = blockIdx.x * SIDE, row = blockIdx.y * SIDE;
    for (int i = threadIdx.y; i < SIDE; i += blockDim.y)
        tile[place(i, threadIdx.x)] = in[(row + i) * n + column + threadIdx.x];
    __syncthreads();
    for (int i = threadIdx.y; i < SIDE; i += blockDim.y)
        out[(column + i) * n + row + threadIdx.x] = tile[place(threadIdx.x, i)];
}

// c = a times the transpose of b; all n x n, n a multiple of 32. Blocks of 32 x 32. Each row of a tile of b is read by a lane of its own.
extern "C" __global__ void __launch_bounds__(SIDE * SIDE) product(float* c, const float* a, const float* b, int n)
{
    __shared__ float left[ROOM], right[ROOM];
    const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * SIDE, column = blockIdx.x * SIDE;
    float sum = 0;
    for (int k = 0; k < n; k += SIDE) {
        left[place(y, x)] = a[(row + y) * n + k + x];
        right[place(y, x)] = b[(column + y) * n + k + x];
        __syncthreads();
#pragma unroll
        for (int m = 0; m < SIDE; ++m)
            sum += left[place(y, m)] * right[place(x, m)];
        __syncthreads();
    }
    c[(row + y) * n + column + x] = sum;
}

// Needleman-Wunsch scores of many pairs of words of 32 letters: scores[pair][i][j], a gap costs 1, equal letters give 2, others -1.
// A warp for each pair, four in a block; the warp walks over the anti-diagonals of its tile.
extern "C" __global__ void align(int* scores, const int* first, const int* second)
{
    __shared__ int tiles[4][ROOM];
    const int warp = threadIdx.x / SIDE, i = threadIdx.x % SIDE, pair = blockIdx.x * 4 + warp;
    int* tile = tiles[warp];
    const int mine = first[pair * SIDE + i], theirs = second[pair * SIDE + i];
    for (int step = 0; step < 2 * SIDE - 1; ++step) {
        const int j = step - i, letter = __shfl_sync(0xffffffff, theirs, j & (SIDE - 1));
        if (j >= 0 && j < SIDE) {
            const int corner = i && j ? tile[place(i - 1, j - 1)] : -(i + j);
            const int above = i ? tile[place(i - 1, j)] : -(j + 1), before = j ? tile[place(i, j - 1)] : -(i + 1);
            tile[place(i, j)] = max(corner + (mine == letter ? 2 : -1), max(above, before) - 1);
        }
        __syncwarp();
    }
    for (int row = 0; row < SIDE; ++row)
        scores[(pair * SIDE + row) * SIDE + i] = tile[place(row, i)];
}

// The Walsh-Hadamard transform of rows of 1024 integers, the butterflies of a fast Fourier transform without its factors.
// A block of 512 threads for each row; element k lies at place(k / 32, k % 32).
extern "C" __global__ void butterfly(int* out, const int* in)
{
    __shared__ int tile[ROOM];
    const int t = threadIdx.x;
    for (int k = t; k < SIDE * SIDE; k += blockDim.x)
        tile[place(k / SIDE, k % SIDE)] = in[blockIdx.x * SIDE * SIDE + k];
#pragma unroll
    for (int log = 0; log < 10; ++log) {
        __syncthreads();
        const int k = (t >> log << (log + 1)) | (t & ((1 << log) - 1)), m = k | 1 << log;
        int &low = tile[place(k / SIDE, k % SIDE)], &high = tile[place(m / SIDE, m % SIDE)];
        const int a = low, b = high;
        low = a + b;
        high = a - b;
    }
    __syncthreads();
    for (int k = t; k < SIDE * SIDE; k += blockDim.x)
        out[blockIdx.x * SIDE * SIDE + k] = tile[place(k / SIDE, k % SIDE)];
}
