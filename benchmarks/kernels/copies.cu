// One load, one store, and little else: the ways in which a warp can ask global memory for data.

#include <cstdint>
#include <cuda_fp16.h>

template <class T>
__device__ void copy(T* out, const T* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = in[i];
    }
}

extern "C" __global__ void copy_1(uint8_t* out, const uint8_t* in, int n) {
    copy(out, in, n);
}
extern "C" __global__ void copy_2(uint16_t* out, const uint16_t* in, int n) {
    copy(out, in, n);
}
extern "C" __global__ void copy_4(float* out, const float* in, int n) {
    copy(out, in, n);
}
extern "C" __global__ void copy_8(float2* out, const float2* in, int n) {
    copy(out, in, n);
}
extern "C" __global__ void copy_16(float4* out, const float4* in, int n) {
    copy(out, in, n);
}

// A base that is no multiple of a sector: one sector more for every request.
extern "C" __global__ void misaligned(float* out, const float* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n - 3) {
        out[i] = in[i + 3];
    }
}

extern "C" __global__ void misaligned_8(double* out, const double* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n - 1) {
        out[i + 1] = in[i];
    }
}

extern "C" __global__ void reversed(float* out, const float* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[n - 1 - i] = in[i];
    }
}

// n is a multiple of the stride.
extern "C" __global__ void strided(float* out, const float* in, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int from = i * stride % n + i * stride / n;
        out[i] = in[from];
    }
}

extern "C" __global__ void strided_16(float4* out, const float4* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i % 4 * (n / 4) + i / 4] = in[i];
    }
}

extern "C" __global__ void broadcast(float* out, const float* in, const float* factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = in[i] * factor[blockIdx.x % 2];
    }
}

extern "C" __global__ void gather(float* out, const float* in, const int* index, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = in[index[i]];
    }
}

extern "C" __global__ void gather_8(double* out, const double* in, const int* index, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = in[index[i]];
    }
}

extern "C" __global__ void scatter(float* out, const float* in, const int* index, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[index[i]] = in[i];
    }
}

// -- structures ----------------------------------------------------------------------------------------------------------------

struct Particle {
    float x, y, z, mass;
};
struct Packed {
    float x, y, z;
};

// One member of four of a structure: a quarter of what moves is used.
extern "C" __global__ void structures(float* out, const Particle* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = in[i].mass * 2.0f;
    }
}

extern "C" __global__ void separate_arrays(float* out, const float* x, const float* y, const float* mass, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = (x[i] + y[i]) * mass[i];
    }
}

// 12 bytes, which no single load can fetch.
extern "C" __global__ void twelve_bytes(Packed* out, const Packed* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        Packed one = in[i];
        out[i] = Packed{one.y, one.z, one.x};
    }
}

extern "C" __global__ void gray_of_rgb(uint8_t* out, const uint8_t* rgb, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = (uint8_t)((rgb[3 * i] + 2 * rgb[3 * i + 1] + rgb[3 * i + 2]) / 4);
    }
}

extern "C" __global__ void scale_half2(__half2* out, const __half2* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = __hadd2(in[i], in[i]);
    }
}

extern "C" __global__ void axpy_double(double* y, const double* x, double a, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        y[i] += a * x[i];
    }
}

// -- lanes that do not take part -----------------------------------------------------------------------------------------------

// The lanes of a warp go two ways, and either way loads with half of them.
extern "C" __global__ void divergent(float* out, const float* a, const float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float value;
        if (threadIdx.x % 2 == 0) {
            value = a[i] + 1.0f;
        } else {
            value = b[n - 1 - i] * a[i / 2];
        }
        out[i] = value;
    }
}

// The lanes whose flag is not set read nothing.
extern "C" __global__ void flagged(float* out, const float* in, const uint8_t* flags, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = flags[i] ? in[i] : 0.0f;
    }
}

// A table in local memory, indexed by what was read.
extern "C" __global__ void local_table(int* out, const int* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int table[16];
        for (int j = 0; j < 16; ++j) {
            table[j] = i * (j + 1);
        }
        out[i] = table[in[i] & 15] + table[in[i] >> 4 & 15];
    }
}

// A pointer that leads to shared or to global memory, lane by lane.
extern "C" __global__ void either_space(float* out, const float* in, int n) {
    __shared__ float tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = (float)threadIdx.x;
    __syncthreads();
    if (i < n) {
        const float* from = in[i] < 0.5f ? tile + (255 - threadIdx.x) : in + i;
        out[i] = *from;
    }
}
