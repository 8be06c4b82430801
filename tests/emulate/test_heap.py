"""Memory that kernels allocate: the heap against a plain model, and `malloc`, `new` and `free` in kernels."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

import memlane as ml
from memlane.emulate.check.shadows import Shadows
from memlane.emulate.run.heap import HEAP_BYTES, Heap
from memlane.emulate.run.memory import Memory
from memlane.errors import BadAccess


def heap() -> Heap:
    found = Heap(Memory(Shadows(), 0, 1 << 30))
    found.prepare()
    return found


def test_pieces_are_apart_aligned_and_reused() -> None:
    drawn, one = random.Random(1), heap()
    pieces: dict[int, int] = {}
    for _ in range(3000):
        if pieces and drawn.random() < 0.45:
            address = drawn.choice(list(pieces))
            one.free(address)
            del pieces[address]
        else:
            nbytes = drawn.choice([0, 1, 16, 100, 5000])
            address = one.allocate(nbytes)
            assert address
            assert address % 16 == 0
            pieces[address] = max(1, nbytes)
    ordered = sorted(pieces.items())
    assert all(low + nbytes <= following for (low, nbytes), (following, _) in pairwise(ordered))
    for address in pieces:
        one.free(address)
    assert one.allocate(HEAP_BYTES)  # no gap is left between what was freed


def test_nothing_is_left_at_some_time() -> None:
    one = heap()
    address = one.allocate(HEAP_BYTES - 16)
    assert one.allocate(17) == 0
    assert one.allocate(16)
    one.free(address)
    assert one.allocate(HEAP_BYTES - 16) == address


def test_what_cannot_be_freed() -> None:
    one = heap()
    address = one.allocate(64)
    one.free(0)
    one.free(address)
    for wrong in (address, address + 16):
        with pytest.raises(BadAccess, match=r"^a kernel frees 0x[0-9a-f]+, which `malloc` did not return or which is already freed$"):
            one.free(wrong)


SOURCE = """
struct List { int value; List* next; __device__ List(int v, List* n) : value(v), next(n) { } };
__global__ void build(List** heads, int n) {
  List* head = nullptr;
  for (int i = 0; i < n + (int)threadIdx.x; i++) head = new List(i, head);
  heads[blockIdx.x * blockDim.x + threadIdx.x] = head;
}
__global__ void sum(List** heads, int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, total = 0;
  for (List* at = heads[i]; at;) { List* next = at->next; total += at->value; delete at; at = next; }
  out[i] = total;
}
__global__ void fill(int** pieces) { *pieces = (int*)malloc(16 << 20); }
__global__ void twice(int* out) { free(out); }
"""


def test_kernels_pass_on_what_they_allocate() -> None:
    target = ml.target("emulator:h200")
    kernels = target.load(ml.cuda(SOURCE))
    heads, out = target.zeros(80, "u8"), target.zeros(80, "i4")
    for _ in range(2):
        kernels["build"][2, 40](heads, 3)
        kernels["sum"][2, 40](heads, out)
    expected = [(3 + i) * (2 + i) // 2 for i in range(40)] * 2
    np.testing.assert_array_equal(out.numpy(), expected)


def test_a_kernel_that_asks_for_too_much_gets_a_null_pointer_and_one_that_frees_an_array_is_told() -> None:
    target = ml.target("emulator:h200")
    kernels = target.load(ml.cuda(SOURCE))
    pieces = target.array(np.ones(1, "u8"))
    kernels["fill"][1, 1](pieces)
    assert pieces.numpy()[0] == 0
    with pytest.raises(BadAccess, match="a kernel frees 0x"):
        kernels["twice"][1, 1](pieces)
