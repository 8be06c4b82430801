#ifndef DETAIL_H
#define DETAIL_H
#include <stdio.h>
#include <math.h>
#ifdef __cplusplus
extern "C" {
#endif
int host_only(const char* s);
static inline void die(const char* m) { fprintf(stderr, "%s\n", m); exit(1); }
#ifdef __cplusplus
}
#endif
__device__ __forceinline__ float twice(float x) { return x * 2.0f + (float)M_PI; }
#endif
