"""Titles of kernels: full C++ names such as `void ns::red<256>(int*)`, and what people call them."""

from __future__ import annotations


def kernel_label(title: str) -> str:
    """The kernel's title without return type and parameters, for people: `void ns::red<256>(int*)` -> `ns::red<256>`."""
    name = title.replace("(anonymous namespace)::", "")
    depth = start = 0
    for position, character in enumerate(name):
        depth += (character == "<") - (character == ">")
        if depth == 0 and character == " ":
            start = position + 1
        elif depth == 0 and character == "(":
            return name[start:position]
    return name[start:]


def plain_name(title: str) -> str:
    """The kernel's own name alone: `void ns::red<256>(int*)` -> `red`."""
    return kernel_label(title).partition("<")[0].rpartition("::")[2]
