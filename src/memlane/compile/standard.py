"""Provide the standard library for device code: stand-ins for headers that a device compiler cannot use.

The C headers that define macros and integer types are files in `include/`; all others are empty, so that an `#include <vector>` for host
code costs nothing. Names of `std::` that device code uses are then added one by one: from our own definitions, from the compiler's built-in
functions, or from CCCL's `cuda::std`, whose larger headers take half a second each to compile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from memlane.compile import toolkit
from memlane.compile.tokens import Token

_ALWAYS = ("memlane/nvcc.h", "limits.h", "math.h", "stdlib.h", "stddef.h")
"""Headers whose macros nvcc provides in every file; for all but the first it includes the host's version."""
PRELUDE = "memlane/std.h"
"""Name of the header that is included before the first line of every file."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_C_HEADERS = _words("""
    assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdarg stdbool stddef stdint stdio stdlib string
    time uchar wchar wctype
""")
_CXX_HEADERS = _words("""
    algorithm any array atomic barrier bit bitset charconv chrono codecvt compare complex concepts condition_variable coroutine deque
    exception execution expected filesystem format forward_list fstream functional future initializer_list iomanip ios iosfwd iostream
    istream iterator latch limits list locale map mdspan memory memory_resource mutex new numbers numeric optional ostream print queue
    random ranges ratio regex scoped_allocator semaphore set shared_mutex source_location span sstream stack stdexcept stop_token
    streambuf string string_view strstream syncstream system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set
    utility valarray variant vector version
""")
_SYSTEM_HEADERS = _words("""
    alloca.h dirent.h dlfcn.h fcntl.h getopt.h libgen.h malloc.h mpi.h omp.h pthread.h sched.h strings.h sys/mman.h sys/resource.h
    sys/stat.h sys/time.h sys/types.h sys/wait.h unistd.h windows.h
""")

_INT64_HEADERS = ("cuda/std/cstdint", "cuda_pipeline_helpers.h", "cuda_awbarrier_helpers.h")
_LONG_LONG = re.compile(r"(\busing u?int64_t\s*=\s*(?:un)?signed long|\btypedef (?:un)?signed long) long(?=;|\s+u?int64_t;)")
_THRUST_NAME = re.compile(r"\bthrust\s*::\s*(\w+)")
_HOST_ONLY = frozenset(
    _words("""
    cudaEGL.h cudaEGLTypedefs.h cudaGL.h cudaGLTypedefs.h cudaProfilerTypedefs.h cudaTypedefs.h cudaVDPAU.h cudaVDPAUTypedefs.h
    channel_descriptor.h cub/util_allocator.cuh cuda_device_runtime_api.h
    cuda_egl_interop.h cuda_gl_interop.h cuda_occupancy.h cuda_profiler_api.h cuda_vdpau_interop.h nvJitLink.h nvrtc.h nvvm.h
""")
)
"""CUDA headers that declare only host functions."""

_STREAM_REF = """#include <cuda_runtime_api.h>
namespace cuda {
class stream_ref {
    cudaStream_t stream = nullptr;
  public:
    stream_ref() = default;
    constexpr stream_ref(cudaStream_t stream) : stream(stream) { }
    constexpr cudaStream_t get() const { return stream; }
    void sync() const;
    void wait() const;
    bool is_done() const;
    bool ready() const;
};
}
"""
"""`cuda/stream_ref` without the runtime functions that it calls."""

_OWN = {
    "min": "template <class T> __device__ constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }",
    "max": "template <class T> __device__ constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }",
    "clamp": "template <class T> __device__ constexpr const T& clamp(const T& v, const T& lo, const T& hi) "
    "{ return v < lo ? lo : hi < v ? hi : v; }",
    "swap": "template <class T> __device__ constexpr void swap(T& a, T& b) { T c(a); a = b; b = c; }",
    "byte": "enum class byte : unsigned char {};",
    "tuple_size_v": "template <class T> inline constexpr size_t tuple_size_v = tuple_size<T>::value;",
    "tuple_element_t": "template <size_t I, class T> using tuple_element_t = typename tuple_element<I, T>::type;",
    "nullptr_t": "using nullptr_t = decltype(nullptr);",
    "max_align_t": "using max_align_t = long double;",
    "basic_istream": "template <class C, class T> class basic_istream;",
    "basic_ostream": "template <class C, class T> class basic_ostream;",
}
_GLOBAL = _words("""
    size_t ptrdiff_t printf memcpy memset malloc free clock clock_t
    abs labs llabs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma fmax fmin
    fmod frexp hypot ilogb isfinite isinf isnan ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nearbyint nextafter
    pow remainder remquo rint round scalbln scalbn signbit sin sinh sqrt tan tanh tgamma trunc
    fabsf sqrtf sinf cosf tanf expf logf powf floorf ceilf fminf fmaxf fmaf roundf truncf fmodf
