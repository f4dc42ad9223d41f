"""Phrases that the project's style rules out, and where they occur in pages, messages, docstrings and comments."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

# Inline code stands for a word.
CODE = (r"`[^`\n]*`", "_")

# Phrases by name. "what is" is counted where it stands for a thing ("tells what is held"), not where a sentence asks.
PHRASES = {
    "whoever": r"\bwhoever\b",
    "whatsoever": r"\bwhatsoever\b",
    "beside": r"\bbeside\b",
    "as it comes": r"\bas (?:it comes|they come)\b",
    "that which": r"\bthat which\b",
    "what is": r"\bwhat is\b(?![^.?!:;|]*\?)",
    "nobody": r"\bnobody\b",
    "whatever": r"\bwhatever\b",
    "of ours": r"\bof ours\b",
    "anew": r"\banew\b",
    "hangs on": r"\bhangs? on\b",
    "at hand": r"\bat hand\b",
    "but for": r"\bbut for\b",
    "nothing but": r"\bnothing but\b",
    "is had": r"\b(?:is|are|be) had\b",
    "the less of": r"\bthe less of\b",
    "everybody": r"\beverybody\b",
    "somebody": r"\bsomebody\b",
}


def without_code(page: str) -> str:
    """The prose of a Markdown page: without blocks, inline code, headings' marks and addresses of links."""
    page = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.M)
    page = re.sub(*CODE, page)
    return re.sub(r"\]\([^)]*\)", "]", page)


def strings(source: str) -> Iterator[str]:
    """Docstrings and messages: the texts of a Python file that have several words."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield re.sub(*CODE, node.value)


def comments(source: str) -> list[str]:
    """The comments of a Python file. Those that stand on consecutive lines by themselves are one text."""
    last = None
    found: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, column = token.start
        text = re.sub(*CODE, token.string.lstrip("#"))
        alone = not token.line[:column].strip()
        if alone and last == line - 1:
            found[-1] += f"\n{text}"
        else:
            found.append(text)
        last = line if alone else None
    return found


def count_phrases(*texts: str) -> Counter[str]:
    """How often each phrase occurs, over line ends and in upper or lower case."""
    joined = [" ".join(text.split()) for text in texts]
    return Counter(
        {name: sum(len(re.findall(pattern, text, re.I)) for text in joined) for name, pattern in PHRASES.items()}
    )


def prose_of(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return [without_code(text)] if path.suffix == ".md" else [*strings(text), *comments(text)]
