// Locks that every thread of a grid takes, lanes of one warp among them.
struct Lock {
    int taken, next, served;
};

__global__ void spin(Lock* lock, int* sum, const int* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool done = false;
    while (!done) {
        if (atomicCAS(&lock->taken, 0, 1) == 0) {
            __threadfence();
            *(volatile int*)sum = *(volatile int*)sum + in[i];
            __threadfence();
            atomicExch(&lock->taken, 0);
            done = true;
        }
    }
}

__global__ void impatient(Lock* lock, int* sum, const int* in) {
    while (atomicCAS(&lock->taken, 0, 1) != 0) {}
    __threadfence();
    *(volatile int*)sum = *(volatile int*)sum + in[blockIdx.x * blockDim.x + threadIdx.x];
    __threadfence();
    atomicExch(&lock->taken, 0);
}

__global__ void ticket(Lock* lock, int* order) {
    int mine = atomicAdd(&lock->next, 1);
    while (atomicAdd(&lock->served, 0) != mine) {}
    __threadfence();
    order[mine] = blockIdx.x * blockDim.x + threadIdx.x;
    __threadfence();
    atomicAdd(&lock->served, 1);
}
