// Ways in which the lanes of a warp come apart, and what brings them together again. `a` has rows of n numbers from 0 to 7. What a kernel
// stores last stands behind the place that its name says; `out` has three rows.

#define KERNEL(name) extern "C" __global__ void name(int* out, const int* a, int turns, int n)
#define HERE int i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i];

typedef int (*Step)(int, int);
__device__ __noinline__ int plus(int x, int y) { return x + y; }
__device__ __noinline__ int times(int x, int y) { return x * y; }
__device__ Step steps[2] = {plus, times};
__constant__ Step constant_steps[2] = {plus, times};

// Lanes call two functions, and nothing waits behind the call.
KERNEL(pointer) {
    HERE
    out[i] = steps[x & 1](i, 3);
}

// The same twice, with a choice in place of a table.
KERNEL(pointer_twice) {
    HERE
    Step step = x & 1 ? plus : times;
    int once = step(i, 3);
    out[i] = once + step(once, 5);
}

// Several times, with loads in between.
KERNEL(pointer_in_turns) {
    HERE
#pragma unroll
    for (int k = 0; k < 4; ++k) x = steps[x & 1](x, a[k * n + i]) & 1023;
    out[i] = x;
}

// In a loop, whose lanes wait for each other in each turn.
KERNEL(pointer_in_loop) {
    HERE
#pragma unroll 1
    for (int k = 0; k < turns; ++k) x = steps[x & 1](x, a[k * n + i]) & 1023;
    out[i] = x;
}

// A loop of other turns for each lane follows: in front of it lanes wait for each other.
KERNEL(pointer_before_branch) {
    HERE
    x = steps[x & 1](x, 3);
#pragma unroll 1
    for (int k = 0; k < (x & 3); ++k) x += a[k * n + i];
    out[i] = x;
}

// Lanes that call wait for those that do not: behind the branch they are together again.
KERNEL(pointer_in_branch) {
    HERE
    if (x > 2) x = steps[x & 1](i, 3);
    out[i] = x;
}

// The warp waits for all its lanes.
KERNEL(pointer_before_syncwarp) {
    HERE
    x = steps[x & 1](i, 3);
    __syncwarp();
    out[i] = x;
}

// So it does for an exchange between lanes.
KERNEL(pointer_before_shuffle) {
    HERE
    x = steps[x & 1](i, 3);
    out[i] = __shfl_xor_sync(~0u, x, 1);
}

// The block waits for all its threads.
KERNEL(pointer_before_syncthreads) {
    HERE
    x = steps[x & 1](i, 3);
    __syncthreads();
    out[i] = x;
}

// All lanes call the same function.
KERNEL(pointer_alike) {
    HERE
    out[i] = constant_steps[turns & 1](i, x);
}

// One function further down.
__device__ __noinline__ int nested(int x, int y) { return steps[x & 1](x, y) + 1; }
KERNEL(pointer_in_function) {
    HERE
    out[i] = nested(x, i);
}

// A function with a pointer may call itself, and so its branches do not wait for all its lanes.
__device__ __noinline__ int nested_branch(const int* a, int x, int i) {
    if (x > 2) x = steps[x & 1](x, 5);
    return x + a[i];
}
KERNEL(pointer_in_branch_of_function) {
    HERE
    out[i] = nested_branch(a, x, i);
}

// A method that a table of the object leads to.
struct Shape {
    int side;
    __device__ Shape(int side) : side(side) {}
    __device__ virtual int area() = 0;
};
struct Square : Shape {
    __device__ Square(int side) : Shape(side) {}
    __device__ __noinline__ int area() override { return side * side; }
};
struct Strip : Shape {
    __device__ Strip(int side) : Shape(side) {}
    __device__ __noinline__ int area() override { return side * 3; }
};
KERNEL(method) {
    HERE
    Square square(i);
    Strip strip(i);
    Shape* shape = x & 1 ? static_cast<Shape*>(&square) : &strip;
    out[i] = shape->area();
}

// A function that is left in several places: its lanes wait in front of its one return.
__device__ __noinline__ int left(int count) {
    int sum = 0;
    for (int k = 0; k < count; ++k) {
        if (sum > 4) return sum * 3;
        sum += k ^ count;
    }
    return sum;
}
KERNEL(several_returns) {
    HERE
    out[i] = left(x);
}

// A function in which lanes end.
__device__ __noinline__ int ending(int x) {
    if (x == 5) asm volatile("exit;");
    return x * 3;
}
KERNEL(exit_in_function) {
    HERE
    out[i] = ending(x);
}

