"""Phrases that the style rules out do not come back: in pages, docstrings and messages."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pages import PAGES, ROOT
from prose import PHRASES, count_phrases, prose_of, strings, without_code

# The most that may occur, in pages and in code. The aim is 0: lower a number when the text gets better, never raise it.
LIMITS = {
    # One row of the table of log fields in docs/operations.md, which repeats src/tulle/monitoring/log_events.py.
    "pages": {"what is": 1},
    "pages on audits": {"what is": 9, "nobody": 1, "whatever": 4, "but for": 2, "nothing but": 2},
    "code": {
        "what is": 228,
        "nobody": 36,
        "whatever": 76,
        "of ours": 5,
        "anew": 26,
        "at hand": 5,
        "but for": 20,
        "nothing but": 15,
        "is had": 5,
        "everybody": 9,
        "somebody": 12,
    },
}
AUDITS = [ROOT / "docs/audit.md", ROOT / "docs/proofs/audit.md"]
# The changelog is history; tables of results are written by `tulle reproduce`.
HISTORY = [page for page in PAGES if page.name == "CHANGELOG.md" or page.match("results/*/table.md")]
FILES = {
    "pages": [page for page in PAGES if page not in (*AUDITS, *HISTORY)],
    "pages on audits": AUDITS,
    "code": sorted((ROOT / "src").rglob("*.py")),
}


def where(phrase: str, files: list[Path]) -> list[str]:
    counts = {file.relative_to(ROOT).as_posix(): count_phrases(prose_of(file))[phrase] for file in files}
    return [f"{file}: {count}" for file, count in counts.items() if count]


@pytest.mark.parametrize("kind", FILES)
def test_phrases_stay_within_their_limits(kind: str) -> None:
    total: Counter[str] = Counter()
    for file in FILES[kind]:
        total.update(count_phrases(prose_of(file)))
    above = {name: where(name, FILES[kind]) for name in PHRASES if total[name] > LIMITS[kind].get(name, 0)}
    assert above == {}


def test_phrases_are_found_in_prose_only() -> None:
    page = "Whoever reads\nwhat\nis held, beside.\n\n```py\nbeside = 1\n```\n\n`nobody` [x](beside.md). What is it?\n"
    counts = count_phrases(without_code(page))
    assert {name: count for name, count in counts.items() if count} == {"whoever": 1, "what is": 1, "beside": 1}
    code = 'beside = 1  # beside\ndef f():\n    """What is done, whatever comes."""\n    raise Oh("nobody asked")\n'
    found = count_phrases("\n".join(strings(code)))
    assert {name: count for name, count in found.items() if count} == {"what is": 1, "whatever": 1, "nobody": 1}
