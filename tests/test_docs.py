"""What the README and the pages say is what the code does."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from tulle.losses import Logistic
from tulle.methods import HardThresholding
from tulle.privacy import Budget, epsilon
from tulle.public import PublicFacts

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_readme_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The ten lines of the README run as printed, learn something, and print the report."""
    exec(python_blocks()[0], {})
    out = capsys.readouterr().out
    accuracy, non_zeros = out.split()[:2]
    assert float(accuracy) > 0.8
    assert int(non_zeros) <= 1000
    assert "Privacy report" in out


def test_readme_audit_finds_the_leak(capsys: pytest.CaptureFixture[str]) -> None:
    """The leaky function of the README is found out, by far."""
    exec(python_blocks()[1], {})
    out = capsys.readouterr().out
    assert "THE CLAIM IS FALSE" in out
    assert float(re.search(r"ε >= ([\d.]+)", out)[1]) > 4  # type: ignore[index]


def test_table_of_published_noise_is_true() -> None:
    """Each row of the table in docs/hard_thresholding.md is what the accountant proves, to the digits printed."""
    rows = re.findall(
        r"^\| ([\d.]+), ([\d.e-]+) \| ([\d.]+) \| ([\d.]+) \|$", (ROOT / "docs/hard_thresholding.md").read_text(), re.M
    )
    assert len(rows) >= 5
    for claimed, delta, *printed in rows:
        budget = Budget(float(claimed), float(delta))
        public = PublicFacts(1000, 50, 5, Logistic(), budget, 1.0, 1.0, 1.0, True, as_published=True)
        for rule, figure in zip(("remark_5.3", "corollary_5.8"), printed):
            method = HardThresholding(n_iter=50, noise="gaussian", published_rule=rule)
            proved = epsilon(method.published(public, budget), budget.delta)
            digits = 3 if float(figure) < 100 else 4
            assert math.isclose(float(figure), proved, rel_tol=0.6 * 10 ** (1 - digits)), (claimed, delta, rule)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links and pictures of every page exist."""
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
