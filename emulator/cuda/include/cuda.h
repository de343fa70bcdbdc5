// The driver API: only the types that it shares with the runtime API, and no functions.
#pragma once

#include "shim/host_types.h"

#ifndef CUDA_VERSION
#define CUDA_VERSION CUDART_VERSION
#endif

typedef cudaStream_t CUstream;
typedef cudaEvent_t CUevent;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
