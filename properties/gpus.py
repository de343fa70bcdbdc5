"""The cores and GPUs that a run may use."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """The GPUs as CUDA_VISIBLE_DEVICES names them; found without touching CUDA in this process."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [gpu for gpu in visible.split(",") if gpu and gpu != "-1"]
    if shutil.which("nvidia-smi") is None and not Path("/dev/nvidia0").exists():
        return []
    import torch  # takes seconds, for which pytest --help should not wait

    return [str(n) for n in range(torch.cuda.device_count())]
