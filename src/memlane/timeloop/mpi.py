"""Exchange messages between the ranks of an MPI program, and end all of them if one fails.

Every wait is bounded. A rank that waits longer than `$MEMLANE_MPI_LIMIT_S` asks all others what they wait for. Waiting ranks answer; a
rank that does not answer has ended, hangs, or is busy elsewhere, and the error names it. An error that a rank raises while others may wait
for it is sent to them, and raised there too.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.errors import MissingDependency, RankError
from memlane.launch import DeviceArray
from memlane.packages import pip_install
from memlane.source import shortened

ENVIRONMENT = "MEMLANE_MPI_LIMIT_S"
"""Environment variable with the seconds that a rank waits for another."""
LIMIT_S = 20.0
"""Default of the seconds that a rank waits for another."""
EXCHANGE = "memlane.timeloop.mpi:exchange"
"""Name in plans of the host function that exchanges planes."""
EXCHANGE_ON_DEVICES = "memlane.timeloop.mpi:exchange_on_devices"
"""Name in plans of the function that exchanges planes in memory of devices."""

_GRACE_S = 2.0
"""Seconds to wait for answers, and for reports of other ranks before a failed rank ends all."""
_SPIN_S = 2e-4
"""Seconds for which a rank polls for messages without sleeping; then it sleeps between polls, up to a share of the time waited."""
_NAP_PART = 0.03
_LONGEST_NAP_S = 5e-3
_BYTES_PER_S = 2e7
"""Least expected rate of files and messages, which extends the limit of a wait for large ones."""
_CALL = np.dtype([("size", np.int64), ("what", "S120")])
"""What ranks tell each other before a call of all of them."""
_QUESTION, _ANSWER, _FAILURE = 1, 2, 3


@cache
def world() -> Ranks:
    """Return all ranks of the program. All of them must make the first call."""
    return Ranks()


def exchange(sends: int, *messages: Any) -> None:
    """Send and receive messages at the same time: for each the number of the other rank and its bytes, first `sends` that are sent."""
    pairs = list(zip(messages[::2], messages[1::2], strict=True))
    world().exchange(pairs[:sends], pairs[sends:])


def exchange_on_devices(sends: int, *messages: Any) -> None:
    """Do the same with arrays in memory of devices, which MPI gets as they are."""
    ranks, given = world(), list(zip(messages[::2], messages[1::2], strict=True))
    pairs = [(rank, ranks.memory_of(array, is_written=at >= sends)) for at, (rank, array) in enumerate(given)]
    ranks.exchange(pairs[:sends], pairs[sends:])


def _library() -> Any:
    """Return mpi4py's MPI module, whose first import initialises MPI."""
    try:
        from mpi4py import MPI
    except ImportError:
        raise MissingDependency("transport='mpi'", "mpi") from None
    except RuntimeError as error:
        raise RankError(
            f"mpi4py finds no MPI: {error}; load the module of the cluster's MPI, or install one with: {pip_install('mpich')}"
        ) from None
    return MPI


def limit_s() -> float:
    """Return the seconds that a rank waits for another."""
    given = os.environ.get(ENVIRONMENT, "")
    with suppress(ValueError):
        if not given or float(given) > 0:
            return float(given or LIMIT_S)
    raise RankError(f"${ENVIRONMENT} is {shortened(given)!r}: give a number of seconds above 0, or leave it unset for {LIMIT_S:g}")


