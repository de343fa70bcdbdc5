"""Whether Triton's kernels are interpreted on the CPU. Triton reads TRITON_INTERPRET at import, so ask before that."""

import os


def interpreted(gpu: bool) -> bool:
    """Whether TRITON_INTERPRET is on. If it is unset it is first set, for Triton to read: on if there is no GPU."""
    os.environ.setdefault("TRITON_INTERPRET", "0" if gpu else "1")
    return os.environ["TRITON_INTERPRET"].lower() in ("1", "true", "yes", "on", "y")
