"""One Implementation for each tile that tuning may choose.

In each, one kernel is forced to the tile, and the others use their default.

    pytest --impl-from impls/triton/every_tile.py

Lists with a single tile are skipped, as the other implementations are judged with this default.
"""

from __future__ import annotations

from flash_attest.impls import Absent, Implementation
from flash_attest.impls.triton.device import lacking


def choices() -> dict[tuple[str, int, str], tuple]:
    """Return {(kernel, bytes of an operand, tile as text): (tile, its possible BLOCK_Ds)}."""
    from flash_attest.impls.triton.tuning import CANDIDATES  # imports Triton, which may not be installed

    tiles_of: dict[tuple[str, int, str], tuple] = {}
    for kernel, by_bytes in CANDIDATES.items():
        for bytes_, by_headdim in by_bytes.items():
            for block_d, tiles in by_headdim.items():
                for tile in tiles if len(tiles) > 1 else ():
                    tiles_of.setdefault((kernel, bytes_, str(tile)), (tile, []))[1].append(block_d)
    return tiles_of


def implementations() -> list[Implementation]:
    """Return one for each choice, named like triton_fa2_forward_m128_n64_w8_s3 or ..._float32."""
    from flash_attest.impls.triton.attention import FlashAttention2
    from flash_attest.impls.triton.declared import implementation
    from flash_attest.impls.triton.problem import DTYPES

    impls = []
    for (kernel, bytes_, text), (tile, block_ds) in choices().items():
        impls.append(
            implementation(
                f"triton_fa2_{kernel}_{text}" + ("_float32" if bytes_ == 4 else ""),
                FlashAttention2(atomic=kernel == "dk_dv_dq", tiles={kernel: tile}),
                {dtype for dtype in DTYPES if dtype.itemsize == bytes_},
                [d for block_d in block_ds for d in range(1 if block_d == 32 else block_d // 2 + 1, block_d + 1)],
            )
        )
    return impls


IMPLS = [Absent("triton_fa2_every_tile", lacking())] if lacking() else implementations()
