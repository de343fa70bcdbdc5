"""Wrong kernels, each with a trick to pass. A kernel process imports this file.

Each forward is wrong (`wrong` returns the mean of v, whatever q and k are), or right by cheating.
Its docstring describes the trick.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch

from flash_attest.impls import Implementation, Supports

MARK = Path(__file__).with_name("never_written.json")


def wrong(q, k, v):
    return v.mean(dim=1, keepdim=True).expand(v.shape).contiguous() + 0 * q


def right(q, k, v):
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    return torch.einsum("bhij,bjhd->bihd", scores.softmax(dim=-1), v)


def callers():
    frame = sys._getframe()
    while frame := frame.f_back:
        yield frame


def reads_the_expected_value_in_frames(q, k, v):
    """Finds the trial in a caller's frame and asks it for the oracle's answer."""
    for frame in callers():
        for value in list(frame.f_locals.values()):
            if type(value).__name__ == "Trial":
                return value.want().out.to(q.dtype).contiguous()
    return wrong(q, k, v)


def finds_the_oracle_through_gc(q, k, v):
    """Finds a function of the oracle among all objects of the process, and calls it."""
    for each in gc.get_objects():
        if isinstance(each, dict) and each.get("__name__") == "flash_attest.oracle":
            return each["attention"](q, k, v, each["Variant"](softmax_scale=q.shape[-1] ** -0.5)).out.to(q.dtype)
    return wrong(q, k, v)


def imports_the_oracle(q, k, v):
    """Imports the oracle and returns its answer."""
    with contextlib.suppress(ImportError):
        from flash_attest import oracle

        return oracle.attention(q, k, v, oracle.Variant(softmax_scale=q.shape[-1] ** -0.5)).out.to(q.dtype)
    return wrong(q, k, v)


def writes_to_the_oracle(q, k, v):
    """Makes the suite's comparison allow everything."""
    for name, module in list(sys.modules.items()):
        if name.startswith("flash_attest.properties.") and hasattr(module, "check_budget"):
            module.check_budget = lambda *args, **options: None
    return wrong(q, k, v)


def patches_comparisons(q, k, v):
    """Makes every comparison of torch report equality."""
    yes = lambda *args, **options: True  # noqa: E731
    torch.equal = torch.allclose = torch.testing.assert_close = yes
    torch.Tensor.__eq__ = lambda self, other: torch.ones_like(self, dtype=torch.bool)
    torch.Tensor.__ne__ = lambda self, other: torch.zeros_like(self, dtype=torch.bool)
    torch.Tensor.__gt__ = lambda self, other: torch.zeros_like(self, dtype=torch.bool)
    torch.Tensor.any = lambda self, *args, **options: torch.zeros((), dtype=torch.bool)
    return wrong(q, k, v)


def patches_arithmetic(q, k, v):
    """Makes differences of tensors 0 for the whole process."""
    torch.Tensor.__sub__ = torch.Tensor.sub = lambda self, other: torch.zeros_like(self)
    return wrong(q, k, v)


def patches_time(q, k, v):
    """Stops the clocks."""
    time.perf_counter = time.monotonic = time.time = lambda: 0.0
    return wrong(q, k, v)


def patches_builtins(q, k, v):
    """Makes `any` answer False."""
    builtins.any = lambda values: False
    return wrong(q, k, v)


