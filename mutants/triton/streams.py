"""Launches on a stream other than the caller's: docs/why/bugs.md#calling. These bugs show only on a
GPU.

flash-attest power stream
"""

import torch

from flash_attest.impls import Supports
from flash_attest.mutants.mutant import STREAMS
from flash_attest.mutants.triton.build import planted

ON_A_STREAM_OF_ITS_OWN = """    def forward(self, *given, **options):
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            torch.cuda._sleep(20_000_000)
            return self._forward(*given, **options)

    def _forward(self, q,"""

MUTANTS = [
    planted(
        name="triton_current_stream_does_not_wait_for_the_forward",
        law=STREAMS,
        source="attention.py",
        device="cuda",
        declares=dict(backward=None, supports=Supports(dtypes={torch.float16}, headdims=range(1, 65))),
        edits=(("    def forward(self, q,", ON_A_STREAM_OF_ITS_OWN),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="its own stream waits for the caller's, but the caller's does not wait for it",
    ),
]
