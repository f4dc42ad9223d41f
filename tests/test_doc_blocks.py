"""Every Python block and every command of the pages runs as printed.

The blocks of a page run in their order, in one namespace and in one folder that holds nothing but examples/: Python
here, and in blocks of kind console every line that starts with "$ " by bash. A command must exit with 0, or with the
code that its comment says (``# exit 3``); what is printed below it must be what it prints, where "..." stands for
anything. A Python block with the comment ``# warns`` must raise a PrivacyWarning, and no other may. Commands outside of
docs/ (those of README.md) are for a fresh clone.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import BLOCK, PAGES, ROOT, commands

from tulle.files.error_messages import PrivacyWarning


def blocks(page: Path) -> list[tuple[str, str]]:
    """The blocks of a page that are run: their language and their text."""
    wanted = {"python", "console"} if page.is_relative_to(ROOT / "docs") else {"python"}
    return [(kind, text) for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")) if kind in wanted]


def as_printed(expected: str, output: str) -> bool:
    """Whether an output is the expected one, in which "..." stands for anything."""
    # Line ends are not compared: a page may break a long line.
    parts = " ".join(expected.split()).split("...")
    pattern = ".*".join(r"\s+".join(map(re.escape, part.split(" "))) for part in parts)
    return re.fullmatch(rf"\s*{pattern}\s*", output, re.DOTALL) is not None


def run_commands(text: str) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    for command, code, expected in commands(text):
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env={**os.environ, "PATH": path})
        assert done.returncode == code, f"$ {command}\n{done.stdout}{done.stderr}"
        shown = done.stdout if code == 0 else done.stdout + done.stderr
        assert not expected or as_printed(expected, shown), f"$ {command}\n{shown}"


def run_python(text: str, names: dict[str, Any]) -> str:
    out = io.StringIO()
    with redirect_stdout(out), warnings.catch_warnings(record="# warns" in text) as told:
        if told is not None:
            warnings.simplefilter("always", PrivacyWarning)
        exec(compile(text, "<block>", "exec"), names)
    assert told is None or any(issubclass(one.category, PrivacyWarning) for one in told), text
    return out.getvalue()


# --- what must have come out, beyond having run ----------------------------------------------------------------------


def readme(names: dict[str, Any], out: str) -> None:
    """The model of a table learns something, pays for no bounds, and its report is printed."""
    visits, model = names["visits"], names["model"]
    assert (model.predict(visits) == visits["readmitted"]).mean() > 0.75  # about 0.65 is guessing
    assert not any("quantile" in line.release for line in model.privacy_.bill)
    assert "ε = 1, δ = 5e-06 is proved" in out


def index(names: dict[str, Any], out: str) -> None:
    """The ten lines learn something and print the report."""
    accuracy, non_zeros = out.split()[:2]
    assert float(accuracy) > 0.8
    assert int(non_zeros) <= 1000
    assert "Privacy report" in out


def knowledge_transfer(names: dict[str, Any], out: str) -> None:
    """The largest weight is found, and the answers are saved."""
    assert int(np.abs(names["weights"]).argmax()) in names["model"].support_
    assert names["data"].privacy.epsilon <= 2.0
    assert Path("answers.npz").stat().st_size > 1000


def local(names: dict[str, Any], out: str) -> None:
    """Both models find the weights; the study is set up."""
    assert {0, 1} <= set(names["labels"].support_)
    assert names["rows"].support_.tolist() == [0, 1]
    assert "weights, epsilon = 4" in out
    assert names["protocol"].dimension == 4
    assert names["server"].question
    assert callable(names["serve"])


def adding_a_method(names: dict[str, Any], out: str) -> None:
    """The new method learns, within its budget, and is attacked in vain."""
    assert names["model"].score(names["X"], names["y"]) > 0.8
    assert names["model"].privacy_.epsilon <= 1.0
    assert names["result"].epsilon <= 1.0


def tutorial(names: dict[str, Any], out: str) -> None:
    """Both halves leave a model and a report; the private model is better than guessing."""
    for name in ("models/first/report.html", "python-report.html"):
        assert "<html" in Path(name).read_text(encoding="utf-8")
    assert names["score"].value > 0.7
    assert names["ledger"].share <= 1


def federated(names: dict[str, Any], out: str) -> None:
    """Both trust models find the planted features; the network is better than guessing; nobody paid twice."""
    assert {0, 1} <= set(names["model"].support_) & set(names["together"].support_)
    assert "Trust model: curious server" in out
    assert "Trusted aggregator: 3 clients kept their rows" in out
    assert float(out.split()[-1]) > 0.65  # 0.5 is guessing, about 0.85 is usual
    assert Path("models/readmission/rounds.csv").read_text(encoding="utf-8").count("\n") == 31
    assert not Path("models/greedy").exists() or not list(Path("models/greedy").glob("model*"))


CHECKS: dict[str, Callable[[dict[str, Any], str], None]] = {
    check.__name__: check for check in (readme, index, knowledge_transfer, local, adding_a_method, tutorial, federated)
}


# Pages whose blocks need an extra and run with its tests, and the tutorial, which takes as long as all others together.
ELSEWHERE = {
    "distributed": "tests/cluster/test_distributed_page.py",
    "federated": "tests/federation/test_federated_page.py",
    "onnx_files": "tests/estimators/test_onnx_export.py",
    "tutorial": "tests/clone/test_tutorial_page.py",
}
HERE = [page for page in PAGES if blocks(page) and page.stem not in ELSEWHERE]


@pytest.mark.parametrize("page", HERE, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of one page, in their order."""
    monkeypatch.chdir(tmp_path)
    run_page(page)


