"""Generate kernels that pack faces that are not contiguous in memory into one message with all fields, and unpack it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from memlane.plan import KernelRef, PlanBuilder, StepRef, View
from memlane.stencils.decomposition import Span, Subdomain, Widths

_ALIGNED = 64
"""Alignment of each face in a message, in bytes."""
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
    """Cells of messages, as views of the memory of fields at the end of a turn."""

    def __init__(
        self,
        views: Mapping[tuple[str, int], View],
        after: Mapping[str, str],
        cut: tuple[int, ...],
        *,
        corners: bool,
        whole_planes: bool,
    ) -> None:
        """Set up the views. `views` are by field and device; `after` maps a field to the name whose memory it has at the end of the turn;
        `cut` holds the axes along which the grid is cut; with `corners`, messages include the halos of axes exchanged earlier; with
        `whole_planes`, messages along the first axis hold whole planes of the memory, which are contiguous."""
        self.views, self.after, self.cut, self.corners, self.whole_planes = views, after, cut, corners, whole_planes

    def sent(self, message: Message) -> list[View]:
        """Return the cells of a message on the device that computes them."""
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
        """Return the slice of a part's own cells along an axis; all cells if the axis is not cut."""
        return span.rows(span.start, span.stop) if axis in self.cut else slice(None)

    def _face(self, message: Message, subdomain: Subdomain, name: str, cells: Widths) -> View:
        """Return a face of a field along the axis of a message. If corners are read, it includes the halos along earlier axes, which are
        exchanged already; along the other axes it has the part's own cells."""
        if self.whole_planes and not message.axis:
            return self.views[self.after.get(name, name), subdomain.device][subdomain.rows(*cells)]
        parts = [slice(None) if at < message.axis and self.corners else self.own(span, at) for at, span in enumerate(subdomain.spans)]
        parts[message.axis] = subdomain.spans[message.axis].rows(*cells)
        return self.views[self.after.get(name, name), subdomain.device][tuple(parts)]


def message_places(faces: Sequence[View]) -> tuple[list[int], int]:
    """Return the offset in bytes of each face of a message, and the size of the message."""
    places, end = [], 0
    for face in faces:
        places.append(end)
        end += -(-prod(face.shape) * face.itemsize // _ALIGNED) * _ALIGNED
    return places, end


def kernel_name(way: str, sizes: Iterable[int]) -> str:
    """Return the name of the kernel that packs or unpacks faces with elements of the given sizes in bytes."""
    return "_".join([way, *map(str, sizes)])


def add_move(builder: PlanBuilder, refs: Mapping[str, KernelRef], way: str, message: View, faces: Sequence[View], **where: Any) -> StepRef:
    """Add the launch that packs faces into a message, or unpacks it. `where` holds device, queue, dependencies and label."""
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
    """Return the text of the kernels that pack and unpack messages, for each list of element sizes in bytes."""
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
