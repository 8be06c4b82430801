"""Faces of boxes that do not lie side by side in memory: kernels that pack them into one message with all fields, and unpack it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from memlane.plan import KernelRef, PlanBuilder, StepRef, View
from memlane.stencils.decomposition import Span, Subdomain, Widths

_ALIGNED = 64
"""Each face begins at a multiple of so many bytes of a message."""
_THREADS, _MOST_BLOCKS = 256, 1024
_WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}

PACK, UNPACK = "pack", "unpack"


@dataclass(frozen=True)
class Message:
    """Cells that a subdomain sends to a neighbour along an axis, from its high side (1) or its low side (0): fields and widths."""

    axis: int
    side: int
    source: Subdomain
    goal: Subdomain
    sent: Sequence[tuple[str, int]]

    @property
    def label(self) -> str:
        return f"{'+'.join(name for name, _ in self.sent)} {'up' if self.side else 'down'} axis {self.axis}"


class Faces:
    """The cells of messages, as views of the memory that fields have at the end of a turn."""

    def __init__(
        self,
        views: Mapping[tuple[str, int], View],
        after: Mapping[str, str],
        cut: tuple[int, ...],
        *,
        corners: bool,
        whole_planes: bool,
    ) -> None:
        """`views`: by field and device. `after`: the name whose memory a field has at the end of the turn. `cut`: the axes along which the
        grid is cut. `corners`: messages hold the halos of the axes that were exchanged before theirs. `whole_planes`: messages along the
        first axis hold all that memory has of their planes, which is contiguous."""
        self.views, self.after, self.cut, self.corners, self.whole_planes = views, after, cut, corners, whole_planes

    def sent(self, message: Message) -> list[View]:
        """Return the cells of a message where they are computed."""
        span = message.source.spans[message.axis]
        return [
            self._face(message, message.source, name, (span.stop - width, span.stop) if message.side else (span.start, span.start + width))
            for name, width in message.sent
        ]

    def received(self, message: Message) -> list[View]:
        """Return the cells of a message in the halos of the neighbour."""
        span = message.goal.spans[message.axis]
        return [
            self._face(message, message.goal, name, (span.start - width, span.start) if message.side else (span.stop, span.stop + width))
            for name, width in message.sent
        ]

    def own(self, span: Span, axis: int) -> slice:
        """Return where a part's own cells lie along an axis: everywhere, if it is not cut."""
        return span.rows(span.start, span.stop) if axis in self.cut else slice(None)

    def _face(self, message: Message, subdomain: Subdomain, name: str, cells: Widths) -> View:
        """Return cells of a field along the axis of a message: along the axes before, which are exchanged already, all that memory holds,
        if corners are read; along the others the part's own."""
        if self.whole_planes and not message.axis:
            return self.views[self.after.get(name, name), subdomain.device][subdomain.rows(*cells)]
        parts = [slice(None) if at < message.axis and self.corners else self.own(span, at) for at, span in enumerate(subdomain.spans)]
        parts[message.axis] = subdomain.spans[message.axis].rows(*cells)
        return self.views[self.after.get(name, name), subdomain.device][tuple(parts)]


def message_places(faces: Sequence[View]) -> tuple[list[int], int]:
    """Return at which byte of a message each face begins, and how many bytes the message has."""
    places, end = [], 0
    for face in faces:
        places.append(end)
        end += -(-prod(face.shape) * face.itemsize // _ALIGNED) * _ALIGNED
    return places, end


def kernel_name(way: str, sizes: Iterable[int]) -> str:
    """Return the name of the kernel that packs or unpacks faces whose elements have so many bytes."""
    return "_".join([way, *map(str, sizes)])


def add_move(builder: PlanBuilder, refs: Mapping[str, KernelRef], way: str, message: View, faces: Sequence[View], **where: Any) -> StepRef:
    """Add the launch that packs faces into a message, or unpacks it into them. `where`: device, queue, what it waits for, label."""
    arguments: list[int | View] = []
    for face, place in zip(faces, message_places(faces)[0], strict=True):
        shape, strides = (1,) * (3 - len(face.shape)) + face.shape, (0,) * (3 - len(face.strides)) + face.strides
        plane, pitch = (stride // face.itemsize for stride in strides[:2])
        arguments += [face, place, plane, pitch, shape[1], shape[2], prod(shape)]
    blocks = min(_MOST_BLOCKS, -(-max(face.size for face in faces) // _THREADS))
    kernel = refs[kernel_name(way, (face.itemsize for face in faces))]
    reads, writes = (list(faces), [message]) if way == PACK else ([message], list(faces))
    return builder.launch(kernel, (blocks, len(faces)), _THREADS, message, *arguments, reads=reads, writes=writes, **where)


def face_kernels(sizes: Iterable[Sequence[int]]) -> str:
    """Return the text of the kernels that pack and unpack messages, for each of some lists of bytes of the faces' elements."""
    parts = [_MOVE]
    for several in sizes:
        for way in (PACK, UNPACK):
            given = ["unsigned char* __restrict__ message"]
            moves = []
            for at, size in enumerate(several):
                kind = _WORDS[size]
                given.append(
                    f"{kind}* __restrict__ face_{at}, long long place_{at}, long long plane_{at}, int pitch_{at}, int rows_{at}, "
                    f"int cells_{at}, long long count_{at}"
                )
                packs, to = "true" if way == PACK else "false", f"reinterpret_cast<{kind}*>(message + place_{at})"
                shape = ", ".join(f"{one}_{at}" for one in ("face", "plane", "pitch", "rows", "cells", "count"))
                moves.append(f"    if (blockIdx.y == {at}) move<{packs}>({to}, {shape});")
            head = f'extern "C" __global__ void __launch_bounds__({_THREADS})\n{kernel_name(way, several)}('
            parts += [head + ",\n    ".join(given) + ") {", *moves, "}", ""]
    return "\n".join(parts)


_MOVE = """\
// Copies the cells of a box between a field and a message, where they lie side by side. N counts them: quotients of 64 bits take several
// times as long as those of 32.
template <bool PACKS, typename N, typename T>
__device__ __forceinline__ void move_counted(T* __restrict__ message, T* __restrict__ face, long long plane, int pitch, N rows, N cells,
                                             N count) {
    for (N at = blockIdx.x * (N)blockDim.x + threadIdx.x; at < count; at += (N)gridDim.x * blockDim.x) {
        const N row = at / cells;
        T* const cell = face + (row / rows * plane + (long long)(row % rows) * pitch + at % cells);
        if (PACKS) message[at] = *cell; else *cell = message[at];
    }
}
template <bool PACKS, typename T>
__device__ __forceinline__ void move(T* __restrict__ message, T* __restrict__ face, long long plane, int pitch, int rows, int cells,
                                     long long count) {
    if (count < 1LL << 31) move_counted<PACKS, unsigned>(message, face, plane, pitch, rows, cells, count);
    else move_counted<PACKS, unsigned long long>(message, face, plane, pitch, rows, cells, count);
}
"""
