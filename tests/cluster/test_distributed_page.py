"""The page on clusters runs as printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import ROOT
from test_doc_blocks import run_page


def test_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster that the page itself starts and stops."""
    monkeypatch.chdir(tmp_path)
    run_page(ROOT / "docs" / "distributed.md")