// A function that calls itself, as often as each lane says.
__device__ __noinline__ int fibonacci(int x) { return x < 2 ? x : fibonacci(x - 1) + fibonacci(x - 2); }
KERNEL(recursion) {
    HERE
    out[i] = fibonacci(x);
}

// Calls of one function in both arms of a branch.
__device__ __noinline__ int loaded(const int* a, int i) { return a[i] + 1; }
KERNEL(calls_in_arms) {
    HERE
    if (x & 1) {
        x = loaded(a, i) * 3;
    } else {
        x = loaded(a, i + n) * 5;
    }
    out[i] = x;
}

// A function that calls another one from a branch keeps the barrier of its caller in a register.
__device__ __noinline__ int outer(const int* a, int i, int x) {
    if (x & 1) x = loaded(a, i) * 3;
    return x + a[i];
}
KERNEL(saved_barrier) {
    HERE
    if (x > 2) x = outer(a, i, x);
    out[i] = x;
}

// Lanes end in front of the others.
KERNEL(exits) {
    HERE
    if (x == 3) return;
    out[i] = x;
    if (x > 5) {
        out[n + i] = x;
        return;
    }
    out[2 * n + i] = x;
}

// Out of two loops at once, or out of the kernel.
KERNEL(out_of_two_loops) {
    HERE
    int sum = 0;
    for (int k = 0; k < x; ++k) {
        for (int j = 0; j < k; ++j) {
            sum += a[j * n + i];
            if (sum > 9) goto done;
        }
        if (sum == 7) return;
    }
done:
    out[i] = sum;
}

// Out of two loops with a store on the way.
KERNEL(out_through_store) {
    HERE
    int sum = 0;
#pragma unroll 1
    for (int k = 0; k < turns; ++k) {
#pragma unroll 1
        for (int j = 0; j < 2; ++j) {
            sum += a[(k + j) * n + i];
            if (sum > 16) {
                out[n + i] = k;
                goto done;
            }
        }
    }
done:
    out[i] = sum;
}

// A loop with two entrances.
KERNEL(two_entrances) {
    HERE
    int k = 0, sum = 0;
    if (x & 1) goto second;
first:
    sum += a[k * n + i];
    if (++k >= turns) goto done;
second:
    sum ^= a[k * n + i] + k;
    if (++k < turns && sum < 20) goto first;
done:
    out[i] = sum;
}

// Turns that begin again from two places.
KERNEL(two_back_edges) {
    HERE
    int k = 0, sum = 0;
again:
    sum += a[k * n + i];
    if (++k < turns) {
        if (sum & 1) goto again;
        sum += a[(k + 1) * n + i] * 3;
        if (sum < 40) goto again;
        out[n + i] = sum;
    }
    out[i] = sum;
}

// A condition of several parts.
KERNEL(conditions) {
    HERE
    if (x & 1 && (x & 2 || a[n + i] & 4) && a[2 * n + i] > 3) {
        out[i] = a[3 * n + i];
    } else {
        out[i] = x;
    }
}

// A jump table: one case calls, one runs on into the next, one ends.
KERNEL(jump_table) {
    HERE
    switch (x) {
        case 0: x = left(i & 7); break;
        case 1: x = 7 * i; break;
        case 2: out[n + i] = 9;
        case 3: x = i / 3; break;
        case 4: return;
        case 5: x = a[n + i]; break;
        case 6: x = a[2 * n + i] * 5; break;
        default: x = a[3 * n + i] + 1;
    }
    out[i] = x;
}

// Turns by the number of the thread: what follows is a barrier, at which all wait.
KERNEL(turns_by_thread) {
    HERE
    __shared__ int words[100];
    for (int k = threadIdx.x; k < 100; k += blockDim.x) words[k] = a[k];
    __syncthreads();
    out[i] = x + words[i % 100];
}

// Lanes sleep, some of them, or for different times.
KERNEL(sleeps) {
    HERE
    if (x & 1) __nanosleep(20);
    out[i] = x;
    for (int k = 0; k < x; ++k) __nanosleep(20);
    out[n + i] = x;
}

// A lane that never comes would stop the kernel.
KERNEL(trap) {
    HERE
    if (x > 100) __trap();
    out[i] = x;
}

// Lanes take a lock one after another.
KERNEL(lock) {
    HERE
    __shared__ int taken;
    if (threadIdx.x == 0) taken = 0;
    __syncthreads();
    bool done = false;
    while (!done) {
        if (atomicCAS(&taken, 0, 1) == 0) {
            out[n + i] = x;
            __threadfence();
            atomicExch(&taken, 0);
            done = true;
        }
    }
    out[i] = x;
}
