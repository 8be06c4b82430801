"""What compilers and assemblers are given and give: CUDA C++, cubins, listings, mangled names, the profiler's table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

from memlane.compile import assemble, standard
from memlane.compile.cubin import kernel_usage
from memlane.compile.declarations import units_of
from memlane.compile.hostcode import cut
from memlane.compile.macros import collect
from memlane.compile.sources import gather, with_includes
from memlane.compile.tokens import tokenize
from memlane.lab.profiler import parse as parse_profile
from memlane.ptx import demangle, parse
from memlane.sass import memory_access
from memlane.sass.nvdisasm import run_nvdisasm
from memlane.sass.program import Program
from memlane.titles import kernel_label
from tests.fuzz.mutations import mutated_bytes, mutated_tokens, tokens
from tests.fuzz.of_ptx import ROOT

# -- CUDA C++ --------------------------------------------------------------------------------------------------------------------

_HOSTS = """\
template <typename T, int N = 4> __global__ void k(T* a) { a[N] = 1; }
#define HD __host__ __device__
#define MAKE(name) __global__ void name(int* p) { *p = 1; }
MAKE(first)
#if 0
prose that isn't code {
#elif defined(X)
#else
#endif
namespace a::b { inline namespace c { extern "C" { struct S { HD int f() const { return 1; } operator bool(); }; } } }
static const int M = 3, L[2] = {1, 2};
S::S() : a(1), b{2}, c<int>(3)... { try { } catch (...) { } }
auto f = [](int x) -> int { return x << 1; };
int main() { const int n = 4, m = n + 1; k<float, n * 2><<<1, m>>>(nullptr); a::k<b<c>><<<1, 2>>>(); return 0; }
enum class E : int { A, B }; using T = decltype(f); typedef int (*P)(int); std::vector<int> v; R"x(raw)x"; 'c'; 1'000.5e-3f;
"""


@cache
def programs() -> tuple[tuple[str, ...], ...]:
    """Return programs as tokens."""
    folders = (ROOT / "examples", ROOT / "tests" / "compile" / "programs", ROOT / "src" / "memlane" / "lab" / "reduction" / "steps")
    texts = [path.read_text(encoding="utf-8") for one in folders for path in sorted(one.glob("*.cu"))]
    pieces = [piece for text in texts for piece in _pieces(text)]
    return tuple(tuple(tokens(text)) for text in [*pieces, *([_HOSTS] * (len(pieces) // 3))])


def _pieces(text: str) -> list[str]:
    """Parts of 40 lines: a whole program takes long."""
    lines = text.split("\n")
    return ["\n".join(lines[first : first + 40]) for first in range(0, len(lines), 30)]


def mutated_text(random: Random, texts: Sequence[Sequence[str]]) -> str:
    """A text with some changes."""
    return mutated_tokens(random, random.choice(texts), random.choice(texts))


def read_program(text: str) -> object:
    """Cut the host code out of a program."""
    program = gather("fuzz.cu", text, Path("no such folder"), ())
    macros = collect([file.tokens for file in program.files], ["X=__device__"])
    (file,) = program.files
    code = cut(file.text, file.tokens, macros)
    assert len(code.text) == len(text)
    assert [c for c in code.text if c == "\n"] == [c for c in text if c == "\n"]
    for unit in units_of(file.tokens, macros):
        assert 0 <= unit.start <= unit.end <= len(text)
    with_includes(file, code.text)
    again = tokenize(code.text)
    return standard.prelude(standard.names_in_std([again]), standard.global_names([again]))


# -- assembled code --------------------------------------------------------------------------------------------------------------


@cache
def cubins() -> tuple[bytes, ...]:
    """Return assembled cases and examples."""
    paths = [ROOT / "tests/cases/ptx/generic.ptx", *(ROOT / f"examples/ptx/{name}.ptx" for name in ("chase", "transpose", "histogram"))]
    modules = [parse(path.read_text(encoding="utf-8"), path.name) for path in paths]
    return tuple(assemble(module, arch=arch).data for module in modules for arch in ("sm_90", "sm_100"))


def mutated_cubin(random: Random, files: Sequence[bytes]) -> bytes:
    """A cubin with some bytes changed, most often in the header, in the table of sections, or in the tables that are read."""
    data = random.choice(files)
    table = int.from_bytes(data[0x28:0x30], "little")
    way = random.random()
    if way < 0.3:
        return mutated_bytes(random, data[:64], data) + data[64:]
    if way < 0.7:
        return data[:table] + mutated_bytes(random, data[table:], data)
    if way < 0.9:
        first = random.randrange(64, max(65, len(data) - 400))
        return data[:first] + mutated_bytes(random, data[first : first + 400], data) + data[first + 400 :]
    return mutated_bytes(random, data, random.choice(files))


def read_cubin(data: bytes) -> object:
    """Read what the kernels of a cubin need."""
    return kernel_usage(data)


@cache
def listings() -> tuple[tuple[str, ...], ...]:
    """Return parts of the listings of some cubins, as tokens."""
    texts = [run_nvdisasm(data, ("-c", "-hex", "-gi", "-gp")).split("\n") for data in cubins()[1:3]]
    return tuple(tuple(tokens("\n".join([*lines[:12], *lines[at : at + 60]]))) for lines in texts for at in range(12, len(lines), 50))


def use_listing(program: Program) -> None:
    """Ask every instruction what it does to memory."""
    for _, instruction in program.instructions():
        memory_access(instruction)


# -- names and tables ------------------------------------------------------------------------------------------------------------

_NAMES = (
    *("_Z5naivePfPKfi", "_Z9block_sumIfLi256EEvPT_PKS0_i", "_ZN5space4kindIiE3runEv", "_Z1fIJifdEEvDpT_", "_ZN1a1bILb1EEC1Ev"),
    *(
        "_ZN12_GLOBAL__N_11kEPi",
        "_Z1kPFvifE",
        "_Z1kRA8_A4_fPM1SFivE",
        "_ZZ4mainENKUlvE_clEv",
        "_ZNK1aIL_Z3fooiEEclEi",
        "_Z1kIXadL_Z1gvEEEvv",
    ),
    *("_ZN1AaSERKS_", "_ZN1AcvT_IiEEv", "_Z1kIDv4_fEvT_S1_", "_ZZ1fvE1s_0", "_ZN3stdSt6vectorIiSaIiEE", "_Z1kPVKi", "_Z1kB5cxx11ILin5EEvv"),
    *(
        "_ZZN1aIiE1bEvENKUlT_E0_clIiEEDaS1_",
        "_Z1kIZ4mainEUlfE_EvT_",
        "_ZNSt3__112basic_stringIcS_E1fEv",
        "plain",
        "_Z",
        "_Z1k.1",
        "_Z1kv$x",
    ),
)


@cache
def names() -> tuple[tuple[str, ...], ...]:
    """Return mangled names, by character."""
    return tuple(tuple(name) for name in _NAMES)


def read_name(name: str) -> object:
    """Demangle a name past the memory of those that were read, and shorten it."""
    title = demangle.__wrapped__(name)
    return kernel_label(title)


_PROFILE = """\
==PROF== Connected to process 7
"ID","Process ID","Kernel Name","Block Size","l1tex__t_sectors.sum","sm__cycles.avg"
"","","","","sector","cycle"
"0","7","naive(float*, float const*, int)","(32, 8, 1)","1,024","64 (1; 2; 61)"
"1","7","k<int, 4>","(32, 8, 1)","n/a","1.5e3"
"""


@cache
def profiles() -> tuple[tuple[str, ...], ...]:
    """Return the profiler's table as tokens."""
    return (tuple(tokens(_PROFILE)),)


def read_profile(text: str) -> object:
    """Read the profiler's table."""
    return parse_profile(text)
