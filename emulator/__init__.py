"""GPU kernels on a CPU, every access checked. runtime/ is shared by all kernel families; cuda/ runs CUDA C++.

Imports nothing of the rest of the suite. What is observed goes to whoever switched it on (runtime/watch.py).
"""
