"""The page on federated studies runs as printed: simulations, a network, and a server with three clients."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import ROOT
from test_doc_blocks import run_page


def test_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Server and clients are processes of their own, which end by themselves."""
    monkeypatch.chdir(tmp_path)
    run_page(ROOT / "docs" / "federated.md")
