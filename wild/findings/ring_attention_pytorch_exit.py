"""Without triton-nightly, importing the Triton kernels ends the process with exit status 0.

number: 85
package: ring-attention-pytorch 0.5.20
law: none: the module cannot be imported
case: importing ring_attention_pytorch.triton_flash_attn
consequence: The first call of ring_flash_attn_cuda ends a job as if it had succeeded.
found: 2026-11-25
status: not reported
gpu: not tried
shows: AssertionError: importing it without triton-nightly ends the process with exit status 0
"""

import subprocess
import sys

code = "import ring_attention_pytorch.triton_flash_attn; print('imported')"
run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
ended = run.returncode == 0 and "imported" not in run.stdout  # an ImportError would be right
assert not ended, "importing it without triton-nightly ends the process with exit status 0"
