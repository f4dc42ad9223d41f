"""The notebooks of the gallery: executed as they are, readable without a kernel, and turned into pages.

Executing them again is left to tests/clone/test_gallery_runs.py.
"""

from __future__ import annotations

import ast
import base64
import copy
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pages import ROOT, loaded
from prose import count_phrases, without_code

FOLDER = ROOT / "docs" / "gallery"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
RUN = loaded("docs/execute_notebooks.py")
PAGES = loaded("docs/notebook_pages.py")
MOST_BYTES = 150_000
# What the extra "gallery" installs, and what is imported of Python itself.
ALLOWED = {"matplotlib", "numpy", "pandas", "sklearn", "tulle", "warnings"}

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def outputs(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [output for cell in RUN.code_cells(notebook) for output in cell["outputs"]]


def prose(notebook: dict[str, Any]) -> str:
    return "\n\n".join(RUN.source(cell) for cell in notebook["cells"] if cell["cell_type"] == "markdown")


def faults(notebook: dict[str, Any]) -> list[str]:
    """What shows that a notebook was not executed as it is, from the first cell to the last."""
    counts = [cell["execution_count"] for cell in RUN.code_cells(notebook)]
    found = [] if counts == list(range(1, len(counts) + 1)) else [f"executed in the order {counts}"]
    if notebook["metadata"].get("tulle", {}).get("executed") != RUN.digest(notebook):
        found.append("a cell was edited after the last execution: run make gallery")
    if any(output["output_type"] == "error" or output.get("name") == "stderr" for output in outputs(notebook)):
        found.append("an error or a warning")
    return found


def test_there_are_seven() -> None:
    assert len(NOTEBOOKS) == 7


@each
def test_it_was_executed_as_it_is(path: Path) -> None:
    notebook = RUN.read(path)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len(RUN.code_cells(notebook)) >= 5
    assert faults(notebook) == []


def test_an_edited_or_skipped_cell_is_noticed() -> None:
    notebook = RUN.read(NOTEBOOKS[0])
    edited, skipped, failed = (copy.deepcopy(notebook) for _ in range(3))
    RUN.code_cells(edited)[2]["source"] = ["epsilon = 2\n"]
    RUN.code_cells(skipped)[2]["execution_count"] = None
    RUN.code_cells(failed)[2]["outputs"] = [{"output_type": "stream", "name": "stderr", "text": "warning"}]
    assert "edited" in faults(edited)[0]
    assert "order" in faults(skipped)[0]
    assert faults(failed) == ["an error or a warning"]
    # A word of the text may be corrected without executing anything.
    notebook["cells"][0]["source"] = ["# Another title\n"]
    assert faults(notebook) == []


@each
def test_its_code_parses_and_needs_the_extra_alone(path: Path) -> None:
    trees = [ast.parse(RUN.source(cell)) for cell in RUN.code_cells(RUN.read(path))]
    names = {name for tree in trees for node in ast.walk(tree) for name in _imported(node)}
    assert {name.partition(".")[0] for name in names} <= ALLOWED


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


@each
def test_it_has_pictures_of_moderate_size_in_words(path: Path) -> None:
    """Each is a PNG, and its cell says what it shows, for those who cannot see it."""
    page = PAGES.page_of(path.stem)
    assert page.pictures
    for name, content in page.pictures.items():
        assert content.startswith(b"\x89PNG"), name
        assert len(content) < MOST_BYTES, name
    alts = [cell["metadata"]["alt"] for cell in RUN.code_cells(RUN.read(path)) if "alt" in cell["metadata"]]
    assert len(alts) == len(page.pictures)
    assert min(map(len, alts)) > 60


@each
def test_its_outputs_are_those_of_any_machine(path: Path) -> None:
    """No path, no address of an object, no time of day."""
    text = json.dumps([*outputs(RUN.read(path))], ensure_ascii=False)
    text = re.sub(r'"image/png": "[^"]*"', "", text)
    assert not re.search(r"/(home|root|tmp|work|opt|usr)/|site-packages|0x[0-9a-f]{6}|\d\d:\d\d:\d\d", text)


@each
def test_it_tells_cost_and_accuracy_and_leads_on(path: Path) -> None:
    """A report or its bill is shown, there is a fit without privacy, and the last cell has links to pages."""
    notebook = RUN.read(path)
    code = "\n".join(map(RUN.source, RUN.code_cells(notebook)))
    assert re.search(r"\.privacy_|\.privacy\.bill", code)
    assert re.search(r"fit(_here)?\(None|epsilon=None|Classifier\(None", code)
    last = RUN.source(notebook["cells"][-1])
    assert last.startswith("## Take away") or "\n## Take away" in last
    assert len(re.findall(r"\]\(\.\./\w+\.md", last)) >= 3


@each
def test_its_links_lead_somewhere(path: Path) -> None:
    """Sections are checked by the build of the pages."""
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose(RUN.read(path)))
    assert [link for link in links if not (FOLDER / link).resolve().is_file()] == []


@each
def test_its_prose_keeps_to_the_style(path: Path) -> None:
    assert {name: count for name, count in count_phrases(without_code(prose(RUN.read(path)))).items() if count} == {}


