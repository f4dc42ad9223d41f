"""The core dependencies are installed from the lock file, with their hashes, into an empty environment.

Run by `make test-extras`; a minute or two.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import ROOT

LOCK = ROOT / "requirements" / "core.lock"


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [str(word) for word in words], env=kept, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The interpreter of an environment without packages; deleted afterwards, since it grows to half a gigabyte."""
    folder = tmp_path_factory.mktemp("locked") / "environment"
    done = run(sys.executable, "-m", "venv", folder)
    assert done.returncode == 0, done.stdout
    yield folder / "bin" / "python"
    shutil.rmtree(folder)


def test_a_changed_hash_is_refused(python: Path, tmp_path: Path) -> None:
    """Of one package: nothing is installed."""
    text = LOCK.read_text(encoding="utf-8")
    start = text.index("threadpoolctl==")
    block = text[start : text.index("# via", start)]
    changed = re.sub("sha256:.", lambda found: "sha256:" + ("0" if found[0][-1] != "0" else "1"), block)
    (tmp_path / "core.lock").write_text(changed, encoding="utf-8")
    done = run(python, "-m", "pip", "install", "--require-hashes", "--quiet", "-r", tmp_path / "core.lock")
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stdout
    assert run(python, "-c", "import threadpoolctl").returncode != 0


def test_the_lock_file_installs_and_tulle_runs(python: Path) -> None:
    words = ("--require-hashes", "--only-binary", ":all:", "--quiet", "-r", LOCK)
    done = run(python, "-m", "pip", "install", *words)
    assert done.returncode == 0, done.stdout[-3000:]
    # The version is in the code: nothing is built, and no build tool fetched.
    source = str(ROOT / "src")
    code = f"import sys; sys.path.insert(0, {source!r}); from tulle.cli import main; sys.exit(main(sys.argv[1:]))"
    done = run(python, "-c", code, "account", "cost", "--delta", "1e-5", "gaussian:8x10")
    assert done.returncode == 0, done.stdout
