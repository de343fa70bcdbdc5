"""The package imports triton_kernels, but does not list it as a requirement.

number: 47
package: flash-sparse-attn 2.0.6
law: none: the adapter imports the package with empty modules of that name
case: import flash_sparse_attn
consequence: After pip install, import flash_sparse_attn raises ModuleNotFoundError.
found: 2026-11-25
status: not reported
gpu: not tried
shows: AssertionError: the package asks for ['triton>=3.6.0']
"""

from importlib.metadata import requires

names = [name for name in requires("flash-sparse-attn") if "extra ==" not in name]
assert any("triton_kernels" in name.replace("-", "_") for name in names), f"the package asks for {names}"
