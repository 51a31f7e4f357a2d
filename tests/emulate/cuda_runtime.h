/* CUDA for a device that is emulated on the CPU, for tests only: with -I tests/emulate the compiler
 * finds this header in place of NVIDIA's, and model/backend/cuda/ compiles as plain C++17. */
#pragma once

#include "intrinsics.h"
#include "kernel.h"
#include "runtime_api.h"
