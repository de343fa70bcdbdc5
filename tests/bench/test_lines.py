"""The benchmarks that print a line for each result need a GPU, and fail if a result is wrong."""

import pytest
import torch

from flash_attest.bench import decode, lines, varlen, windows


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("module", [decode, varlen, windows])
def test_it_needs_a_gpu(module, capsys):
    assert module.main() == 2
    name = module.__name__.removeprefix("flash_attest.")
    assert capsys.readouterr().err.startswith(f"{name}: there is no GPU")


@pytest.mark.parametrize("wrong", [False, True])
def test_the_exit_status_says_whether_a_result_is_wrong(wrong, capsys, monkeypatch):
    """A kernel's name may contain the word."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    made = [lines.Line("nothing_wrong 1 ms"), *([lines.Line.of_mistake("out is off")] if wrong else [])]
    assert lines.printed("decode", "a title", iter(made)) == int(wrong)
    assert capsys.readouterr().out.splitlines()[2:] == ["nothing_wrong 1 ms", *["wrong: out is off"] * wrong]
