"""Launches on a stream other than the caller's: docs/why/bugs.md#calling. These bugs show only on a
GPU.

flash-attest power stream
"""

from flash_attest.mutants.cuda.build import planted, supporting
from flash_attest.mutants.mutant import STREAMS

LAUNCH = "kernel<<<unsigned(blocks), THREADS, size_t(bytes), static_cast<cudaStream_t>(stream)>>>(arguments...);"

MUTANTS = [
    planted(
        "both_launches_on_the_legacy_stream",
        STREAMS,
        "host.cuh",
        ((LAUNCH, LAUNCH.replace(", static_cast<cudaStream_t>(stream)", "")),),
        "`<<<blocks, threads>>>`: right until the caller uses streams, because PyTorch's default stream is the legacy one",
        supporting(),
        device="cuda",
    ),
]
