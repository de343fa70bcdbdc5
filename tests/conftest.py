"""What all tests of CUDA C++ on the CPU need: a compiler."""

import pytest

from races.cuda.build import no_compiler


def pytest_collection_modifyitems(items):
    reason = no_compiler()
    if not reason:
        return
    for item in items:
        if item.path.name.startswith("test_cuda_") or "[test_no_race_is_traced]" in item.name:
            item.add_marker(pytest.mark.skip(reason=reason))
