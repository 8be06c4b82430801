// size_t and ptrdiff_t are built into the compiler; offsetof comes from CCCL.
#pragma once
#include <cuda/std/cstddef>
