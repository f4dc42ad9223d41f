"""Settings for all tests: hypothesis draws the same examples in every run, has no clock, and does not shrink.

The examples are small as drawn; shrinking one of floats can take minutes.
"""

from __future__ import annotations

import gc

import pytest
from hypothesis import HealthCheck, Phase, settings

from tulle.fast.install import install
from tulle.monitoring import log_events

settings.register_profile(
    "tulle",
    derandomize=True,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    # A clock, too: on a busy machine it fails tests that say nothing about time.
    suppress_health_check=(HealthCheck.too_slow,),
)
settings.load_profile("tulle")

# An event or a field that is not on the list fails a test; elsewhere it is left out of the log.
log_events.raises_on_misuse = True

# As in a fit: tests of rows alone import no estimator.
install()


def pytest_collection_finish() -> None:
    """What was collected lives as long as the run: the garbage collector need not look at it again and again."""
    gc.freeze()


@pytest.fixture
def fixed_nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every opening of a ledger file has the same nonce, in processes that a test starts, too.

    For tests of what else tells the noise of two fits apart: a fresh nonce would hide it.
    """
    monkeypatch.setenv("TULLE_TEST_NONCE", "00112233445566778899aabbccddeeff")
