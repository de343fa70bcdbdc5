"""Loads implementations from files and modules (--impl-from) and from plug-ins' hooks.

A plug-in that cannot be loaded does not stop the others. It becomes an `Unloadable`, whose contract
check fails.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import fields
from pathlib import Path

from flash_attest.did_you_mean import did_you_mean
from flash_attest.impls.contract.entry import Entry, RegistryError, Unloadable
from flash_attest.impls.contract.precision import Precision
from flash_attest.impls.contract.record import Absent, ContractError, Implementation, NotInstalled
from flash_attest.impls.contract.supports import Supports
from flash_attest.python_file import problem_of
from flash_attest.texts import cut, frames_of, type_name, words_of

FIELDS = {c.__name__: ", ".join(f.name for f in fields(c) if f.init) for c in (Implementation, Supports, Precision)}
MODULES = "attest_plugin_"  # module names of plug-ins begin with this


def from_file(argument: str, around: AbstractContextManager | None = None) -> list[Entry]:
    """Return the entries of "my_file.py", "my_file.py:NAME" or "package.module:NAME".

    NAME may be an Implementation or a list; in a file the default is IMPLS or, without it,
    IMPL. around: a context for the import alone, which watches it.
    """
    around = around or nullcontext()
    if named_module := module_of(argument):
        return _from_module(argument, *named_module, around)
    path, name = file_of(argument)
    option = option_of(argument)
    if problem := problem_of(path):
        raise RegistryError(f"--impl-from {argument}: {problem}")
    unique = f"{MODULES}{as_name(path.stem)}_{hashlib.sha1(os.fsencode(path.resolve())).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(unique, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[unique] = module
    try:
        with beside(path.resolve().parent), around:
            spec.loader.exec_module(module)
    except NotInstalled as error:
        return [Entry(Absent(as_name(path.stem), words_of(error)), str(path), option)]
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return [Entry(Unloadable(as_name(path.stem), import_problem(path, error)), str(path), option)]
    return [Entry(impl, str(path), option) for impl in declared_in(module, name, path)]


def _from_module(argument: str, module_name: str, name: str, around: AbstractContextManager) -> list[Entry]:
    """Import a module by its name, so that other importers get the same module object."""
    option = option_of(argument)
    try:
        with around:
            module = importlib.import_module(module_name)
    except NotInstalled as error:
        path = importlib.util.find_spec(module_name).origin
        return [Entry(Absent(as_name(module_name.rpartition(".")[2]), words_of(error)), str(path), option)]
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise RegistryError(f"--impl-from {argument}: there is no module {error.name}") from None
        loaded = sys.modules.get(module_name) or importlib.util.find_spec(module_name)
        path = Path(getattr(loaded, "origin", None) or module_name)
        return [Entry(Unloadable(as_name(module_name), import_problem(path, error)), str(path), option)]
    path = Path(module.__file__ or module_name)
    return [Entry(impl, str(path), option) for impl in declared_in(module, name, path)]


def module_of(argument: str) -> tuple[str, str] | None:
    """Split "package.module:NAME" into the module and the name. Returns None for a file."""
    match = re.fullmatch(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)", argument)
    if match is None or match[1].endswith(".py") or any(map(os.path.isfile, (argument, match[1]))):
        return None
    return match[1], match[2]


def file_of(argument: str) -> tuple[Path, str | None]:
    """Split "my_file.py:NAME" into the file and the name, which is None if it is not given."""
    text, name = argument, None
    if not os.path.lexists(text) and ":" in text:
        text, name = text.rsplit(":", 1)
    return Path(text), name


def option_of(argument: str) -> str:
    """Return the option that loads `argument`, quoted for a shell, for the replay command."""
    return shlex.quote(f"--impl-from={argument}")


def can_be_tried(argument: str) -> bool:
    """Return whether the argument is a file that exists, or a module."""
    return module_of(argument) is not None or not problem_of(file_of(argument)[0])


@contextmanager
def beside(folder: Path) -> Iterator[None]:
    """Put a plug-in's folder first on sys.path in this block, and last after the block.

    Two plug-ins may have helpers of the same name, for example utils.py. In this block the helpers
    of other plug-ins are hidden.
    """
    text, plain = str(folder), {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    aside = {
        name: module
        for name, module in sys.modules.items()
        if name.partition(".")[0] in plain and _lies_in(module, _folders - {text})
    }
    for name in aside:
        del sys.modules[name]
    sys.path.insert(0, text)
    try:
        yield
    finally:
        with suppress(ValueError):  # the plug-in has removed it
            sys.path.remove(text)
        if text not in sys.path:
            sys.path.append(text)
        _folders.add(text)
        sys.modules.update(aside)


_folders: set[str] = set()  # folders of plug-ins, which are on sys.path


def _lies_in(module: object, folders: Collection[str]) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and any(Path(file).is_relative_to(folder) for folder in folders)


def from_hook(results: Iterable[object], option: str = "") -> list[Entry]:
    """Return an entry for each result of pytest_attention_impls; other objects become Unloadable.

    option: the command-line option that loads these plug-ins; "" if there is none.
    """
    entries = []
    for result in results:
        for impl in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(impl, (Implementation, Absent, Unloadable)):
                entries.append(Entry(impl, file_of_function(getattr(impl, "forward", None)), option))
            else:
                problem = f"pytest_attention_impls returned {impl!r}: should be a list of Implementation"
                entries.append(Entry(Unloadable("plugin", problem), "a plug-in", option))
    return entries


def unloadable_hook(error: Exception) -> Unloadable:
    """Return the entry for a hook pytest_attention_impls that raised."""
    frame = frames_of(error)[-1]
    problem = f"{frame.filename}:{frame.lineno}: pytest_attention_impls raises {type_name(error)}: {words_of(error)}"
    return Unloadable(as_name(Path(frame.filename).stem), problem)


def declared_in(module, name: str | None, path: Path) -> list[Implementation | Absent | Unloadable]:
    default = getattr(module, "IMPLS", getattr(module, "IMPL", None))  # IMPL may be imported
    value = default if name is None else getattr(module, name, None)
    impls = list(value) if isinstance(value, (list, tuple)) else [value]
    if impls and all(isinstance(impl, (Implementation, Absent)) for impl in impls):
        return impls
    what = name or "IMPL or IMPLS"
    defined = sorted(k for k, v in vars(module).items() if isinstance(v, Implementation))
    hint = f"; it has {', '.join(defined)}" if defined else _what_is_there(value)
    problem = f"{path}: {what} should be an Implementation, or a list of them{hint}"
    if name is not None and not hasattr(module, name):
        hint += did_you_mean(name, defined)
        raise RegistryError(f"--impl-from {path}:{name}: there is no {name} in it{hint}")
    return [Unloadable(as_name(path.stem), problem)]


def _what_is_there(value: object) -> str:
    """Describe a value that should be an Implementation, for a message; "" for None."""
    if isinstance(value, (list, tuple)):
        kinds = dict.fromkeys(type(impl).__name__ for impl in value if not isinstance(impl, (Implementation, Absent)))
        return f"; the list holds {', '.join(kinds)}" if value else "; the list is empty"
    return "" if value is None else f"; it is a {type(value).__name__}{': call it' if callable(value) else ''}"


def import_problem(path: Path, error: BaseException) -> str:
    if isinstance(error, ContractError):
        return invalid(path, error)
    where = [frame for frame in frames_of(error) if Path(frame.filename) == path.absolute()]
    line = f"{path}:{where[-1].lineno}" if where else str(path)
    if isinstance(error, SyntaxError):
        line = str(path) if error.lineno is None else f"{error.filename or path}:{error.lineno}"
        return f"{line}: importing it raises {type_name(error)}: {error.msg}"
    text = words_of(error)
    hint = next((_hint(text, fields) for name, fields in FIELDS.items() if f"{name}.__init__()" in text), "")
    return f"{line}: importing it raises {type_name(error)}{text and f': {text}'}{hint}"


def invalid(path: Path, error: ContractError) -> str:
    """Say what is wrong with a file's Implementation: a problem in the first line, others below."""
    first, *others = map(cut, error.problems)
    return "\n".join([f"{path}: the Implementation is invalid: {first}", *(f"  {each}" for each in others)])


def _hint(text: str, fields: str) -> str:
    """Return a hint for an error about a wrong field: the closest name, and all field names."""
    wrong = re.search(r"unexpected keyword argument '(\w+)'", text)
    return f"; its fields are {fields}{did_you_mean(wrong[1], fields.split(', ')) if wrong else ''}"


def as_name(text: str) -> str:
    """Turn a file's name into a plug-in's name."""
    return "".join(c if c.isalnum() else "_" for c in text.lower()) or "plugin"


def file_of_function(function: object) -> str:
    """Return the file that defines a function, for messages."""
    try:
        return inspect.getfile(inspect.unwrap(function))
    except (TypeError, AttributeError, ValueError):  # not a Python function, None for an Absent, or it wraps itself
        return "a plug-in"
