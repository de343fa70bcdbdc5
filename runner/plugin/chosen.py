"""Chooses the implementations that a run judges."""

from __future__ import annotations

import os
import shlex

import pytest

from flash_attest.impls.contract import loading, registry
from flash_attest.impls.contract.entry import Entry, RegistryError
from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.support import not_here
from flash_attest.runner.isolation import importing
from flash_attest.runner.isolation.importing import Tried
from flash_attest.runner.plugin.options import Options
from flash_attest.runner.plugin.terminal import elsewhere_in_words
from flash_attest.runner.untrusted.entries import check_options
from flash_attest.runner.untrusted.entries import from_file as untrusted_entries

ENTRY = "FLASH_ATTEST_ENTRY"  # names the command that runs pytest; set by flash_attest/command/check.py


class Chosen:
    """The chosen implementations, the same in each pytest process.

    A worker receives decisions that only one process can make from its controller.
    """

    def __init__(self, config: pytest.Config, options: Options):
        self.config, self.options = config, options
        self.worker = options.worker
        # What importing each file does. Only the controller has tried it.
        self.tried = {each: Tried(**of) for each, of in (self.worker or {}).get("attest_tried", {}).items()}
        self._plugins: list[Entry] | None = None
        self._entries: list[Entry] | None = None
        self.elsewhere: dict[str, str] = {}  # implementations of another device, by name: why. Known with `entries`

    @property
    def entries(self) -> list[Entry]:
        """Return the selected implementations by name.

        Raises a usage error for a selection that makes no sense.
        """
        if self._entries is None:
            names = self.options.given("impl")
            try:
                if self.untrusted:
                    check_options(self.options.given("impl-from"), names)
                chosen = registry.choose(self.plugins, names, alone=bool(self.options.given("impl-from")))
                entries = registry.on_device(chosen, self.options.device)
            except RegistryError as error:
                raise self._wrong(error) from None
            if not self.options.asked.named or self.options.given("here"):
                self.elsewhere = self._needing_another_device(entries)
            left = [entry for entry in entries if entry.name not in self.elsewhere]
            if entries and not left:
                raise pytest.UsageError(f"nothing is left to judge; {elsewhere_in_words(self.elsewhere)}")
            self._entries = left
        return self._entries

    def _needing_another_device(self, entries: list[Entry]) -> dict[str, str]:
        """Return the implementations that cannot be judged in this run, by name, and why.

        No tests are made for them.
        """
        device = self.options.device
        impls = [entry.impl for entry in entries if isinstance(entry.impl, Implementation)]
        return {impl.name: reason for impl in impls if (reason := not_here(impl, device))}

    def _from_file(self, argument: str) -> list[Entry]:
        """Return the entries of a file, which is imported in another process first."""
        if self.untrusted:
            return untrusted_entries(argument, self.options.case_timeout, [self.options.given("report")])
        if not self.options.may_isolate:
            return importing.imported(argument)
        limit, already = self.options.case_timeout, self.tried.get(argument)
        entries, self.tried[argument] = importing.loaded(argument, limit, already)
        return entries

    @property
    def plugins(self) -> list[Entry]:
        """Return the implementations that are not part of the suite."""
        if self._plugins is None:
            try:
                files = self.options.given("impl-from")
                entries = [entry for argument in files for entry in self._from_file(argument)]
            except RegistryError as error:
                raise self._wrong(error) from None
            modules = [name for name in self.config.getoption("plugins") if not name.startswith("no:")]
            via = " ".join(f"-p {shlex.quote(name)}" for name in modules)
            entries += loading.from_hook(self._of_hooks(), via)
            self._plugins = entries
        return self._plugins

    def _of_hooks(self) -> list[object]:
        """Return what the hook of each plug-in returns, and an Unloadable for one that raises."""
        results = []
        # One call of the hook would end at the first plug-in that raises.
        for each in reversed(self.config.hook.pytest_attention_impls.get_hookimpls()):
            if each.wrapper or each.hookwrapper:
                continue
            try:
                result = each.function(**dict.fromkeys(each.argnames, self.config))
            except Exception as error:
                result = loading.unloadable_hook(error)
            if result is not None:
                results.append(result)
        return results

    def _wrong(self, error: RegistryError) -> pytest.UsageError:
        """Return the usage error, in terms of the command that the user typed."""
        text = str(error)
        return pytest.UsageError(text.replace("--impl-from ", "", 1) if os.environ.get(ENTRY) == "check" else text)

    @property
    def untrusted(self) -> bool:
        """Return whether the files of --impl-from are imported only in a kernel process."""
        return self.options.given("untrusted")
