"""The standard library as device code may use it: stand-ins for headers that mean nothing to a device compiler.

The C headers that define macros and integer types are files in `include/`; all others are empty, so that `#include <vector>` for the
sake of the host code costs nothing. What device code names in `std::` is then brought in name by name: from our own few lines, from the
compiler's built-in functions, or from CCCL's `cuda::std`, whose larger headers take half a second each.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from memlane.compile.tokens import Token

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

_OWN = {
    "min": "template <class T> __device__ constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }",
    "max": "template <class T> __device__ constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }",
    "clamp": "template <class T> __device__ constexpr const T& clamp(const T& v, const T& lo, const T& hi) "
    "{ return v < lo ? lo : hi < v ? hi : v; }",
    "swap": "template <class T> __device__ constexpr void swap(T& a, T& b) { T c(a); a = b; b = c; }",
    "byte": "enum class byte : unsigned char {};",
    "nullptr_t": "using nullptr_t = decltype(nullptr);",
    "max_align_t": "using max_align_t = long double;",
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
"""Names of the C library for unsigned types, and what is unsigned."""
_CCCL = {
    "array": _words("array"),
    "atomic": _words("atomic atomic_ref memory_order memory_order_relaxed memory_order_acquire memory_order_release memory_order_acq_rel"),
    "bit": _words("bit_cast countl_zero countr_zero popcount has_single_bit bit_ceil bit_floor bit_width"),
    "complex": _words("complex"),
    "functional": _words("""
        plus minus multiplies divides modulus negate equal_to not_equal_to greater less greater_equal less_equal logical_and logical_or
        logical_not bit_and bit_or bit_xor bit_not invoke
    """),
    "limits": _words("numeric_limits"),
    "optional": _words("optional nullopt"),
    "span": _words("span"),
    "tuple": _words("tuple make_tuple tie get tuple_size tuple_element"),
    "type_traits": _words("""
        true_type false_type integral_constant bool_constant enable_if enable_if_t conditional conditional_t decay decay_t void_t
        common_type common_type_t underlying_type underlying_type_t make_signed make_signed_t make_unsigned make_unsigned_t invoke_result
        invoke_result_t conjunction conjunction_v disjunction disjunction_v negation negation_v alignment_of extent extent_v rank rank_v
        type_identity type_identity_t
    """),
    "utility": _words("pair make_pair exchange declval integer_sequence index_sequence make_index_sequence"),
    "variant": _words("variant visit monostate"),
}
"""Header of `cuda/std` -> the names that are taken from it."""
_UNQUALIFIED = _words("numeric_limits is_same is_same_v enable_if enable_if_t conditional_t")
_CUB_IN_KERNELS = (
    *(f"block/block_{name}" for name in _words("adjacent_difference discontinuity exchange histogram load radix_sort reduce scan store")),
    *(f"warp/warp_{name}" for name in _words("exchange load reduce scan store")),
)


@cache
def stand_ins() -> dict[str, str]:
    """Header name to text: every standard header, and the usual ones of the system."""
    headers = dict.fromkeys(_SYSTEM_HEADERS, "")
    headers |= dict.fromkeys(_CXX_HEADERS, "")
    for name in _C_HEADERS:
        file = Path(__file__).parent / "include" / f"{name}.h"
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        headers[f"{name}.h"] = text
        headers[f"c{name}"] = f"#include <{name}.h>\n" if text else ""
    return headers


def host_containers(thrust: bool) -> str:
    """Declarations of the containers that host code uses; without those of Thrust if the real ones are there."""
    names = ("containers.h",) if thrust else ("containers.h", "thrust_containers.h")
    return "".join((Path(__file__).parent / "include" / name).read_text(encoding="utf-8") for name in names)


def library_stand_ins(headers: Iterable[str], texts: Iterable[str]) -> dict[str, str]:
    """Stand-ins for those of CUDA's own headers that NVRTC cannot digest as a whole: of CUB the parts that run inside a kernel, of Thrust
    nothing unless device code names it."""
    uses_thrust = any("thrust::" in text for text in texts)
    found: dict[str, str] = {}
    for header in headers:
        if header == "cub/cub.cuh":
            found[header] = "".join(f"#include <cub/{name}.cuh>\n" for name in _CUB_IN_KERNELS)
        elif header.startswith("cub/device/") or (header.startswith("thrust/") and not uses_thrust):
            found[header] = ""
    return found


def names_in_std(files: Iterable[list[Token]]) -> frozenset[str]:
    """The names that the files take from `std::`; after `using namespace std` also the templates that device code likes to use."""
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


def global_names(files: Iterable[list[Token]]) -> frozenset[str]:
    """The integer types among the words of the files. A compiler of host code gives them to every file."""
    return frozenset({token.text for tokens in files for token in tokens if token.kind == "word"} & {*_STDINT, *_UNSIGNED})


def prelude(names: frozenset[str], types: frozenset[str] = frozenset(), limits: bool = False) -> str:
    """The header that puts these names into `std` and these types into the global namespace; names it does not know are left to the
    compiler, which may know them or complain. `limits` asks for those of numbers too, as `FLT_MAX`, which missing headers would give."""
    includes: dict[str, None] = {"stdint.h": None} if types & {*_STDINT} else {}
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
    first = [f"#include <{header}>" for header in includes]
    first += [f"typedef unsigned {_UNSIGNED[name]} {name};" for name in sorted(types) if name in _UNSIGNED]
    return "\n".join((*first, "namespace std {", *lines, "}", ""))


def _cccl_header(name: str) -> str | None:
    if name.startswith(("is_", "remove_", "add_")):
        return "type_traits"
    return next((header for header, names in _CCCL.items() if name in names), None)
