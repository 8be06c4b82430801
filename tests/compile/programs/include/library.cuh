#pragma once
#include "detail/detail.h"
#include <string>
#include <type_traits>
#include <vector>
#include <limits>
namespace lib {
inline void log(const std::string& s) { printf("%s", s.c_str()); }
template <class T> struct Vec2 {
    T x, y;
    Vec2() = default;
    __host__ __device__ constexpr Vec2(T a, T b) : x{a}, y{b} {}
    __host__ __device__ Vec2 operator+(const Vec2& o) const { return {x + o.x, y + o.y}; }
    Vec2& operator+=(const Vec2& o) { x += o.x; y += o.y; return *this; }
    T& operator[](int i) { return i ? y : x; }
    void operator()(int) {}
    explicit operator bool() const { return x != 0; }
    static Vec2 parse(const char*);
};
template <class T> Vec2<T> Vec2<T>::parse(const char* s) { return {}; }
template <typename T, typename = std::enable_if_t<std::is_floating_point<T>::value>>
__device__ T lowest() { return std::numeric_limits<T>::lowest(); }
}
