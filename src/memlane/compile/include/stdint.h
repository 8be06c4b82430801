// Integer types of fixed width and their limits. CCCL defines them for device code; a second definition would clash with it.
#pragma once
#include <cuda/std/cstdint>
