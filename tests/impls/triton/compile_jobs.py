"""The jobs of test_compile.py: the tiles, variants and GPUs of each Triton kernel.

A kernel compiles for about a second, so not every choice is compiled for every GPU in every
variant. The defaults for halves are compiled for sm_90, some at head dim 64, some at 256 with
everything that a call may have, and with a bias at an even head dim, which needs the most shared
memory. sm_86 has the least shared memory. For sm_86 the
smallest choice of each list is compiled, because it is the fallback there and must fit; the largest
head dim needs the most. --thorough adds all choices in variants that differ from one to the next
(dtype, bias, fit), float32, sm_86 at all head dims, and sm_80, which uses the same passes as sm_86.
"""

from __future__ import annotations


def job(kernel, block_d, tile, dtype="float16", tf32=False, fit="even", bias=True, newer=False):
    """Return a job of compile_all: one choice of one kernel in one variant.

    newer: with a window, a softcap, sinks, dlse, and half of the head dim for v.
    """
    bias = kernel != "delta" and (bias or kernel == "dbias")
    return dict(
        kernel=kernel, BLOCK_D=block_d, tile=list(tile), dtype=dtype, tf32=tf32, fit=fit, bias=bias, newer=newer
    )  # fmt: skip


def lists(bytes_):
    """Return (kernel, BLOCK_D, choices) for operands of this size."""
    from flash_attest.impls.triton.tuning import CANDIDATES  # importing Triton takes a second

    return [(kernel, d, tiles) for kernel, of in CANDIDATES.items() for d, tiles in of[bytes_].items()]


def least(tiles):
    """Return the choice that needs the least shared memory."""
    return min(tiles, key=lambda tile: (tile.BLOCK_M * tile.BLOCK_N, tile.num_stages))


def tiles_of(choice):
    """Return the list that contains a job's choice."""
    from flash_attest.impls.triton.tuning import CANDIDATES

    return CANDIDATES[choice["kernel"]][4 if choice["dtype"] == "float32" else 2][choice["BLOCK_D"]]


def default_halves():
    """Return every default.

    For kernels with a single choice, which hardly depends on the head dim, only the smallest and
    largest head dim are included.
    """
    one_choice = ("delta", "dbias")
    return [job(kernel, d, tiles[0]) for kernel, d, tiles in lists(2) if kernel not in one_choice or d in (64, 256)]


def newer_halves():
    """Return the defaults of all head dims with everything that a call may have.

    They need no more shared memory than without, at the same head dim of k.
    """
    return [job(kernel, d, tiles[0], newer=True) for kernel, d, tiles in lists(2) if kernel != "delta"]


def extreme_halves():
    """Return one default of each kernel, at the smallest or largest head dim."""
    large = ("forward", "dk_dv")
    return [each for each in newer_halves() if each["BLOCK_D"] == 256 and each["kernel"] in large] + [
        each for each in default_halves() if each["BLOCK_D"] == 64 and each["kernel"] not in large
    ]


def other_halves():
    """Yield every choice that is not a default, and the defaults that default_halves leaves out."""
    others = [
        ("bfloat16", "even", False),
        ("float16", "odd", True),
        ("float16", "aligned", False),
        ("bfloat16", "odd", False),
    ]
    jobs = default_halves()
    for n, (kernel, block_d, tiles) in enumerate(lists(2)):
        if (default := job(kernel, block_d, tiles[0])) not in jobs:
            yield default
        for m, tile in enumerate(tiles[1:]):
            dtype, fit, bias = others[(n // 2 + m) % len(others)]
            yield job(kernel, block_d, tile, dtype, fit=fit, bias=bias)


def every_float():
    """Yield every choice for float32, with alternating tf32, fit and bias."""
    for n, (kernel, block_d, tiles) in enumerate(lists(4)):
        for tile in tiles:
            tf32 = n % 2 == 1 and kernel != "dk_dv_dq"  # dk_dv_dq is not offered with tf32
            yield job(kernel, block_d, tile, "float32", tf32, "odd" if n % 3 == 1 else "even", n % 4 < 2)


def some_floats():
    """Return one choice of each kernel: float32, and tf32 for half of the kernels that have it."""
    return [
        job(kernel, d, tiles[0], "float32", tf32=kernel in ("forward", "dk_dv"))
        for kernel, d, tiles in lists(4)
        if d == 64
    ]


def least_halves():
    return [job(kernel, block_d, least(tiles)) for kernel, block_d, tiles in lists(2)]


def least_large_halves():
    return [each for each in least_halves() if each["BLOCK_D"] == 256 and each["kernel"] not in ("delta", "dbias")]


def least_floats():
    return [
        job(kernel, d, least(tiles), "float32", tf32)
        for kernel, d, tiles in lists(4)
        for tf32 in ((False, True) if kernel == "dk_dv" else (False,))
        if d == 256 and kernel in ("dq", "dk_dv", "dk_dv_dq")  # these need more than the forward and dbias
    ]


def defaults():
    return [job(kernel, block_d, tiles[0], bias=False) for kernel, block_d, tiles in lists(2) if block_d == 64]


PARTS = {  # name: (capability, jobs)
    "sm_90_default_halves": (90, extreme_halves),
}
THOROUGH = {
    "sm_86_large_halves": (86, least_large_halves),
    "sm_90_some_float32": (90, some_floats),
    "sm_86_float32": (86, least_floats),
    "sm_90_default_halves_assembled": (90, default_halves),
    "sm_90_newer_halves": (90, newer_halves),
    "sm_90_other_halves": (90, other_halves),
    "sm_90_float32": (90, every_float),
    "sm_86_halves": (86, least_halves),
    "sm_80_halves": (80, defaults),
}
