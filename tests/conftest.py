"""What all tests of CUDA C++ on the CPU need: a compiler."""

import pytest

from races.cuda.build import has_compiler


def pytest_collection_modifyitems(items):
    if has_compiler():
        return
    reason = "no g++ to compile CUDA files with: apt install g++"
    for item in items:
        if item.path.name.startswith("test_cuda_") or "[test_no_race_is_traced]" in item.name:
            item.add_marker(pytest.mark.skip(reason=reason))