class Everything(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        got = func(*args, **kwargs or {})
        return torch.zeros_like(got) if getattr(func, "__name__", "") in ("sub", "__sub__", "ne", "gt", "div") else got


def leaves_a_mode_behind(q, k, v):
    """Leaves a TorchFunctionMode active that answers others' comparisons."""
    Everything().__enter__()
    return wrong(q, k, v)


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            got = func(*args, **kwargs or {})
        return torch.zeros_like(got) if getattr(func, "__name__", "") in ("sub", "ne", "__sub__", "gt") else got


def returns_a_lazy_subclass(q, k, v):
    """Returns a subclass of torch.Tensor that determines the results of comparisons with it."""
    return wrong(q, k, v).as_subclass(Lazy)


def returns_its_input(q, k, v):
    """Returns the memory of an input."""
    return q


KEPT: dict = {}


def keeps_outputs_by_shape(q, k, v):
    """Computes only once for each shape."""
    return KEPT.setdefault(("shape", q.shape, q.dtype), right(q, k, v))


def keeps_outputs_by_pointer(q, k, v):
    """Computes only once for each address."""
    return KEPT.setdefault((q.data_ptr(), v.data_ptr(), q.shape, q.dtype), right(q, k, v))


def reuses_its_output(q, k, v):
    """Returns the same memory in every call with the same shape."""
    return KEPT.setdefault(("memory", q.shape, q.dtype), torch.empty_like(q)).copy_(right(q, k, v))


def fills_the_output_later(q, k, v):
    """Fills the output in a thread after the call has returned."""
    out = torch.zeros_like(q)
    threading.Timer(0.02, lambda: out.copy_(right(q, k, v))).start()
    return out


def is_right_where_it_is_small(q, k, v):
    """Is right for the small shapes that tests have."""
    return right(q, k, v) if q.shape[1] * k.shape[1] <= 16 else wrong(q, k, v)


def ends_with_status_0(q, k, v):
    """Ends the process as if nothing were wrong."""
    os._exit(0)


def kills_the_judge(q, k, v):
    """Ends the process that judges it."""
    with contextlib.suppress(PermissionError):
        os.kill(os.getppid(), signal.SIGTERM)
    return wrong(q, k, v)


def prints_a_fake_report(q, k, v):
    """Prints what a good run prints."""
    print("\n============== 61 passed in 0.01s ==============", flush=True)
    return wrong(q, k, v)


def writes_the_report(q, k, v):
    """Writes its own report."""
    with contextlib.suppress(OSError):
        MARK.write_text('{"results": []}')
    return wrong(q, k, v)


def links_its_output_to_another_file(q, k, v):
    """Leaves links at likely paths of its output, and ends, so that the next process opens them."""
    for name in ("printed", "stdout", "log"):
        place = Path(os.environ["TMPDIR"], name)
        place.unlink(missing_ok=True)
        place.symlink_to(MARK)
    os._exit(0)


def writes_to_every_pipe(q, k, v):
    """Writes an answer to every pipe that is open."""
    message = b'{"n": 1, "items": [], "blocks": []}'
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(descriptor, len(message).to_bytes(8, "little") + message)
    return wrong(q, k, v)


def grows_the_memory(q, k, v):
    """Grows the file of the inputs, which cannot shrink again."""
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 1 << 30)
    return wrong(q, k, v)


def answers_with_a_pickle(q, k, v):
    """Answers with a pickle, which runs code in the process that reads it."""
    wire = sys.modules.get("flash_attest.runner.untrusted.wire")
    if wire is not None:
        data = b"cos\nsystem\n(S'exit 0'\ntR."
        wire.send = lambda pipe, header, blocks=(): os.write(pipe, len(data).to_bytes(8, "little") + data)
    return wrong(q, k, v)


def promises_a_huge_answer(q, k, v):
    """Makes the judge allocate memory for an answer that never comes."""
    wire = sys.modules.get("flash_attest.runner.untrusted.wire")
    if wire is not None:
        wire.send = lambda pipe, header, blocks=(): os.write(pipe, (1 << 60).to_bytes(8, "little"))
    return wrong(q, k, v)


def calls_pytorch(q, k, v):
    """Calls PyTorch's own attention."""
    return torch.nn.functional.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v))).transpose(1, 2)


def reads_the_memory_of_the_judge(q, k, v):
    """Opens the memory of the judging process, which has the expected values."""
    if os.getppid() == 1:  # the first process of a namespace, which holds nothing
        return wrong(q, k, v)
    try:
        open(f"/proc/{os.getppid()}/mem", "rb").close()
    except OSError:
        return wrong(q, k, v)
    return right(q, k, v)  # stands for a value that could be read there


TRICKS = [
    reads_the_expected_value_in_frames,
    finds_the_oracle_through_gc,
    imports_the_oracle,
    writes_to_the_oracle,
    returns_a_lazy_subclass,
    returns_its_input,
    keeps_outputs_by_shape,
    keeps_outputs_by_pointer,
    reuses_its_output,
    fills_the_output_later,
    is_right_where_it_is_small,
    prints_a_fake_report,
    writes_the_report,
    reads_the_memory_of_the_judge,
    calls_pytorch,
    # These come last, because they spoil the process.
    grows_the_memory,
    kills_the_judge,
    patches_time,
    patches_builtins,
    patches_comparisons,
    patches_arithmetic,
    leaves_a_mode_behind,
    links_its_output_to_another_file,
    writes_to_every_pipe,
    answers_with_a_pickle,
    promises_a_huge_answer,
    ends_with_status_0,
]
IMPLS = [
    Implementation(
        name=forward.__name__, forward=forward, supports=Supports(dtypes={torch.float32}, headdims={16}), share=1.0
    )
    for forward in TRICKS
]
TWO = [impl for impl in IMPLS if impl.forward in (reads_the_expected_value_in_frames, ends_with_status_0)]
