"""Compile Triton kernels to a Module.

Triton fixes the block size when it compiles (32 threads for each of `num_warps`), requests its shared memory as dynamic, drops `constexpr`
parameters, and appends pointers to its own scratch memory, which are null if a kernel needs none.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memlane.compile import toolkit
from memlane.compile.python_source import module_of
from memlane.errors import CompileError, MissingDependency
from memlane.ptx import Convention, Module, Single, SpreadTensorMap

_ELEMENTS = {
    **{f"{kind}{8 * size}": f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)},
    "i1": "b1",
    "u1": "b1",
    "fp16": "f2",
    "fp32": "f4",
    "fp64": "f8",
    **dict.fromkeys(("bf16", "fp8e4nv", "fp8e4b8", "fp8e4b15", "fp8e5", "fp8e5b16")),
}
"""Triton's types -> NumPy's; None for a type that NumPy lacks: arrays of any type are then accepted."""
_DESCRIPTOR = re.compile(r"tensordesc<\s*(?P<element>\w+)\s*\[(?P<block>[\d,\s]+)\]\s*>")
_IN_MAPS = {"fp16": "f16", "bf16": "bf16", "fp32": "f32", "fp64": "f64", "i8": "u8", "u8": "u8", "i16": "u16", "u16": "u16"} | {
    "i32": "s32",
    "u32": "u32",
    "i64": "s64",
    "u64": "u64",
    **dict.fromkeys(("fp8e4nv", "fp8e4b8", "fp8e4b15", "fp8e5", "fp8e5b16"), "u8"),
}
"""Triton's types -> the element types of a tensor map."""
_SWIZZLES = ("none", "32B", "64B", "128B")
_BETWEEN = re.compile(r",(?![^\[]*\])")
"""Pattern of a comma outside brackets."""
_TYPE = re.compile(r"(?P<pointer>\*k?)?(?P<element>\w+)(?P<multiple>:16)?")

_INLINE = re.compile(r"// begin inline asm.*?// end inline asm", re.DOTALL)
_LINE = re.compile(r"^\s*\.loc\s[^\n]*\n", re.MULTILINE)


@dataclass(frozen=True)
class _Parameter:
    """A parameter that is not `constexpr`."""

    type: str
    """Type in Triton's notation, without the `:16` suffix."""
    form: Single | SpreadTensorMap


def triton(
    function: Callable[..., object],
    signature: str | Sequence[str] | Mapping[str, str],
    constexprs: Mapping[str, object] | None = None,
    *,
    num_warps: int = 4,
    num_stages: int = 3,
    arch: str = "sm_90",
    fp_fusion: bool = True,
) -> Module:
    """Compile a Triton kernel to a module, without a GPU or a driver.

    `function` is a Python function as `triton.jit` takes it, or the result of that decorator. `constexprs` gives the values of its
    `tl.constexpr` parameters by name, and of any others to be compiled in. `signature` gives the types of all other parameters in Triton's
    notation, by name or in order: `{"out": "*fp32", "n": "i32"}`, `"*fp32, i32"`. The suffix `:16` (`"*fp32:16, i32:16"`) promises a
    multiple of 16, in bytes for a pointer. Triton makes wide accesses only where this is promised; its own launcher derives it from the
    arguments, and all arrays of a target satisfy it. `tensordesc<fp16[64, 32]>` is an array accessed in blocks, as `TensorDescriptor`
    describes tensors: a launch passes the array, or a tensor map. `num_stages` is the depth of software pipelines. `fp_fusion` allows
    fusing multiplications with additions.

    The module has one kernel. Its block size and shared memory are fixed: launch it as `kernel[grid,](out, n)`; a launch with another block
    raises BadLaunch. Pass an `fp16` number as `np.float16`.

        module = ml.triton(add, "*fp32:16, *fp32:16, *fp32:16, i32", {"BLOCK": 1024})
        target.load(module)["add"][8,](out, a, b, 8192)

    With `arch="sm_90"`, matrix products use instructions that only Hopper has; with `"sm_80"`, the same kernel runs on all later GPUs.
    Raises CompileError with Triton's message, and MissingDependency.
    """
    kernel = _kernel(function)
    constants = _constants(kernel, constexprs or {})
    parameters = _parameters(kernel, signature, constants)
    options = {"num_warps": num_warps, "num_stages": num_stages, "enable_fp_fusion": fp_fusion}
    capability = int(toolkit.compute_capability(arch).rstrip("af"))
    compiled = _compile(kernel, parameters, constants, capability, options)
    forms = _with_boxes(kernel, parameters, getattr(compiled.metadata, "tensordesc_meta", None) or ())
    scratch = int(getattr(compiled.metadata, "global_scratch_size", 0))
    shared = int(compiled.metadata.shared)
    block = (32 * num_warps, 1, 1)
    convention = Convention(forms, block, scratch_bytes=scratch, shared_bytes=shared, language="Triton", names=tuple(parameters))
    return module_of(_with_true_lines(compiled.asm["ptx"]), kernel.fn.__code__.co_filename, convention, _files_of_functions(kernel))


def _files_of_functions(kernel: Any) -> set[str]:
    """Return the files of the Triton functions that a kernel can name: those of its module, of its closure, and of modules that it uses."""
    known = inspect.getclosurevars(kernel.fn)
    values = [*known.globals.values(), *known.nonlocals.values()]
    values += [one for module in values if inspect.ismodule(module) for one in vars(module).values()]
    return {one.fn.__code__.co_filename for one in values if isinstance(one, type(kernel))}


