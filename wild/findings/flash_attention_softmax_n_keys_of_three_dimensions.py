"""The documented call of flash_attention_n with keys of three dimensions raises an error.

number: 41
package: flash-attention-softmax-n 0.3.2
law: none: the contract has no keys without a dimension for heads
case: the first example of the package's documentation
consequence: The first example of the README fails: keys without heads are expanded to the shape of
    the query.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: The expanded size of the tensor
"""

import torch
from flash_attention_softmax_n import flash_attention_n

q, k, v = torch.randn(6, 1, 1024, 64), torch.randn(6, 1152, 64), torch.randn(6, 1152, 32)
try:
    message = ""
    flash_attention_n(query=q, key=k, value=v, softmax_n_param=1)
except RuntimeError as error:
    message = str(error).split(" (")[0]
assert not message, message