def run_page(page: Path) -> None:
    """All blocks of one page, in their order, in the present folder."""
    Path("examples").symlink_to(ROOT / "examples")  # as in a clone
    names: dict[str, Any] = {"__name__": "__page__"}
    out = ""
    for kind, text in blocks(page):
        if kind == "python":
            out += run_python(text, names)
        else:
            run_commands(text)
    CHECKS.get(page.stem.lower(), lambda names, out: None)(names, out)


def test_every_check_has_a_page() -> None:
    """A page that was renamed does not lose its check in silence."""
    assert set(CHECKS) <= {page.stem.lower() for page in PAGES if blocks(page)}


def test_pages_that_run_elsewhere_do() -> None:
    """They have blocks, and the file that is said to run them names them."""
    for page, file in ELSEWHERE.items():
        assert blocks(ROOT / "docs" / f"{page}.md")
        assert f"{page}.md" in (ROOT / file).read_text(encoding="utf-8")


def test_every_block_says_what_it_is() -> None:
    """A fenced block without a language, or in another one, would escape: these are all that are meant."""
    for page in PAGES:
        kinds = {
            kind for kind, _ in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.M)
        }
        # R runs in tests/r/test_r_package.py.
        allowed = {"r"} if page == ROOT / "docs" / "r.md" else set()
        assert kinds <= {"python", "console", "shell", "text", "json"} | allowed, page.name


def test_commands_are_read_as_meant() -> None:
    """Continued lines, exit codes and outputs of a console block are told apart."""
    text = "$ one \\\n    two # exit 3\nfirst ... last\n\n$ three\n"
    assert list(commands(text)) == [("one \\\n    two # exit 3", 3, "first ... last"), ("three", 0, "")]
    assert as_printed("a ... b\n...\nc", "a 1 b\n2\n3\nc\n")
    assert not as_printed("a ... b", "a 1 c")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("$ false\n", "false"),
        ("$ echo one\ntwo\n", "one"),
        ("$ true # exit 1\n", "true"),
    ],
)
def test_wrong_commands_are_noticed(text: str, message: str) -> None:
    """A command that fails, prints something else or does not fail as announced fails the page."""
    with pytest.raises(AssertionError, match=message):
        run_commands(text)


def test_an_announced_warning_must_come() -> None:
    """`# warns` is no licence: a block that does not warn fails, and so does one that warns without saying so."""
    with pytest.raises(AssertionError):
        run_python("pass  # warns", {})
    with pytest.raises(PrivacyWarning):
        run_python("import warnings, tulle.files.error_messages as e\nwarnings.warn('x', e.PrivacyWarning)", {})
