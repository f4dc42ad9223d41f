"""Every command of the README, of the session in docs/command_line.md and of the tutorial, as a new user runs it: in a
fresh clone, without a virtual environment.

Run by `make test-extras`. What is cloned is the last commit. `make test` itself is left out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from pages import BLOCK, ROOT, commands


def shell_script(page: str, kinds: tuple[str, ...] = ("console", "shell")) -> str:
    """One script of a page's commands; it stops at the first that exits otherwise than the page says.

    Parameters
    ----------
    page : str
    kinds : tuple of str
        The blocks whose commands are run. Those of kind shell are for a clone.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = []
    for kind, block in BLOCK.findall(text):
        if kind not in kinds:
            continue
        for command, code, _ in commands(block):
            if not re.match(r"make test\b", command):
                lines += [
                    f"echo {command.splitlines()[0]!r}",
                    command,
                    f"code=$?; if [ $code -ne {code} ]; then echo failed: exit $code, not {code}; exit 1; fi",
                ]
    # Commands in running text.
    for command in dict.fromkeys(re.findall(r"`(make [a-z-]+)`", text)):
        if command != "make test" and not any(line.startswith(command) for line in lines):
            lines.append(f"echo {command}; {command} || exit 1")
    return "\n".join(lines)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The last commit, as it would be fetched."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("there is no repository to clone")
    subprocess.run(["git", "clone", "--quiet", "--no-local", str(ROOT), str(tmp_path / "tulle")], check=True)
    return tmp_path / "tulle"


def run(script: str, folder: Path) -> str:
    # No virtual environment of the test's own may be found.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VIRTUAL_ENV", "PYTHON"))}
    own = str(ROOT / ".venv" / "bin")
    kept["PATH"] = os.pathsep.join(part for part in kept["PATH"].split(os.pathsep) if part != own)
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=kept, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


def test_commands_of_the_readme_and_of_the_session(clone: Path) -> None:
    """The demo; then the command line from a file of rows to a report, and the local study, in its environment."""
    readme, session = shell_script("README.md"), shell_script("docs/command_line.md", ("shell",))
    assert readme.count("make demo") == 2  # said, and run
    assert session.count("\necho ") >= 10
    assert "make local" in session
    run(f"{readme}\n{session}", clone)
    assert (clone / "build" / "demo.png").stat().st_size > 10_000
    assert "foretell a hospital stay" in (clone / "build" / "demo.html").read_text(encoding="utf-8")
    assert "The claim is false" in (clone / "build" / "leak.html").read_text(encoding="utf-8")
    report = (clone / "build" / "model" / "report.html").read_text(encoding="utf-8")
    assert "call-back list" in report
    assert "A. Smith" not in report  # who asked is in the internal form alone
    assert len((clone / "build" / "predictions.csv").read_text().splitlines()) == 501


def test_commands_of_the_tutorial(clone: Path) -> None:
    """From installing to the report."""
    script = shell_script("docs/tutorial.md")
    assert script.count("\necho ") >= 10
    run(script, clone)
    assert (clone / "models" / "first" / "report.html").exists()
