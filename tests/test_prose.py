"""Phrases that the style rules out do not come back: in pages, docstrings, messages and comments."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pages import PAGES, ROOT
from prose import PHRASES, comments, count_phrases, prose_of, strings, without_code

# The most that may occur. The aim is 0: lower a number when the text gets better, never raise it.
LIMITS: dict[str, dict[str, int]] = {
    "pages": {},
    "code": {
        "of ours": 7,
        "anew": 31,
        "hangs on": 1,
        "at hand": 5,
        "but for": 1,
        "nothing but": 13,
        "is had": 4,
        "everybody": 12,
        "somebody": 31,
    },
    "scripts": {"anew": 3, "nothing but": 2},
}
# The changelog is history; tables of results are written by `tulle reproduce`.
HISTORY = [page for page in PAGES if page.name == "CHANGELOG.md" or page.match("results/*/table.md")]
FILES = {
    "pages": [page for page in PAGES if page not in HISTORY],
    "code": sorted((ROOT / "src").rglob("*.py")),
    "scripts": sorted(path for folder in ("benchmarks", "docs", "examples") for path in (ROOT / folder).rglob("*.py")),
}


def where(phrase: str, files: list[Path]) -> list[str]:
    counts = {file.relative_to(ROOT).as_posix(): count_phrases(*prose_of(file))[phrase] for file in files}
    return [f"{file}: {count}" for file, count in counts.items() if count]


@pytest.mark.parametrize("kind", FILES)
def test_phrases_stay_within_their_limits(kind: str) -> None:
    total: Counter[str] = Counter()
    for file in FILES[kind]:
        total.update(count_phrases(*prose_of(file)))
    above = {name: where(name, FILES[kind]) for name in PHRASES if total[name] > LIMITS[kind].get(name, 0)}
    assert above == {}


def test_phrases_are_found_in_prose_only() -> None:
    page = "Whoever reads\nwhat\nis held, beside.\n\n```py\nbeside = 1\n```\n\n`nobody` [x](beside.md). What is it?\n"
    counts = count_phrases(without_code(page))
    assert {name: count for name, count in counts.items() if count} == {"whoever": 1, "what is": 1, "beside": 1}
    code = 'beside = 1  # beside\ndef f():\n    """What is done, whatever comes."""\n    raise Oh("nobody asked")\n'
    found = count_phrases(*strings(code))
    assert {name: count for name, count in found.items() if count} == {"what is": 1, "whatever": 1, "nobody": 1}
    noted = count_phrases(*comments("# Tells what\n# is held; what\nx = 1  # is `nobody`\n" + code))
    assert {name: count for name, count in noted.items() if count} == {"what is": 1, "beside": 1}
