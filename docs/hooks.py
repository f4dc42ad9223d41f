"""What the pages take from the code when they are built, so that they cannot drift from it.

- ``<!-- code: src/tulle/methods/frank_wolfe.py :: FrankWolfe.run -->`` becomes the source of that file, class or
  function, folded;
- ``<!-- api: tulle.methods -->``, or ``<!-- api: tulle.reports.report: About, BillLine -->`` with names, becomes the
  reference of a module's public names, from their docstrings;
- ``<!-- api index -->`` becomes the list of all names that the pages of docs/api have, with the first sentence of each;
- ``<!-- commands -->`` becomes the reference of the command line, from its parser;
- ``<!-- results: dp-ight-table3 -->`` becomes the picture and the tables that ``tulle reproduce`` wrote into
  docs/results/dp-ight-table3.

A file, symbol or name that is not there, or a public name without a docstring, stops the build.
"""

from __future__ import annotations

import argparse
import ast
import html
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

ROOT = Path(__file__).resolve().parent.parent
CODE = re.compile(r"<!-- code: (?P<file>\S+)(?: :: (?P<symbol>\S+))? -->")
API = re.compile(r"<!-- api: (?P<module>[\w.]+)(?:: (?P<names>[\w, ]+))? -->")
API_INDEX = "<!-- api index -->"
COMMANDS = "<!-- commands -->"
RESULTS = re.compile(r"<!-- results: (?P<name>[\w-]+) -->")


class DocumentationError(ValueError):
    """A page names something that is not there, or that has no description."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """References become headings and text before the page is read, so that they are in its table of contents."""
    markdown = API.sub(lambda match: reference(match["module"], match["names"]), markdown)
    markdown = RESULTS.sub(lambda match: results(match["name"]), markdown)
    markdown = markdown.replace(API_INDEX, reference_index()) if API_INDEX in markdown else markdown
    return markdown.replace(COMMANDS, command_reference()) if COMMANDS in markdown else markdown


def on_page_content(html_of_page: str, **_: Any) -> str:
    """Source comes last: nothing in it may be taken for Markdown."""
    return CODE.sub(lambda match: folded_source(match["file"], match["symbol"]), html_of_page)


def on_post_page(output: str, **_: Any) -> str:
    """The theme's search is a dialog without a name."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


# --- results ----------------------------------------------------------------------------------------------------------


def results(name: str) -> str:
    """The picture and the tables of an experiment, for a page in docs/results/."""
    folder = ROOT / "docs" / "results" / name
    if not (folder / "table.md").is_file():
        raise DocumentationError(f"there are no results of {name}: run `tulle reproduce {name} -o docs/results`")
    title, _, rest = (folder / "table.md").read_text(encoding="utf-8").partition("\n")
    files = {"the same as one page": "page.html", "every fit": "results.csv", "settings": "reproduction.json"}
    links = ", ".join(f"[{words}]({name}/{file})" for words, file in files.items())
    return f"![{title.lstrip('# ')}]({name}/figure.svg)\n\n{rest.strip()}\n\n{links}"


# --- source ----------------------------------------------------------------------------------------------------------


def source_of(file: str, symbol: str | None = None) -> str:
    """The text of a file of the repository, or of one class, function or method in it."""
    path = ROOT / file
    if not path.is_file():
        raise DocumentationError(f"there is no file {file}")
    text = path.read_text(encoding="utf-8")
    if symbol is None:
        return text
    body: list[ast.stmt] = ast.parse(text).body
    for name in symbol.split("."):
        found = [node for node in body if getattr(node, "name", None) == name]
        if not found:
            raise DocumentationError(f"{file} has no {symbol}")
        node: Any = found[0]
        body = node.body
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return textwrap.dedent("\n".join(text.splitlines()[first - 1 : node.end_lineno]) + "\n")


def folded_source(file: str, symbol: str | None) -> str:
    name = f"{file} · {symbol}" if symbol else file
    text = source_of(file, symbol)
    return (
        f"<details class='source'><summary>The code: <code>{html.escape(name)}</code>, {len(text.splitlines())} lines"
        f"</summary>{coloured(text)}</details>"
    )


def coloured(source: str, language: str = "python") -> str:
    """Source as HTML in the colours of the pages' own blocks."""
    return highlight(source, get_lexer_by_name(language), HtmlFormatter(cssclass="highlight", wrapcode=True))


# --- reference -------------------------------------------------------------------------------------------------------