""")
_STDINT = (
    *(f"{sign}int{kind}{bits}_t" for sign in ("", "u") for kind in ("", "_least", "_fast") for bits in (8, 16, 32, 64)),
    *_words("intptr_t uintptr_t intmax_t uintmax_t"),
)
_UNSIGNED = {"uint": "int", "ushort": "short", "ulong": "long", "u_char": "char", "u_int": "int", "u_short": "short", "u_long": "long"}
"""Unsigned types of the C library -> the type that each is the unsigned form of."""
_CCCL = {
    "array": _words("array"),
    "atomic": _words("atomic atomic_ref memory_order memory_order_relaxed memory_order_acquire memory_order_release memory_order_acq_rel"),
    "bit": _words("bit_cast countl_zero countr_zero popcount has_single_bit bit_ceil bit_floor bit_width"),
    "complex": _words("complex"),
    "functional": _words("""
        plus minus multiplies divides modulus negate equal_to not_equal_to greater less greater_equal less_equal logical_and logical_or
        logical_not bit_and bit_or bit_xor bit_not invoke
    """),
    "concepts": _words("""
        same_as derived_from convertible_to common_with integral signed_integral unsigned_integral floating_point assignable_from swappable
        destructible constructible_from default_initializable move_constructible copy_constructible equality_comparable totally_ordered
        movable copyable semiregular regular invocable regular_invocable predicate
    """),
    "iterator": _words("""
        iterator iterator_traits input_iterator_tag output_iterator_tag forward_iterator_tag bidirectional_iterator_tag
        random_access_iterator_tag reverse_iterator make_reverse_iterator advance distance next prev begin end cbegin cend rbegin rend data
        empty size
    """),
    "limits": _words("numeric_limits"),
    "memory": _words("addressof"),
    "numeric": _words("gcd lcm midpoint"),
    "optional": _words("optional nullopt"),
    "span": _words("span"),
    "tuple": _words("tuple make_tuple tie get apply forward_as_tuple tuple_cat"),
    "type_traits": _words("""
        true_type false_type integral_constant bool_constant enable_if enable_if_t conditional conditional_t decay decay_t void_t
        common_type common_type_t underlying_type underlying_type_t make_signed make_signed_t make_unsigned make_unsigned_t invoke_result
        invoke_result_t conjunction conjunction_v disjunction disjunction_v negation negation_v alignment_of extent extent_v rank rank_v
        type_identity type_identity_t aligned_storage aligned_storage_t aligned_union aligned_union_t
    """),
    "utility": _words("pair make_pair as_const exchange declval integer_sequence index_sequence make_index_sequence"),
    "variant": _words("variant visit monostate"),
}
"""Header of `cuda/std` -> the names taken from it."""
_OF_CXX20 = re.compile(
    rf"\b(?:consteval|constinit|char8_t|concept\s+\w+\s*=|requires\s*[({{]|requires\s+[\w:]|std::(?:{'|'.join(_CCCL['concepts'])})\b)|<=>"
)
BEFORE_CXX20 = ("c++11", "c++14", "c++17")
_TUPLE_PROTOCOL = frozenset(_words("tuple_size tuple_size_v tuple_element tuple_element_t"))
"""Names for structured bindings that CCCL itself declares in `std`; `cuda/std/tuple` provides them."""
_UNQUALIFIED = _words("numeric_limits is_same is_same_v enable_if enable_if_t conditional_t")
_CUB_IN_KERNELS = (
    *(f"block/block_{name}" for name in _words("adjacent_difference discontinuity exchange histogram load radix_sort reduce scan store")),
    *(f"warp/warp_{name}" for name in _words("exchange load reduce scan store")),
)
_THRUST_IN_KERNELS = (
    *("thrust/tuple.h", "thrust/pair.h", "thrust/functional.h", "thrust/complex.h", "thrust/iterator/", "thrust/random/"),
    *("thrust/detail/config", "thrust/detail/raw_pointer_cast.h", "thrust/type_traits/", "thrust/version.h"),
)
"""Thrust headers that device code can use. The first three replace all other Thrust headers, many of which include them."""
_THRUST_PARTS = {
    **{
        name: f"thrust/iterator/{kind}_iterator.h"
        for kind in _words("constant counting discard permutation reverse transform transform_output zip")
        for name in (f"{kind}_iterator", f"make_{kind}_iterator")
    },
    "raw_pointer_cast": "thrust/detail/raw_pointer_cast.h",
}
"""Name in `thrust` -> header that declares it, which the headers for the host include too."""
_THRUST_RANDOM = frozenset(
    _words("""
    default_random_engine minstd_rand minstd_rand0 ranlux24 ranlux48 taus88 random uniform_int_distribution uniform_real_distribution
    normal_distribution linear_congruential_engine discard_block_engine subtract_with_carry_engine xor_combine_engine
