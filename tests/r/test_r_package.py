"""The R package in r/: `R CMD build`, `R CMD check` with its own tests, and the R blocks of docs/r.md.

Run by `make test-r` and `make test-extras`; about a minute and a half. Where R is missing, tests are skipped; with
TULLE_R=required in the environment they fail.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import BLOCK, ROOT
from test_doc_blocks import as_printed

import tulle

PACKAGE = ROOT / "r"
# Between the output of two blocks.
_MARK = "-- end of block --"


def _environment() -> dict[str, str]:
    """The command of this environment, and checks that need no network."""
    return {
        **os.environ,
        "TULLE": str(Path(sys.executable).parent / "tulle"),
        "TULLE_R": "required",
        "LC_ALL": "C.UTF-8",
        "_R_CHECK_CRAN_INCOMING_": "FALSE",
        "_R_CHECK_FORCE_SUGGESTS_": "TRUE",
        "_R_CHECK_SYSTEM_CLOCK_": "FALSE",
    }


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder in which the package was built and checked, and what the check printed."""
    packages = 'stopifnot(requireNamespace("jsonlite"), requireNamespace("testthat"))'
    if shutil.which("Rscript") is None or subprocess.run(["Rscript", "-e", packages], capture_output=True).returncode:
        words = "R with the packages jsonlite and testthat was not found"
        if os.environ.get("TULLE_R") == "required":
            pytest.fail(f"TULLE_R=required, but {words}", pytrace=False)
        pytest.skip(words)
    folder = tmp_path_factory.mktemp("r")
    options = {"cwd": folder, "env": _environment(), "text": True, "stdout": subprocess.PIPE}
    built = subprocess.run(["R", "CMD", "build", str(PACKAGE)], **options, stderr=subprocess.STDOUT)
    assert built.returncode == 0, built.stdout
    archive = f"tulle_{tulle.__version__}.tar.gz"
    assert (folder / archive).exists(), built.stdout
    words = ["R", "CMD", "check", "--no-manual", "--as-cran", archive]
    done = subprocess.run(words, **options, stderr=subprocess.STDOUT)
    return folder, done.stdout


def test_the_check_has_no_complaints(checked: tuple[Path, str]) -> None:
    """No error, warning or note; its tests ran, and none was skipped."""
    folder, text = checked
    tests = folder / "tulle.Rcheck" / "tests"
    output = "".join(file.read_text(encoding="utf-8") for file in sorted(tests.glob("testthat.Rout*")))
    assert text.rstrip().endswith("Status: OK"), f"{text}\n{output[-5000:]}"
    found = re.search(r"\[ FAIL 0 \| WARN 0 \| SKIP 0 \| PASS (\d+) \]", output)
    assert found is not None, output[-5000:]
    assert int(found[1]) > 200


def test_blocks_of_the_page_run_and_print_what_it_says(checked: tuple[Path, str], tmp_path: Path) -> None:
    """In one session and in their order; a text block is the output of the R block before it."""
    blocks = [
        block
        for block in BLOCK.findall((ROOT / "docs" / "r.md").read_text(encoding="utf-8"))
        if block[0] in ("r", "text")
    ]
    script = "".join(f"{text}\ncat('{_MARK}\\n')\n" for kind, text in blocks if kind == "r")
    (tmp_path / "page.R").write_text(script, encoding="utf-8")
    environment = {**_environment(), "R_LIBS": str(checked[0] / "tulle.Rcheck")}
    words = ["Rscript", "page.R"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stdout.split(f"{_MARK}\n")
    compared = 0
    for place, (kind, text) in enumerate(blocks):
        if kind == "text":
            output = printed[sum(one == "r" for one, _ in blocks[:place]) - 1]
            assert as_printed(text, output), output
            compared += 1
    assert compared == 3
    for name in ("report.html", "fit.rds", "model.npz", "budget"):
        assert (tmp_path / name).exists()
    tulle.load(tmp_path / "model.npz")


def test_versions_and_licences_agree() -> None:
    """Of the package for Python and of that for R, and of the command that it asks for."""
    fields = dict(re.findall(r"^(\w+): (.+)$", (PACKAGE / "DESCRIPTION").read_text(encoding="utf-8"), re.M))
    assert fields["Version"] == tulle.__version__
    assert fields["License"] == "Apache License (>= 2)"
    command = (PACKAGE / "R" / "command.R").read_text(encoding="utf-8")
    (needed,) = re.findall(r'^needed_version <- "(.+)"$', command, re.M)
    assert f"(>= {needed})" in fields["SystemRequirements"]
    assert (PACKAGE / "NEWS.md").read_text(encoding="utf-8").startswith(f"# tulle {tulle.__version__}\n")
