"""Compile Numba kernels to a Module.

Numba passes an array as 5 + 2 n parameters for n dimensions: two pointers to Python objects, which are null on a GPU, then the number of
elements, the bytes of one, the address, and the extents and strides, the latter in bytes. A number is one parameter.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

from memlane.compile import toolkit
from memlane.compile.frontend import kernel_names
from memlane.compile.python_source import module_of
from memlane.errors import CompileError, MissingDependency
from memlane.ptx import Convention, Module, Single, SpreadArray

_LIBRARY = re.compile(r"^\.extern\s+\.func\s+\([^()]*\)\s+(cudaCGGetIntrinsicHandle|cudaCGSynchronize)\s*\([^()]*\)\s*;", re.MULTILINE)
_GRID_BARRIER = {
    "cudaCGGetIntrinsicHandle": """
.func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
	.reg .b32 %low, %high;
	.reg .b64 %workspace;
	mov.u32 %high, %envreg1;
	mov.u32 %low, %envreg2;
	mov.b64 %workspace, {%low, %high};
	st.param.b64 [handle], %workspace;
	ret;
}
""",
    "cudaCGSynchronize": """
.func (.param .b32 status) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
	.reg .pred %others, %first, %waits;
	.reg .b32 %x, %y, %z, %any, %count, %blocks, %before, %now;
	.reg .b64 %workspace;
	ld.param.b64 %workspace, [handle];
	barrier.sync 0;
	mov.u32 %x, %tid.x;
	mov.u32 %y, %tid.y;
	mov.u32 %z, %tid.z;
	or.b32 %any, %x, %y;
	or.b32 %any, %any, %z;
	setp.ne.u32 %others, %any, 0;
	@%others bra $L_done;
	mov.u32 %x, %ctaid.x;
	mov.u32 %y, %ctaid.y;
	mov.u32 %z, %ctaid.z;
	or.b32 %any, %x, %y;
	or.b32 %any, %any, %z;
	setp.eq.u32 %first, %any, 0;
	mov.u32 %x, %nctaid.x;
	mov.u32 %y, %nctaid.y;
	mov.u32 %z, %nctaid.z;
	mul.lo.u32 %blocks, %x, %y;
	mul.lo.u32 %blocks, %blocks, %z;
	sub.u32 %blocks, 0x80000001, %blocks;
	selp.u32 %count, %blocks, 1, %first;
	atom.add.release.gpu.global.u32 %before, [%workspace+4], %count;
$L_wait:
	ld.acquire.gpu.global.u32 %now, [%workspace+4];
	xor.b32 %now, %now, %before;
	setp.ge.s32 %waits, %now, 0;
	@%waits bra $L_wait;
$L_done:
	barrier.sync 0;
	st.param.b32 [status], 0;
	ret;
}
""",
}
"""PTX bodies of the functions that Numba's `this_grid()` and its `sync()` call; their library cannot be linked without the GPU's assembler.

The driver passes the address of the launch's workspace in environment registers. The barrier is a counter at byte 4, whose highest bit
flips once all blocks have arrived.
"""
_ARRAY = ("zero", "zero", "size", "itemsize", "address", "shape", "strides")


def numba(
    function: Callable[..., object],
    signature: object,
    *,
    arch: str = "sm_90",
    fastmath: bool = False,
    lineinfo: bool = True,
    max_threads: int | None = None,
) -> Module:
    """Compile a Numba CUDA kernel to a module, without a GPU or a driver.

    `function` is a Python function as `numba.cuda.jit` takes it, or the result of that decorator. `signature` gives the argument types in
    Numba's notation: `"void(float32[:], float32[:, ::1], int32)"`, a tuple of types, or a Numba signature. `[::1]` promises C order, which
    arrays of a target have, and gives simpler code than `[:]`. `max_threads` is the largest block that the kernel will be launched with.

    The module has one kernel, named after the Python function. Call it as in Numba, with arrays of the target and numbers: memlane fills in
    the parameters that Numba makes of an array.

        module = ml.numba(add, "void(float32[::1], float32[::1], float32[::1], int32)")
        target.load(module)["add"][8, 128](out, a, b, 1024)

    Raises CompileError with Numba's message, and MissingDependency.
    """
    cuda, core = _packages()
    function = getattr(function, "py_func", function)
    if not inspect.isfunction(function):
        raise CompileError(f"{function!r} is not a Python function; pass one to memlane.numba, or a kernel made by numba.cuda.jit")
    types = _argument_types(core, function, signature)
    forms = tuple(_form(core, function, number, one) for number, one in enumerate(types, 1))
    convention = Convention(forms, language="Numba", names=tuple(inspect.signature(function).parameters))
    options = {"cc": _capability(arch), "fastmath": fastmath, "lineinfo": lineinfo, "launch_bounds": max_threads}
    ptx = _compile(cuda, core, function, types, options)
    return module_of(_with_plain_name(_with_grid_barrier(ptx), function.__name__), function.__code__.co_filename, convention)


def _packages() -> tuple[Any, Any]:
    """Return the modules `numba.cuda` and `numba.core`. Raises MissingDependency, and CompileError if Numba's simulator is on."""
    try:
        import numba_cuda  # noqa: F401  # Numba's own CUDA target is an older one, which this replaces
        from numba import core, cuda
    except ImportError as cause:
        raise MissingDependency("compiling Numba kernels", "numba") from cause
    if core.config.ENABLE_CUDASIM:
        raise CompileError("NUMBA_ENABLE_CUDASIM is set: Numba simulates kernels and compiles none; unset it")
    return cuda, core


