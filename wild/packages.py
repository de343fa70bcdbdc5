"""Every package that has an adapter, and how it is installed; public files that have one."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal

from packaging.utils import canonicalize_name


def key_of(name: str) -> str:
    """Return the name of the adapter's module, which all spellings of a package's name share."""
    return canonicalize_name(name).replace("-", "_")


@dataclass(frozen=True)
class Package:
    """A package on the Python package index.

    name: its name there. The adapter is the module of the same name, in lower case and with
        underscores.
    versions: the versions that the adapter fits, such as ">=1.0.6,<2".
    judged: the version that the findings are about.
    also: what it needs beside torch, Triton, NumPy and packaging, installed without its own
        dependencies.
    runs: "anywhere" if its kernels run in the emulator, or are PyTorch's; "sm_90" if they run there
        as on an H100 only; "cuda" if it needs a GPU.
    """

    name: str
    versions: str
    judged: str
    also: tuple[str, ...] = ()
    runs: Literal["anywhere", "sm_90", "cuda"] = "anywhere"

    @property
    def key(self) -> str:
        """The name of the adapter's module."""
        return key_of(self.name)

    @property
    def title(self) -> str:
        """The name that findings call it by."""
        return self.name

    @property
    def requirement(self) -> str:
        """The argument for pip, such as "sageattention>=1.0.6,<2"."""
        return f"{self.name}{self.versions}"

    @property
    def needs(self) -> str:
        """The equipment that a machine must have beside the package; "" for none."""
        return "a GPU" if self.runs == "cuda" else ""

    @property
    def emulated(self) -> list[str]:
        """The options that choose the GPU to emulate, of the commands that run without one."""
        return ["--emulated", "90"] if self.runs == "sm_90" else []

    @property
    def pip_line(self) -> str:
        """The command that installs it."""
        return f"pip install {shlex.quote(self.requirement)}"

    def installed_for(self, version: str) -> list[str]:
        """Return what pip installs to judge a version."""
        return [f"{self.name}=={version}", *self.also]


# What kernels in CuTe DSL need. Its libraries are one package for each major version of CUDA.
CUTE_DSL = (
    "einops", "apache-tvm-ffi>=0.1.11,<0.2", "torch-c-dlpack-ext", "quack-kernels>=0.5.3", "nvidia-cutlass-dsl>=4.6.2",
    "nvidia-cutlass-dsl-libs-base", "nvidia-cutlass-dsl-libs-core", "nvidia-cutlass-dsl-libs-cu13",
)  # fmt: skip
# What flashinfer needs to call nvcc.
NVCC = ("apache-tvm-ffi>=0.1.11,<0.2", "click", "einops", "ninja", "nvidia-ml-py", "requests", "tabulate", "tqdm")
_ALL = (
    Package("aule-attention", ">=0.5,<0.6", "0.5.0"),
    Package("conch-triton-kernels", ">=1.3,<2", "1.3"),
    Package("cuda-triton-multiarch", ">=0.1.3,<0.2", "0.1.3"),
    Package("fa3-fwd", ">=0.0.3,<0.1", "0.0.3", runs="cuda"),
    Package("fasterkernels", ">=0.2,<0.3", "0.2.0"),
    Package("fastflash-attention", ">=0.2,<0.3", "0.2.0"),
    Package("ffpa-attn", ">=0.2.4,<0.3", "0.2.4"),
    Package("fla-core", ">=0.6,<0.7", "0.6.0", also=("einops",)),
    Package("flash-attention-softmax-n", ">=0.3.2,<0.4", "0.3.2", also=("einops",)),
    Package("flash-attn", ">=2.7,<3", "2.8.3.post2", also=("einops",), runs="cuda"),
    Package("flash-attn-4", ">=4.0.0b0,<5", "4.0.0b36", also=CUTE_DSL, runs="sm_90"),
    Package("flash-attn-triton", ">=0.1.1,<0.2", "0.1.1"),
    Package("flash-sparse-attn", ">=2.0.6,<3", "2.0.6"),
    Package("flash_attention_triton", ">=0.1.1,<0.2", "0.1.1"),
    Package("flash_attention_x", ">=0.0.1,<0.1", "0.0.1"),
    Package("flashattention2-custom-mask", ">=0.1.1,<0.2", "0.1.1"),
    Package("flashinfer-python", ">=0.6,<1", "0.7.2.post1", also=NVCC, runs="cuda"),
    Package("flashnn", ">=0.1.1,<0.2", "0.1.1"),
    Package("jvp-flash-attention", ">=0.14,<0.15", "0.14.0"),
    Package("memory-efficient-attention", ">=0.1.3,<0.2", "0.1.3"),
    Package("memory-efficient-attention-pytorch", ">=0.1.6,<0.2", "0.1.6", also=("einops",)),
    Package("noflash-attention", ">=1.0.1,<2", "1.0.1"),
    Package("pascal-attn", ">=0.1,<0.2", "0.1.0"),
    Package(
        "ring-attention-pytorch", ">=0.5.20,<0.6", "0.5.20", also=("einops", "beartype", "jaxtyping", "wadler-lindig")
    ),
    Package("sageattention", ">=1.0.6,<2", "1.0.6"),
    Package("simpler-flash", ">=1.3.5,<2", "1.3.5"),
    Package("transformer-engine", ">=2,<3", "2.20.2", runs="cuda"),
    Package("trinix", ">=0.1.4,<0.2", "0.1.4"),
    Package("xformers", ">=0.0.30,<0.1", "0.0.35", runs="cuda"),
)
PACKAGES = {package.key: package for package in _ALL}


