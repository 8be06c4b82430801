// What the kernels of this folder share: offsets, an element of ELEMENT bytes, and two ways to load and store.

typedef long long Index;

#if ELEMENT == 1
typedef unsigned char Element;
#elif ELEMENT == 2
typedef unsigned short Element;
#elif ELEMENT == 4
typedef unsigned int Element;
#elif ELEMENT == 8
typedef uint2 Element;
#else
typedef uint4 Element;
#endif

#define PER_UNIT (16 / ELEMENT)   // elements in a unit of 16 bytes

template <class T>
__device__ inline T load_plain(const T* from) {
    return __ldg(from);
}

// Data that is used once may leave the caches first.
template <class T>
__device__ inline T load_once(const T* from) {
    return __ldcs(from);
}

template <class T>
__device__ inline void store_plain(T* to, T value) {
    __stwb(to, value);   // an assignment may be split into its members
}

template <class T>
__device__ inline void store_once(T* to, T value) {
    __stcs(to, value);
}
