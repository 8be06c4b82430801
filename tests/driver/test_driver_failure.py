"""What a user reads when the driver refuses, or a kernel fails."""

from __future__ import annotations

import pytest

from memlane.driver.failure import error_for, error_name
from memlane.errors import BadAccess, BadLaunch, DeviceError, KernelTrap


def test_a_fault_names_the_kernel_and_says_how_to_find_the_place() -> None:
    error = error_for("cuda:0", "CUDA_ERROR_ILLEGAL_ADDRESS", "to wait for its work", ["naive(float*, float*, int)"])
    assert type(error) is BadAccess
    assert str(error) == (
        "kernel naive(float*, float*, int) failed on cuda:0: a thread read or wrote an address outside every allocation "
        "(CUDA_ERROR_ILLEGAL_ADDRESS); run it on ml.target('emulator') to see where, and start a new process to use this GPU again"
    )


@pytest.mark.parametrize(
    ("running", "subject"), [([], "a kernel failed"), (["a"], "kernel a failed"), (["a", "b"], "one of the kernels a, b failed")]
)
def test_a_fault_names_every_kernel_that_can_have_caused_it(running: list[str], subject: str) -> None:
    assert str(error_for("cuda:1", "CUDA_ERROR_MISALIGNED_ADDRESS", "", running)).startswith(f"{subject} on cuda:1: ")


@pytest.mark.parametrize(
    ("name", "kind", "part"),
    [
        ("CUDA_ERROR_MISALIGNED_ADDRESS", BadAccess, "not a multiple of the size"),
        ("CUDA_ERROR_LAUNCH_FAILED", KernelTrap, "`trap`"),
        ("CUDA_ERROR_ASSERT", KernelTrap, "assertion"),
        ("CUDA_ERROR_OUT_OF_MEMORY", DeviceError, "cuda:0 refused X: not enough free device memory"),
        ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", BadLaunch, "more registers or shared memory"),
        ("CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", BadLaunch, "not all blocks fit on the GPU at once"),
        ("CUDA_ERROR_NOT_FOUND", DeviceError, "because the assembler removes what no kernel uses"),
    ],
)
def test_kinds(name: str, kind: type[Exception], part: str) -> None:
    error = error_for("cuda:0", name, "X")
    assert type(error) is kind
    assert part in str(error)
    assert name in str(error)


def test_other_errors_keep_the_explanation_of_the_driver() -> None:
    told = "CUDA_ERROR_INVALID_VALUE: one of the parameters is wrong"
    assert str(error_for("cuda:0", "CUDA_ERROR_INVALID_VALUE", "the launch of k", detail=told)) == f"cuda:0 refused the launch of k: {told}"
    assert str(error_for("cuda:0", "CUDA_ERROR_NEW", "it")) == "cuda:0 refused it: CUDA_ERROR_NEW"


def test_error_names() -> None:
    assert error_name("CUDA_ERROR_INVALID_VALUE: text") == "CUDA_ERROR_INVALID_VALUE"
    assert error_name("no kernel has CUDA_ERROR_INVALID_VALUE") is None
