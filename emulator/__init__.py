"""Runs GPU kernels on a CPU, with every access checked.

runtime/ is shared by all kernel families; cuda/ runs CUDA C++. This package imports nothing from
the rest of the suite. Observations go to the current watch (runtime/watch.py).
"""
