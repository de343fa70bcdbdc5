"""GPU kernels on a CPU, every access checked. runtime/ is shared by all kernel families; cuda/ runs CUDA C++.

Imports nothing of the rest of the suite. Observations go to the current watch (runtime/watch.py).
"""
