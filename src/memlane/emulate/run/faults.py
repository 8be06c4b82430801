"""Raise the faults of a launch as errors that name the place, the thread and the mistake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from memlane.chip import LANES
from memlane.emulate.layout import (
    ARRIVED_TWICE,
    ASSERTION,
    BAD_BARRIER,
    BAD_CALL,
    BAD_TENSOR_MAP,
    BAD_TEXTURE,
    BARRIERS,
    BEYOND,
    BLOCK,
    BLOCK_BYTES,
    CLUSTER_SHIFT,
    DEADLOCK,
    ENDLESS,
    GONE,
    MISALIGNED,
    MOST_RANKS,
    NO_WARPGROUP,
    NOT_ARRIVED,
    RANK_MASK,
    STACK,
    TRAP,
    WARP,
    WINDOW_BYTES,
    WINDOWS,
)
from memlane.emulate.lower.kernel import CompiledKernel, segments_of
from memlane.emulate.lower.variables import STACK_BYTES
from memlane.emulate.run.aimed_access import aimed_allocations, argument_name, distance_to
from memlane.emulate.run.device import DeviceState
from memlane.emulate.run.memory import GUARD, Allocation
from memlane.emulate.run.tensor_maps import map_trouble, place_trouble
from memlane.emulate.run.textures import handle_trouble, surface_trouble
from memlane.errors import BadAccess, Deadlock, KernelTrap, SourceError
from memlane.launch import SPACE_NAMES, Launch
from memlane.number_format import plural
from memlane.ptx import Instruction, Module, demangle, past_tense

_CLUSTER_MISUSE = {
    NOT_ARRIVED: "waited at the barrier of its cluster without having arrived there: put barrier.cluster.arrive before each wait",
    ARRIVED_TWICE: "arrived at the barrier of its cluster a second time before it waited: put barrier.cluster.wait between the two",
}

_INSERTED_PREFIX = "memlane_"
"""Name prefix of the variables that instrumentation adds to a module."""
_MOST_LINES = 4
"""Maximum number of source lines named in a message."""


def raise_fault(
    device: DeviceState,
    launch: Launch,
    compiled: CompiledKernel,
    context: Any,
    slots: npt.NDArray[np.uint8],
    assertions: Mapping[tuple[int, int, int], str],
) -> NoReturn:
    """Raise the error for the fault in a launch record. `assertions`: messages of failed assertions, by block, warp and lane."""
    kind = int(context["fault"])
    fault = _Fault(device, launch, compiled, context, slots)
    if kind == DEADLOCK:
        raise Deadlock(fault.deadlock())
    if kind == ENDLESS:
        raise Deadlock(fault.endless())
    who = f"{fault.where()}: {fault.who()}"
    if kind == TRAP:
        raise KernelTrap(f"{who} executed {fault.instruction.name}")
    if kind == ASSERTION:
        text = assertions[int(context["fault_block"]), int(context["fault_warp"]), int(context["fault_lane"])]
        raise KernelTrap(f"{who}: {text}")
    if kind == STACK:
        raise KernelTrap(f"{who} needs more than its {STACK_BYTES} bytes of stack: it recurses too deeply, or `alloca` takes too much")
    raise BadAccess(f"{who} {fault.mistake(kind)}")


class _Fault:
    def __init__(self, device: DeviceState, launch: Launch, compiled: CompiledKernel, context: Any, slots: npt.NDArray[np.uint8]) -> None:
        self._device, self._launch, self._compiled, self._context, self._slots = device, launch, compiled, context, slots

    @property
    def instruction(self) -> Instruction:
        return self._compiled.instructions[int(self._context["fault_site"])]

    # -- places and threads ------------------------------------------------------------------------------------------------------

    def line(self, instruction: Instruction) -> str:
        """Return the source line, such as `transpose.cu:18`, or the place in the PTX if the source line is unknown."""
        module = self._launch.kernel.module
        if has_line(module, instruction) or instruction.span is None:
            file, line = line_of(module, instruction)
            return f"{file}:{line}"
        return str(instruction.span)

    def where(self) -> str:
        return f"kernel {self._launch.kernel.title}, {self.line(self.instruction)}"

    def who(self) -> str:
        """Return the block and the thread of the fault, in words."""
        context = self._context
        thread = int(context["fault_warp"]) * LANES + int(context["fault_lane"])
        return f"block {position(int(context['fault_block']), self._launch.grid)}, thread {position(thread, self._launch.block)}"

    # -- bad accesses ------------------------------------------------------------------------------------------------------------

    def mistake(self, kind: int) -> str:
        """Return the predicate of the message: the thread's invalid action."""
        name, address, nbytes = self.instruction.name, int(self._context["fault_address"]), int(self._context["fault_bytes"])
        misaligned = kind == MISALIGNED
        if kind == BAD_CALL:
            return f"called {address:#x}, which is not the address of a function that matches this call"
        if kind == BAD_BARRIER:
            return f"used barrier {address}; there are barriers 0 to {BARRIERS - 1}"
        if kind == NO_WARPGROUP:
            return (
                f"executed {name}, which takes a warpgroup of 128 threads, in a block of "
                f"{plural(self._launch.threads_per_block, 'thread')} whose last group is not whole; make the block a multiple of 128 "
                "threads"
            )
        if kind == BAD_TEXTURE:
            return f"executed {name} with {handle_trouble(self._device.textures, address, nbytes)}"
        if kind == BAD_TENSOR_MAP:
            return f"executed {name} with {map_trouble(address, nbytes)}"
        if kind == BEYOND or (misaligned and self.instruction.form.effect == "surface"):
            words = address, int(self._context["fault_space"]), nbytes
            return surface_trouble(self._device.textures, self.instruction, misaligned, *words)
        if misaligned and self.instruction.has("tensor"):
            return f"executed {name} with {self._misaligned_box()}"
        if kind in (NOT_ARRIVED, ARRIVED_TWICE):
            return _CLUSTER_MISUSE[kind]
        return self._bad_access(misaligned, kind == GONE)

    def _bad_access(self, misaligned: bool, gone: bool) -> str:
        context, instruction = self._context, self.instruction
        address, nbytes = int(context["fault_address"]), int(context["fault_bytes"])
        space = SPACE_NAMES[int(context["fault_space"])]
        verb = past_tense(instruction, space)
        head = f"{verb} {plural(nbytes, 'byte')} at {address:#x} ({instruction.name})"
        if misaligned:
            return f"{head}, which is not a multiple of {nbytes}{self._inside(space, address)}"
        return f"{head}, {self._ended_block(address) if gone else self._outside(space, address)}"

    def _misaligned_box(self) -> str:
        """Describe where a misaligned box lies in shared memory, for the end of a sentence."""
        address, offsets = int(self._context["fault_address"]) & RANK_MASK, self._compiled.frame.offsets
        below = [(at, name) for name, (space, at) in offsets.items() if space == "shared" and at <= address]
        begin, name = max(below, default=(0, "shared memory"))
        variable = self._launch.kernel.module.variables.get(name)
        return place_trouble(address, name, begin, variable is not None and "extern" in variable.linkage)

    def _ended_block(self, address: int) -> str:
        block = self._position_of_rank(self._rank_in(address))
        return (
            f"in the shared memory of block {block} of its cluster, which has ended: synchronise the cluster (cluster.sync()) before "
            "its blocks end"
        )

    def _inside(self, space: str, address: int) -> str:
        """Describe where a misaligned address lies, for the end of a sentence."""
        inner = address - WINDOWS["shared"] if space == "generic" else address
        if space in ("shared::cluster", "generic") and RANK_MASK < inner < WINDOW_BYTES:
            return (
                f", {address & RANK_MASK:#x} in the shared memory of block {self._position_of_rank(self._rank_in(address))} of its cluster"
            )
        found = self._device.memory.at(address) if space in ("global", "const", "generic") else None
        return "" if found is None else f", {plural(address - found.low, 'byte')} into {_allocation(found)}"

    def _outside(self, space: str, address: int) -> str:
        sizes = {
            "shared": ("the block's {} bytes of shared memory", int(self._context["shared_bytes"])),
            "local": ("the thread's {} bytes of local memory", self._compiled.frame.local_bytes),
            "param": ("the {} bytes of kernel parameters", self._compiled.frame.params_bytes),
        }
        if self._names_block(space, address):
            return self._outside_cluster(space, address)
        space = "shared" if space == "shared::cluster" else space
        if space in sizes:
            text, nbytes = sizes[space]
            return f"outside {text.format(nbytes)}{self._dynamic() if space == 'shared' else ''}"
        for name, start in WINDOWS.items():
            if start <= address < start + WINDOW_BYTES:
                inner = address - start
                return self._outside("shared::cluster" if name == "shared" and inner > RANK_MASK else name, inner)
        neighbour = self._likely_allocation(address)
        if neighbour is None or distance_to(address, neighbour) > WINDOW_BYTES:
            return "which is not near any allocation"
        named = "" if neighbour.label else argument_name(self._launch, neighbour)
        return f"{relative_to(address, neighbour)}{f', {named}' if named else ''}"

    def _dynamic(self) -> str:
        """How much shared memory the launch gave a kernel whose size the launch decides, for the end of a sentence."""
        variables = self._launch.kernel.module.variables
        shared = [name for name, (space, _) in self._compiled.frame.offsets.items() if space == "shared"]
        names = [f"`{demangle(name).rpartition('::')[2]}`" for name in shared if name in variables and "extern" in variables[name].linkage]
        if not names:
            return ""
        if self._launch.shared_bytes:
            return f", {plural(self._launch.shared_bytes, 'byte')} of which the launch gave to {', '.join(names)}"
        return f"; the launch gives none to {', '.join(names)}: pass --shared BYTES (kernel[grid, block, None, BYTES] in Python)"

    def _likely_allocation(self, address: int) -> Allocation | None:
        """Return the allocation that an out-of-bounds address was most likely meant for; None if there is none.

        This is that of the argument from which the address is computed, else the adjacent allocation, else the nearest among the kernel's
        arguments: other neighbours, such as a trace buffer, lie there by chance.
        """
        aimed = aimed_allocations(self._device.memory, self._launch, self.instruction)
        if aimed:
            return min(aimed, key=lambda one: distance_to(address, one))
        neighbour = self._device.memory.neighbour(address)
        if neighbour is not None and distance_to(address, neighbour) <= GUARD and not neighbour.label.startswith(_INSERTED_PREFIX):
            return neighbour
        given = [self._device.memory.at(one.memory[0]) for one in self._launch.arguments if one.memory is not None]
        return min((one for one in given if one is not None), key=lambda one: distance_to(address, one), default=neighbour)

    # -- clusters ------------------------------------------------------------------------------------------------------------------

    def _rank_in(self, address: int) -> int:
        """Return the rank in an address of shared::cluster, generic or not."""
        return (address % WINDOW_BYTES >> CLUSTER_SHIFT) - 1

    def _names_block(self, space: str, address: int) -> bool:
        """Return whether an address of shared memory was meant for a block of the cluster."""
        rank = self._rank_in(address)
        if space == "shared":
            return 0 <= rank < int(self._context["cluster_blocks"])
        return space == "shared::cluster" and rank < MOST_RANKS

    def _outside_cluster(self, space: str, address: int) -> str:
        rank, blocks, nbytes = self._rank_in(address), int(self._context["cluster_blocks"]), int(self._context["shared_bytes"])
        if rank >= blocks:
            return f"in the shared memory of the block of rank {rank}, but its cluster has only ranks 0 to {blocks - 1}"
        if space == "shared":
            return f"which mapa mapped to the shared memory of the block of rank {rank}: access it as .shared::cluster"
        whose = "the block" if rank < 0 else f"block {self._position_of_rank(rank)} of its cluster"
        return f"{address & RANK_MASK:#x} in the shared memory of {whose}, outside its {plural(nbytes, 'byte')}"

    def _position_of_rank(self, rank: int) -> tuple[int, int, int]:
        """Return the grid position of the block with a rank in the faulting block's cluster."""
        shape = tuple(int(extent) for extent in self._context["cluster"])
        own = position(int(self._context["fault_block"]), self._launch.grid)
        inner = position(rank, (shape[0], shape[1], shape[2]))
        x, y, z = (at - at % size + more for at, size, more in zip(own, shape, inner, strict=True))
        return x, y, z

    # -- threads that wait ---------------------------------------------------------------------------------------------------------

    def deadlock(self) -> str:
        block = position(int(self._context["fault_block"]), self._launch.grid)
        base, count = int(self._context["fault_slot"]) - self._slots.ctypes.data, int(self._context["cluster_blocks"])
        head = f"kernel {self._launch.kernel.title}: block {block} cannot continue: {self._waiting(base)}"
        own = int(self._block_at(base)["rank"])
        others = [rank for rank in range(count) if rank != own]
        step = int(self._context["slot_bytes"])
        told = [f"of block {self._position_of_rank(rank)} of its cluster {self._waiting(base + (rank - own) * step)}" for rank in others]
        return ". ".join([head, *(one[0].upper() + one[1:] for one in told)])

    def endless(self) -> str:
        block, turns = position(int(self._context["fault_block"]), self._launch.grid), self._device.patience
        lines = self._looping(int(self._context["fault_slot"]) - self._slots.ctypes.data)
        place = f", {' and '.join(lines)}" if lines else ""
        most = self._launch.layers.most_cycles
        if most is not None:
            seconds = most / (1e6 * self._device.chip.clock_mhz)
            return (
                f"kernel {self._launch.kernel.title}{place}: block {block} has been looping here for {plural(most, 'cycle')} or loop "
                f"iterations, the limit for a predicted launch ({seconds:.3g} s on this chip); if the kernel does terminate, raise the "
                f"limit with --most-cycles {most * 10}, in Python with most_cycles={most * 10}"
            )
        return (
            f"kernel {self._launch.kernel.title}{place}: block {block} has been looping here for {plural(turns, 'iteration')} without any "
            f"thread passing a barrier or ending; if the kernel does terminate, wait longer with --patience {turns * 10}, in Python with "
            f"target.patience = {turns * 10}"
        )

    def _looping(self, base: int) -> list[str]:
        """Return the source lines at which the runnable threads of the block in a slot resume."""
        kernel = self._launch.kernel
        segments = segments_of(kernel.module, kernel.module.kernels[kernel.name], self._compiled.layers)
        numbers = set()
        for number in range(int(self._context["warps"])):
            warp = self._warp_at(base, number)
            going = int(warp["live"]) & ~int(warp["waiting"])
            together = [int(warp["pc"])] * LANES if warp["together"] else warp["pcs"]
            numbers |= {int(together[lane]) for lane in range(LANES) if going >> lane & 1}
        known = [segments[number].steps for number in sorted(numbers) if number < len(segments)]
        return list(dict.fromkeys(self.line(steps[0].instruction) for steps in known if steps))[:_MOST_LINES]

    def _waiting(self, base: int) -> str:
        """Describe how many threads of the block in a slot wait at each barrier, and how many have exited."""
        groups: dict[str, list[int]] = {}
        waiting_for = self._block_at(base)["expected"]
        for number in range(int(self._context["warps"])):
            warp = self._warp_at(base, number)
            for lane in range(LANES):
                thread = number * LANES + lane
                if thread < self._launch.threads_per_block:
                    groups.setdefault(self._state(warp, lane, waiting_for), []).append(thread)
        return "; ".join(f"{self._counted(threads)} {what}" for what, threads in groups.items())

    def _warp_at(self, base: int, number: int) -> Any:
        start = base + BLOCK_BYTES + number * self._compiled.warp_bytes
        return self._slots[start : start + WARP.itemsize].view(WARP)[0]

    def _block_at(self, base: int) -> Any:
        return self._slots[base : base + BLOCK.itemsize].view(BLOCK)[0]

    def _state(self, warp: Any, lane: int, expected: Any) -> str:
        bit = 1 << lane
        if not int(warp["live"]) & bit:
            return "have exited"
        for barrier in range(BARRIERS):
            if int(warp["at_barrier"][barrier]) & bit:
                needs = f", which needs {plural(expected[barrier], 'thread')}" if expected[barrier] else ""
                return f"wait at barrier {barrier} ({self._stop(warp, lane)}){needs}"
        if int(warp["at_cluster"]) & bit:
            return f"wait at the barrier of their cluster ({self._stop(warp, lane)})"
        if int(warp["at_sync"]) & bit:
            return f"wait for other lanes of their warp ({self._stop(warp, lane)})"
        if int(warp["at_warp_barrier"]) & bit:
            return f"wait at a barrier of their warp ({self._stop(warp, lane)})"
        return "can continue"

    def _stop(self, warp: Any, lane: int) -> str:
        """Return the source line of the instruction at which a lane waits."""
        return self.line(self._compiled.instructions[int(warp["stopped_at"][lane])])

    def _counted(self, threads: list[int]) -> str:
        first = position(threads[0], self._launch.block)
        return f"thread {first}" if len(threads) == 1 else f"{plural(len(threads), 'thread')}, the first {first},"


