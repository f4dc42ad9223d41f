"""The README as a package index shows it, where relative links and pictures lead nowhere."""

from __future__ import annotations

import re
import tomllib

from pages import BLOCK, ROOT


def long_description() -> str:
    """The README as the build makes it: with the substitutions of pyproject.toml, in their order."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for one in settings["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(one["pattern"], one["replacement"], text)
    return text


def find_relative_links(text: str) -> list[str]:
    """Links and pictures of a page, in Markdown or HTML, that have no address of their own."""
    outside = BLOCK.sub("", text)
    found = re.findall(r"\]\((?!https?://)[^)]*\)|^\[[^\]]+\]: (?!https?://)\S+", outside, re.M)
    return found + re.findall(r"""(?:src|srcset|href)=["']?(?!https?://)[^"'> ]+""", outside)
