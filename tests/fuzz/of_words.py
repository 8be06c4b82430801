"""What a user writes on a command line, and formats of `printf`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from random import Random

from memlane.chip import load
from memlane.cli.arguments import Spec, StructureSpec
from memlane.cli.options import access_kinds
from memlane.cli.specs import parse_extent
from memlane.emulate.run.printf import UnreadableError, formatted
from memlane.instrument import Sampling
from memlane.lab.reduction.settings import settings_of
from memlane.layout.patterns import pattern, split_names
from memlane.layout.spec import read_spec
from memlane.layout.wavefronts import count
from memlane.targets import target
from tests.fuzz.mutations import mutated_tokens, tokens
from tests.fuzz.of_code import mutated_text

_ARGUMENTS = (
    *(
        "in:f4[1024,16]=random:7",
        "f4[16]",
        "1024:i4",
        "{f4[16], 16:i4}@16",
        "texture(f4[16], filter=linear)",
        "surface(f4[64,64])",
        "-1.5:f8",
    ),
    *(
        "tensor_map(f4[64,64]=arange, box=32x32, swizzle=64B)",
        "u1[]=zeros",
        "f2[8]=x.npy",
        "{ {1:i1, 2:i8}, b1[3] }",
        "texture(u1[4,4,4], channels=4)",
    ),
    *("a:texture(f4[64]=arange, address=wrap, normalized, read=float, layered=true, cube=false, memory=pitch)", "0x10:u8", "1e5:f4"),
)
_LAYOUTS = (
    *(
        "row-major",
        "pad(1)",
        "strided(33, 1)",
        "skewed(1)",
        "tiled(8, 4)",
        "morton",
        "xor",
        "Swizzle<3, 2, 3>",
        "linear(19, 10, 13, 23, 8)",
    ),
    *("ras(7)", "rap", "diagonal-strip", "column-major"),
)
_PATTERNS = (
    *("contiguous", "stride", "stride:3", "diagonal", "antidiagonal", "xordiagonal", "block4x8", "anyblock2x16", "random"),
    *("(t, 2 * t + c)", "(t ^ r, (t << 2) % 32)", "(t // 3 + c)", "(min(t, 5) & ~r, max(c, -t) | 1)", "(t >> 1, t)"),
)
_SIZES = ("2^24", "1000003", "16")
_WINDOWS = ("0-3,17", "5", "1-1, 4-9")
_EXTENTS = ("32,32", "1", "1,2,3")
_FORMATS = ("%d %5.2f\n", "%-08lld|%s|%c", "%*.*e %p %%", "%#x %hhu %+ld %a %zu %n", "block %u: % 3i %G")


def corpus_of(*groups: Sequence[str]) -> Callable[[], tuple[tuple[str, ...], ...]]:
    """Return a corpus of short texts as tokens."""

    @cache
    def made() -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(tokens(text)) for group in groups for text in group)

    return made


arguments = corpus_of(_ARGUMENTS, _EXTENTS)
layouts = corpus_of(_LAYOUTS, _PATTERNS)
windows = corpus_of(_WINDOWS, _SIZES, _EXTENTS)
formats = corpus_of(_FORMATS)
targets = corpus_of(("emulator:h200", "cuda:0", "emulator:./chip.toml", "emulator", "cuda"))


def mutated_argument(random: Random, texts: Sequence[Sequence[str]]) -> str:
    """An argument with some changes; arrays that take seconds to fill are only reserved."""
    text = mutated_tokens(random, random.choice(texts), random.choice(texts))
    return re.sub("random|arange", "zeros", text) if re.search(r"[\d,\s]{8}", text) else text


def use_argument(spec: Spec) -> None:
    """Ask a structure for its size, and make the arrays on a target."""
    if isinstance(spec, StructureSpec):
        str((spec.nbytes, spec.alignment, spec.offsets))
    if not re.search(r"[\d,\s]{6}", spec.text):
        spec.on(target("emulator:h200"))


def read_layout(text: str) -> object:
    """Read a layout or a pattern, make it for a tile, and count."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if len(text) % 2:
            spec = read_spec(text)
            layout = spec.of(32, 32)
            return count(layout, pattern("stride", 32, 32), load("h200"), 4)
        return [pattern(word, 16, 32) for word in split_names(text)]


def read_windows(text: str) -> object:
    """Read windows, sizes and extents."""
    way = len(text) % 4
    if way == 0:
        return Sampling.of(blocks=text)
    if way == 1:
        return settings_of([text], [])
    return parse_extent("--grid", text) if way == 2 else access_kinds(text)


class _Memory:
    def read(self, address: int, nbytes: int) -> bytes:
        """Bytes that differ from place to place; some places have none."""
        if address % 1024 > 1000:
            raise UnreadableError
        return bytes((address * 37 + place * 101 >> 3) & 255 for place in range(nbytes))

    def string(self, address: int) -> str:
        """A text that depends on its place."""
        return "text" * (address % 3)


def mutated_format(random: Random, texts: Sequence[Sequence[str]]) -> str:
    """A format with some changes."""
    parts = random.choice(texts)
    return mutated_tokens(random, parts, random.choice(["%*d", "%.*f", "%2147483647d", "%.99999f", "%ls", "%n", "%", "%lc", "%#o", "%5%"]))


def read_format(text: str) -> object:
    """Write what `printf` would, with arguments of all kinds."""
    try:
        return formatted(text, 8 * (len(text) % 130), _Memory())
    except UnreadableError:
        return None


def read_target(text: str) -> object:
    """Look for a target by its name; those that are there already are made once."""
    return target(text) if not text.startswith("cuda") else None


__all__ = ["mutated_text"]
