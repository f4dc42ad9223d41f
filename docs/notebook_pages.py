"""Pages of the notebooks in docs/gallery, made when the documentation is built.

- ``docs/gallery/survival.ipynb`` becomes the page ``gallery/survival.md`` with its text, its code, and the outputs that
  are stored in it; its pictures become files next to the page;
- ``<!-- notebook: survival -->`` on a page becomes an entry of a list: picture, title and first sentence;
- links of other pages to a notebook lead to its page.

The notebooks are not executed here: ``make gallery`` does that.
"""

from __future__ import annotations

import base64
import html
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
FOLDER = "gallery"
ENTRY = re.compile(r"<!-- notebook: (?P<name>\w+) -->")
LINK = re.compile(rf"(\]\({FOLDER}/\w+)\.ipynb(?=[)#])")


class NotebookError(ValueError):
    """A notebook that cannot become a page."""


@dataclass
class NotebookPage:
    """The page of a notebook.

    Attributes
    ----------
    title, sentence : str
        The heading and the first paragraph, as Markdown.
    markdown : str
    pictures : dict from str to bytes
        PNG files by name, in their order on the page.
    """

    title: str
    sentence: str
    markdown: str = ""
    pictures: dict[str, bytes] = field(default_factory=dict)


def convert(notebook: dict[str, Any], name: str) -> NotebookPage:
    """Text, code and outputs of a notebook, in their order."""
    first = "".join(notebook["cells"][0]["source"])
    begin = re.match(r"# (?P<title>.+)\n\n(?P<sentence>.+)", first)
    if begin is None:
        raise NotebookError(f"{name} does not begin with a heading and a sentence")
    page = NotebookPage(begin["title"], begin["sentence"])
    blocks = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            blocks.append(source)
        elif cell["cell_type"] == "code":
            blocks.append(fenced(source, "python"))
            for output in cell["outputs"]:
                blocks.append(shown(output, cell["metadata"].get("alt"), name, page))
    blocks.append(f"[{name}.ipynb]({name}.ipynb): this page as a notebook, to run and to change.")
    page.markdown = "\n\n".join(blocks)
    return page


def fenced(text: str, language: str) -> str:
    """A block of code; its fence is longer than any within it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def shown(output: dict[str, Any], alt: str | None, name: str, page: NotebookPage) -> str:
    """One output as Markdown: a picture, a table, or text. A picture is added to the page's files."""
    if output["output_type"] == "error":
        raise NotebookError(f"{name} has an error: {output['ename']}")
    if output["output_type"] == "stream":
        return plain(output["text"])
    data = output["data"]
    if "image/png" in data:
        if not alt:
            raise NotebookError(f'{name} has a picture in a cell without "alt" in its metadata')
        file = f"{name}_{len(page.pictures) + 1}.png"
        page.pictures[file] = base64.b64decode("".join(data["image/png"]))
        return f"![{alt}]({file})"
    if "text/html" in data:
        return tables("".join(data["text/html"]))
    return plain(data["text/plain"])


def plain(text: str | list[str]) -> str:
    """Printed text, in a block that is told apart from code."""
    # A blank line would end the block of HTML.
    lines = re.sub(r"\n(?=\n)", "&#10;", html.escape("".join(text).strip("\n"), quote=False))
    return f'<pre class="output"><code>{lines}</code></pre>'


def tables(text: str) -> str:
    """HTML of pandas or of tulle, in the style of the pages' own tables: without classes, borders and style sheets."""
    text = re.sub(r"<style.*?</style>|<script.*?</script>", "", text, flags=re.DOTALL)
    text = re.sub(r"<(table|tr)\b[^>]*>", r"<\1>", text)
    text = re.sub(r"<th>\s*</th>", "<td></td>", text)  # a heading without words
    text = re.sub(r"\s*\n\s*", "", text)
    return f'<div class="output">{text}</div>'


def page_of(name: str) -> NotebookPage:
    path = DOCS / FOLDER / f"{name}.ipynb"
    if not path.is_file():
        raise NotebookError(f"there is no notebook {name}")
    return convert(json.loads(path.read_text(encoding="utf-8")), name)


def entry(name: str) -> str:
    """An entry of a list of notebooks. Picture and title are one link: the picture needs no words of its own."""
    page = page_of(name)
    picture = next(iter(page.pictures))
    return f"- [![]({FOLDER}/{picture})**{page.title}**]({FOLDER}/{name}.md)\n  <br>{page.sentence}"


# --- events of mkdocs ------------------------------------------------------------------------------------------------


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add a page for each notebook, and its pictures."""
    from mkdocs.structure.files import File

    for path in sorted((DOCS / FOLDER).glob("*.ipynb")):
        page = page_of(path.stem)
        files.append(File.generated(config, f"{FOLDER}/{path.stem}.md", content=page.markdown))
        for picture, content in page.pictures.items():
            files.append(File.generated(config, f"{FOLDER}/{picture}", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    markdown = ENTRY.sub(lambda match: entry(match["name"]), markdown)
    # The page of a notebook links to the notebook itself.
    return markdown if page.file.src_uri.startswith(f"{FOLDER}/") else LINK.sub(r"\1.md", markdown)
