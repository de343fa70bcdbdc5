"""The parts that every kernel family shares.

In C++: fibers, scheduler, collectives, shadow memory, records; kernel_api.h is what compiled
kernels call. In Python: `library` compiles and loads the C++ code, `symbols` reads a compiled
library, `calls` passes the tensors of a call to the runtime and takes the observations, `watch`
switches checking on.
"""
