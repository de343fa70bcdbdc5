"""Files whose import does more than define an implementation.

Each entry is (source, verdict of the contract check, words of its reason).
"""

GOOD = (
    "from tests.plugins.good import IMPL as good\nimport dataclasses\nIMPL = dataclasses.replace(good, name='{name}')\n"
)
ENDS = "importing it ends the process: "
SOURCES = {
    "import_raises": ("raise ValueError('no')", "fail", "ValueError: no"),
    "import_aborts": ("import os; os.abort()", "fail", f"{ENDS}signal 6 (abort)"),
    "import_crashes": ("import ctypes; ctypes.string_at(0)", "fail", f"{ENDS}signal 11 (segmentation fault)"),
    "import_exits": ("import sys; sys.exit(0)", "fail", "SystemExit"),
    "import_ends": ("import os; os._exit(0)", "fail", f"{ENDS}exit status 0"),
    "import_interrupts": ("raise KeyboardInterrupt", "fail", "KeyboardInterrupt"),
    "import_skips": ("import pytest; pytest.skip('no', allow_module_level=True)", "fail", "Skipped"),
    "import_kills": ("import os; os.kill(os.getpid(), 9)", "fail", "signal 9 (killed)"),
    "import_hangs": ("while True: pass", "fail", "importing it does not end"),
    "import_prints": ("print('printed\\n' * 2**17)\n" + GOOD, "pass", ""),
    "import_forks": (
        "import os, time\nif os.fork() == 0:\n    time.sleep(0.2)\n    os._exit(0)\n" + GOOD,
        "pass",
        "",
    ),
    "import_replaces_the_name": ("import sys\nsys.modules[__name__] = None\n" + GOOD, "pass fail", ""),
    "import_has_no_syntax": ("def forward(q:\n", "fail", "SyntaxError"),
    "import_is_binary": ("\x00\x01", "fail", ""),
    "import_defines_nothing": ("", "fail", ""),
    "import_of_rubbish": ("IMPL = 3", "fail", ""),
    "import_of_a_lazy_list": ("import itertools\nIMPLS = iter(())\n", "fail", ""),
}
