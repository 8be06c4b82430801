"""Record the lane addresses of a launch's accesses, on the emulator; for a launch on a GPU, by emulating one of its blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.emulate import Emulator
from memlane.errors import MemlaneError
from memlane.launch import Launch, Layers, Memory, Surface, Target, TensorMap, Texture, cluster_of

LARGEST_COPY = 1 << 28
"""Maximum bytes of a launch's arrays that are copied to the emulator."""

Examples = npt.NDArray[Any]
"""Array of `memlane.launch.EXAMPLE_DTYPE`."""


def examples(launch: Launch) -> Examples | None:
    """Return accesses of the launch with the addresses of their lanes, two per instruction; None if they cannot be recorded.

    The launch runs on its target if that observes; otherwise its first block runs on an emulator, with copies of the arrays.
    """
    layers = Layers(accesses=True, max_accesses=0)
    try:
        if not launch.kernel.target.observes:
            moved = _on_emulator(launch)
            if moved is None:
                return None
            launch = moved
        seen = launch.kernel.target.launch(replace(launch, layers=layers))
    except MemlaneError:
        return None  # one block alone may hang, or follow pointers that are invalid here: the lanes stay unknown
    return None if seen is None else seen.examples


def _on_emulator(launch: Launch) -> Launch | None:
    """Return a launch of the first block, or cluster, on an emulator; None if it needs more than arrays and numbers, or too much memory."""
    places = {argument.memory for argument in launch.arguments if argument.memory}
    if sum(nbytes for _, nbytes in places) > LARGEST_COPY:
        return None
    if any(isinstance(argument.owner, Surface | Texture) for argument in launch.arguments):
        return None
    emulator = Emulator(launch.kernel.target.chip)
    copies = {place: _copied(launch.kernel.target, place, emulator) for place in places}
    arguments = []
    for argument in launch.arguments:
        if argument.memory is not None:
            address, owner = copies[argument.memory]
            if isinstance(argument.owner, TensorMap):
                data = emulator.encode_tensor_map(replace(argument.owner.tiling, address=address))
            else:
                inside = int.from_bytes(argument.data, "little") - argument.memory[0]
                data = (address + inside).to_bytes(len(argument.data), "little")
            argument = replace(argument, data=data, owner=owner, memory=(address, argument.memory[1]))
        arguments.append(argument)
    kernel = emulator.load(launch.kernel.module)[launch.kernel.name]
    alone = cluster_of(kernel, launch.cluster) or (1, 1, 1)
    return Launch(kernel, alone, launch.block, tuple(arguments), launch.shared_bytes, emulator.default_stream, cluster=launch.cluster)


def _copied(source: Memory, place: tuple[int, int], emulator: Target) -> tuple[int, object]:
    held = np.empty(place[1], np.uint8)
    source.read(place[0], held)
    address, owner = emulator.allocate(max(1, held.nbytes))
    emulator.write(address, held)
    return address, owner
