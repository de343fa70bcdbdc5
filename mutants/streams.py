"""Launches on another stream than the caller's: docs/bugs.md#calling. They show on a GPU only.

python -m mutants stream
"""

import torch

from impls import Supports
from mutants.cuda_tiles import planted, promising
from mutants.mutant import Mutant

LAW = "test_work_waits_on_the_current_stream"
LAUNCH = "kernel<<<unsigned(blocks), THREADS, size_t(bytes), static_cast<cudaStream_t>(stream)>>>(arguments...);"
MUTANTS = [
    planted(
        "both_launches_on_the_legacy_stream",
        LAW,
        "host.cuh",
        ((LAUNCH, LAUNCH.replace(", static_cast<cudaStream_t>(stream)", "")),),
        "`<<<blocks, threads>>>`: right as long as nobody uses streams, as PyTorch's default is the legacy one",
        promising(),
        device="cuda",
    ),
    Mutant(
        name="triton_current_stream_does_not_wait_for_the_forward",
        law=LAW,
        source="triton/attention",
        impl="triton_fa2",
        device="cuda",
        declares=dict(backward=None, supports=Supports(dtypes={torch.float16}, headdims=range(1, 65))),
        edits=(
            ("    def forward(self, q,", "    def forward(self, *given, **options):\n"
             "        beside = torch.cuda.Stream()\n"
             "        beside.wait_stream(torch.cuda.current_stream())\n"
             "        with torch.cuda.stream(beside):\n"
             "            torch.cuda._sleep(20_000_000)\n"
             "            return self._forward(*given, **options)\n\n"
             "    def _forward(self, q,"),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="a stream of its own waits for the caller's, and nobody for it",
    ),
]  # fmt: skip
