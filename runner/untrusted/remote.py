"""An implementation whose functions ask a kernel process."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from flash_attest.emulator.errors import NotCovered
from flash_attest.impls.contract.record import ContractError, Implementation
from flash_attest.properties.failures import Undecided
from flash_attest.properties.progress import NOW
from flash_attest.races import poison
from flash_attest.runner.untrusted import records, tensors, wire
from flash_attest.runner.untrusted.observed import Observed
from flash_attest.runner.untrusted.process import KernelEnded, KernelProcess
from flash_attest.texts import cut

MOST_FRAMES, LONGEST_TEXT, LONGEST_NAME = 50, 4000, 60
NOT_READ = "with --untrusted the kernel's process must be readable, and this system does not permit it"
ACCEPTS_LIMIT = 60.0  # seconds for the kernel process to start and to answer
GIVEN = ("bias", "sinks", "dlse", "block_mask", "kv_indices")  # keywords that are tensors
LEAVES = ("q", "k", "v", "bias", "sinks")


class Remote:
    """The functions of one implementation in a kernel process.

    number: its position among the implementations that the file declares.
    """

    def __init__(self, process: KernelProcess, number: int):
        self.process, self.number = process, number
        self.observed = Observed()
        self._watched: list[tuple[int, dict, list]] | None = None  # process, its answer, what was made of it

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> Any:
        """Call the implementation's forward. Returns its result in memory of this process."""
        self.observed.begins()
        inputs = {"q": q, "k": k, "v": v}
        grad = torch.is_grad_enabled()
        result = self._call("forward", "forward", inputs, options, grad=grad)
        if not grad:
            return result
        outs = list(result) if isinstance(result, (tuple, list)) else [result]
        held = tensors.differentiable(outs)
        if not held:
            return result
        leaves = [inputs.get(name, options.get(name)) for name in LEAVES]
        made = _Differentiated.apply(self, self.process.number, [outs[n].detach() for n in held], *leaves)
        for n, out in zip(held, made, strict=True):
            outs[n] = out
        return type(result)(outs) if isinstance(result, (tuple, list)) else outs[0]

    def backward(self, dout, q, k, v, out, lse, **options: Any) -> Any:
        """Call the implementation's backward."""
        inputs = {"dout": dout, "q": q, "k": k, "v": v, "out": out, "lse": lse}
        return self._call("backward", "backward", {name: t for name, t in inputs.items() if t is not None}, options)

    def gradients(self, of: int, by: tuple[torch.Tensor | None, ...], wrt: list[str]) -> list[torch.Tensor | None]:
        """Return the gradients of the last forward for the inputs `wrt`, from the kernel
        process.

        by: the gradient with respect to each of its results that require one, or None.
        """
        given = {f"d{n}": grad for n, grad in enumerate(by) if grad is not None}
        result = self._call("backward", "gradients", given, {}, of=of, wrt=wrt)
        if not isinstance(result, tuple) or len(result) != len(wrt):
            raise ContractError("autograd gives a number of gradients that differs from the number of inputs")
        return [grad if isinstance(grad, torch.Tensor) else None for grad in result]

    def accepts(self, case: Any) -> str | None:
        """Call the implementation's `supports.accepts`."""
        answer, _ = self.process.ask(
            {"ask": "accepts", "impl": self.number, "case": records.case_record(case)}, limit=ACCEPTS_LIMIT
        )
        _raise_if_raised(answer)
        reason = answer.get("reason")
        if reason is not None and not (isinstance(reason, str) and answer.get("text")):
            raise TypeError(f"it returns {cut(str(reason), LONGEST_TEXT)}, should be None, or why not")
        return reason

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Make the kernel process keep the tensors that it returns in this block, for
        look_again().
        """
        self._watched = []
        try:
            yield
        finally:
            self._watched = None

    def look_again(self) -> None:
        """Update every tensor returned in `watched` to its present values in the kernel process."""
        if not self.process.reads:
            raise Undecided(NOT_READ)
        for pid, answer, returned in self._watched or ():
            if pid != self.process.pid:  # it has ended since, which is reported elsewhere
                continue
            for old, new in zip(returned, self._unpacked("forward", answer, []), strict=True):
                if isinstance(old, torch.Tensor):
                    with torch.no_grad():
                        old.copy_(new)

    def take_observed(self) -> dict:
        """Return the observations since the last time, or {} if nothing was called."""
        observed, self.observed = self.observed, Observed()
        return observed.as_dict() if observed.calls or observed.processes else {}

    def _call(
        self, phase: str, ask: str, tensors_by_name: dict[str, torch.Tensor], options: dict[str, Any], **more: Any
    ) -> Any:
        given = {name: options[name] for name in GIVEN if name in options}
        inputs = tensors_by_name | {name: tensor for name, tensor in given.items() if tensor is not None}
        try:
            header, blocks = tensors.pack(inputs)
        except tensors.TooLarge as error:
            raise Undecided(f"with --untrusted inputs are sent as bytes: {error}") from None
        header |= more | {
            "ask": ask,
            "impl": self.number,
            "options": {name: value for name, value in options.items() if name not in given},
            "given": list(given),
            "poison": poison.current(),
            "keep": self._watched is not None,
        }
        answer, packed = self._asked(phase, header, blocks)
        self._write_back(header["memories"], blocks)
        _raise_if_raised(answer)
        self.observed.used(answer.get("operators"))
        items = self._unpacked(phase, answer, packed)
        if self._watched is not None:
            self._watched.append((self.process.pid, answer, items))
        if not answer.get("several"):
            return items[0] if len(items) == 1 else items
        return tuple(items)

    def _asked(self, phase: str, header: dict, blocks: list[torch.Tensor]) -> tuple[dict, list[torch.Tensor]]:
        try:
            answer, packed = self.process.ask(header, blocks)
        except KernelEnded as ended:
            self.observed.processes += 1
            _end_likewise(ended)
            raise ContractError([f"{phase} ends the kernel process: {ended.words}", *ended.printed]) from None
        return answer, packed

    def _write_back(self, memories: list[dict], blocks: list[torch.Tensor]) -> None:
        """Write what a call has changed in the shared memory to the inputs, where laws look for it.

        blocks: the memory of each input, which on a CPU is not a copy. On a GPU the kernel process
        has a copy, and nothing is seen.
        """
        for n, block in self.process.changed().items():
            if memories[n]["device"] == "cpu":
                blocks[n].copy_(block)

    def _unpacked(self, phase: str, answer: dict, blocks: list[torch.Tensor]) -> list:
        items, rest = answer.get("items"), list(blocks)
        if not isinstance(items, list) or len(rest) != sum(map(_is_sent, items)):
            raise self._garbled(phase, "no outputs")
        try:
            return [self._item(item, rest) for item in items]
        except wire.Garbled as error:
            raise self._garbled(phase, str(error)) from None
        except KernelEnded as ended:
            raise self._garbled(phase, ended.words) from None

    def _item(self, item: object, blocks: list[torch.Tensor]) -> Any:
        header = item.get("tensor") if isinstance(item, dict) else None
        if isinstance(header, dict):
            sent = _is_sent(item)
            tensor = tensors.unpack_values(header, blocks.pop(0)) if sent else tensors.taken(header, self.process.read)
            return tensor.requires_grad_(header.get("requires_grad") is True and tensor.is_floating_point())
        name = item.get("type") if isinstance(item, dict) else None
        if name == "NoneType":
            return None
        return type(_name(name), (), {})()

    def _garbled(self, phase: str, what: str) -> ContractError:
        self.process.end()
        return ContractError(f"{phase} answers with {what}: the file should leave the connection of its process alone")


class _Differentiated(torch.autograd.Function):
    """The results of a forward in the kernel process, which also computes the gradients."""

    @staticmethod
    def forward(ctx, remote, number, held, *leaves):
        ctx.remote, ctx.number = remote, number
        ctx.wrt = [name for name, leaf in zip(LEAVES, leaves, strict=True) if leaf is not None and leaf.requires_grad]
        ctx.set_materialize_grads(False)
        return tuple(held)

    @staticmethod
    def backward(ctx, *by):
        gradients = dict(zip(ctx.wrt, ctx.remote.gradients(ctx.number, by, ctx.wrt), strict=True))
        return None, None, None, *(gradients.get(name) for name in LEAVES)


def remote_of(impl: Implementation) -> Remote | None:
    """Return the Remote that owns an implementation's functions, or None."""
    owner = getattr(getattr(impl, "forward", None), "__self__", None)
    return owner if isinstance(owner, Remote) else None


