#pragma once
#define _POSIX_TIMERS 200809L
#define _POSIX_MONOTONIC_CLOCK 0
