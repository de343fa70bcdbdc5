// The driver API: only its types that the runtime API shares. Nothing of it can be called.
#pragma once

#include "shim/host_types.h"

#ifndef CUDA_VERSION
#define CUDA_VERSION CUDART_VERSION
#endif

typedef cudaStream_t CUstream;
typedef cudaEvent_t CUevent;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
