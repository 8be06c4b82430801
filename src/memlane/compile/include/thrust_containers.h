/* The same for Thrust, where device code does not include it. */
namespace thrust {
template <class T> struct device_ptr : memlane_pointer<T> {
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
template <class T> T* raw_pointer_cast(const device_ptr<T>&);
template <class T> T* raw_pointer_cast(T*);
}
