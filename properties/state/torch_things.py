"""Settings and random number generators of torch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.overrides import _pop_mode as pop_function_mode  # private: torch has no public way to end others' modes
from torch.utils._python_dispatch import _pop_mode as pop_dispatch_mode

from flash_attest.properties.state.thing import Import, Thing, attribute, setting

cublas, cudnn, nvidia = torch.backends.cuda.matmul, torch.backends.cudnn, torch.backends.cuda
function_modes = torch._C._len_torch_function_stack  # the number of modes; it has no public name
dispatch_modes = torch._C._len_torch_dispatch_stack


def _set_default_device(device: torch.device) -> None:
    torch.set_default_device(None)  # the initial state, without a mode, which would slow down every function of torch
    if torch.get_default_device() != device:
        torch.set_default_device(device)


_guards: list = []  # objects torch._C._InferenceMode, as torch.inference_mode() holds; the mode ends when they are freed


def _grad_modes() -> tuple[bool, bool]:
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled()


def _set_grad_modes(before: tuple[bool, bool]) -> None:
    grad, inference = before
    if torch.is_inference_mode_enabled() != inference:  # only its owner can end the active guard
        _guards.append(torch._C._InferenceMode(inference))
    torch._C._set_grad_enabled(grad)


def _grad_words(before: tuple[bool, bool], after: tuple[bool, bool]) -> str:
    if before[1] != after[1]:
        return f"{'enters' if after[1] else 'leaves'} torch's inference mode and does not restore the mode"
    return f"sets torch's grad mode to {after[0]} and does not restore it"


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _autocast() -> tuple:
    return tuple((torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda"))


def _set_autocast(before: tuple) -> None:
    for device, (enabled, dtype) in zip(("cpu", "cuda"), before, strict=True):
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)


def _pop_modes(length: Callable[[], int], pop: Callable[[], object]) -> Callable[[int], None]:
    def put_back(before: int) -> None:
        while length() > before:
            pop()

    return put_back


_cpu_random = torch.default_generator.get_state


def _set_cpu_random(state: bytes) -> None:
    torch.default_generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


def _of_gpu(read: Callable[[], object]) -> object | None:
    """Return what read() says of the GPU in use, or None.

    None means that no GPU is in use, or that it does not answer.
    """
    if not torch.cuda.is_initialized():
        return None
    try:
        return read()
    except RuntimeError:  # the call made an illegal access, which is reported separately
        return None


def _gpu() -> tuple | None:
    return _of_gpu(lambda: (torch.cuda.current_device(), torch.cuda.current_stream()))


def _set_gpu(before: tuple) -> None:
    device, stream = before
    torch.cuda.set_device(device)
    torch.cuda.set_stream(stream)


def _gpu_words(before: tuple | None, after: tuple | None) -> str:
    names = ("current device", "current stream")
    changed = [name for name, a, b in zip(names, before or (), after or (), strict=False) if a != b]
    return f"changes the GPU's {' and '.join(changed)}"


def _gpu_random() -> bytes | None:
    return _of_gpu(lambda: torch.cuda.get_rng_state().numpy().tobytes())


def _set_gpu_random(before: bytes) -> None:
    torch.cuda.set_rng_state(torch.frombuffer(bytearray(before), dtype=torch.uint8))


THINGS = (
    Thing("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
    Thing("torch's default device", torch.get_default_device, _set_default_device),
    Thing("torch's number of threads", torch.get_num_threads, torch.set_num_threads, imported=Import.REMARK),
    Thing("torch's grad mode, inference mode", _grad_modes, _set_grad_modes, _grad_words),
    Thing(
        "torch's deterministic algorithms (enabled, warn_only)",
        _deterministic,
        lambda before: torch.use_deterministic_algorithms(before[0], warn_only=before[1]),
        imported=Import.REMARK,
    ),
    setting("torch's float32 matmul precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    setting(
        "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
        *attribute(cublas, "allow_bf16_reduced_precision_reduction"),
    ),
    setting(
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
        *attribute(cublas, "allow_fp16_reduced_precision_reduction"),
    ),
    setting("torch.backends.cudnn.allow_tf32", *attribute(cudnn, "allow_tf32")),
    setting("torch.backends.cudnn.deterministic", *attribute(cudnn, "deterministic")),
    setting("torch.backends.cudnn.benchmark", *attribute(cudnn, "benchmark")),
    setting("torch's flash SDPA switch", nvidia.flash_sdp_enabled, nvidia.enable_flash_sdp),
    setting("torch's memory-efficient SDPA switch", nvidia.mem_efficient_sdp_enabled, nvidia.enable_mem_efficient_sdp),
    setting("torch's math SDPA switch", nvidia.math_sdp_enabled, nvidia.enable_math_sdp),
    setting("torch's cuDNN SDPA switch", nvidia.cudnn_sdp_enabled, nvidia.enable_cudnn_sdp),
    Thing("torch's autocast", _autocast, _set_autocast, lambda b, a: "enters autocast and stays in it"),
    Thing(
        "torch's random numbers",
        lambda: _cpu_random().numpy().tobytes(),
        _set_cpu_random,
        imported=Import.REMARK,
        draw=lambda: torch.rand((), device="cpu"),
        own="torch.Generator",
    ),
    Thing("the GPU's device and stream", _gpu, _set_gpu, _gpu_words, optional=True, imported=Import.REMARK),
    Thing(
        "the GPU's random numbers",
        _gpu_random,
        _set_gpu_random,
        optional=True,
        imported=Import.REMARK,
        draw=lambda: torch.rand((), device="cuda"),
        own="torch.Generator",
    ),
    Thing(
        "torch's function modes",
        function_modes,
        _pop_modes(function_modes, pop_function_mode),
        lambda before, after: "enters a torch function mode and stays in it",
    ),
    Thing(
        "torch's dispatch modes",
        dispatch_modes,
        _pop_modes(dispatch_modes, pop_dispatch_mode),
        lambda before, after: "enters a torch dispatch mode and stays in it",
    ),
)
