"""Lock files with the hashes of all files of each release: requirements/core.lock, and one for each extra.

    make lock

uv resolves the dependencies of pyproject.toml for all platforms and for every Python that tulle supports. Hashes are
those of all wheels and source archives that the package index has, so that one file serves all platforms; no address of
an index is written. A lock file of an extra holds the core dependencies, too.

torch has no lock file: its builds for the CPU alone are in an index of their own, with other files under the same
version, and the default ones pull gigabytes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
EXTRAS = ("tables", "dask", "federated", "flower")

_HEADER = """\
# Made by `make lock` from pyproject.toml{of}. Do not edit.
# Install: pip install --require-hashes -r requirements/{name}.lock && pip install --no-deps .
"""


def lock_file(extra: str | None = None) -> Path:
    """Where the lock file of the core dependencies, or of an extra, is."""
    return FOLDER / f"{extra or 'core'}.lock"


def make(extra: str | None = None) -> str:
    """The text of a lock file."""
    import uv

    required = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    oldest = re.sub(r"[^0-9.]", "", required)
    words = ["pip", "compile", "pyproject.toml", "--generate-hashes", "--universal", "--python-version", oldest]
    words += ["--no-header", "--no-emit-index-url", "--no-emit-find-links", "--quiet"]
    words += [] if extra is None else ["--extra", extra]
    # Settings of the machine must not get into the file: no configuration, no local folders of wheels.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_"))}
    done = subprocess.run(
        [uv.find_uv_bin(), "--no-config", *words], cwd=ROOT, env=clean, check=True, stdout=subprocess.PIPE, text=True
    )
    body = re.sub(r" \(pyproject\.toml\)$", "", done.stdout, flags=re.M).rstrip() + "\n"
    return _HEADER.format(of="" if extra is None else f", with the extra {extra}", name=extra or "core") + body


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for extra in (None, *EXTRAS):
        lock_file(extra).write_text(make(extra), encoding="utf-8")
        print(lock_file(extra).relative_to(ROOT), file=sys.stderr)


if __name__ == "__main__":
    main()