""")
)
"""Names that `thrust/random.h` declares."""
_NEEDED_BY_THRUST = frozenset(_words("declval size_t ptrdiff_t memcpy"))
_NEEDED_BY_RANDOM = frozenset(_words("numeric_limits uint32_t uint64_t basic_istream basic_ostream"))
"""Names in `std` that these Thrust headers use."""


@cache
def stand_ins() -> dict[str, str]:
    """Return a map from header name to text for every standard header and common system headers."""
    headers = {"memlane/nvcc.h": _included("nvcc.h")} | {name: _with_long_int64(name) for name in _INT64_HEADERS}
    headers |= {name: _included(name) for name in _SYSTEM_HEADERS}
    headers |= dict.fromkeys(_CXX_HEADERS, "")
    directories = toolkit.include_directories()
    headers |= {name: "" for name in _HOST_ONLY if not any((directory / name).is_file() for directory in directories)}
    for name in _C_HEADERS:
        text = _included(f"{name}.h")
        headers[f"{name}.h"] = text
        headers[f"c{name}"] = f"#include <{name}.h>\n" if text else ""
    return headers


def _included(name: str) -> str:
    """Return the text of a header in `include/`; empty if there is none."""
    file = Path(__file__).parent / "include" / name
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def _with_long_int64(name: str) -> str:
    """Return a CUDA header with 64-bit integers defined as `long`, as nvcc defines them on Linux; for NVRTC the header uses `long long`."""
    for directory in toolkit.include_directories():
        header = directory / name
        if header.is_file():
            return _LONG_LONG.sub(r"\1", header.read_text(encoding="utf-8", errors="surrogateescape"))
    return ""


def host_containers(texts: Iterable[str], thrust: frozenset[str], absent: Iterable[str] = ()) -> str:
    """Return declarations of the containers that host code uses.

    `std::function` is declared if the `texts` name it: a program may have a `function` of its own. `raw_pointer_cast` is left out if device
    code names it (`thrust`), because Thrust's own is there then. PyTorch tensors are added if its headers are among the `absent` ones.
    """
    tensors = any(header.startswith(("torch/", "ATen/", "c10/")) for header in absent)
    first = "#define MEMLANE_RAW_POINTER_CAST\n" if "raw_pointer_cast" in thrust else ""
    first += "#define MEMLANE_STD_FUNCTION\n" if any("std::function" in text for text in texts) else ""
    return first + "".join(map(_included, ("containers.h", *(("torch_tensors.h",) if tensors else ()))))


def names_in_thrust(texts: Iterable[str]) -> frozenset[str]:
    """Return the names that the texts use from `thrust::`."""
    return frozenset(name for text in texts for name in _THRUST_NAME.findall(text))


def needed_by_thrust(names: frozenset[str]) -> frozenset[str]:
    """Return the names in `std` that Thrust's headers use, given the names in `thrust` that the program uses."""
    return (_NEEDED_BY_THRUST | (_NEEDED_BY_RANDOM if names & _THRUST_RANDOM else frozenset())) if names else frozenset()


