"""A planted bug, as tests/mutants.py plants it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One planted bug.

    Attributes
    ----------
    name : str
    history : str
        Where this bug was met: a paper, a library, a class of code.
    file : str
        The patched file, relative to the package.
    old, new : str
        The patch; `old` occurs exactly once in the file.
    tests : tuple of str
        The tests that must catch it (pytest node ids).
    needs : str
        A package of an extra without which these tests cannot run; "" for none.
    """

    name: str
    history: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    needs: str = ""
