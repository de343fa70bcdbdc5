"""A plug-in of pytest (-p) for runs whose smallest case is compared.

A search for it has enough time on a busy machine.
"""

from flash_attest.properties.judging import at_hand, beside, collected, neighbours, shrink
from flash_attest.runner.isolation import crashes

ENOUGH = 300.0  # seconds
LIMITS = (
    (neighbours, "SECONDS_OF_LENGTHS"), (shrink, "MOST_SECONDS"), (beside, "MOST_SECONDS"), (crashes, "MOST_SECONDS"),
    (collected, "MOST_COLLECTING"), (at_hand, "MOST_SECONDS"),
)  # fmt: skip


def pytest_configure() -> None:
    """Set the limits in this process, and so in its forks."""
    for module, name in LIMITS:
        setattr(module, name, ENOUGH)
