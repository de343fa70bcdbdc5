"""Bugs of kernels that run compiled on a GPU, where they are not traced."""

from dataclasses import replace

from flash_attest.mutants.cuda.barriers import MUTANTS as BARRIERS

LAST_IN_LOOP = next(mutant for mutant in BARRIERS if mutant.name == "cuda_fa2_forward_barrier_4")

MUTANTS = [
    replace(
        LAST_IN_LOOP,
        name="cuda_next_tile_is_loaded_over_the_last_on_a_gpu",
        law="test_sanitizers_report_nothing",
        smallest=LAST_IN_LOOP.smallest | dict(batch=1, nheads=4, seqlen_q=140, seqlen_k=140, headdim=32),
        story="a missing barrier at the end of the loop gave equal bits in every one of 50 runs on a GPU",
        device="cuda",
    ),
]
