"""The kernel process, which imports the plug-in and answers questions.

    python -m flash_attest.runner.untrusted.kernel FACTS

FACTS is JSON: parent (pid), requests, answers (file descriptors), argument (of --impl-from), cwd,
root, folder, caches. From the moment its file is imported, the implementation controls everything
here and may patch anything. So nothing that this process says is believed, except the values of
outputs, which are judged elsewhere.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
from contextlib import ExitStack, nullcontext

PR_SET_PDEATHSIG = 1
MOST_PRINTED = 1 << 20  # bytes of output, after which the file is emptied
KEPT = 4  # answers whose outputs can be read again
NOTHING: dict = {}

memcmp = ctypes.CDLL(None).memcmp
memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def settle(facts: dict) -> None:
    """Set the process up: it dies with the judging process, keeps its pipes from children, and
    enters the sandbox.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != facts["parent"]:
        os._exit(1)
    for descriptor in (facts["requests"], facts["answers"]):
        os.set_inheritable(descriptor, False)
    from flash_attest.runner.untrusted import sandbox

    # Enter before torch is imported, because the sandbox holds only for this thread and threads
    # started later.
    sandbox.enter([facts["folder"], *facts["caches"]])


class Kernel:
    """The plug-in's implementations, and the tensors that they returned last."""

    def __init__(self, argument: str):
        self.argument = argument
        self.impls: list = []
        self.settings = ExitStack()  # what the file chose when it was imported
        self.rooms = None  # made on first use, as torch is imported later than this module
        self.returned: dict[int, list] = {}  # number of a request that asked to keep its outputs -> these
        self.graph: tuple = (0, None, {})  # the last differentiable forward: number, out, inputs

    def answer(self, request: dict, blocks: list) -> tuple[dict, list]:
        """Answer one request. Returns a header and blocks of bytes."""
        return getattr(self, f"on_{request['ask']}")(request, blocks)

    def on_declare(self, request: dict, blocks: list) -> tuple[dict, list]:
        """Import the file and return its declarations."""
        import torch

        from flash_attest.impls.contract import registry
        from flash_attest.properties.state.imports import ImportWatch
        from flash_attest.runner.untrusted.records import record_of

        device, watch = "cuda" if torch.cuda.is_available() else "cpu", ImportWatch()
        try:
            entries = registry.from_file(self.argument, watch)
        except registry.RegistryError as error:
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

        x, memories, keywords = self._inputs(request, blocks)
        forward = self.impls[request["impl"]].forward
        with torch.set_grad_enabled(request["grad"]):
            result, operators = self._call(request, lambda: forward(x["q"], x["k"], x["v"], **keywords))
        if request["grad"]:
            out = result[0] if isinstance(result, (tuple, list)) and result else result
            self.graph = (request["n"], out, x)
        return self._described(request, result, ("out", "lse"), operators, self._written(memories, blocks))

    def on_backward(self, request: dict, blocks: list) -> tuple[dict, list]:
        """Call backward(dout, q, k, v, out, lse, **options)."""
        import torch

        x, memories, keywords = self._inputs(request, blocks)
        backward = self.impls[request["impl"]].backward
        operands = [x.get(name) for name in ("dout", "q", "k", "v", "out", "lse")]
        with torch.no_grad():
            result, operators = self._call(request, lambda: backward(*operands, **keywords))
        written = self._written(memories, blocks)
        return self._described(request, result, ("dq", "dk", "dv", "dbias"), operators, written)

    def on_gradients(self, request: dict, blocks: list) -> tuple[dict, list]:
        """Compute the gradients of the last forward."""
        import torch

        number, out, x = self.graph
        if number != request["of"]:
            raise RuntimeError(f"the graph of call {request['of']} is gone")
        dout = self._inputs(request, blocks)[0]["dout"]
        leaves = [x[name] for name in request["wrt"]]
        result, operators = self._call(request, lambda: torch.autograd.grad(out, leaves, dout, allow_unused=True))
        return self._described(request, result, ["d" + name for name in request["wrt"]], operators)

    def on_again(self, request: dict, blocks: list) -> tuple[dict, list]:
        """Return the outputs of an earlier call, as they are now."""
        return self._pack(self.returned[request["of"]])

    def _inputs(self, request: dict, blocks: list) -> tuple[dict, list, dict]:
        from flash_attest.runner.untrusted.tensors import Rooms, unpack

        if self.rooms is None:
            self.rooms = Rooms()
        x, memories = unpack(request, blocks, self.rooms)
        keywords = dict(request.get("options", {}))
        if request.get("takes_bias"):
            keywords["bias"] = x.get("bias")
        return x, memories, keywords

    def _call(self, request: dict, function) -> tuple[object, list[str]]:
        """Run a call. Returns its result and the operators that it used."""
        from flash_attest.races.poison import poisoned
        from flash_attest.runner.untrusted.observed import Operators

        poison = request.get("poison")
        with Operators() as operators, poisoned(*poison) if poison else nullcontext():
            result = function()
        return result, operators.names

    def _written(self, memories: list, blocks: list) -> dict[int, object]:
        """Return the inputs' memories whose bytes have changed: number -> bytes.

        Writes by GPU work that is still in progress are not seen, but neither are its outputs.
        """
        written = {}
        for n, (memory, block) in enumerate(zip(memories, blocks, strict=True)):
            now = memory.cpu()
            if block.numel() and memcmp(now.data_ptr(), block.data_ptr(), block.numel()):
                written[n] = now
        return written

    def _described(
        self, request: dict, result: object, names, operators: list[str], written: dict = NOTHING
    ) -> tuple[dict, list]:
        import torch

        from flash_attest.impls.contract.returned import plain

        several = isinstance(result, (tuple, list))
        items = list(result) if several else [result]
        items = [
            plain(names[n] if n < len(names) else "output", item) if isinstance(item, torch.Tensor) else item
            for n, item in enumerate(items[:8])
        ]
        if request.get("keep"):
            self.returned[request["n"]] = items
            for number in sorted(self.returned)[:-KEPT]:
                del self.returned[number]
        header, blocks = self._pack(items)
        header |= {"several": type(result).__name__ if several else "", "operators": operators, "written": [*written]}
        return header, [*written.values(), *blocks]

    def _pack(self, items: list) -> tuple[dict, list]:
        """Convert a result: tensors with their bytes, and other values as the name of their
        type.
        """
        import torch

        from flash_attest.runner.untrusted.tensors import pack_values

        described, blocks = [], []
        for item in items:
            if isinstance(item, torch.Tensor):
                header, block = pack_values(item)
                described.append({"tensor": header})
                blocks.append(block)
            else:
                described.append({"type": type(item).__name__})
        return {"items": described}, blocks


