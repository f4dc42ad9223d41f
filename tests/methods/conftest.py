"""Fixtures for the tests of this folder."""

from __future__ import annotations

from typing import Any

import pytest

import tulle.trusted.fit


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to make a generator fails the test."""

    def refuse(*arguments: Any) -> Any:
        raise AssertionError("the error came after noise was drawn")

    monkeypatch.setattr(tulle.trusted.fit, "keyed_generator", refuse)
