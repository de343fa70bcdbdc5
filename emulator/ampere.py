"""The GPU that Triton and Numba see: an A100 (CUDA C++ Programming Guide, specifications for
8.0).
"""

KIB = 1024
# Ampere, because the emulator does not run wgmma and tensor memory of later GPUs
CAPABILITY = (8, 0)
STATIC_SHARED = 48 * KIB  # bytes of shared memory that a block has by default
MAX_SHARED = 163 * KIB
MEMORY = 40 * KIB**3
MAX_THREADS = 1024  # in a block
LARGEST_BLOCK = (1024, 1024, 64)
LARGEST_GRID = (2**31 - 1, 65535, 65535)
# The number is small, so that kernels that launch one block per multiprocessor process several
# tiles in each block here too.
MULTIPROCESSORS = 4
DEVICE = {  # names as in Numba and CUDA
    "MAX_THREADS_PER_BLOCK": MAX_THREADS,
    **{f"MAX_BLOCK_DIM_{axis}": size for axis, size in zip("XYZ", LARGEST_BLOCK, strict=True)},
    **{f"MAX_GRID_DIM_{axis}": size for axis, size in zip("XYZ", LARGEST_GRID, strict=True)},
    "MAX_SHARED_MEMORY_PER_BLOCK": STATIC_SHARED,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": MAX_SHARED,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 164 * KIB,
    "MAX_REGISTERS_PER_BLOCK": 64 * KIB,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 64 * KIB,
    "MAX_THREADS_PER_MULTI_PROCESSOR": 2048,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
    "TOTAL_CONSTANT_MEMORY": 64 * KIB,
    "WARP_SIZE": 32,
    "MULTIPROCESSOR_COUNT": MULTIPROCESSORS,
    "COMPUTE_CAPABILITY_MAJOR": CAPABILITY[0],
    "COMPUTE_CAPABILITY_MINOR": CAPABILITY[1],
    "CLOCK_RATE": 1_410_000,
    "MEMORY_CLOCK_RATE": 1_215_000,
    "GLOBAL_MEMORY_BUS_WIDTH": 5120,
    "L2_CACHE_SIZE": 40 * KIB**2,
    "SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO": 2,
    "UNIFIED_ADDRESSING": 1,
    "CONCURRENT_KERNELS": 0,
    "COOPERATIVE_LAUNCH": 0,
    "KERNEL_EXEC_TIMEOUT": 0,
    "TCC_DRIVER": 0,
    "PCI_BUS_ID": 0,
    "PCI_DEVICE_ID": 0,
}
