// Kernels at which `explain` was once wrong, each as small as it may be; `test_kernels.py` says what is right.

// Gathers from a row of 1 KiB: its lanes lie apart, and what L1 serves takes little longer than shared memory would.
__global__ void gathered_rows(float* out, const float* rows, int turns) {
    int t = threadIdx.x;
    for (int k = 0; k < turns; k++) {
        float sum = 0;
        for (int m = 0; m < 8; m++) {
            unsigned place = ((t + m * blockDim.x) * 2654435761u) >> 24;
            sum += rows[(blockIdx.x * turns + k) * 256 + place];
        }
        out[k * blockDim.x + t] = sum;
    }
}

// Bytes by half of the lanes on each way: from the first to the last of them is more than a sector, wherever it begins.
__global__ void interleaved_bytes(unsigned char* yes, unsigned char* no, const int* flags) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, shift = i / 8;
    if (flags[i]) {
        yes[i + shift] = 1;
    } else {
        no[i + shift] = 1;
    }
}

// One of four fields by all lanes of a warp but its last.
__global__ void all_but_one(float* out, const float* boxes) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i % 32 != 31) out[i] = boxes[4 * i];
}

// A column, beside what all lanes read of it: that is one sector for all, and the column has one for each.
__global__ void scaled_column(float* out, const float* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i * n] * in[1] + in[2];
}

// All blocks do the same, but there is room for all but a few of them.
__global__ void a_few_blocks_more(float* out, const float* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i];
}

// Each step leads to the next, with enough warps to fill the better part of the wait, and not all of it.
__global__ void crowded_walk(int* out, const int* next, int steps) {
    int t = threadIdx.x, lane = t % 32, at = t / 32;
    float busy = t;
    for (int k = 0; k < steps; k++) {
        at = next[at * 32 + lane];
        for (int m = 0; m < 4; m++) busy = __sinf(busy) + at;
    }
    out[blockIdx.x * blockDim.x + t] = at + (busy == 0.5f);
}

// Rows of a block are four floats wide, half a sector.
__global__ void narrow_rows(float* out, const float* in, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    out[y * n + x] = in[y * n + x];
}

// A pixel of four bytes, one store for each; the second function leaves one of them out.
__global__ void pixels(unsigned char* out, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, at = 4 * (y * n + x);
    out[at + 0] = x;
    out[at + 1] = y;
    out[at + 2] = x + y;
    out[at + 3] = 255;
}
__global__ void opaque_pixels(unsigned char* out, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, at = 4 * (y * n + x);
    out[at + 0] = x;
    out[at + 1] = y;
    out[at + 2] = x + y;
}

// A table of bytes that whole warps read at one place.
__global__ void looked_up(int* out, const unsigned char* table, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
    for (int k = 0; k < n; k++) sum += table[k];
    out[i] = sum;
}

extern "C" __global__ void row_times_vector(float *sums, const float *matrix, const float *vector, int n)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 0; j < n; j++)
        sums[row] += matrix[row * n + j] * vector[j];
}

extern "C" __global__ void cross_of_five(float *out, const float *in, int n)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x > 0 && x < n - 1 && y > 0 && y < n - 1)
        out[y * n + x] = in[y * n + x] + in[y * n + x - 1] + in[y * n + x + 1] + in[(y - 1) * n + x] + in[(y + 1) * n + x];
}

extern "C" __global__ void down_the_columns(float *out, const float *in, int n)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    out[y * n + x] = in[x * n + y];
}

extern "C" __global__ void few_bins(int *bins, const int *keys, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&bins[keys[i]], 1);
}

extern "C" __global__ void eight_rows_for_a_warp(float *out, const float *in, int n)
{
    out[blockIdx.x * blockDim.x + threadIdx.x] = in[threadIdx.x / 4 * n + blockIdx.x];
}

#define SIDE 16
extern "C" __global__ void two_rows_of_a_window(float *out, const float *in)
{
    __shared__ float window[SIDE + 4][SIDE + 4];
    for (int y = threadIdx.y; y < SIDE + 4; y += SIDE)
        for (int x = threadIdx.x; x < SIDE + 4; x += SIDE)
            window[y][x] = in[y * 32 + x];
    __syncthreads();
    float sum = 0;
    for (int y = 0; y < 5; y++)
        for (int x = 0; x < 5; x++)
            sum += window[threadIdx.y + y][threadIdx.x + x];
    out[threadIdx.y * SIDE + threadIdx.x] = sum;
}

extern "C" __global__ void rows_of_vectors(float4 *out, const float4 *in)
{
    __shared__ float tile[32][36];
    *(float4 *)&tile[threadIdx.x / 8][threadIdx.x % 8 * 4] = in[threadIdx.x];
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 32; k++)
        sum += tile[threadIdx.x / 8 * 4 % 32][k];
    out[threadIdx.x] = make_float4(sum, sum, sum, sum);
}

