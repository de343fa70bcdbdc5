"""flash-attest merge joins reports and sweeps (details: runner/plugin/test_shard.py,
sweep/test_merge.py).
"""

import pytest

from flash_attest.command import merge


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["one.db", "part-2", "--into", "x"], "one.db is the file of a sweep and part-2 a report: should be all of one kind"),
        (["part-1", "--into", "x", "--report", "y"], "--report y: is for sweeps; a joined report goes to --into"),
        (["part-1"], "the following arguments are required: --into"),
    ],
)  # fmt: skip
def test_what_is_given_is_of_one_kind(arguments, words, capsys):
    with pytest.raises(SystemExit) as ended:
        merge.run(arguments)
    assert ended.value.code == 2 and words in capsys.readouterr().err
