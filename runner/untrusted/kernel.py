"""The kernel process, which imports the plug-in and answers questions.

Its first message is the facts that process.py lists. From the moment the plug-in's file is
imported, the implementation controls everything here and may patch anything. So nothing that this
process says is believed, except where outputs lie, and these are judged elsewhere.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import signal
import sys
from contextlib import ExitStack, nullcontext

PR_SET_PDEATHSIG = 1
READY = b"\x01"  # sent from within the sandbox, before anything else is loaded; process.py reads one byte
KNOWN = os.urandom(32)  # looked for by the judging process, which finds out whether it can read this memory


def settle(connection: int, facts: dict) -> None:
    """Set the process up: it dies with the judging process, keeps its connection from children, has
    limits, and enters the sandbox.
    """
    from flash_attest.runner.untrusted import limits, sandbox
    from flash_attest.runner.untrusted.view import View

    if facts["parent"] and sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != facts["parent"]:
            os._exit(1)
    for descriptor in (connection, facts["inputs"]):
        os.set_inheritable(descriptor, False)
    has_gpu = any(os.path.exists(f"/dev/{name}") for name in ("nvidia0", "nvidiactl", "kfd"))
    limits.take_on(gpu=has_gpu and os.environ.get("CUDA_VISIBLE_DEVICES") != "")
    # Enter before anything else is loaded. The sandbox holds only for this thread and threads
    # started later.
    seen = View(**{name: tuple(value) if isinstance(value, list) else value for name, value in facts["view"].items()})
    sandbox.enter(facts["way"], seen)


class Kernel:
    """The plug-in's implementations, and the tensors that they returned last."""

    def __init__(self, argument: str, mapped):
        self.argument, self.mapped = argument, mapped
        self.impls: list = []
        self.settings = ExitStack()  # what the file chose when it was imported
        self.rooms = None  # made on first use, as torch is imported later than this module
        self.returned: list = []  # outputs, which the judging process reads until it asks again
        self.graph: tuple = (0, None, {})  # the last differentiable forward: number, out, inputs

    def answer(self, request: dict, blocks: list) -> tuple[dict, list]:
        """Answer one request. Returns a header and blocks of bytes."""
        return getattr(self, f"on_{request['ask']}")(request, blocks)

    def on_declare(self, request: dict, blocks: list) -> tuple[dict, list]:
        """Import the file and return its declarations."""
        import torch

        from flash_attest.impls.contract import loading, registry
        from flash_attest.impls.contract.entry import RegistryError
        from flash_attest.properties.state.imports import ImportWatch
        from flash_attest.runner.untrusted.records import record_of

        device, watch = "cuda" if torch.cuda.is_available() else "cpu", ImportWatch()
        try:
            entries = loading.from_file(self.argument, watch)
        except RegistryError as error:
            return {"refused": str(error)}, []
        for setting in watch.settings:  # only this file's implementations are in this process
            self.settings.enter_context(setting())
        self.impls = [entry.impl for entry in registry.on_device(entries, device)]
        did = {"broken": watch.broken, "remarks": watch.remarks}
        return {"declared": [record_of(impl) for impl in self.impls], **did}, []

    def on_accepts(self, request: dict, blocks: list) -> tuple[dict, list]:
        """Call supports.accepts on a case."""
        from flash_attest.runner.untrusted.records import case_of

        reason = self.impls[request["impl"]].supports.accepts(case_of(request["case"]))
        return {
            "reason": reason if reason is None or isinstance(reason, str) else repr(reason),
            "text": isinstance(reason, str),
        }, []

    def on_forward(self, request: dict, blocks: list) -> tuple[dict, list]:
        """Call forward(q, k, v, **options)."""
        import torch

        x, keywords = self._inputs(request)
        forward = self.impls[request["impl"]].forward
        with torch.set_grad_enabled(request["grad"]):
            result, operators = self._call(request, lambda: forward(x["q"], x["k"], x["v"], **keywords))
        if request["grad"]:
            from flash_attest.runner.untrusted.tensors import differentiable

            outs = list(result) if isinstance(result, (tuple, list)) else [result]
            self.graph = (request["n"], [outs[n] for n in differentiable(outs)], x)
        return self._described(request, result, ("out", "lse"), operators)

    def on_backward(self, request: dict, blocks: list) -> tuple[dict, list]:
        """Call backward(dout, q, k, v, out, lse, **options)."""
        import torch

        x, keywords = self._inputs(request)
        backward = self.impls[request["impl"]].backward
        operands = [x.get(name) for name in ("dout", "q", "k", "v", "out", "lse")]
        with torch.no_grad():
            result, operators = self._call(request, lambda: backward(*operands, **keywords))
        four = isinstance(result, (tuple, list)) and len(result) == 4
        bias = x.get("bias")
        last = ("dsink",) if four and (bias is None or bias.dtype == torch.bool) else ("dbias", "dsink")
        return self._described(request, result, ("dq", "dk", "dv", *last), operators)

    def on_gradients(self, request: dict, blocks: list) -> tuple[dict, list]:
        """Compute the gradients of the last forward."""
        import torch

        from flash_attest.impls.contract.call import GRADIENT_OF

        number, outs, x = self.graph
        if number != request["of"]:
            raise RuntimeError(f"the graph of call {request['of']} is gone")
        given = self._inputs(request)[0]
        of, by = zip(*[(out, given[f"d{n}"]) for n, out in enumerate(outs) if f"d{n}" in given], strict=True)
        leaves = [x[name] for name in request["wrt"]]
        result, operators = self._call(request, lambda: torch.autograd.grad(of, leaves, by, allow_unused=True))
        names = [GRADIENT_OF.get(name, f"d{name}") for name in request["wrt"]]
        return self._described(request, result, names, operators)

    def _inputs(self, request: dict) -> tuple[dict, dict]:
        from flash_attest.runner.untrusted.tensors import Rooms, unpack

        if self.rooms is None:
            self.rooms = Rooms()
        x = unpack(request, self.mapped, self.rooms)
        options = request.get("options", {})  # JSON has no tuples, as a window is one
        keywords = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
        return x, keywords | {name: x.get(name) for name in request.get("given", ())}

    def _call(self, request: dict, function) -> tuple[object, list[str]]:
        """Run a call. Returns its result and the operators that it used."""
        from flash_attest.races.poison import poisoned
        from flash_attest.runner.untrusted.observed import Operators

        poison = request.get("poison")
        with Operators() as operators, poisoned(*poison) if poison else nullcontext():
            result = function()
        return result, operators.names

    def _described(self, request: dict, result: object, names, operators: list[str]) -> tuple[dict, list]:
        """Convert a result: tensors to their place or their bytes, the rest to names of types."""
        import torch

        from flash_attest.impls.contract.returned import plain
        from flash_attest.runner.untrusted.tensors import described, pack_values

        several = isinstance(result, (tuple, list))
        items = list(result) if several else [result]
        items = [
            plain(names[n] if n < len(names) else "output", item) if isinstance(item, torch.Tensor) else item
            for n, item in enumerate(items[:8])
        ]
        if not request.get("keep"):
            self.returned.clear()
        headers, blocks = [], []
        for item in items:
            if not isinstance(item, torch.Tensor):
                headers.append({"type": type(item).__name__})
            elif request["direct"] and item.device.type == "cpu" and item.layout == torch.strided:
                self.returned.append(item if not item.is_conj() and not item.is_neg() else item.detach().clone())
                headers.append({"tensor": described(self.returned[-1])})
            else:
                header, block = pack_values(item)
                headers.append({"tensor": header})
                blocks.append(block)
        return {"items": headers, "several": type(result).__name__ if several else "", "operators": operators}, blocks