def raised(error: BaseException) -> dict:
    """Return an exception as plain data."""
    from flash_attest.impls.contract.record import ContractError
    from flash_attest.texts import words_of

    own = os.path.dirname(os.path.abspath(__file__))
    frames = [f for f in traceback.extract_tb(error.__traceback__) if os.path.dirname(f.filename) != own]
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


def serve(kernel: Kernel, requests: int, answers: int) -> None:
    """Answer until the judging process closes its end."""
    from flash_attest.runner.untrusted import wire

    while True:
        try:
            request, blocks = wire.receive(requests)
        except wire.Closed:
            return
        if os.fstat(1).st_size > MOST_PRINTED:
            os.ftruncate(1, 0)
        try:
            header, packed = kernel.answer(request, blocks)
        except BaseException as error:  # including the plug-in's SystemExit and KeyboardInterrupt
            header, packed = {"raised": raised(error), "over": not device_works()}, []
        wire.send(answers, {"n": request["n"], **header}, packed)


def main(facts: dict) -> None:
    settle(facts)
    import torch

    import flash_attest.impls.contract.call
    import flash_attest.properties.state.imports
    import flash_attest.races.poison
    from flash_attest import properties
    from flash_attest.properties.machine.gpus import emulate_if_no_gpu

    torch.set_num_threads(1)  # as in the judging process, because small tensors are faster on one thread
    emulate_if_no_gpu()
    kernel = Kernel(facts["argument"])
    from flash_attest.runner.untrusted import observed, records, tensors, wire  # noqa: F401

    # Modules that are already imported stay. The oracle and the laws can no longer be imported, not
    # even as top-level packages of a checkout.
    if facts["root"]:
        sys.path[:] = [path for path in sys.path if os.path.realpath(path or ".") != os.path.realpath(facts["root"])]
    flash_attest.__path__ = properties.__path__ = []
    sys.argv[:] = [sys.argv[0]]
    os.chdir(facts["cwd"])
    serve(kernel, facts["requests"], facts["answers"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