def _capability(arch: str) -> tuple[int, int] | tuple[int, int, str]:
    """Return the compute capability of an architecture: `(9, 0)` for `sm_90`, `(9, 0, "a")` for `sm_90a`."""
    number = toolkit.compute_capability(arch)
    digits = number.rstrip("af")
    plain = int(digits[:-1]), int(digits[-1])
    return (*plain, number[-1]) if number != digits else plain


def _argument_types(core: Any, function: Callable[..., object], signature: object) -> tuple[Any, ...]:
    name = function.__name__
    try:
        types, result = core.sigutils.normalize_signature(signature)
    except (TypeError, NameError, SyntaxError, AttributeError) as cause:
        raise CompileError(f"{signature!r} is not a signature for {name}, write it like 'void(float32[:], int32)': {cause}") from cause
    if result not in (None, core.types.void):
        raise CompileError(f"the signature of {name} returns {result}; a kernel returns nothing, write void(...)")
    names = inspect.signature(function).parameters
    if len(types) != len(names):
        raise CompileError(f"the signature of {name} has {len(types)} types, but {name} takes {len(names)} arguments: {', '.join(names)}")
    return tuple(types)


def _form(core: Any, function: Callable[..., object], number: int, one: Any) -> Single | SpreadArray:
    """Return how a caller passes an argument of a Numba type. Raises CompileError for a type that a launch cannot pass."""
    from numba.np.numpy_support import as_dtype

    if isinstance(one, core.types.Array):
        try:
            return SpreadArray(as_dtype(one.dtype).str[1:], one.ndim, one.layout, _ARRAY)
        except (NotImplementedError, core.errors.NumbaError) as cause:
            raise CompileError(f"argument {number} of {function.__name__} has elements that NumPy has no type for: {one}") from cause
    if isinstance(one, core.types.Integer | core.types.Boolean) or one in (core.types.float32, core.types.float64):
        return Single()
    raise CompileError(
        f"argument {number} of {function.__name__} is {one}; a launch through memlane passes arrays, integers, float32 and float64"
    )


def _compile(cuda: Any, core: Any, function: Callable[..., object], types: tuple[Any, ...], options: Mapping[str, object]) -> str:
    from cuda.pathfinder import DynamicLibNotFoundError

    try:
        with _instead_of_a_device(cuda, options["cc"]):
            text, _ = cuda.compile_ptx(function, types, **options)
    except DynamicLibNotFoundError as cause:
        raise MissingDependency("compiling Numba kernels", "numba") from cause
    except (core.errors.NumbaError, TypeError, RuntimeError, AttributeError) as cause:
        if isinstance(cause, AttributeError) and "module 'numpy' has no attribute" in str(cause):
            # This is not an error of the kernel, which Numba would wrap in its own exception: numba-cuda 0.30 predates NumPy 2.5.
            beside = f"numba-cuda {version('numba-cuda')} does not go with NumPy {version('numpy')}: {cause}"
            raise MissingDependency(f"compiling Numba kernels ({beside})", "numba") from cause
        raise CompileError(f"Numba does not compile {function.__name__}", str(cause)) from cause
    return str(text)


@contextmanager
def _instead_of_a_device(cuda: Any, capability: object) -> Iterator[None]:
    """Make Numba compile functions that a kernel calls for `capability` inside the `with` block.

    By default Numba compiles them for the GPU that it finds, and fails if there is none.
    """
    dispatcher = cuda.dispatcher
    ask = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        dispatcher.get_current_device = ask


def _with_grid_barrier(ptx: str) -> str:
    """Return the PTX with bodies for the runtime library functions of `_GRID_BARRIER` that it declares."""
    return _LIBRARY.sub(lambda found: _GRID_BARRIER[found[1]], ptx)


def _with_plain_name(ptx: str, name: str) -> str:
    """Return the PTX with the kernel named after its Python function; Numba's long name contains module, version and types."""
    (mangled,) = kernel_names(ptx)
    return ptx.replace(mangled, name) if name.isascii() and name not in (mangled, "<lambda>") else ptx
