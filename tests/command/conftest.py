"""A user's folder with implementations, and with settings of pytest that break any run that reads
them.
"""

import textwrap

import pytest

RIGHT = """
import torch
from flash_attest import Implementation, Supports

def forward(q, k, v, *, causal=False):
    s = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    if causal:
        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -torch.inf)
    return torch.einsum("bhij,bjhd->bihd", s.softmax(-1), v), s.logsumexp(-1)

IMPL = Implementation(name="{name}", forward=forward, lse="natural",
                      supports=Supports(dtypes={{torch.float32}}, headdims=range(1, 129), causal="optional"))
"""


@pytest.fixture(scope="session")
def right() -> str:
    """The source of a correct implementation, in which {name} is replaced by its name."""
    return textwrap.dedent(RIGHT)


@pytest.fixture(scope="module")
def hers(tmp_path_factory, right):
    """A folder of a user, with implementations in files and in a module."""
    folder = tmp_path_factory.mktemp("hers")
    (folder / "mine.py").write_text(right.format(name="mine"))
    (folder / "same_name.py").write_text(right.format(name="mine"))
    (folder / "wrong.py").write_text(right.format(name="wrong").replace("triu(1)", "triu(2)"))
    (folder / "field.py").write_text(right.format(name="field").replace("lse=", "lsee="))
    (folder / "broken.py").write_text("import nothing_of_this_name\n")
    on_gpu = 'lse="natural", devices={"cuda"}'
    (folder / "on_gpu.py").write_text(right.format(name="on_gpu").replace('lse="natural"', on_gpu))
    (folder / "helper.py").write_text("from mine import forward\n")
    beside = right.format(name="beside").replace("import torch\n", "import torch\nimport helper\n", 1)
    (folder / "beside.py").write_text(beside)
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "attention.py").write_text(right.format(name="of_module") + "\nimport package\n")
    (folder / "conftest.py").write_text("raise RuntimeError('her conftest.py was read')\n")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    return folder
