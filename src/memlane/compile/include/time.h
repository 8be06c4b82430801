#pragma once
#define CLOCKS_PER_SEC ((clock_t)1000000)
