"""The package imports triton.tools.experimental_descriptor, which Triton no longer has.

number: 42
package: flash-attn-triton 0.1.1
law: none: nothing can be called
case: triton 3.7.1; the package asks for triton>=3.2.0
consequence: The package asks for triton>=3.2.0, but cannot be imported with Triton 3.7.1.
found: 2026-11-25
status: not reported
gpu: not tried
shows: ModuleNotFoundError: No module named 'triton.tools.experimental_descriptor'
"""

import flash_attn_triton

print(flash_attn_triton.flash_attn_func)