def _is_sent(item: object) -> bool:
    """Return whether an output comes as a block of bytes. Others are read where they lie."""
    header = item.get("tensor") if isinstance(item, dict) else None
    return isinstance(header, dict) and "address" not in header


def _raise_if_raised(answer: dict) -> None:
    """Raise the implementation's exception as the kernel process reported it, under its name."""
    raised = answer.get("raised")
    if raised is None:
        return
    raised = raised if isinstance(raised, dict) else {}
    kinds = raised.get("kinds") if isinstance(raised.get("kinds"), list) else []
    text, frames, problems = (
        cut(str(raised.get("text", "")), LONGEST_TEXT),
        raised.get("frames"),
        raised.get("problems"),
    )
    if "ContractError" in kinds and isinstance(problems, list) and problems:
        raise ContractError([cut(str(problem), LONGEST_TEXT) for problem in problems])
    base = (
        torch.OutOfMemoryError if "OutOfMemoryError" in kinds else NotCovered if "NotCovered" in kinds else RuntimeError
    )
    error = type(_name(raised.get("type")), (base,), {})(text)
    error.frames_in_kernel_process = (
        [cut(str(frame), LONGEST_TEXT) for frame in frames[:MOST_FRAMES]] if isinstance(frames, list) else []
    )
    raise error


def _name(name: object) -> str:
    return name[:LONGEST_NAME] if isinstance(name, str) and name.isidentifier() else "Unknown"


def _end_likewise(ended: KernelEnded) -> None:
    """End the judging process in the same way as the kernel process ended.

    The end is then reported, shrunk and replaced as usual.
    """
    if not NOW.isolated or not NOW.seen().in_call or ended.status is None:
        return
    print(*ended.printed, sep="\n", file=sys.stderr, flush=True)
    if os.WIFSIGNALED(ended.status):
        number = os.WTERMSIG(ended.status)
        signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(ended.status) % 256)
