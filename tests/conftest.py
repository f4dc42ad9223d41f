"""Settings for all tests: hypothesis draws the same examples in every run, has no clock, and does not shrink.

The examples are small as drawn; shrinking one of floats can take minutes.
"""

from __future__ import annotations

from hypothesis import Phase, settings

settings.register_profile("tulle", derandomize=True, deadline=None, phases=(Phase.explicit, Phase.generate))
settings.load_profile("tulle")
