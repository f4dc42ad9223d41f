"""The notebooks of the gallery, executed by a fresh kernel, have the outputs that are stored in them.

Run by `make test-extras`; needs the extra gallery.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import ROOT, loaded

NOTEBOOKS = sorted((ROOT / "docs" / "gallery").glob("*.ipynb"))
RUN = loaded("docs/execute_notebooks.py")
PAGES = loaded("docs/notebook_pages.py")
# Other processors and other versions of numpy or scipy round sums in another order.
RELATIVE, ABSOLUTE = 0.02, 0.005
NUMBER = re.compile(r"(?<![\w.])[-−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


def texts(notebook: dict[str, Any]) -> list[str]:
    """What each cell printed or returned, without pictures and without the version of tulle."""
    found = []
    for cell in RUN.code_cells(notebook):
        for output in cell["outputs"]:
            data = output.get("data", {})
            text = "".join(output.get("text", data.get("text/html", data.get("text/plain", ""))))
            found.append(re.sub(r"tulle \d+\.\d+\.\d+", "tulle", text))
    return found


def differences(stored: list[str], made: list[str]) -> list[str]:
    """Outputs whose words differ, or whose numbers differ by more than rounding."""
    if len(stored) != len(made):
        return [f"{len(made)} outputs in place of {len(stored)}"]
    found = []
    for old, new in zip(stored, made):
        ours, theirs = (
            np.array([float(n.replace(",", "").replace("−", "-")) for n in NUMBER.findall(text)]) for text in (old, new)
        )
        same_words = NUMBER.sub("#", old) == NUMBER.sub("#", new)
        if not same_words or not np.allclose(ours, theirs, rtol=RELATIVE, atol=ABSOLUTE):
            found.append(f"{old}\n---\n{new}")
    return found


def pixels(content: bytes) -> Any:
    from matplotlib.image import imread

    return imread(io.BytesIO(content), format="png")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_second_execution_has_the_same_outputs(path: Path) -> None:
    pytest.importorskip("nbclient", reason="the extra gallery is not installed")
    stored, made = RUN.read(path), RUN.executed(path)
    assert differences(texts(stored), texts(made)) == []
    before, after = (PAGES.convert(notebook, path.stem).pictures for notebook in (stored, made))
    assert list(before) == list(after)
    for name, content in before.items():
        old, new = pixels(content), pixels(after[name])
        # Fonts and margins differ between versions of matplotlib; another curve would change more.
        assert old.shape == new.shape, name
        assert np.mean(np.abs(old - new)) < 0.02, name


def test_other_words_and_other_numbers_are_noticed() -> None:
    assert differences(["ε = 1, error 0.1234"], ["ε = 1, error 0.1235"]) == []
    assert differences(["ε = 1, error 0.1234"], ["ε = 1, error 0.1434"]) != []
    assert differences(["10,000 rows"], ["10,500 rows"]) != []
    assert differences(["−1.5"], ["1.5"]) != []
    assert differences(["a"], ["b"]) != []
    assert differences(["a"], []) != []
