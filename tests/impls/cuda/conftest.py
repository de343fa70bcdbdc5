"""Without g++ the tests of the CUDA kernels are skipped: nearly all of them call the kernels on CPU tensors."""

import pytest

from emulator.cuda.build import no_compiler


@pytest.fixture(autouse=True, scope="session")
def compiler():
    """Skips the tests of this folder if there is no compiler."""
    if reason := no_compiler():
        pytest.skip(reason)
