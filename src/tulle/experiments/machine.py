"""Where results are found, and with which versions."""

from __future__ import annotations

import os
import platform
from typing import Any

from tulle.experiments.dependencies import sources

_RESULTS_DEPEND_ON = "nothing"

# What the last digits of a result can depend on.
_VERSIONS = ("python", "numpy", "scipy", "scikit-learn", "processor")


def machine() -> dict[str, Any]:
    """Where results are found, and with what."""
    from importlib.metadata import version

    import tulle

    return {
        "tulle": tulle.__version__,
        "code": sources().digest(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "scipy", "scikit-learn", "joblib")},
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
    }


def versions() -> dict[str, Any]:
    """The part of it that values can depend on, besides the code."""
    return {name: value for name, value in machine().items() if name in _VERSIONS}
