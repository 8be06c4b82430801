"""Find how far apart the lanes of an access are, and which elements between them the kernel accesses by other instructions.

That tells structures, of which each thread takes some fields, from threads that walk through neighbouring elements, and from indices that
were loaded.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from memlane.diagnose.evidence import Evidence
from memlane.record import AccessExample, Site

VECTORS = {
    (1, 2): "`uchar2`",
    (1, 4): "`uchar4`",
    (1, 8): "`uint2`",
    (1, 16): "`uint4`",
    (2, 2): "`half2` or `short2`",
    (2, 4): "`uint2`",
    (2, 8): "`uint4`",
    (4, 2): "`float2` or `int2`",
    (4, 4): "`float4` or `int4`",
    (8, 2): "`double2`",
}
"""Bytes of an element and number of elements -> the vector of them."""
WIDEST = 16
"""Bytes of the widest access of a thread."""
MAX_STRIDE = 128
"""Maximum distance of lanes at which the elements between them count as one structure, or as one thread's."""


@dataclass(frozen=True)
class Spacing:
    """The elements between the lanes of an access: those that its kernel accesses too."""

    kind: str
    nbytes: int
    stride: int
    """Bytes from a lane's element to the next lane's."""
    offsets: frozenset[int]
    """Accessed positions in the stride, in bytes from an unknown origin."""
    is_walk: bool
    """Whether one statement accesses several of them, as in an unrolled loop through neighbouring elements."""
    is_repeated: bool
    """Whether a warp executes the access several times, so that it may walk through elements in a loop."""

    @property
    def elements(self) -> int:
        return self.stride // self.nbytes

    @property
    def is_whole(self) -> bool:
        """Whether the kernel accesses all elements."""
        return len(self.offsets) >= self.elements

    @property
    def vector(self) -> str:
        """The vector of all elements; empty if there is none, or if some are not accessed."""
        return VECTORS.get((self.nbytes, self.elements), "") if self.is_whole else ""

    @property
    def part(self) -> str:
        """The vector of 16 bytes, if the kernel accesses as many side by side in a stride of several; else empty."""
        if self.stride % WIDEST or self.nbytes >= WIDEST:
            return ""
        held = {offset // WIDEST for offset in self.offsets}
        full = any(all(first * WIDEST + byte in self.offsets for byte in range(0, WIDEST, self.nbytes)) for first in held)
        return VECTORS.get((self.nbytes, WIDEST // self.nbytes), "") if full else ""


def lane_stride(site: Site, evidence: Evidence) -> int | None:
    """Return the bytes from one lane's element to the next one's in the worst accesses of a place, for most lanes; None if none were
    recorded."""
    steps: Counter[int] = Counter()
    for example in evidence.worst_examples(site):
        steps.update(distance for distance in _distances(example) if distance and example.space == "global")
    common = steps.most_common(1)
    return common[0][0] if common and 2 * common[0][1] > steps.total() else None


def spacing_of(site: Site, evidence: Evidence) -> Spacing | None:
    """Return what lies between the lanes of a load or store; None if they are not a small, constant number of whole elements apart."""
    stride = lane_stride(site, evidence)
    if stride is None or not site.nbytes < stride <= MAX_STRIDE or stride % site.nbytes or site.kind not in ("load", "store"):
        return None
    by_statement: dict[tuple[int, int], set[int]] = {}
    for one in evidence.own_sites:
        alike = (one.array, one.argument, one.kind, one.nbytes) == (site.array, site.argument, site.kind, site.nbytes)
        if (alike and (one.array or one.argument is not None)) or one is site:
            seen = (example for example in evidence.examples if example.worst and example.site == one.id and _has_stride(example, stride))
            by_statement.setdefault((one.line, one.column), set()).update(_lowest_address(example) % stride for example in seen)
    offsets = frozenset(offset for found in by_statement.values() for offset in found)
    return Spacing(
        site.kind,
        site.nbytes,
        stride,
        offsets,
        any(len(found) > 1 for found in by_statement.values()),
        is_repeated(site, evidence),
    )


def _has_stride(example: AccessExample, stride: int) -> bool:
    """Return whether most neighbouring active lanes are `stride` bytes apart, in global memory."""
    distances = _distances(example)
    return example.space == "global" and 2 * distances.count(stride) > len(distances)


def _distances(example: AccessExample) -> list[int]:
    """Return the bytes from each active lane's address to that of the next lane, if this is active too."""
    pairs = zip(example.addresses, example.addresses[1:], strict=False)
    return [abs(after - before) for lane, (before, after) in enumerate(pairs) if example.active_mask >> lane & 3 == 3]


def _lowest_address(example: AccessExample) -> int:
    return min(address for lane, address in enumerate(example.addresses) if example.active_mask >> lane & 1)


def is_repeated(site: Site, evidence: Evidence) -> bool:
    """Return whether warps execute an instruction more than once, on average."""
    entry = evidence.by_site.get(site.instruction)
    warps = sum(int(np.prod(launch.grid)) * launch.warps_per_block for launch in evidence.launches)
    return entry is not None and 0 < warps < entry.requests