@dataclass(frozen=True)
class Source:
    """A file with kernels in a public repository. It is on no package index: who judges it has a
    copy of the repository.

    name: the adapter is the module of the same name, as in Package.
    repository: where it is on GitHub.
    folder: the folder of the repository from which `module` is imported; "" is its root.
    module: the module with the kernels.
    judged: the date of the last change to the file that the findings are about.
    also: what it needs beside torch, Triton and NumPy.
    """

    name: str
    repository: str
    folder: str
    module: str
    judged: str
    also: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name of the adapter's module."""
        return key_of(self.name)

    @property
    def title(self) -> str:
        """The name that findings call it by."""
        return self.repository

    @property
    def requirement(self) -> str:
        """The repository, in the place of an argument for pip."""
        return self.repository

    @property
    def needs(self) -> str:
        """The equipment that a machine must have, as in Package."""
        return f"{self.variable}, its folder in a clone"

    @property
    def emulated(self) -> list[str]:
        """None, as in Package: the default GPU is emulated."""
        return []

    @property
    def place(self) -> str:
        """The folder that `variable` names, in words."""
        where = f"the folder {self.folder}" if self.folder else "the root"
        return f"{where} of a clone of https://github.com/{self.repository}"

    @property
    def variable(self) -> str:
        """The environment variable that holds the path of `folder`."""
        return f"FLASH_ATTEST_WILD_{self.key.upper()}"

    def installed_for(self, version: str) -> list[str]:
        """Return what pip installs to judge it, if anything."""
        return list(self.also)


_READ = (
    Source("executorch", "pytorch/executorch", "backends/cuda/triton/kernels", "sdpa", "2026-08-06"),
    Source(
        "native-sparse-attention-triton",
        "XunhaoLai/native-sparse-attention-triton",
        "",
        "native_sparse_attention.ops.triton.flash_attention",
        "2025-05-23",
        also=("einops",),
    ),
    Source("triton-lang-kernels", "triton-lang/kernels", "kernels", "flash_attention", "2024-08-15"),
)
SOURCES = {source.key: source for source in _READ}


@dataclass(frozen=True)
class Library:
    """A library that this suite needs anyway, so that it is neither installed nor judged as a
    package: its adapter is in impls/, or it has none, as a compiler.

    title: its name.
    """

    title: str

    @property
    def needs(self) -> str:
        """The equipment that a machine must have, as in Package."""
        return "a GPU"

    def installed_for(self, version: str) -> list[str]:
        """Return nothing, as it is there."""
        return []


LIBRARIES = Library("torch"), Library("triton")
BY_TITLE = {each.title: each for each in (*PACKAGES.values(), *SOURCES.values(), *LIBRARIES)}