def raised(error: BaseException) -> dict:
    """Return an exception as plain data."""
    from flash_attest.impls.contract.record import ContractError
    from flash_attest.texts import frames_of, words_of

    own = os.path.dirname(os.path.abspath(__file__))
    frames = [f for f in frames_of(error) if os.path.dirname(f.filename) != own]
    where = [f"at {f.filename}:{f.lineno}, in {f.name}: {f.line}" for f in frames]
    kinds = [each.__name__ for each in type(error).__mro__]
    problems = error.problems if isinstance(error, ContractError) else None
    return {
        "type": type(error).__name__,
        "kinds": kinds,
        "text": words_of(error),
        "frames": where,
        "problems": problems,
    }


def device_works() -> bool:
    """Return whether the device still works: after an illegal access on a GPU, this process can
    launch nothing more.
    """
    import torch

    try:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def serve(kernel: Kernel, connection: int) -> None:
    """Answer until the judging process closes its end."""
    from flash_attest.runner.untrusted import wire

    while True:
        try:
            request, blocks = wire.receive(connection)
        except wire.Closed:
            return
        try:
            header, packed = kernel.answer(request, blocks)
        except BaseException as error:  # including the plug-in's SystemExit and KeyboardInterrupt
            header, packed = {"raised": raised(error), "over": not device_works()}, []
        wire.send(connection, {"n": request["n"], **header}, packed)


def main(connection: int) -> None:
    """Run the kernel process. connection: to the judging process."""
    import json

    # wire.receive would import torch, before the sandbox.
    facts = json.loads(_first_message(connection))
    settle(connection, facts)
    os.write(connection, READY)
    # -I has left the user's own folders out. There, anything may lie, such as a sitecustomize.
    sys.path[1:1] = facts["path_before"]
    sys.path += facts["path_after"]
    import torch

    import flash_attest.impls.contract.call
    import flash_attest.properties.state.imports
    import flash_attest.races.poison
    from flash_attest import properties
    from flash_attest.emulator import build_cache
    from flash_attest.properties.machine.gpus import emulate_if_no_gpu
    from flash_attest.runner.untrusted import observed, records, shared, tensors, wire  # noqa: F401

    known = ctypes.create_string_buffer(KNOWN, len(KNOWN))
    wire.send(connection, {"address": ctypes.addressof(known), "bytes": [*KNOWN]})
    torch.set_num_threads(1)  # as in the judging process, because small tensors are faster on one thread
    build_cache.use(map(pathlib.Path, facts["libraries"]))
    emulate_if_no_gpu()
    kernel = Kernel(facts["argument"], shared.Mapped(facts["inputs"]))
    # Modules that are already imported stay. The oracle and the laws can no longer be imported, not
    # even as top-level packages of a checkout.
    if facts["root"]:
        sys.path[:] = [path for path in sys.path if os.path.realpath(path or ".") != os.path.realpath(facts["root"])]
    flash_attest.__path__ = properties.__path__ = []
    sys.argv[:] = [""]
    sys.orig_argv[:] = [sys.executable]
    os.chdir(facts["view"]["cwd"])
    serve(kernel, connection)


def _first_message(connection: int) -> bytes:
    """Return the JSON of a message (wire.py) without blocks."""
    data = b""
    while len(data) < 8 or len(data) < 8 + int.from_bytes(data[:8], "little"):
        data += os.read(connection, 1 << 16)
    return data[8:]
