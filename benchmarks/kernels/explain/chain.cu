// The address of each access comes from the value of the one before, and there are too few warps to fill the wait.

__global__ void follow(int* out, const int* next, int steps) {
    int lane = threadIdx.x, row = blockIdx.x;
    for (int k = 0; k < steps; k++) {
        row = next[row * 32 + lane];  // planted
    }
    out[blockIdx.x * 32 + lane] = row;
}

__global__ void search(int* out, const int* sorted, const int* keys, int n) {
    int key = keys[blockIdx.x], low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        int found = sorted[middle];  // planted
        low = found < key ? middle + 1 : low;
        high = found < key ? high : middle;
    }
    out[blockIdx.x * 32 + threadIdx.x] = low;
}

__global__ void automaton(int* out, const int* table, int steps) {
    int state = blockIdx.x & 63;
    for (int k = 0; k < steps; k++) {
        state = table[state * 8 + (k & 7)];  // planted
    }
    out[blockIdx.x * 32 + threadIdx.x] = state;
}

struct Node {
    int next, value;
};

__global__ void list_sum(int* out, const int* heads, const Node* nodes, int steps) {
    int node = heads[blockIdx.x], sum = 0;
    for (int k = 0; k < steps && node >= 0; k++) {
        int2 here = ((const int2*)nodes)[node];  // planted
        sum += here.y;
        node = here.x;
    }
    out[blockIdx.x * 32 + threadIdx.x] = sum;
}
