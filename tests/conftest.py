"""What several test files need: one thread, a CUDA file of a few lines; and for CUDA C++ on the CPU, a compiler."""

import textwrap

import pytest
import torch

from races.cuda import load
from races.cuda.build import no_compiler


@pytest.fixture(scope="module")
def one_thread():
    """Tensors are tiny: threads that wait for each other on a busy machine would take 20 times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def cu(tmp_path):
    """text -> a loaded file."""

    def made(text, *names, **options):
        path = tmp_path / "kernel.cu"
        path.write_text(textwrap.dedent(text).lstrip())
        return load(path, *names, **options)

    return made


def pytest_collection_modifyitems(items):
    reason = no_compiler()
    if not reason:
        return
    for item in items:
        if item.path.name.startswith("test_cuda_") or "[test_no_race_is_traced]" in item.name:
            item.add_marker(pytest.mark.skip(reason=reason))
