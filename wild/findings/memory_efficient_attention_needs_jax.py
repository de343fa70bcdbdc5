"""The package cannot be imported without JAX, which its extra "torch" does not install.

number: 74
package: memory-efficient-attention 0.1.3
law: none: the adapter puts a stand-in in the place of JAX
case: import memory_efficient_attention
consequence: Users of PyTorch have to install JAX.
found: 2026-11-26
status: not reported
gpu: not tried
shows: ModuleNotFoundError: No module named 'jax'
"""

import memory_efficient_attention

assert memory_efficient_attention.efficient_dot_product_attention_pt