extern "C" __global__ void every_second_word(float *out, const float *in)
{
    __shared__ float words[512];
    words[2 * threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = words[2 * threadIdx.x];
}

// Rows of a table, each of which all warps of a block read while it is still on its way: it takes as long as DRAM, and comes once.
__global__ void rows_in_step(float* out, const float* table, int turns, int n) {
    int lane = threadIdx.x % 32;
    float sum = 0;
    for (int k = 0; k < turns; k++) sum += table[k * n + blockIdx.x * 32 % n + lane];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Bytes by blocks of which a row is half a sector.
__global__ void mixed_bytes(unsigned char* out, const unsigned char* one, const unsigned char* other, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    out[y * n + x] = (one[y * n + x] + other[y * n + x]) / 2;
}

// Lanes go down a column of the first matrix, and all of a warp read one word of the second, on a line that is still on its way.
__global__ void product_by_columns(float* out, const float* one, const float* other, int depth, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x, column = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0;
    for (int k = 0; k < depth; k++) sum += one[row * depth + k] * other[k * n + column];
    out[row * n + column] = sum;
}

// One warp of 32 makes a load in which its lanes use one bank, and the block waits for it.
__global__ void one_warp_of_a_block(float* out, const float* in) {
    __shared__ float tile[32 * 32];
    tile[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 32) tile[threadIdx.x] = tile[threadIdx.x * 32];
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = tile[threadIdx.x % 32];
}

// One warp loads from shared memory, by a stride that may put its lanes into one bank, while the others compute for `work` turns; then they meet at a barrier.
__global__ void met_at_a_barrier(float* out, int stride, int turns, int work) {
    __shared__ float tile[32 * 33];
    for (int i = threadIdx.x; i < 32 * 33; i += blockDim.x) tile[i] = 0;
    __syncthreads();
    float sum = threadIdx.x;
    for (int k = 0; k < turns; k++) {
        if (threadIdx.x < 32)
            for (int j = 0; j < 8; j++) sum += tile[threadIdx.x * stride + j];
        else
            for (int j = 0; j < work; j++) sum = sum * sum + 1;
        __syncthreads();
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Four fields of a structure of eight, on a line each.
struct Particle { float x, y, z, mass, vx, vy, vz, charge; };
__global__ void fields_on_four_lines(float* out, const Particle* particles) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = particles[i].x;
    float y = particles[i].y;
    float z = particles[i].z;
    float mass = particles[i].mass;
    out[i] = mass * (x * x + y * y + z * z);
}

// The same of a structure whose members lie in arrays of their own.
struct Arrays { const float *x, *y, *z, *mass; };
__global__ void fields_in_arrays(float* out, Arrays particles) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = particles.x[i], y = particles.y[i], z = particles.z[i];
    out[i] = particles.mass[i] * (x * x + y * y + z * z);
}

// A stencil whose lanes go down columns, a line for each point; one of two arrays goes along rows.
__global__ void points_on_lines(float* out, const float* in, const float* weights, int n) {
    int x = 1 + blockIdx.x * blockDim.x + threadIdx.x, y = 1 + blockIdx.y * blockDim.y + threadIdx.y;
    float sum = in[x * n + y];
    sum += in[x * n + y - 1];
    sum += in[x * n + y + 1];
    sum += in[x * n + y - n];
    sum += in[x * n + y + n];
    out[y * n + x] = sum * weights[y * n + x];
}

// A sum of a tree, load and store of which conflict alike.
__global__ void tree_by_stride(float* out, const float* in) {
    __shared__ float sums[1024];
    sums[threadIdx.x] = in[blockIdx.x * 1024 + threadIdx.x];
    __syncthreads();
    for (int step = 1; step < 1024; step *= 2) {
        int at = 2 * step * threadIdx.x;
        if (at < 1024) sums[at] += sums[at + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = sums[0];
}

// The smallest of eight kept values is replaced, by an index known at run time.
__global__ void eight_largest(float* out, const float* in, int rows, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float best[8];
    for (int k = 0; k < 8; k++) best[k] = -1;
    for (int row = 0; row < rows; row++) {
        int least = 0;
        for (int k = 1; k < 8; k++)
            if (best[k] < best[least]) least = k;
        if (in[row * n + i] > best[least]) best[least] = in[row * n + i];
    }
    float sum = 0;
    for (int k = 0; k < 8; k++) sum += best[k];
    out[i] = sum;
}

// Elements that are far apart, for reasons of which each has a remedy of its own.
__global__ void neighbours_of_a_thread(float* out, const float* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 16; k++) sum += in[16 * i + k];
    out[i] = sum;
}
__global__ void by_loaded_indices(float* out, const float* in, const int* where) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[where[i]];
}
__global__ void exchanged_indices(float* out, const float* in, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    out[x * n + y] = 2 * in[x * n + y];
}
__global__ void three_of_three(float* out, const float3* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i].x + in[i].y + in[i].z;
}
