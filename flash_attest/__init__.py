"""A verification suite for attention kernels. docs/use/public.md lists what is public.

    from flash_attest import Implementation, Supports, Precision, Absent   # declare a kernel
    from flash_attest import assert_attention_close              # the tolerance, in any test
    from flash_attest import attention_laws                      # the laws, beside your own tests
    from flash_attest import check                               # the laws, from a script
    from flash_attest import emulate, trace, assert_race_free    # GPU kernels without a GPU

Each name is loaded when it is first used. Importing torch takes seconds, and every run of pytest in
the environment loads this package's plug-in.

PYTEST_DONT_REWRITE: `flash-attest emulate` imports this package before pytest does. Without the
marker pytest would warn that it cannot rewrite its assertions.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flash_attest.checking import CheckResult, check
    from flash_attest.close import assert_attention_close
    from flash_attest.decorator import attention_laws
    from flash_attest.emulation import assert_race_free, emulate, trace
    from flash_attest.impls import (
        Absent,
        ContractError,
        Implementation,
        KnownFailure,
        NotInstalled,
        Precision,
        Supports,
    )

__version__ = "0.1.0"

_MODULES = {
    "flash_attest.impls": (
        "Absent",
        "ContractError",
        "Implementation",
        "KnownFailure",
        "NotInstalled",
        "Precision",
        "Supports",
    ),
    "flash_attest.close": ("assert_attention_close",),
    "flash_attest.decorator": ("attention_laws",),
    "flash_attest.checking": ("CheckResult", "check"),
    "flash_attest.emulation": ("assert_race_free", "emulate", "trace"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Absent",
    "CheckResult",
    "ContractError",
    "Implementation",
    "KnownFailure",
    "NotInstalled",
    "Precision",
    "Supports",
    "assert_attention_close",
    "assert_race_free",
    "attention_laws",
    "check",
    "emulate",
    "trace",
]


def __getattr__(name: str):
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