def with_origin(error: SourceError, module: Module) -> SourceError:
    """Return an error at an instruction of the module, located at its source line if that is known."""
    everyone = (one for function in module.functions.values() for one in function.instructions())
    found = next((one for one in everyone if one.span is not None and one.span == error.span), None)
    if found is None or not has_line(module, found):
        return error
    file, line = line_of(module, found)
    return type(error)(error.message, error.span, f"{file}:{line}")


def has_line(module: Module, instruction: Instruction) -> bool:
    """Return whether the source line of an instruction is known."""
    location = instruction.location
    return location is not None and bool(location.line) and location.file in module.files


def line_of(module: Module, instruction: Instruction) -> tuple[str, int]:
    """Return file and line of an instruction, in the source, else in the PTX; line 0 if neither is known.

    For code of a library header it is the user's line that called it.
    """
    if instruction.location is not None and has_line(module, instruction):
        own = module.users_location(instruction.location)
        return module.files[own.file], own.line
    if instruction.span is not None:
        return instruction.span.source.name, instruction.span.line
    return module.name, 0


def position(number: int, extents: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return the coordinates of a block or thread, x fastest."""
    x, y, _ = extents
    return number % x, number // x % y, number // (x * y)


def relative_to(address: int, allocation: Allocation) -> str:
    """Describe where an address outside an allocation lies relative to it."""
    what = _allocation(allocation)
    if address >= allocation.high:
        behind = address - allocation.high
        return f"{plural(behind, 'byte')} past the end of {what}" if behind else f"just past the end of {what}"
    if address < allocation.low:
        return f"{plural(allocation.low - address, 'byte')} before {what}"
    return f"extending past the end of {what}"


def _allocation(allocation: Allocation) -> str:
    label = f" of {allocation.label}" if allocation.label else ""
    size = f"{allocation.nbytes}-byte" if allocation.nbytes else "empty"
    return f"the {size} allocation{label} at {allocation.low:#x}"
