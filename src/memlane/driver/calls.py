"""Call `cuda.bindings`, whose functions return an error code and the results."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver


class CallError(Exception):
    """Raised when a driver call fails. Its text begins with the driver's name for the error, like the texts of `cuda.core`."""


def checked(answer: tuple[Any, ...]) -> Any:
    """Return the results of a call: None, one value, or a tuple. Raises CallError."""
    code, *values = answer
    if code != driver.CUresult.CUDA_SUCCESS:
        raise CallError(f"{code.name}: {_explanation(code)}")
    return None if not values else values[0] if len(values) == 1 else tuple(values)


def _explanation(code: Any) -> str:
    known, text = driver.cuGetErrorString(code)
    return text.decode() if known == driver.CUresult.CUDA_SUCCESS and text else "no explanation"