def _kernel(function: Any) -> Any:
    """Return the function as a `triton.JITFunction`, without wrappers such as the autotuner. Raises MissingDependency."""
    try:
        import triton
    except ImportError as cause:
        raise MissingDependency("compiling Triton kernels", "triton") from cause
    if inspect.isfunction(function):
        function = triton.jit(function)
    while not isinstance(function, triton.JITFunction) and hasattr(function, "fn"):
        function = function.fn
    if not isinstance(function, triton.JITFunction):
        raise CompileError(f"{function!r} is not a Triton kernel; memlane.triton takes a Python function, or what triton.jit makes of one")
    return function


def _constants(kernel: Any, constexprs: Mapping[str, object]) -> dict[str, object]:
    """Return the values compiled into the kernel, by parameter name, including defaults of the function."""
    for name in constexprs:
        if name not in kernel.arg_names:
            raise CompileError(f"{kernel.__name__} has no parameter {name}; it has: {', '.join(kernel.arg_names)}")
    constants = {p.name: p.default for p in kernel.params if p.is_constexpr and p.default is not inspect.Parameter.empty} | dict(constexprs)
    if missing := [p.name for p in kernel.params if p.is_constexpr and p.name not in constants]:
        raise CompileError(f"{kernel.__name__} needs values of its constexpr parameters: {', '.join(missing)}")
    return constants


def _parameters(kernel: Any, signature: str | Sequence[str] | Mapping[str, str], constants: Mapping[str, object]) -> dict[str, _Parameter]:
    """Return the parameters that a launch passes, by name, in the order of the function."""
    names = [name for name in kernel.arg_names if name not in constants]
    if not isinstance(signature, Mapping):
        types = [one.strip() for one in _BETWEEN.split(signature)] if isinstance(signature, str) else list(signature)
        if len(types) != len(names):
            raise CompileError(f"the signature of {kernel.__name__} has {len(types)} types for {len(names)} parameters: {', '.join(names)}")
        signature = dict(zip(names, types, strict=True))
    if missing := [name for name in names if name not in signature]:
        raise CompileError(f"{kernel.__name__} needs types of its parameters: {', '.join(missing)}")
    return {name: _parameter(f"{name} of {kernel.__name__}", signature[name]) for name in names}


def _with_boxes(
    kernel: Any, parameters: Mapping[str, _Parameter], described: Sequence[Mapping[str, Any]]
) -> tuple[Single | SpreadTensorMap, ...]:
    """Return how the parameters are passed, with the boxes and swizzles that Triton chose for arrays in blocks."""
    forms: list[Single | SpreadTensorMap] = []
    left = list(described)
    for name, parameter in parameters.items():
        form = parameter.form
        if isinstance(form, SpreadTensorMap):
            if not left or left[0].get("fp4_padded") or left[0].get("is_im2col"):
                raise CompileError(f"Triton compiles {name} of {kernel.__name__} to no tensor map of tiles: pass a pointer instead")
            chosen = left.pop(0)
            form = SpreadTensorMap(form.element, tuple(int(extent) for extent in chosen["block_size"]), _SWIZZLES[chosen["swizzle"]])
        forms.append(form)
    return tuple(forms)


def _parameter(where: str, text: str) -> _Parameter:
    described = _DESCRIPTOR.fullmatch(text.strip())
    if described is not None and described["element"] in _IN_MAPS:
        block = tuple(int(extent) for extent in described["block"].split(","))
        plain = f"tensordesc<{described['element']}[{','.join(map(str, block))}]>"
        return _Parameter(plain, SpreadTensorMap(_IN_MAPS[described["element"]], block, "none"))
    found = _TYPE.fullmatch(text.strip())
    if found is None or found["element"] not in _ELEMENTS or (not found["pointer"] and _ELEMENTS[found["element"]] is None):
        raise CompileError(
            f"the type of {where} is {text!r}; a launch through memlane passes pointers such as '*fp32' or '*bf16:16', numbers such as "
            "'i32' or 'fp32', and arrays in blocks such as 'tensordesc<fp16[64, 32]>'"
        )
    dtype = _ELEMENTS[found["element"]] if found["pointer"] else None
    return _Parameter(f"{found['pointer'] or ''}{found['element']}", Single(dtype, 16 if found["multiple"] else 1))


def _compile(
    kernel: Any, parameters: Mapping[str, _Parameter], constants: Mapping[str, object], capability: int, options: Mapping[str, object]
) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.errors import TritonError

    signature = {name: parameters[name].type if name in parameters else "constexpr" for name in kernel.arg_names}
    promises = {
        (kernel.arg_names.index(name),): [["tt.divisibility", parameter.form.multiple_of]]
        for name, parameter in parameters.items()
        if isinstance(parameter.form, Single) and parameter.form.multiple_of > 1
    }
    source = ASTSource(kernel, signature, dict(constants), promises)
    try:
        return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=dict(options))
    except (TritonError, ValueError, AssertionError, RuntimeError) as cause:
        raise CompileError(f"Triton does not compile {kernel.__name__}", str(cause)) from cause


def _with_true_lines(ptx: str) -> str:
    """Return the PTX without `.loc` directives inside inline assembly.

    Triton writes its accesses as inline assembly, and LLVM places its n-th line n lines further down in the Python source. The line in
    force before it is the correct one.
    """
    return _INLINE.sub(lambda found: _LINE.sub("", found[0]), ptx)
