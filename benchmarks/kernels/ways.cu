// Ways that lanes of a warp take apart, and where they meet again. `a` has `turns` rows of n numbers.

// As many turns as the length says: lanes leave the loop one after another.
extern "C" __global__ void ragged(int* out, const int* a, const int* lengths, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
    for (int k = 0; k < lengths[i]; ++k) {
        sum += a[k * n + i];
    }
    out[i] = sum;
}

// The same for each of three uniform turns.
extern "C" __global__ void ragged_thrice(int* out, const int* a, const int* lengths, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, sum = 0, length = lengths[i];
    for (int turn = 1; turn < 4; ++turn) {
        for (int k = 0; k < length; ++k) {
            sum += turn * a[k * n + i];
        }
        out[i] = sum;
    }
}

// Turns are the same for all, and the last warp of each block is half empty.
extern "C" __global__ void even_turns(int* out, const int* a, int turns, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
    for (int k = 0; k < turns; ++k) {
        sum += a[k * n + i];
    }
    out[i] = sum;
}

// Both ways into the second branch are one place.
extern "C" __global__ void two_conditions(int* out, const int* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (a[i] > 3 && a[n + i] > 3) {
        out[i] = a[2 * n + i * 3 % n];
    } else {
        out[i] = a[3 * n + i * 5 % n];
    }
}

// Some leave the loop in the middle, through a block of their own.
extern "C" __global__ void left_early(int* out, int* seen, const int* a, int turns, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
    for (int k = 0; k < turns; ++k) {
        int value = a[k * n + i];
        if (value == 0) {
            continue;
        }
        sum += value;
        if (sum > 20) {
            seen[i] = k;
            break;
        }
    }
    out[i] = sum;
}

// Cases that run on into the next.
extern "C" __global__ void by_case(int* out, const int* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, value = 0;
    switch (a[i]) {
        case 0: value = a[n + i * 3 % n];
        case 1: value += a[2 * n + i * 5 % n]; break;
        case 2: value = a[3 * n + i * 7 % n];
        case 3: value *= a[4 * n + i * 9 % n];
        case 4: value += a[5 * n + i * 11 % n]; break;
        default: value = a[6 * n + i * 13 % n];
    }
    out[i] = value;
}

// Where in a sorted row: every lane on a path of its own, all in the same loop.
extern "C" __global__ void searched(int* out, const int* sorted, const int* wanted, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, value = wanted[i], low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (sorted[middle] < value) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    out[i] = low;
}
