"""Files whose import does more than define an implementation.

Each entry is (source, verdict of the contract check, words of its reason). Files that resemble
another one are judged with --thorough only.
"""

GOOD = (
    "from tests.plugins.good import IMPL as good\nimport dataclasses\nIMPL = dataclasses.replace(good, name='{name}')\n"
)
ENDS = "importing it ends the process: "
FAIL, PASS = "fail", "pass"
FOR_GOOD = "and that cannot be undone here"
SOURCES = {
    "import_raises": ("raise ValueError('no')", FAIL, "ValueError: no"),
    "import_aborts": ("import os; os.abort()", FAIL, f"{ENDS}signal 6 (abort)"),
    "import_crashes": ("import ctypes; ctypes.string_at(0)", FAIL, f"{ENDS}signal 11 (segmentation fault)"),
    "import_exits": ("import sys; sys.exit(0)", FAIL, "SystemExit"),
    "import_ends": ("import os; os._exit(0)", FAIL, f"{ENDS}exit status 0"),
    "import_interrupts": ("raise KeyboardInterrupt", FAIL, "KeyboardInterrupt"),
    "import_skips": ("import pytest; pytest.skip('no', allow_module_level=True)", FAIL, "Skipped"),
    "import_kills": ("import os; os.kill(os.getpid(), 9)", FAIL, "signal 9 (killed)"),
    "import_kills_its_parent": ("import os; os.kill(os.getppid(), 9)", FAIL, "signal 9 (killed)"),
    "import_hangs": ("import time; time.sleep(1000)", FAIL, "importing it does not end"),
    "import_loops": ("while True: pass", FAIL, "importing it does not end"),
    "import_has_no_syntax": ("def forward(q:\n", FAIL, "SyntaxError"),
    "import_is_binary": ("\x00\x01", FAIL, ""),
    "import_defines_nothing": ("", FAIL, ""),
    "import_of_rubbish": ("IMPL = 3", FAIL, ""),
    "import_of_a_lazy_list": ("import itertools\nIMPLS = iter(())\n", FAIL, ""),
}
WITH_ACCEPTS = """\
import torch
from tests.plugins.good import IMPL as good
from dataclasses import replace
def accepts(case):
    {accepts}
IMPL = replace(good, name='{name}', supports=replace(good.supports, accepts=accepts))
"""
SOURCES |= {
    name: (WITH_ACCEPTS.replace("{accepts}", act), FAIL, f"supports.accepts {words}")
    for name, act, words in (
        ("accepts_exits", "raise SystemExit(0)", "raises SystemExit: 0 [for seqlen_q="),
        ("accepts_interrupts", "raise KeyboardInterrupt", "raises KeyboardInterrupt [for seqlen_q="),
        ("accepts_sets", "torch.set_default_dtype(torch.float64)", "sets torch's default dtype to torch.float64"),
    )
}
# What these do, they do before they define a right implementation. "pass": a remark, if anything.
BEFORE = {
    "prints": ("print('printed\\n' * 2**17)", PASS, ""),
    "forks": ("import os, time\nif os.fork() == 0:\n    time.sleep(0.2)\n    os._exit(0)", PASS, ""),
    "has_code_of_an_odd_file": (
        "{good}exec(compile('def forward(q, k, v): return good.forward(q, k, v)', '/\\ud800.py', 'exec'))\n"
        "forward.__wrapped__ = forward\nIMPL = dataclasses.replace(IMPL, forward=forward)",
        PASS,
        "",
    ),
    "goes_on_in_a_fork": ("import os\nos.fork()", PASS, ""),
    "replaces_its_name": ("import sys\nsys.modules[__name__] = None", PASS, ""),
    "replaces_itself": ("import sys, types\nsys.modules[__name__] = types.ModuleType('other')", PASS, ""),
    # Settings of torch.
    "autocast": ("import torch\ntorch.autocast('cpu', dtype=torch.bfloat16).__enter__()", FAIL, "enters autocast"),
    "autocast_of_a_gpu": ("import torch\ntorch.set_autocast_enabled('cuda', True)", FAIL, "enters autocast"),
    "default_dtype": ("import torch\ntorch.set_default_dtype(torch.float64)", FAIL, "sets torch's default dtype to"),
    "half_by_default": ("import torch\ntorch.set_default_dtype(torch.float16)", FAIL, "default dtype to torch.float16"),
    "default_device": ("import torch\ntorch.set_default_device('meta')", FAIL, "sets torch's default device to meta"),
    "tensor_type": ("import torch\ntorch.set_default_tensor_type(torch.DoubleTensor)", FAIL, "torch's default dtype"),
    "no_grad": ("import torch\ntorch.set_grad_enabled(False)", FAIL, "sets torch's grad mode to False"),
    "inference": ("import torch\nkept = torch._C._InferenceMode(True)", FAIL, "enters torch's inference mode"),
    "function_mode": (
        "from torch.overrides import TorchFunctionMode\nclass Mode(TorchFunctionMode):\n"
        "    def __torch_function__(self, func, types, args=(), kwargs=None):\n        raise ValueError\n"
        "Mode().__enter__()",
        FAIL,
        "enters a torch function mode",
    ),
    "dispatch_mode": (
        "from torch.utils._python_dispatch import TorchDispatchMode\nclass Mode(TorchDispatchMode):\n"
        "    def __torch_dispatch__(self, func, types, args=(), kwargs=None):\n        raise ValueError\n"
        "Mode().__enter__()",
        FAIL,
        "enters a torch dispatch mode",
    ),
    "denormals": ("import torch\ntorch.set_flush_denormal(True)", FAIL, "denormal numbers (True: flushed to 0)"),
    "rounding": ("import ctypes\nctypes.CDLL('libm.so.6').fesetround(0x800)", FAIL, "rounding mode to 2048"),
    "anomaly": ("import torch\ntorch.autograd.set_detect_anomaly(True)", FAIL, "anomaly mode"),
    "default_generator": (
        "import torch\ntorch.default_generator = torch.random.default_generator = None",
        FAIL,
        "replaces torch.default_generator",
    ),
    "deterministic": ("import torch\ntorch._C._set_deterministic_algorithms(True)", PASS, "deterministic algorithms"),
    "matmul_precision": ("import torch\ntorch.set_float32_matmul_precision('high')", PASS, "precision to high"),
    "number_of_threads": ("import torch\ntorch.set_num_threads(3)", PASS, "torch's number of threads to 3"),
    "sdpa_switch": ("import torch\ntorch.backends.cuda.enable_flash_sdp(False)", PASS, "flash SDPA switch"),
    "seeds": (
        "import torch, numpy, random\ntorch.manual_seed(0)\nnumpy.random.seed(0)\nrandom.seed(0)\ntorch.rand(3)",
        PASS,
        "torch's random numbers",
    ),
    # Settings of numpy, Python and Hypothesis.
    "numpy_errors": ("import numpy\nnumpy.seterr(all='raise')", PASS, "numpy's error state"),
    "print_options": ("import numpy, torch\nnumpy.set_printoptions(1)\ntorch.set_printoptions(1)", PASS, ""),
    "hypothesis_profile": (
        "import hypothesis\nhypothesis.settings.register_profile('one', max_examples=1)\n"
        "hypothesis.settings.load_profile('one')",
        FAIL,
        "sets Hypothesis's profile to one",
    ),
    "warnings_as_errors": ("import warnings\nwarnings.simplefilter('error')", PASS, ""),
    "logs_nothing": ("import logging\nlogging.disable()\nlogging.basicConfig(level=0, force=True)", PASS, "logging"),
    "collects_nothing": ("import gc\ngc.disable()", FAIL, "garbage collection (enabled) to False"),
    "freezes": ("import gc\ngc.freeze()\ngc.set_threshold(1)", PASS, "garbage collection (thresholds"),
    "recursion_limit": ("import sys\nsys.setrecursionlimit(120)", PASS, "recursion limit to 120"),
    "switch_interval": ("import sys\nsys.setswitchinterval(100)", FAIL, "switch interval to 100"),
    "excepthook": ("import sys\nsys.excepthook = print", PASS, "replaces sys.excepthook"),
    "raises_in_a_trace": (
        "import sys, threading\ndef trace(*_):\n    raise KeyError('traced')\nsys.settrace(trace)\n"
        "sys.setprofile(trace)\nthreading.settrace(trace)",
        "pass fail",
        "",
    ),
    "traces": (
        "import sys\ndef trace(*_):\n    return trace\nsys.settrace(trace)\nsys.setprofile(trace)",
        FAIL,
        "sets a trace function",
    ),
    "no_crash_handler": ("import faulthandler\nfaulthandler.disable()", PASS, ""),
    "start_method": (
        "import multiprocessing\nmultiprocessing.set_start_method('spawn', force=True)",
        PASS,
        "start method",
    ),
    "exit_handler": ("import atexit, os\natexit.register(lambda: os._exit(0))\natexit.register(os._exit, 0)", PASS, ""),
    "argv": ("import sys\nsys.argv.clear()", FAIL, "sets sys.argv to []"),
    # The import system.
    "no_path": ("import sys\nsys.path.clear()", FAIL, "from sys.path"),
    "other_path": ("import sys\nsys.path = []", FAIL, "from sys.path"),
    "adds_to_path": ("import sys\nsys.path.insert(0, '/nowhere')", PASS, ""),
    "finder_raises": (
        "import sys\nclass Finder:\n    def find_spec(*_):\n        raise ValueError\nsys.meta_path.insert(0, Finder())",
        "fail",
        "",
    ),
    "finder_swaps": (
        "import sys, importlib.util\nclass Finder:\n    def find_spec(self, name, *_):\n"
        "        return importlib.util.spec_from_loader(name, self)\n    def create_module(self, spec):\n"
        "        return sys\n    def exec_module(self, module):\n        pass\n{good}\nsys.meta_path.insert(0, Finder())",
        FAIL,
        "adds to sys.meta_path",
    ),
    "no_finder": ("{good}\nimport sys\nsys.meta_path.clear()", FAIL, "removes from sys.meta_path"),
    "path_hook": ("import sys\nsys.path_hooks.insert(0, lambda path: 1 / 0)", FAIL, "adds to sys.path_hooks"),
    "no_modules": ("{good}\nimport sys\nsys.modules.clear()", FAIL, "in sys.modules"),
    "other_modules": ("{good}\nimport sys\nsys.modules = {}", FAIL, "replaces sys.modules itself"),
    "swaps_a_module": ("{good}\nimport sys\nsys.modules['json'] = sys", FAIL, "replaces json in sys.modules"),
    # The process.
    "sigchld": ("import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)", FAIL, "signal handler (SIGCHLD)"),
    "signals": (
        "import signal\nfor each in ('INT', 'TERM', 'USR1'):\n    signal.signal(getattr(signal, 'SIG' + each), print)",
        FAIL,
        "signal handler (SIGINT, SIGUSR1, SIGTERM)",
    ),
    "alarm": ("import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.3, 0.1)", FAIL, "leaves a timer on"),
    "profiling_alarm": ("import signal\nsignal.setitimer(signal.ITIMER_PROF, 0.3)", FAIL, "leaves a timer on"),
    "blocks_signals": (
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
        FAIL,
        "blocks signals (",
    ),
    "closes_stdout": ("import sys\nsys.stdout.close()", FAIL, f"closes sys.stdout and does not restore it, {FOR_GOOD}"),
    "replaces_streams": (
        "import sys, io\nsys.stdout = sys.stderr = io.StringIO()\nsys.stdin = None",
        FAIL,
        "replaces sys.std",
    ),
    "closes_descriptors": ("import os\nos.closerange(0, 3)", FAIL, "closes standard input"),
    "redirects": ("import os\nos.dup2(os.open(os.devnull, os.O_RDWR), 1)", FAIL, "redirects standard output"),
    "closes_all_files": ("import os\nos.closerange(3, 64)", FAIL, ""),
    "chdir": ("import os\nos.chdir('/')", FAIL, "sets the working directory to /"),
    "chdir_to_nothing": (
        "import os, tempfile\nfolder = tempfile.mkdtemp()\nos.chdir(folder)\nos.rmdir(folder)",
        FAIL,
        "working directory to a folder that is gone",
    ),
    "umask": ("import os\nos.umask(0o777)", FAIL, "sets the umask to 0o777"),
    "environment": (
        "import os\nos.environ.update(CUDA_VISIBLE_DEVICES='7', TMPDIR='/nowhere', PATH='', PYTHONPATH='', HOME='/')",
        PASS,
        "",
    ),
    "no_environment": ("import os\nos.environ.clear()", PASS, ""),
    "locale": ("import locale\nlocale.setlocale(locale.LC_ALL, 'POSIX')", FAIL, "sets the locale to C"),
    "time_zone": ("import os, time\nos.environ['TZ'] = 'Asia/Tokyo'\ntime.tzset()", PASS, ""),
    "no_descriptors": (
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))",
        FAIL,
        "sets the resource limit RLIMIT_NOFILE",
    ),
    "no_memory": (
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))",
        FAIL,
        "RLIMIT_AS",
    ),
    "hard_limit": ("import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))", FAIL, "RLIMIT_FSIZE"),
    "nice": ("import os\nos.nice(5)", FAIL, "priority (nice) to"),
    "affinity": ("import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})", "pass fail", ""),
    "prctl": ("import ctypes\nctypes.CDLL(None).prctl(1, 10, 0, 0, 0)", FAIL, "parent's death to 10"),
    "no_new_privileges": ("import ctypes\nctypes.CDLL(None).prctl(38, 1, 0, 0, 0)", FAIL, FOR_GOOD),
    "audit_hook": ("import sys\nsys.addaudithook(lambda *_: None)", FAIL, FOR_GOOD),
    "hostile_audit_hook": ("{good}\nimport sys\nsys.addaudithook(lambda *_: 1 / 0)", FAIL, ""),
    "thread": ("import threading\nthreading.Thread(target=threading.Event().wait).start()", FAIL, "is no daemon"),
    "pool": (
        "import threading\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "ThreadPoolExecutor(1).submit(threading.Event().wait)",
        FAIL,
        "is no daemon",
    ),
    "short_thread": ("import threading, time\nthreading.Thread(target=time.sleep, args=(0.1,)).start()", PASS, ""),
    "child": (
        "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(5)'])",
        PASS,
        "",
    ),
    "distant_child": (
        "import subprocess, sys\nsubprocess.Popen(['sleep', '5'], start_new_session=True)",
        PASS,
        "",
    ),
    # Functions.
    "no_builtins": (
        "{good}\nimport builtins\nbuiltins.len = builtins.isinstance = builtins.open = None",
        FAIL,
        "replaces ",
    ),
    "other_import": ("{good}\nimport builtins\nbuiltins.__import__ = print", FAIL, "replaces builtins.__import__"),
    "removes_builtins": ("{good}\nimport builtins\ndel builtins.range, builtins.print", FAIL, "builtins.range"),
    "json": ("import json\njson.dumps = json.JSONEncoder.encode = lambda *a, **b: 'rubbish'", FAIL, "json.dumps"),
    "hypothesis": (
        "import hypothesis\nhypothesis.given = hypothesis.settings = lambda *a, **b: None",
        FAIL,
        "replaces hypothesis.",
    ),
    "warn": ("import warnings\nwarnings.warn = warnings.showwarning = None", FAIL, "replaces warnings."),
    "write_text": ("import pathlib\npathlib.Path.write_text = lambda *_: 1 / 0", FAIL, "pathlib.Path.write_text"),
    "popen": ("import subprocess\nsubprocess.Popen = subprocess.run = None", FAIL, "subprocess."),
    "tempfile": ("import tempfile\ntempfile.TemporaryFile = tempfile.mkdtemp = None", FAIL, "tempfile."),
    "os_functions": ("import os\nos.fork = os.pipe = os.read = os.kill = os._exit = None", FAIL, "os."),
    "clock": ("import time\ntime.perf_counter = time.monotonic = lambda: 0.0", FAIL, "time."),
    "torch_agrees": (
        "import torch\ntorch.Tensor.__eq__ = torch.equal = torch.allclose = lambda *a, **b: True",
        FAIL,
        "torch.equal",
    ),
    "no_torch": ("import torch\ntorch.empty = torch.zeros = torch.Tensor.double = None", FAIL, "torch.empty"),
    # A kernel for an operator that no registry of Python shows.
    "overrides_an_operator": (
        "import torch\nlibrary = torch.library.Library('aten', 'IMPL')\n"
        "library.impl('bmm', lambda a, b: a.new_zeros(a.shape[0], a.shape[1], b.shape[2]), 'CPU')\n"
        "torch.library._impls.discard('aten/bmm/CPU')",
        FAIL,
        "makes a right implementation fail: out[",
    ),
    "own_softmax": (
        "import torch\nlibrary = torch.library.Library('aten', 'IMPL')\n"
        "library.impl('softmax.int', lambda x, dim, dtype=None: x * 0, 'CPU')",
        "fail",
        "registers its own kernel for aten/softmax.int/CPU, an operator of torch",
    ),
    "sdpa": (
        "import torch.nn.functional as F\nF.scaled_dot_product_attention = lambda q, *a, **b: q",
        FAIL,
        "scaled_dot_product_attention",
    ),
    "pytest": (
        "import _pytest.runner, pluggy\n_pytest.runner.runtestprotocol = pluggy.PluginManager.register = None",
        FAIL,
        "_pytest.runner.runtestprotocol",
    ),
    "the_suite": (
        "from flash_attest.oracle import limits\nfrom flash_attest.runner import judge\n"
        "judge.judge = lambda *a: None\nfor each in vars(limits).copy():\n"
        "    if each.isupper():\n        setattr(limits, each, 1e9)",
        FAIL,
        "replaces flash_attest.",
    ),
}
REPEATS = {
    "accepts_interrupts",
    "import_crashes",
    "import_exits",
    "import_loops",
    "import_of_rubbish",
}
REPEATS |= {
    f"import_{name}"
    for name in (
        *(
            "autocast_of_a_gpu",
            "half_by_default",
            "tensor_type",
            "inference",
            "rounding",
            "anomaly",
            "number_of_threads",
        ),
        *("sdpa_switch", "deterministic", "numpy_errors", "print_options", "freezes", "switch_interval", "traces"),
        *(
            "argv",
            "other_path",
            "adds_to_path",
            "no_finder",
            "path_hook",
            "other_modules",
            "signals",
            "profiling_alarm",
        ),
        *("replaces_streams", "redirects", "chdir_to_nothing", "umask", "no_environment", "time_zone", "affinity"),
        *("prctl", "audit_hook", "child", "removes_builtins", "write_text", "popen", "tempfile", "clock", "no_torch"),
        *("replaces_itself", "forks", "no_crash_handler", "start_method", "pool", "nice"),
    )
}
SOURCES |= {
    f"import_{name}": (f"{source}\n{'' if '{good}' in source else '{good}'}".replace("{good}", GOOD), *others)
    for name, (source, *others) in BEFORE.items()
}