class Ranks:
    """The ranks of an MPI program, from the view of one. All must make the same calls in the same order."""

    def __init__(self) -> None:
        self._mpi = _library()
        self.number: int = self._mpi.COMM_WORLD.rank
        self.count: int = self._mpi.COMM_WORLD.size
        self.failure = ""
        """Reason why no message can be exchanged any more."""
        self.limit_s = limit_s()
        """Seconds that this rank waits for another before it asks why."""
        self._waits_for = ""
        self._heard: dict[int, str] = {}
        """Answers of the other ranks about what they wait for, since this rank asked."""
        self._sent: list[Any] = []
        """Requests and bytes of sent questions, answers and failures, which others may never receive."""
        self._notices: Any = None
        began = time.monotonic()
        communicators = [self._mpi.COMM_WORLD.Idup() for _ in range(2)]
        while not self._mpi.Request.Testall([request for _, request in communicators]):
            if time.monotonic() - began > self.limit_s:
                self.failure = f"not all ranks came to their first call of prepare within {self.limit_s:g} s"
                atexit.register(self._end)
                raise RankError(f"{self.failure}: let all {self.count} call it, or set ${ENVIRONMENT}")
            time.sleep(_LONGEST_NAP_S)
        (self._comm, _), (self._notices, _) = communicators
        atexit.register(self._end)
        names = self.all_of(self._mpi.Get_processor_name(), "the names of machines")
        self.number_on_machine: int = names[: self.number].count(names[self.number])
        """The number of this rank among those on its machine."""

    @property
    def version(self) -> str:
        """The name and the version of the MPI library."""
        first = str(self._mpi.Get_library_version()).partition("\n")[0]
        return " ".join(shortened(first.partition(",")[0]).split())

    @property
    def memory_kinds(self) -> str:
        """The kinds of memory that MPI takes, separated by commas; empty if it does not say."""
        return str(self._mpi.COMM_WORLD.Get_info().get("mpi_memory_alloc_kinds") or "")

    @property
    def says_cuda(self) -> bool:
        """Whether MPI says by its function `MPIX_Query_cuda_support` that it takes memory of GPUs. Not every MPI has this function."""
        with suppress(OSError, AttributeError):
            return bool(ctypes.CDLL(self._mpi.__file__).MPIX_Query_cuda_support())
        return False

    @property
    def calls_from_any_thread(self) -> bool:
        """Whether MPI was started so that the threads of a GPU's driver may call it."""
        return bool(self._mpi.Query_thread() >= self._mpi.THREAD_SERIALIZED)

    # -- messages ----------------------------------------------------------------------------------------------------------------

    def memory_of(self, array: DeviceArray, is_written: bool) -> Any:
        """Return memory of a device for messages: of an emulated device as an array of bytes, of a GPU by its address."""
        found = array.target.host_bytes(array.address, array.nbytes, is_written=is_written)
        return self._mpi.buffer.fromaddress(array.address, array.nbytes) if found is None else found

    def exchange(self, sends: Sequence[tuple[int, Any]], receives: Sequence[tuple[int, Any]]) -> None:
        """Send and receive arrays of bytes, or other memory, one for each rank that is named."""
        self._check()
        byte = self._mpi.BYTE
        requests = [self._comm.Irecv([array, byte], source=rank) for rank, array in receives]
        requests += [self._comm.Isend([array, byte], dest=rank) for rank, array in sends]
        others = sorted({rank for rank, _ in (*receives, *sends)})
        self._wait(requests, f"planes of rank {' and '.join(map(str, others))}")

    def all_of(self, value: Any, what: str, nbytes: int = 0) -> list[Any]:
        """Return the values that the ranks pass, in order. `nbytes`: bytes that the ranks may have to read or write before."""
        own = np.frombuffer(pickle.dumps(value), np.uint8)
        sizes = self._meet(what, own.size, nbytes)
        everything = np.empty(int(sizes.sum()), np.uint8)
        ends = np.cumsum(sizes)
        self._wait([self._comm.Iallgatherv(own, [everything, (sizes, ends - sizes), self._mpi.BYTE])], what)
        return [pickle.loads(everything[end - size : end].tobytes()) for end, size in zip(ends, sizes, strict=True)]

    def joined(self, own: npt.NDArray[Any], planes: Sequence[int], root: int | None, what: str) -> npt.NDArray[Any] | None:
        """Return the planes of all ranks as one array: on rank `root`, or on all. `planes`: number of planes of each rank."""
        self._meet(what, sum(planes))
        shape = (sum(planes), *own.shape[1:])
        plane = self._mpi.BYTE.Create_contiguous(own[:1].nbytes).Commit()
        whole = np.empty(shape, own.dtype) if root in (None, self.number) else None
        starts = np.cumsum([0, *planes[:-1]])
        given = [np.ascontiguousarray(own).view(np.uint8), len(own), plane]
        taken = None if whole is None else [whole.view(np.uint8), (list(planes), starts.tolist()), plane]
        request = self._comm.Iallgatherv(given, taken) if root is None else self._comm.Igatherv(given, taken, root=root)
        self._wait([request], what, own[:1].nbytes * shape[0])
        plane.Free()
        return whole

    def spread(self, array: npt.NDArray[Any], what: str) -> None:
        """Broadcast an array of rank 0 into the array of each rank, plane by plane."""
        self._meet(what, len(array))
        plane = self._mpi.BYTE.Create_contiguous(array[:1].nbytes).Commit()
        self._wait([self._comm.Ibcast([array.view(np.uint8), len(array), plane], root=0)], what, array.nbytes)
        plane.Free()

    def _meet(self, what: str, size: int, nbytes: int = 0) -> npt.NDArray[np.int64]:
        """Wait until all ranks make the same call, and return the size that each passes. MPI would mismatch different calls."""
        self._check()
        said = np.zeros(self.count, _CALL)
        self._wait([self._comm.Iallgather(np.array([(size, what.encode())], _CALL).view(np.uint8), said.view(np.uint8))], what, nbytes)
        if (said["what"] != said["what"][0]).any():
            calls = ", ".join(f"rank {rank} is at {one.decode(errors='replace')}" for rank, one in enumerate(said["what"]))
            self._fail(f"the ranks make different calls: {calls}; let every rank make the same calls in the same order")
        sizes: npt.NDArray[np.int64] = said["size"]
        return sizes

    # -- waiting -----------------------------------------------------------------------------------------------------------------

    def _wait(self, requests: list[Any], what: str, nbytes: int = 0) -> None:
        self.wait_until(lambda: bool(self._mpi.Request.Testall(requests)), what, nbytes)

    def wait_until(self, is_done: Callable[[], bool], what: str, nbytes: int = 0, nap_part: float = _NAP_PART) -> None:
        """Poll until a function returns True, as long as the limit allows; `nap_part` is the share of the time waited between two polls."""
        self._check()
        began = time.monotonic()
        self._waits_for = what
        patience = self.limit_s + nbytes / _BYTES_PER_S
        try:
            while not is_done():
                self._listen()
                waited = time.monotonic() - began
                if waited > patience:
                    self._ask(is_done, patience)
                    return
                time.sleep(0 if waited < _SPIN_S else min(nap_part * waited, _LONGEST_NAP_S))
        except self._mpi.Exception as error:
            self._fail(f"rank {self.number} waited for {what}, and MPI says: {error}")

    def _check(self) -> None:
        if self.failure:
            raise RankError(f"this rank cannot go on: {self.failure}")

    def _fail(self, text: str) -> None:
        self.failure = text
        raise RankError(text)

    def _listen(self) -> None:
        """Receive reports of other ranks: questions, answers and failures."""
        status = self._mpi.Status()
        while self._notices.Iprobe(self._mpi.ANY_SOURCE, self._mpi.ANY_TAG, status):
            source, tag = status.Get_source(), status.Get_tag()
            data = bytearray(status.Get_count(self._mpi.BYTE))
            self._notices.Recv([data, self._mpi.BYTE], source, tag)
            if tag == _FAILURE:
                self._fail(data.decode())
            self._heard[source] = data.decode()
            if tag == _QUESTION:
                self._tell(source, _ANSWER, self._waits_for)

    def _tell(self, rank: int, tag: int, text: str) -> None:
        data = text.encode()
        self._sent.append((self._notices.Isend([data, self._mpi.BYTE], rank, tag), data))

    def _tell_all(self, tag: int, text: str) -> None:
        for rank in range(self.count):
            if rank != self.number:
                self._tell(rank, tag, text)

    def _ask(self, is_done: Callable[[], bool], waited: float) -> None:
        """Determine why no message arrived, and raise it as an error; return if one arrives meanwhile."""
        self._heard.clear()
        self._tell_all(_QUESTION, self._waits_for)
        asked = time.monotonic()
        while time.monotonic() - asked < _GRACE_S:
            if is_done():
                return
            self._listen()
            time.sleep(_LONGEST_NAP_S)
        silent = [rank for rank in range(self.count) if rank != self.number and rank not in self._heard]
        if silent:
            names = f"rank {silent[0]} does" if len(silent) == 1 else f"ranks {', '.join(map(str, silent))} do"
            it = "it ended or hangs, or is" if len(silent) == 1 else "they ended or hang, or are"
            text = (
                f"{names} not answer: rank {self.number} has waited {waited:g} s for {self._waits_for}; {it} busy with something else for "
                f"longer than ${ENVIRONMENT} allows"
            )
        else:
            said = ", ".join(f"rank {rank} for {what}" for rank, what in sorted({**self._heard, self.number: self._waits_for}.items()))
            text = f"all ranks wait: {said}; let every rank make the same calls in the same order"
        self._tell_all(_FAILURE, text)
        self._fail(text)

    # -- failures ----------------------------------------------------------------------------------------------------------------

    @contextmanager
    def ending(self, what: str) -> Iterator[None]:
        """End all ranks if the `with` block, whose calls of other libraries this class cannot interrupt, takes longer than the limit."""

        def end() -> None:
            print(
                f"RankError: rank {self.number} has waited {self.limit_s:g} s for {what}, and ends all ranks", file=sys.stderr, flush=True
            )
            self._mpi.COMM_WORLD.Abort(1)

        timer = threading.Timer(self.limit_s, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Send an error raised inside the `with` block to the other ranks, which raise it too instead of waiting for this one."""
        try:
            yield
        except BaseException as error:  # any exception: otherwise the others would wait for this rank
            self._announce(error)
            raise

    def _announce(self, error: BaseException) -> None:
        if not self.failure:
            said = shortened(str(error).partition("\n")[0])
            self.failure = f"rank {self.number} ended with {type(error).__name__}{f': {said}' if said else ''}"
            self._tell_all(_FAILURE, self.failure)

    def _end(self) -> None:
        """Abort all ranks after one has failed: MPI would otherwise wait for ranks that never finalise."""
        error = getattr(sys, "last_value", None)
        if isinstance(error, BaseException) and self.count > 1 and self._notices is not None:
            self._announce(error)
        if not self.failure or self.count == 1:
            return
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        until = time.monotonic() + _GRACE_S
        while time.monotonic() < until:
            self._mpi.Request.Testall([request for request, _ in self._sent])
            time.sleep(_LONGEST_NAP_S)
        self._mpi.COMM_WORLD.Abort(1)
