"""How tulle and its extras are installed: the one place that says it."""

from __future__ import annotations

_RESULTS_DEPEND_ON = "nothing"

# tulle is in no package index: a package of this name there would be another project's.
WHERE = "in a clone of tulle"
INSTALL = "pip install ."


def install_command(extra: str) -> str:
    """The command that installs tulle with an extra; to be run in a clone."""
    return f'pip install ".[{extra}]"'


def install_hint(extra: str) -> str:
    """What to do where the packages of an extra are missing: a command, and where to run it."""
    return f"{install_command(extra)} {WHERE}"


def packages_hint(*packages: str) -> str:
    """The command for packages of other projects that are in no extra."""
    return f"pip install {' '.join(packages)}"
