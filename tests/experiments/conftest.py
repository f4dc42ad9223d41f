"""Data for tests of experiments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from small_tables import forget_rows
from tiny_data import write_images


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a small file of images, named to the loaders."""
    folder = tmp_path / "data"
    folder.mkdir()
    write_images(folder)
    monkeypatch.setenv("TULLE_DATA", str(folder))
    forget_rows()
    yield folder
    forget_rows()
