// make_float4 and others: in cuda_shim.h, which is included before the author's first line.
#pragma once
