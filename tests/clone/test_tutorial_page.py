"""The tutorial runs as printed, its outputs and its Python blocks included.

Run by `make test-extras`, with the same commands in a fresh clone.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import ROOT
from test_doc_blocks import run_page


def test_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(ROOT / "docs" / "tutorial.md")
