"""Every proof shows its finding: run alone, in a process without this suite's tests.

`tox -e wild` runs them. A package is installed into the folder that --wild names, if it is not
there yet.
"""

import os
import subprocess
import sys

import pytest

from flash_attest.properties.machine.gpus import visible_gpus
from flash_attest.wild.findings import findings
from flash_attest.wild.install import installed
from flash_attest.wild.judge import with_paths
from flash_attest.wild.packages import BY_TITLE, Source

PATIENCE = 900  # seconds, for the emulator on a busy machine
PROOFS = [finding for finding in findings() if not finding.status.startswith("fixed")]


@pytest.mark.parametrize("finding", PROOFS, ids=lambda finding: finding.path.stem)
def test_a_proof_shows_its_finding(finding, request):
    folder, package = request.config.rootpath / request.config.getoption("--wild") / "site", BY_TITLE[finding.package]
    if not visible_gpus() and (package.needs == "a GPU" or finding.needs_gpu):
        pytest.skip("needs a GPU")
    if isinstance(package, Source) and not os.environ.get(package.variable):
        pytest.skip(f"needs {package.needs}")
    sites = [installed(package, finding.version, folder)] if package.installed_for(finding.version) else []
    folder.mkdir(parents=True, exist_ok=True)  # a clone's proof may be the first
    emulated = not visible_gpus() or finding.hidden_by_gpu
    emulate = ["-m", "flash_attest", "emulate", *package.emulated] if emulated else []
    command = [sys.executable, *emulate, str(finding.path)]
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if emulated else {}
    done = subprocess.run(
        command,
        env=with_paths(*sites) | hidden,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd=folder,
    )
    assert done.returncode, f"{finding.path.name} passes: is {finding.package} mended?\n{done.stdout}"
    assert finding.is_shown_by(done.stderr), f"should show {finding.shows}\n{done.stderr[-2000:]}"
