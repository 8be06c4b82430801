// Random integers of each thread's own: a shift register with a Weyl sequence, and a counter that is scrambled.
struct Weyl {
    unsigned x[5], d;
};

__device__ Weyl seeded(unsigned seed) {
    Weyl state;
    for (int k = 0; k < 5; ++k) state.x[k] = seed = seed * 1664525u + 1013904223u;
    state.d = 6615241u;
    return state;
}

__device__ unsigned next(Weyl& s) {
    unsigned t = s.x[0] ^ (s.x[0] >> 2);
    for (int k = 0; k < 4; ++k) s.x[k] = s.x[k + 1];
    s.x[4] = (s.x[4] ^ (s.x[4] << 4)) ^ (t ^ (t << 1));
    s.d += 362437u;
    return s.x[4] + s.d;
}

__global__ void weyl(unsigned* out, int draws) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    Weyl state = seeded(i + 1);
    for (int k = 0; k < draws; ++k) out[i * draws + k] = next(state);
}

__global__ void philox(uint4* out, unsigned key0, unsigned key1) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    uint4 c = make_uint4(i, 0, 0, 0);
    for (int round = 0; round < 10; ++round) {
        unsigned high0 = __umulhi(0xD2511F53u, c.x), low0 = 0xD2511F53u * c.x;
        unsigned high1 = __umulhi(0xCD9E8D57u, c.z), low1 = 0xCD9E8D57u * c.z;
        c = make_uint4(high1 ^ c.y ^ key0, low1, high0 ^ c.w ^ key1, low0);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    out[i] = c;
}
