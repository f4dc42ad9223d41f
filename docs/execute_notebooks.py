"""Executes the notebooks of the gallery and stores their outputs in them.

    python docs/execute_notebooks.py                 # all; needs the extra gallery
    python docs/execute_notebooks.py survival text   # some

A notebook is written back only if no cell of it raised an exception or wrote to standard error. Outputs are those of a
fresh kernel; what differs between two executions of the same cells (times, ids, versions of Python) is left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "gallery"
SECONDS_PER_CELL = 300


class GalleryError(RuntimeError):
    """A notebook that must not be published."""


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def source(cell: dict[str, Any]) -> str:
    """The text of a cell: nbformat stores it as one string or as a list of lines."""
    return "".join(cell["source"])


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def digest(notebook: dict[str, Any]) -> str:
    """The SHA-256 of all code, by which a cell that was edited and not executed again is noticed."""
    sources = json.dumps([source(cell) for cell in code_cells(notebook)], ensure_ascii=False)
    return hashlib.sha256(sources.encode()).hexdigest()


def executed(path: Path) -> dict[str, Any]:
    """The notebook with the outputs of a fresh kernel of this interpreter, which starts in an empty folder."""
    import nbformat
    from nbclient import NotebookClient
    from traitlets.config import Config

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        fixed = {
            "IPYTHONDIR": folder,  # no settings of the user's
            "JUPYTER_PREFER_ENV_PATH": "1",
            "MATPLOTLIBRC": str(FOLDER / "matplotlibrc"),
            "OMP_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
        }
        client = NotebookClient(
            notebook,
            timeout=SECONDS_PER_CELL,
            kernel_name="python3",
            config=Config(KernelManager={"transport": "ipc", "ip": f"{folder}/kernel"}),  # no port
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
        )
        client.execute(env={**os.environ, **fixed})
    return normalised(json.loads(nbformat.writes(notebook)))


def normalised(notebook: dict[str, Any]) -> dict[str, Any]:
    """Without what changes from one execution to the next, and with the digest of what was executed."""
    notebook["metadata"] = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "tulle": {"executed": digest(notebook)},
    }
    for number, cell in enumerate(notebook["cells"]):
        cell["id"] = f"cell-{number:02}"
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                raise GalleryError(f"cell {number} writes to standard error: {''.join(output['text'])}")
            if "image/png" in output.get("data", {}):
                output["data"] = {"image/png": output["data"]["image/png"]}
                output["metadata"] = {}
    return notebook


def write(notebook: dict[str, Any], path: Path) -> None:
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True)
    path.write_text(f"{text}\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="notebooks without .ipynb; none: all")
    names = parser.parse_args().names
    failed = 0
    for path in [FOLDER / f"{name}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb")):
        start = time.perf_counter()
        try:
            write(executed(path), path)
        except Exception as error:
            failed += 1
            print(f"{path.stem}: failed\n{error}", file=sys.stderr, flush=True)
            continue
        print(f"{path.stem}: {time.perf_counter() - start:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
