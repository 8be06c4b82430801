/* The standard library of host code, as far as types of elements and pointers go: declarations for reading which kernels are launched. */
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
template <class T> bool operator==(memlane_status, T);
template <class T> bool operator!=(memlane_status, T);
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
/* Functions of the runtime that most programs call. Each that is missing costs a statement, and the compiler reports only a hundred errors. */
#define MEMLANE_RUNTIME(name) template <class... A> memlane_status name(A&&...);
MEMLANE_RUNTIME(cudaDeviceGetAttribute)
MEMLANE_RUNTIME(cudaDeviceGetLimit)
MEMLANE_RUNTIME(cudaDeviceReset)
MEMLANE_RUNTIME(cudaDeviceSetCacheConfig)
MEMLANE_RUNTIME(cudaDeviceSetLimit)
MEMLANE_RUNTIME(cudaDeviceSetSharedMemConfig)
MEMLANE_RUNTIME(cudaDeviceSynchronize)
MEMLANE_RUNTIME(cudaEventCreate)
MEMLANE_RUNTIME(cudaEventCreateWithFlags)
MEMLANE_RUNTIME(cudaEventDestroy)
MEMLANE_RUNTIME(cudaEventElapsedTime)
MEMLANE_RUNTIME(cudaEventQuery)
MEMLANE_RUNTIME(cudaEventRecord)
MEMLANE_RUNTIME(cudaEventSynchronize)
MEMLANE_RUNTIME(cudaFree)
MEMLANE_RUNTIME(cudaFreeArray)
MEMLANE_RUNTIME(cudaFreeAsync)
MEMLANE_RUNTIME(cudaFreeHost)
MEMLANE_RUNTIME(cudaGetDevice)
MEMLANE_RUNTIME(cudaGetDeviceCount)
MEMLANE_RUNTIME(cudaGetDeviceProperties)
MEMLANE_RUNTIME(cudaGetErrorName)
MEMLANE_RUNTIME(cudaGetErrorString)
MEMLANE_RUNTIME(cudaGetLastError)
MEMLANE_RUNTIME(cudaGetSymbolAddress)
MEMLANE_RUNTIME(cudaGetSymbolSize)
MEMLANE_RUNTIME(cudaHostAlloc)
MEMLANE_RUNTIME(cudaHostGetDevicePointer)
MEMLANE_RUNTIME(cudaHostRegister)
MEMLANE_RUNTIME(cudaHostUnregister)
MEMLANE_RUNTIME(cudaMalloc)
MEMLANE_RUNTIME(cudaMalloc3D)
MEMLANE_RUNTIME(cudaMallocArray)
MEMLANE_RUNTIME(cudaMallocAsync)
MEMLANE_RUNTIME(cudaMallocHost)
MEMLANE_RUNTIME(cudaMallocManaged)
MEMLANE_RUNTIME(cudaMallocPitch)
MEMLANE_RUNTIME(cudaMemAdvise)
MEMLANE_RUNTIME(cudaMemGetInfo)
MEMLANE_RUNTIME(cudaMemPrefetchAsync)
MEMLANE_RUNTIME(cudaMemcpy)
MEMLANE_RUNTIME(cudaMemcpy2D)
MEMLANE_RUNTIME(cudaMemcpy2DAsync)
MEMLANE_RUNTIME(cudaMemcpyAsync)
MEMLANE_RUNTIME(cudaMemcpyFromSymbol)
MEMLANE_RUNTIME(cudaMemcpyPeer)
MEMLANE_RUNTIME(cudaMemcpyPeerAsync)
MEMLANE_RUNTIME(cudaMemcpyToSymbol)
MEMLANE_RUNTIME(cudaMemcpyToSymbolAsync)
MEMLANE_RUNTIME(cudaMemset)
MEMLANE_RUNTIME(cudaMemset2D)
MEMLANE_RUNTIME(cudaMemsetAsync)
MEMLANE_RUNTIME(cudaPeekAtLastError)
MEMLANE_RUNTIME(cudaSetDevice)
MEMLANE_RUNTIME(cudaSetDeviceFlags)
MEMLANE_RUNTIME(cudaStreamCreate)
MEMLANE_RUNTIME(cudaStreamCreateWithFlags)
MEMLANE_RUNTIME(cudaStreamCreateWithPriority)
MEMLANE_RUNTIME(cudaStreamDestroy)
MEMLANE_RUNTIME(cudaStreamQuery)
MEMLANE_RUNTIME(cudaStreamSynchronize)
MEMLANE_RUNTIME(cudaStreamWaitEvent)
MEMLANE_RUNTIME(cudaThreadExit)
MEMLANE_RUNTIME(cudaThreadSynchronize)
/* The same for functions of the C library. */
MEMLANE_RUNTIME(abort)
MEMLANE_RUNTIME(atof)
MEMLANE_RUNTIME(atoi)
MEMLANE_RUNTIME(atol)
MEMLANE_RUNTIME(exit)
MEMLANE_RUNTIME(fclose)
MEMLANE_RUNTIME(fflush)
MEMLANE_RUNTIME(fgets)
MEMLANE_RUNTIME(fopen)
MEMLANE_RUNTIME(fprintf)
MEMLANE_RUNTIME(fputs)
MEMLANE_RUNTIME(fread)
MEMLANE_RUNTIME(fscanf)
MEMLANE_RUNTIME(fwrite)
MEMLANE_RUNTIME(getenv)
MEMLANE_RUNTIME(gettimeofday)
MEMLANE_RUNTIME(putchar)
MEMLANE_RUNTIME(puts)
MEMLANE_RUNTIME(rand)
MEMLANE_RUNTIME(snprintf)
MEMLANE_RUNTIME(sprintf)
MEMLANE_RUNTIME(srand)
MEMLANE_RUNTIME(sscanf)
MEMLANE_RUNTIME(strcmp)
MEMLANE_RUNTIME(strlen)
MEMLANE_RUNTIME(strtol)
MEMLANE_RUNTIME(time)
struct memlane_file {
    template <class T> operator T*() const;
};
#ifndef stderr
static constexpr memlane_file stdin { }, stdout { }, stderr { };
#endif
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
template <class T> string to_string(T);
template <class A> string operator+(const string&, const A&);
#ifdef MEMLANE_STD_FUNCTION
template <class F> struct function;
template <class R, class... A> struct function<R(A...)> {
    template <class F> function(F);
    explicit operator bool() const;
    R operator()(A...) const;
};
#endif
/* Streams, so that what a program prints does not have to be left out. */
struct ios_base {
    enum openmode { in, out, binary, app, trunc };
};
struct ostream {
    constexpr ostream() { }
    template <class A, class... B> ostream(A, B...);
    template <class T> ostream& operator<<(const T&);
    ostream& operator<<(ostream& (*)(ostream&));
    template <class... A> ostream& flush(A...);
    template <class... A> int width(A...);
    template <class... A> int precision(A...);
    template <class... A> void close(A...);
    template <class... A> ostream& write(A...);
    explicit operator bool() const;
};
struct ostringstream : ostream {
    using ostream::ostream;
    string str() const;
};
struct ofstream : ostream {
    using ostream::ostream;
    bool is_open() const;
};
static ostream cout, cerr, clog;
ostream& endl(ostream&);
ostream& flush(ostream&);
ostream& fixed(ostream&);
ostream& scientific(ostream&);
memlane_status setw(int);
memlane_status setprecision(int);
memlane_status setfill(char);
/* Exceptions; what throws them is left out. */
struct exception {
    template <class... A> exception(A...);
    virtual ~exception();
    virtual const char* what() const noexcept;
};
struct exception_ptr {
    explicit operator bool() const;
};
exception_ptr current_exception();
void rethrow_exception(exception_ptr);
struct mutex {
    void lock();
    void unlock();
};
template <class T> struct lock_guard {
    lock_guard(T&);
};
template <class T> struct unique_lock {
    unique_lock(T&);
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
