/* The containers of host code, as far as the types of their elements and pointers go: declarations for reading which kernels are launched. */
template <class T> struct memlane_container {
    using value_type = T;
    using iterator = T*;
    using const_iterator = const T*;
    template <class... A> memlane_container(A...);
    template <class A> memlane_container& operator=(const A&);
    T* data();
    const T* data() const;
    T* begin();
    T* end();
    const T* begin() const;
    const T* end() const;
    T& operator[](unsigned long);
    const T& operator[](unsigned long) const;
    T& front();
    T& back();
    unsigned long size() const;
    bool empty() const;
    void resize(unsigned long);
    void resize(unsigned long, const T&);
    void reserve(unsigned long);
    void assign(unsigned long, const T&);
    void push_back(const T&);
    template <class... A> void emplace_back(A&&...);
    void clear();
};
template <class T> struct memlane_pointer {
    template <class... A> memlane_pointer(A...);
    T* get() const;
    T* operator->() const;
    T& operator*() const;
    T& operator[](unsigned long) const;
    void reset(T* = nullptr);
};
template <class T> struct memlane_pointer<T[]> : memlane_pointer<T> {
    using memlane_pointer<T>::memlane_pointer;
};
/* Functions of the runtime that are given kernels: what they return becomes whatever it is used as. */
struct memlane_status {
    template <class T> operator T() const;
};
/* The initial value of a variable in place of one that does not compile: a class without a constructor must be given one if it is const. */
struct memlane_value {
    template <class T> operator T&() const;
};
#define _mlv memlane_value()
template <class... A> memlane_status cudaLaunchKernel(A&&...);
template <class... A> memlane_status cudaLaunchKernelEx(A&&...);
template <class... A> memlane_status cudaLaunchKernelExC(A&&...);
template <class... A> memlane_status cudaLaunchCooperativeKernel(A&&...);
template <class... A> memlane_status cudaLaunchCooperativeKernelMultiDevice(A&&...);
template <class... A> memlane_status cudaFuncGetAttributes(A&&...);
template <class... A> memlane_status cudaFuncGetName(A&&...);
template <class... A> memlane_status cudaFuncGetParamInfo(A&&...);
template <class... A> memlane_status cudaFuncSetAttribute(A&&...);
template <class... A> memlane_status cudaFuncSetCacheConfig(A&&...);
template <class... A> memlane_status cudaFuncSetSharedMemConfig(A&&...);
template <class... A> memlane_status cudaGetFuncBySymbol(A&&...);
template <class... A> memlane_status cudaOccupancyAvailableDynamicSMemPerBlock(A&&...);
template <class... A> memlane_status cudaOccupancyMaxActiveBlocksPerMultiprocessor(A&&...);
template <class... A> memlane_status cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(A&&...);
template <class... A> memlane_status cudaOccupancyMaxActiveClusters(A&&...);
template <class... A> memlane_status cudaOccupancyMaxPotentialBlockSize(A&&...);
template <class... A> memlane_status cudaOccupancyMaxPotentialBlockSizeVariableSMem(A&&...);
template <class... A> memlane_status cudaOccupancyMaxPotentialBlockSizeVariableSMemWithFlags(A&&...);
template <class... A> memlane_status cudaOccupancyMaxPotentialBlockSizeWithFlags(A&&...);
template <class... A> memlane_status cudaOccupancyMaxPotentialClusterSize(A&&...);
template <class K, class V> struct memlane_pair {
    K first;
    V second;
};
template <class K, class V> struct memlane_map : memlane_container<memlane_pair<const K, V>> {
    using memlane_container<memlane_pair<const K, V>>::memlane_container;
    using key_type = K;
    using mapped_type = V;
    V& operator[](const K&);
    V& at(const K&);
    const V& at(const K&) const;
    memlane_pair<const K, V>* find(const K&) const;
    unsigned long count(const K&) const;
    unsigned long erase(const K&);
    template <class... A> void insert(A&&...);
    template <class... A> void emplace(A&&...);
};
template <class K> struct memlane_set : memlane_container<K> {
    using memlane_container<K>::memlane_container;
    K* find(const K&) const;
    unsigned long count(const K&) const;
    unsigned long erase(const K&);
    template <class... A> void insert(A&&...);
};
namespace std {
template <class K, class V, class...> struct map : memlane_map<K, V> {
    using memlane_map<K, V>::memlane_map;
};
template <class K, class V, class...> struct unordered_map : memlane_map<K, V> {
    using memlane_map<K, V>::memlane_map;
};
template <class K, class...> struct set : memlane_set<K> {
    using memlane_set<K>::memlane_set;
};
template <class K, class...> struct unordered_set : memlane_set<K> {
    using memlane_set<K>::memlane_set;
};
template <class T, class...> struct deque : memlane_container<T> {
    using memlane_container<T>::memlane_container;
};
template <class T, class...> struct list : memlane_container<T> {
    using memlane_container<T>::memlane_container;
};
template <class T, class...> struct vector : memlane_container<T> {
    using memlane_container<T>::memlane_container;
};
template <class T, class...> struct unique_ptr : memlane_pointer<T> {
    using memlane_pointer<T>::memlane_pointer;
};
template <class T> struct shared_ptr : memlane_pointer<T> {
    using memlane_pointer<T>::memlane_pointer;
};
template <class T, class... A> unique_ptr<T> make_unique(A&&...);
template <class T, class... A> shared_ptr<T> make_shared(A&&...);
struct string : memlane_container<char> {
    using memlane_container<char>::memlane_container;
    const char* c_str() const;
};
}
/* The same for Thrust. */
namespace thrust {
template <class T> struct device_ptr : memlane_pointer<T> {
    using element_type = T;
    using value_type = T;
    using raw_pointer = T*;
    using pointer = device_ptr;
    using reference = T&;
    using difference_type = long;
    using memlane_pointer<T>::memlane_pointer;
};
template <class T, class...> struct device_vector : memlane_container<T> {
    using memlane_container<T>::memlane_container;
    device_ptr<T> data();
    device_ptr<const T> data() const;
};
template <class T, class...> struct host_vector : memlane_container<T> {
    using memlane_container<T>::memlane_container;
};
#ifndef MEMLANE_RAW_POINTER_CAST
template <class P> typename P::raw_pointer raw_pointer_cast(P);
template <class T> T* raw_pointer_cast(T*);
#endif
}
