"""Inputs whose rows are far apart in memory are refused if PyTorch's libraries misread them.
Otherwise results are right.
"""

import pytest
import torch

from flash_attest.impls.contract.registry import ours
from flash_attest.impls.contract.tensors import to_layout
from flash_attest.properties.cases.sparse_memory import spread


@pytest.mark.parametrize("name, of_rows", [("torch_math", 1), ("torch_sdpa_math", 2)])
@pytest.mark.parametrize("lengths", [(1, 5), (5, 1)])
def test_far_rows_are_refused_where_cublas_misreads_them(name, of_rows, lengths):
    """cuBLAS misreads a product of one row with rows that are far apart.

    Other far strides are accepted.
    """
    (impl,) = (entry.impl for entry in ours([name]) if entry.name == name)
    seqlen_q, seqlen_k = lengths
    sizes = (2, seqlen_q, 3, 8), (2, seqlen_k, 3, 8), (2, seqlen_k, 3, 8)
    near = [to_layout(impl, torch.randn(size)) for size in sizes]
    for dim, refused in ((0, False), (of_rows, True)):
        far = [spread(x, dim) for x in near]
        if refused:
            with pytest.raises(ValueError, match=f"{name}: .*cuBLAS reads outside"):
                impl.forward(*far)
        else:
            got, want = (impl.forward(*x) for x in (far, near))
            torch.testing.assert_close(got, want)


def test_far_rows_are_refused_where_mkl_misreads_them():
    """MKL misreads a product with a column whose elements are far apart, which occurs with headdim
    1 but not with headdim 2.
    """
    (impl,) = (entry.impl for entry in ours(["torch_sdpa_flash_cpu"]) if entry.name == "torch_sdpa_flash_cpu")
    for headdim in (1, 2):
        near = [torch.randn(1, 1, seqlen, headdim) for seqlen in (2, 4, 4)]
        far = [spread(x, 2) for x in near]
        if headdim == 1:
            with pytest.raises(ValueError, match="torch_sdpa_flash_cpu: with headdim 1, MKL"):
                impl.forward(*far)
        else:
            torch.testing.assert_close(impl.forward(*far), impl.forward(*near))