def test_the_gallery_lists_every_notebook_once() -> None:
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert sorted(PAGES.ENTRY.findall(page)) == [path.stem for path in NOTEBOOKS]
    shown = PAGES.on_page_markdown(page, SimpleNamespace(file=SimpleNamespace(src_uri="gallery.md")))
    for path in NOTEBOOKS:
        made = PAGES.page_of(path.stem)
        assert f"[![](gallery/{path.stem}_1.png)**{made.title}**](gallery/{path.stem}.md)" in shown
        assert made.sentence.endswith(".")
        assert 60 < len(made.sentence) < 220


# --- the conversion to a page ----------------------------------------------------------------------------------------


def a_notebook(*cells: dict[str, Any]) -> dict[str, Any]:
    first = {"cell_type": "markdown", "source": ["# Title\n", "\n", "One sentence.\n", "\n", "More."]}
    return {"cells": [first, *cells]}


def a_code_cell(*outputs: dict[str, Any], source: str = "x = 1", **metadata: str) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "metadata": metadata, "outputs": list(outputs)}


PICTURE = {"output_type": "display_data", "data": {"image/png": base64.b64encode(b"\x89PNG").decode()}}


def test_cells_become_blocks_in_their_order() -> None:
    printed = {"output_type": "stream", "name": "stdout", "text": ["1 < 2\n"]}
    value = {"output_type": "execute_result", "data": {"text/plain": "'a'"}}
    page = PAGES.convert(a_notebook(a_code_cell(printed, value, PICTURE, alt="A line.")), "name")
    assert (page.title, page.sentence) == ("Title", "One sentence.")
    assert page.pictures == {"name_1.png": b"\x89PNG"}
    assert page.markdown.split("\n\n") == [
        "# Title",
        "One sentence.",
        "More.",
        "```python\nx = 1\n```",
        '<pre class="output"><code>1 &lt; 2</code></pre>',
        "<pre class=\"output\"><code>'a'</code></pre>",
        "![A line.](name_1.png)",
        "[name.ipynb](name.ipynb): this page as a notebook, to run and to change.",
    ]


def test_a_fence_is_longer_than_those_within() -> None:
    assert PAGES.fenced("print('````')", "python") == "`````python\nprint('````')\n`````"


def test_printed_blank_lines_do_not_end_the_block() -> None:
    assert "\n\n" not in PAGES.plain("one\n\n\ntwo\n")


def test_tables_lose_their_own_style() -> None:
    """The pages' style is for tables without a class; a heading without words is none for a screen reader."""
    given = (
        '<div>\n<style scoped>\n .x {}\n</style>\n<table border="1" class="dataframe">\n'
        '  <tr style="text-align: right;">\n    <th></th><th>a</th></tr>\n</table>\n</div>'
    )
    made = '<div class="output"><div><table><tr><td></td><th>a</th></tr></table></div></div>'
    assert PAGES.tables(given) == made


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (a_code_cell({"output_type": "error", "ename": "ValueError"}), "ValueError"),
        (a_code_cell(PICTURE), "alt"),
    ],
)
def test_errors_and_pictures_without_words_stop_the_build(cell: dict[str, Any], message: str) -> None:
    with pytest.raises(PAGES.NotebookError, match=message):
        PAGES.convert(a_notebook(cell), "name")


def test_a_missing_notebook_or_title_stops_the_build() -> None:
    with pytest.raises(PAGES.NotebookError, match="no notebook"):
        PAGES.entry("no_such_notebook")
    with pytest.raises(PAGES.NotebookError, match="heading"):
        PAGES.convert({"cells": [{"cell_type": "markdown", "source": "text"}]}, "name")


def test_links_to_notebooks_lead_to_their_pages() -> None:
    def on_page(name: str, text: str) -> str:
        return PAGES.on_page_markdown(text, SimpleNamespace(file=SimpleNamespace(src_uri=name)))

    assert on_page("index.md", "[a](gallery/text.ipynb)") == "[a](gallery/text.md)"
    assert on_page("gallery/text.md", "[text.ipynb](text.ipynb)") == "[text.ipynb](text.ipynb)"


# --- executed notebooks -----------------------------------------------------------------------------------------------


def test_times_and_versions_are_left_out() -> None:
    cell = a_code_cell({**PICTURE, "data": {**PICTURE["data"], "text/plain": "<Figure>"}, "metadata": {"a": 1}})
    notebook = a_notebook(cell) | {"metadata": {"language_info": {"name": "python", "version": "3.11.7"}}}
    made = RUN.normalised(notebook)
    assert "version" not in json.dumps(made)
    assert made["cells"][1]["id"] == "cell-01"
    assert made["cells"][1]["outputs"][0]["data"] == PICTURE["data"]
    assert made["metadata"]["tulle"]["executed"] == RUN.digest(notebook)


def test_a_warning_stops_the_execution() -> None:
    cell = a_code_cell({"output_type": "stream", "name": "stderr", "text": ["a warning"]})
    with pytest.raises(RUN.GalleryError, match="a warning"):
        RUN.normalised(a_notebook(cell))
