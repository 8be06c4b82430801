/* Tensors of PyTorch as host code uses them: declarations for reading which kernels are launched where its headers are not there. */
namespace at {
struct memlane_any {
    template <class T> operator T() const;
    template <class T> bool operator==(const T&) const;
    template <class T> bool operator!=(const T&) const;
    memlane_any operator[](long) const;
    long size() const;
    template <class... A> memlane_any dtype(const A&...) const;
    template <class... A> memlane_any device(const A&...) const;
    template <class... A> memlane_any requires_grad(const A&...) const;
};
enum ScalarType { kByte, kChar, kShort, kInt, kLong, kHalf, kFloat, kDouble, kBool = 11, kBFloat16 = 15 };
constexpr ScalarType kUInt8 = kByte, kInt8 = kChar, kInt16 = kShort, kInt32 = kInt, kInt64 = kLong;
constexpr ScalarType kFloat16 = kHalf, kFloat32 = kFloat, kFloat64 = kDouble;
enum DeviceType { kCPU, kCUDA };
struct TensorOptions : memlane_any { };
struct Tensor {
    void* data_ptr() const;
    template <class T> T* data_ptr() const;
    template <class T> T* mutable_data_ptr() const;
    template <class T> const T* const_data_ptr() const;
    template <class T> T* data() const;
    template <class T> T item() const;
    long size(long) const;
    long stride(long) const;
    long numel() const;
    long dim() const;
    long ndimension() const;
    long nbytes() const;
    long element_size() const;
    int get_device() const;
    bool is_cuda() const;
    bool is_contiguous() const;
    bool defined() const;
    memlane_any sizes() const;
    memlane_any strides() const;
    memlane_any scalar_type() const;
    memlane_any dtype() const;
    memlane_any options() const;
    memlane_any device() const;
    template <class... A> Tensor contiguous(A...) const;
    template <class... A> Tensor view(A...) const;
    template <class... A> Tensor to(A...) const;
};
template <class... A> Tensor empty(const A&...);
template <class... A> Tensor empty_like(const A&...);
template <class... A> Tensor zeros(const A&...);
template <int N, class... A> Tensor zeros(const long (&)[N], const A&...);
template <class... A> Tensor zeros_like(const A&...);
}  // namespace at
namespace torch {
using namespace at;
}
namespace std {
struct runtime_error {
    template <class T> runtime_error(const T&);
};
}  // namespace std
#define memlane_dispatch(type, ...)                                                                                                          \
    {                                                                                                                                        \
        using scalar_t = type;                                                                                                               \
        (__VA_ARGS__)();                                                                                                                     \
    }
#define AT_DISPATCH_FLOATING_TYPES(type, name, ...) { memlane_dispatch(double, __VA_ARGS__) memlane_dispatch(float, __VA_ARGS__) }
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(type, name, ...) AT_DISPATCH_FLOATING_TYPES(type, name, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES_AND(one, type, name, ...) AT_DISPATCH_FLOATING_TYPES(type, name, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES_AND2(one, two, type, name, ...) AT_DISPATCH_FLOATING_TYPES(type, name, __VA_ARGS__)
#define AT_DISPATCH_ALL_TYPES(type, name, ...)                                                                                               \
    { AT_DISPATCH_FLOATING_TYPES(type, name, __VA_ARGS__) memlane_dispatch(int, __VA_ARGS__) memlane_dispatch(long, __VA_ARGS__) }
