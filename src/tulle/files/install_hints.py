"""How tulle and its extras are installed: the one place that says it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

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


def import_optional(module: str, needs: str, hint: str) -> Any:
    """A module of an optional package; where it is missing, an `ImportError` that says what to install.

    Parameters
    ----------
    module : str
        Such as "matplotlib.pyplot".
    needs : str
        The beginning of the message, such as "plots need matplotlib".
    hint : str
        Of `install_hint` or `packages_hint`.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{needs}: {hint}", name=error.name) from error


def import_pandas() -> Any:
    """pandas, for tables that are returned as a DataFrame."""
    return import_optional("pandas", "a DataFrame needs pandas", packages_hint("pandas"))


def import_pyplot() -> Any:
    """`matplotlib.pyplot`."""
    return import_optional("matplotlib.pyplot", "plots need matplotlib", install_hint("plot"))


def packages_hint(*packages: str) -> str:
    """The command for packages of other projects that are in no extra."""
    return f"pip install {' '.join(packages)}"
