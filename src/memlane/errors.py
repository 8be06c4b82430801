"""Every error that memlane raises on purpose.

    MemlaneError                   what a user can cause; the command line prints it in one place and exits with `exit_code`
    +-- SourceError                points into a text: file:line:column, the line, carets
    |   +-- PtxSyntaxError         the text is not PTX
    |   +-- PtxTypeError           well formed, but an operand or a type does not fit
    |   +-- UnsupportedPtx         valid or not, this instruction is not modelled; it is named
    |   +-- StencilError           a stencil rule, its grid or its fields; points at the expression of the rule where there is one
    |   +-- RelayoutError          an array of a kernel that cannot be laid out so; names the line that keeps it from that
    +-- CompileError               the CUDA compiler or assembler refused; carries its log
    +-- LinkError                  modules that do not fit together: a name defined twice, not at all, or differently declared
    +-- MissingDependency          an optional package is absent; names the command that installs it
    +-- LaunchError                a launch that cannot start, or that went wrong
    |   +-- BadLaunch              wrong kernel name, argument, grid, block or stream
    |   +-- BadAccess              an access of the kernel outside every allocation, or misaligned
    |   +-- Deadlock               threads wait for each other for ever
    |   +-- KernelTrap             the kernel executed `trap` or failed an assertion
    |   +-- CheckFailed            the checker found something, and was told to stop then
    +-- DeviceError                no such target, or the driver refused; carries the driver's name for it
    +-- ChipError                  no such chip, or a chip's data file is wrong
    +-- RankError                  a process of an MPI program ended, hangs, or does something else than the others
    +-- NetworkError               no such network or link, or a network's data file is wrong
    +-- BadPlan                    a plan that cannot be: a view beyond its buffer, steps in a circle, two writers without an order
    +-- LayoutError                an index map that cannot be, a pattern of accesses that cannot, or a search that cannot succeed
    +-- RecordError                a record file that is foreign, truncated, or cannot be written
    +-- CommandError               the command line cannot do what it was asked

A `MemlaneError` is the user's to mend and its text says how; anything else that escapes is a bug of memlane.
"""

from __future__ import annotations

from memlane.packages import install_command
from memlane.source import Span

LONGEST_MESSAGE = 16_000
"""Characters of a message: of a longer one the middle is left out. `args` has it whole."""


class MemlaneError(Exception):
    """The base of all errors that a user can cause and correct. `memlane.errors` has the tree.

    try:
        kernel[grid, block](out, a, n)
        target.sync()
    except ml.MemlaneError as error:
        print(error)
    """

    exit_code = 1

    def __str__(self) -> str:
        return _bounded(super().__str__())


def _bounded(text: str) -> str:
    """A message that a person can read: whatever it quotes, from a file or a library, is not endless."""
    return text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE * 3 // 4]} ... {text[-LONGEST_MESSAGE // 4 :]}"


class SourceError(MemlaneError):
    """Something is wrong at a place in a text. `span` is that place; `origin`, as `transpose.cu:17`, the place in a program that the text
    was made from, where there is one and it is known."""

    def __init__(self, message: str, span: Span | None = None, origin: str = "") -> None:
        if span is None:
            text = f"{origin}: {message}" if origin else message
        else:
            text = f"{origin}: {message}; PTX line {span.line}" if origin else f"{span}: {message}"
            text = f"{text}\n{span.quote()}"
        super().__init__(text)
        self.message = message
        self.span = span
        self.origin = origin


class PtxSyntaxError(SourceError):
    """The text is not PTX."""


class PtxTypeError(SourceError):
    """The PTX is well formed, but an operand, a type or a name does not fit."""


class UnsupportedPtx(SourceError):
    """An instruction, or a form of one, that memlane does not model. It is not called an error of the text."""


class RelayoutError(SourceError):
    """An array of a kernel that is not there, or that cannot be laid out otherwise without a change of the source."""


class StencilError(SourceError):
    """A stencil rule that has no meaning, a grid or fields that do not fit it, or a state that is not finite."""


class CompileError(MemlaneError):
    """The CUDA compiler or assembler refused its input. `log` is what it said."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(f"{message}\n{log.rstrip()}" if log.strip() else message)
        self.message = message
        self.log = log


class LinkError(MemlaneError):
    """Modules that cannot become one: a name is defined twice, or not at all, or declared as something else, or architectures differ."""


class MissingDependency(MemlaneError):
    """An optional package is not installed."""

    def __init__(self, what: str, extra: str = "cuda") -> None:
        super().__init__(f"{what} needs packages that are not installed; install them with: {install_command(extra)}")


class LaunchError(MemlaneError):
    """A launch that cannot start, or that went wrong while it ran."""


class BadLaunch(LaunchError):
    """The launch cannot start: kernel name, arguments, grid, block, shared memory or stream."""


class BadAccess(LaunchError):
    """A thread of the kernel read or wrote where it must not."""


class Deadlock(LaunchError):
    """Threads wait for something that can no longer happen."""


class KernelTrap(LaunchError):
    """The kernel stopped itself: `trap`, or a failed assertion."""


class CheckFailed(LaunchError):
    """The checker found what no kernel may do, in a launch that was to stop then."""


class DeviceError(MemlaneError):
    """There is no such target here, or the CUDA driver refused."""


class RankError(MemlaneError):
    """A process of an MPI program ended or hangs, or the processes do not do the same."""


class ChipError(MemlaneError):
    """There is no chip of that name, or its data file does not say what it must."""


class NetworkError(MemlaneError):
    """There is no network or link of that name, or a network's data file does not say what it must."""


class BadPlan(MemlaneError):
    """A plan of launches and copies that cannot be, or whose result would depend on which of two unordered steps runs first."""


class LayoutError(MemlaneError):
    """An index map, a pattern of accesses or a formula that cannot be, or a search for a layout that cannot succeed."""


class RecordError(MemlaneError):
    """A record file that is foreign, truncated or of another version, or one that cannot be written."""


class CommandError(MemlaneError):
    """The command line cannot do what it was asked."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code