def public_names(module: ModuleType) -> list[str]:
    """`__all__`, or else the classes and functions that are written in the module; data and the version are not."""
    named = getattr(module, "__all__", None)
    if named is None:
        named = [name for name, thing in vars(module).items() if getattr(thing, "__module__", None) == module.__name__]
    return [
        name
        for name in sorted(named, key=str.lower)
        if not name.startswith("_") and (inspect.isclass(getattr(module, name)) or callable(getattr(module, name)))
    ]


def reference(module_name: str, names: str | None = None) -> str:
    """A module's public names with signature, parameters, attributes and examples, as Markdown with HTML in it."""
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        raise DocumentationError(f"there is no module {module_name}") from missing
    entries = []
    for name in selected_names(module, names):
        if not hasattr(module, name):
            raise DocumentationError(f"{module_name} has no {name}")
        entries.append(entry(f"{module_name}.{name}", getattr(module, name)))
    return "\n\n".join(entries)


def reference_pages() -> list[str]:
    """The names of the pages in docs/api, in the order of the navigation."""
    return re.findall(r"api/(\w+)\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)


def reference_index() -> str:
    """Every name of the reference with a link to it, by page."""
    parts = []
    for page in reference_pages():
        text = (ROOT / "docs" / "api" / f"{page}.md").read_text(encoding="utf-8")
        title = text.partition("\n")[0].removeprefix("# API: ")
        parts.append(f"## {title}\n\n[API: {title}](api/{page}.md)")
        lines: dict[str, list[str]] = {}
        for match in API.finditer(text):
            module = importlib.import_module(match["module"])
            lines.setdefault(module.__name__, []).extend(
                f"- [`{name}`](api/{page}.md#{module.__name__}.{name}): {first_sentence(getattr(module, name))}"
                for name in selected_names(module, match["names"])
            )
        parts += [f"`{module}`\n\n" + "\n".join(found) for module, found in lines.items()]
    return "\n\n".join(parts)


def first_sentence(thing: Any) -> str:
    """The first sentence of a docstring as Markdown: characters outside code that Markdown would read are escaped."""
    words = " ".join(own_docstring(thing).partition("\n\n")[0].split())
    sentence = re.split(r"(?<=\.) (?=[A-Z])", words)[0]
    parts = re.split(r"(`+[^`]+`+)", sentence)
    return "".join(part if part.startswith("`") else re.sub(r"([*_\[\]<])", r"\\\1", part) for part in parts)


def selected_names(module: ModuleType, names: str | None) -> list[str]:
    """The names that a page asks for, or all public ones."""
    return [name.strip() for name in names.split(",")] if names else public_names(module)


def entry(path: str, thing: Any) -> str:
    text = own_docstring(thing)
    if not text:
        raise DocumentationError(f"{path} has no docstring")
    blocks = [f"### {path.rpartition('.')[2]}", f'<a id="{path}"></a>', signature(path, thing), rendered(text)]
    if inspect.isclass(thing):
        blocks += [
            f'<div class="member">{signature(name, member, "")}{rendered(inspect.getdoc(member) or "")}</div>'
            for name, member in documented_methods(thing)
        ]
    return "\n\n".join(blocks)


def own_docstring(thing: Any) -> str:
    """The docstring of this class or function; dataclass puts a signature where nothing is written."""
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return ""  # a value shows the docstring of its type
    text = inspect.cleandoc(getattr(thing, "__doc__", None) or "")
    return "" if inspect.isclass(thing) and text.startswith(f"{thing.__name__}(") else text


def documented_methods(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods that classes of this library define and describe."""
    for name, member in inspect.getmembers(cls, inspect.isroutine):
        home = getattr(member, "__module__", None) or ""
        if not name.startswith("_") and home.startswith("tulle") and own_docstring(member):
            yield name, member


def signature(path: str, thing: Any, tag: str = "class") -> str:
    try:
        parameters = list(inspect.signature(thing).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    shown, keyword_only = [], False
    for parameter in parameters:
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            if not any(other.kind is other.VAR_POSITIONAL for other in parameters):
                shown.append("*")
        default = "" if parameter.default is parameter.empty else f"={_shown(parameter.default)}"
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        shown.append(f"{stars}{parameter.name}{default}")
    kind = "class " if tag and inspect.isclass(thing) else ""
    return f'<p class="signature"><code>{kind}<b>{path}</b>({html.escape(", ".join(shown))})</code></p>'


def _shown(default: Any) -> str:
    # An object's own text may hold an address, which is another one in every build.
    return "…" if re.search(r" at 0x|<", repr(default)) else repr(default)


SECTION = re.compile(r"^(?P<name>[A-Z][A-Za-z ]+)\n-{3,}\n", re.M)
FIELDS = {"Parameters", "Attributes", "Returns", "Yields", "Raises", "Other Parameters"}


def rendered(docstring: str) -> str:
    """A docstring in numpy's style as HTML."""
    pieces = SECTION.split(inspect.cleandoc(docstring))
    parts = [paragraphs(pieces[0])]
    for name, body in zip(pieces[1::2], pieces[2::2]):
        parts.append(f'<p class="part">{name}</p>')
        parts.append(fields(body) if name in FIELDS else paragraphs(body))
    return "".join(parts)


def fields(body: str) -> str:
    """A list of parameters: names on the margin, what they mean below."""
    parts: list[str] = []
    for block in re.split(r"\n(?=\S)", body.strip("\n")):
        head, _, text = block.partition("\n")
        name, colon, kind = head.partition(" : ")
        shown = f"<code>{html.escape(name)}</code>"
        if colon:
            shown += f' <span class="type">{inline(kind)}</span>'
        # A term needs a description, if an empty one, for readers of the page's structure.
        parts.append(f"<dt>{shown}</dt><dd>{paragraphs(textwrap.dedent(text))}</dd>")
    return f'<dl class="fields">{"".join(parts)}</dl>'


def paragraphs(text: str, code: tuple[str, ...] = ("    ",)) -> str:
    """Paragraphs, lists and examples; blocks whose lines all start as `code` says are code."""
    parts = []
    for block in re.split(r"\n\s*?\n", text.strip("\n")):
        if not block.strip():
            continue
        if block.lstrip().startswith(">>>") or all(line.startswith(code) for line in block.splitlines()):
            language = "pycon" if block.lstrip().startswith(">>>") else "text"
            parts.append(coloured(textwrap.dedent(block), language).strip().replace("`", "&#96;"))
        elif block.startswith("- "):
            items = re.split(r"\n(?=- )", block)
            parts.append("<ul>" + "".join(f"<li>{inline(item[2:])}</li>" for item in items) + "</ul>")
        else:
            parts.append(f"<p>{inline(block)}</p>")
    return "".join(parts)


def inline(text: str) -> str:
    words = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"(`{1,2})(.+?)\1", r"<code>\2</code>", words)


# --- command line ----------------------------------------------------------------------------------------------------


def command_reference() -> str:
    """Every command with its options, in the order in which the program lists them."""
    from tulle.cli.command_runner import parser

    (commands,) = (action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    return "\n\n".join(command(name, one) for name, one in commands.choices.items())


def command(name: str, parser: argparse.ArgumentParser, level: int = 3) -> str:
    """One command with its options, and its subcommands below it."""
    if not parser.description:
        raise DocumentationError(f"the command {name} has no description")
    usage = html.escape(" ".join(parser.format_usage().removeprefix("usage: ").split()))
    blocks = [
        f"{'#' * level} tulle {name}",
        f'<p class="signature"><code>{usage}</code></p>',
        # The formatter takes the indentation away where examples are all there is below the first line.
        paragraphs(parser.description, code=("  ", "tulle ")),
    ]
    rows, nested = [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help for choice in action._choices_actions}
            for sub, one in action.choices.items():
                one.description = one.description or summaries.get(sub)
                nested.append(command(f"{name} {sub}", one, level + 1))
        elif not isinstance(action, argparse._HelpAction) and action.help != argparse.SUPPRESS:
            rows.append(option(action, parser))
    if rows:
        blocks.append(f'<dl class="fields">{"".join(rows)}</dl>')
    return "\n\n".join([*blocks, *nested])


def option(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    value = ""
    if action.choices is not None:
        value = html.escape("{" + ",".join(map(str, action.choices)) + "}")
    elif action.nargs != 0:
        value = html.escape(str(action.metavar or action.dest.upper()))
    shown = ", ".join(f"<code>{name}</code>" for name in action.option_strings) or f"<code>{value}</code>"
    required = "required" if action.option_strings and action.required else ""
    kind = ", ".join(part for part in (value if action.option_strings else "", required) if part)
    meaning = (action.help or "") % {**vars(action), "prog": parser.prog}
    return f'<dt>{shown} <span class="type">{kind}</span></dt><dd>{inline(meaning)}</dd>'
