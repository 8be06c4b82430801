// size_t and ptrdiff_t are built into the compiler. CCCL defines offsetof only where nothing else did.
#pragma once
#ifndef offsetof
#define offsetof(type, member) ((size_t)((char*)&(((type*)0)->member) - (char*)0))
#endif
