// Instructions written by hand.
__global__ void bits(unsigned* out, const unsigned* a, const unsigned* b) {
    unsigned x = a[threadIdx.x], y = b[threadIdx.x], permuted, reversed, majority, dot;
    asm("prmt.b32 %0, %1, %2, 0x5140;" : "=r"(permuted) : "r"(x), "r"(y));
    asm("{\n .reg .b32 t;\n brev.b32 t, %1;\n add.u32 %0, t, %2;\n}" : "=r"(reversed) : "r"(x), "r"(y));
    asm("lop3.b32 %0, %1, %2, %3, 0xE8;" : "=r"(majority) : "r"(x), "r"(y), "r"(x ^ 0x0F0F0F0Fu));
    asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(dot) : "r"(x), "r"(y), "r"(7));
    ((uint4*)out)[threadIdx.x] = make_uint4(permuted, reversed, majority, dot);
}

__global__ void wide(unsigned long long* low, unsigned long long* high, const unsigned long long* a, const unsigned long long* b) {
    unsigned long long l, h;
    asm("{\n .reg .u64 t;\n mul.lo.u64 %0, %2, %3;\n mul.hi.u64 t, %2, %3;\n add.cc.u64 %0, %0, %2;\n addc.u64 %1, t, 0;\n}"
        : "=&l"(l), "=&l"(h)
        : "l"(a[threadIdx.x]), "l"(b[threadIdx.x]));
    low[threadIdx.x] = l;
    high[threadIdx.x] = h;
}

__global__ void vectors(float* out, const float* in) {
    float x, y, z, w;
    asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x), "=f"(y), "=f"(z), "=f"(w) : "l"(in + 4 * threadIdx.x));
    asm volatile("{\n .reg .pred p;\n setp.gt.f32 p, %1, 0f3F000000;\n @p st.global.f32 [%0], %2;\n @!p st.global.f32 [%0], %3;\n}"
                 ::"l"(out + threadIdx.x), "f"(x), "f"(y + z), "f"(w)
                 : "memory");
}
