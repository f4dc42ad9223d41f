"""Phrases that the style of this project rules out, and where they occur in pages, docstrings and messages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

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
    page = re.sub(r"`[^`\n]*`", "", page)
    return re.sub(r"\]\([^)]*\)", "]", page)


def strings(source: str) -> Iterator[str]:
    """Docstrings and messages: the texts of a Python file that have several words."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield re.sub(r"`[^`\n]*`", "", node.value)


def count_phrases(text: str) -> dict[str, int]:
    """How often each phrase occurs, over line ends and in upper or lower case."""
    joined = " ".join(text.split())
    return {name: len(re.findall(pattern, joined, re.I)) for name, pattern in PHRASES.items()}


def prose_of(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return without_code(text) if path.suffix == ".md" else "\n\n".join(strings(text))
