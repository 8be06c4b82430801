"""List the fundamental types of PTX and the state spaces, by their manual names without the dot."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A fundamental type, for example `u32`."""

    name: str
    kind: str
    """`u` unsigned, `s` signed, `f` floating point, `b` untyped bits, `pred`."""
    bits: int
    lanes: int = 1
    """2 for packed types such as `f16x2`."""

    @property
    def nbytes(self) -> int:
        return max(1, self.bits // 8)


SCALAR_TYPES: dict[str, ScalarType] = {
    **{f"{kind}{bits}": ScalarType(f"{kind}{bits}", kind, bits) for kind in "us" for bits in (8, 16, 32, 64)},
    **{f"b{bits}": ScalarType(f"b{bits}", "b", bits) for bits in (8, 16, 32, 64, 128)},
    **{f"f{bits}": ScalarType(f"f{bits}", "f", bits) for bits in (16, 32, 64)},
    "bf16": ScalarType("bf16", "f", 16),
    "tf32": ScalarType("tf32", "f", 32),
    "f16x2": ScalarType("f16x2", "f", 32, 2),
    "bf16x2": ScalarType("bf16x2", "f", 32, 2),
    "u16x2": ScalarType("u16x2", "u", 32, 2),
    "s16x2": ScalarType("s16x2", "s", 32, 2),
    "pred": ScalarType("pred", "pred", 1),
}

VECTOR_LENGTHS = {"v2": 2, "v4": 4, "v8": 8}
"""Number of elements of an access, by its modifier."""

SPACES = ("reg", "sreg", "const", "global", "local", "param", "shared", "tex")
"""The state spaces. An access without one uses a generic address: its space is `generic` here."""