def library_stand_ins(headers: Iterable[str], thrust: frozenset[str]) -> dict[str, str]:
    """Return stand-ins for CUDA headers that NVRTC cannot compile whole.

    The parts of CUB and Thrust that run inside a kernel stay, those of Thrust only if device code names some of it (`thrust`).
    Host-only headers become empty.
    """
    found: dict[str, str] = {}
    parts = (*_THRUST_IN_KERNELS[:3], *sorted({_THRUST_PARTS[name] for name in thrust & _THRUST_PARTS.keys()})) if thrust else ()
    for header in headers:
        if header == "cub/cub.cuh":
            found[header] = "".join(f"#include <cub/{name}.cuh>\n" for name in _CUB_IN_KERNELS)
        elif header == "cuda/stream_ref":
            found[header] = _STREAM_REF
        elif header in _HOST_ONLY or header.startswith("cub/device/"):
            found[header] = ""
        elif header == "thrust/random.h" and thrust & _THRUST_RANDOM:
            continue
        elif header.startswith("thrust/") and not header.startswith(_THRUST_IN_KERNELS):
            found[header] = "".join(f"#include <{name}>\n" for name in parts)
    return found


def names_in_std(files: Iterable[list[Token]]) -> frozenset[str]:
    """Return the names that the files use from `std::`; after `using namespace std`, also common templates that are used unqualified."""
    names: set[str] = set()
    for tokens in files:
        opened = any(
            a.text == "using" and b.text == "namespace" and c.text == "std" for a, b, c in zip(tokens, tokens[1:], tokens[2:], strict=False)
        )
        for first, second, third in zip(tokens, tokens[1:], tokens[2:], strict=False):
            if first.text == "std" and second.text == "::":
                names.add(third.text)
            elif opened and first.kind == "word" and second.text == "<" and first.text in _UNQUALIFIED:
                names.add(first.text)
    return frozenset(names)


def asks_for_cxx20(line: str) -> bool:
    """Return whether a line that the compiler refuses has a word that is a keyword or a concept from C++20 on."""
    return _OF_CXX20.search(line.partition("//")[0]) is not None


def has_designators(files: Iterable[list[Token]]) -> bool:
    """Return whether a file has an initialiser like `{.x = 1}`, which nvcc accepts in any C++ version and NVRTC from C++20 on."""
    return any(
        a.text in ("{", ",") and b.text == "." and c.kind == "word" and d.text in ("=", "{")
        for tokens in files
        for a, b, c, d in zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False)
    )


def global_names(files: Iterable[list[Token]]) -> frozenset[str]:
    """Return the words in the files that only a host compiler accepts: integer types of the C library, and the obsolete `register`."""
    return frozenset({token.text for tokens in files for token in tokens if token.kind == "word"} & {*_STDINT, *_UNSIGNED, "register"})


def prelude(names: frozenset[str], types: frozenset[str] = frozenset(), limits: bool = False) -> str:
    """Return the header that declares these names in `std` and these types in the global namespace.

    Unknown names are left to the compiler, which may define them or report an error. `limits` adds macros of numeric limits such as
    `FLT_MAX`, which missing headers would have defined.
    """
    includes: dict[str, None] = dict.fromkeys(_ALWAYS)
    includes |= {"stdint.h": None} if types & {*_STDINT} else {}
    includes |= {"cuda/std/tuple": None} if names & _TUPLE_PROTOCOL else {}
    includes |= {"float.h": None, "limits.h": None} if limits else {}
    lines: list[str] = []
    for name in sorted(names):
        if name in _OWN:
            lines.append(_OWN[name])
        elif name in _GLOBAL:
            lines.append(f"using ::{name};")
        elif name in _STDINT:
            includes["stdint.h"] = None
            lines.append(f"using ::{name};")
        elif header := _cccl_header(name):
            includes[f"cuda/std/{header}"] = None
            lines.append(f"using ::cuda::std::{name};")
    if "register" in types:
        lines.append("#define register")
    first = [f"#include <{header}>" for header in includes]
    first += [f"typedef unsigned {_UNSIGNED[name]} {name};" for name in sorted(types) if name in _UNSIGNED]
    return "\n".join((*first, "namespace std {", *lines, "}", ""))


def _cccl_header(name: str) -> str | None:
    if name.startswith(("is_", "remove_", "add_")):
        return "type_traits"
    return next((header for header, names in _CCCL.items() if name in names), None)
