"""The command line: exit codes, one JSON object, one clear line where something is wrong, and nothing spent in vain."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.stats import norm
from sklearn.datasets import dump_svmlight_file

import tulle.cli
from tulle import Budget, FileLedger, SparseClassifier, SparseRegressor, load
from tulle.cli import COMMANDS, main
from tulle.cli.account import PAPERS
from tulle.events import NoisePerSensitivity
from tulle.mechanisms import Gaussian, Laplace, SampledGaussian, TopK
from tulle.privacy import Plan, Release, calibrate, proof
from tulle.report import PrivacyReport
from tulle.sampling import Sampling
from tulle.saving import load_saved, save

N, NAMES = 600, ("age", "dose", "sodium", "weight")
DATASET = "visits 2026"
FILES = ("model.npz", "report.html", "privacy.json", "weights.csv")


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def values(self) -> Any:
        """The one JSON object on standard output."""
        return json.loads(self.out, parse_constant=pytest.fail)


@pytest.fixture
def run(capsys: Any) -> Any:
    """Runs a command in this process."""

    def ran(*words: Any) -> Ran:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return Ran(code, *capsys.readouterr())

    return ran


def table(seed: int = 0, n: int = N) -> pd.DataFrame:
    """Rows that depend on dose and weight."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.uniform(-1, 1, (n, 4)), columns=NAMES)
    frame["cost"] = frame["dose"] - 2 * frame["weight"] + 0.1 * rng.standard_normal(n)
    frame["outcome"] = np.where(frame["cost"] > 0, "home", "ward")
    frame["triage"] = np.array(["green", "yellow", "red"])[np.digitize(frame["cost"], (-0.8, 0.8))]
    return frame


@pytest.fixture(scope="module")
def place(tmp_path_factory: Any) -> Path:
    """A folder with the same rows in all formats, and a model fitted to each kind of target."""
    folder: Path = tmp_path_factory.mktemp("cli")
    frame = table()
    X, signs = frame[[*NAMES]].to_numpy(), np.where(frame["outcome"] == "home", 1, -1)
    for target in ("outcome", "cost", "triage"):
        frame[[*NAMES, target]].to_csv(folder / f"{target}.csv", index=False)
    frame[[*NAMES, "outcome"]].to_parquet(folder / "outcome.parquet")
    np.savez(folder / "outcome.npz", X=X, y=signs)
    dump_svmlight_file(X, signs, str(folder / "outcome.svm"), zero_based=False)
    (folder / "outcome.csv.gz").write_bytes(gzip.compress((folder / "outcome.csv").read_bytes()))
    common = ("--epsilon", "3", "--row-linf", "1", "--n-nonzero", "2", "--quiet", "--seed", "1")
    for target, more in (("outcome", ()), ("triage", ()), ("cost", ("--task", "regression", "--label-bound", "3"))):
        words = ("fit", folder / f"{target}.csv", "--target", target, *common, *more, "-o", folder / f"m_{target}")
        assert main([str(word) for word in words]) == 0
    return folder


def fit_words(place: Path, output: Path, *more: Any, data: str = "outcome.csv", target: bool = True) -> list[Any]:
    named = ["--target", "outcome"] if target else []
    options = ["--epsilon", 1, "--row-linf", 1, "--n-nonzero", 2, "--quiet"]
    return ["fit", place / data, *named, *options, "-o", output, *more]


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A ledger with a cap of 3 for the data set."""
    path = tmp_path / "ledger" / "budget.json"
    path.parent.mkdir()
    FileLedger.create(path, DATASET, Budget(3.0, 1e-4))
    return path


def one_line(ran: Ran, command: str, code: int = 2) -> str:
    """The one line that says what is wrong; no traceback, nothing on standard output."""
    assert ran.code == code
    assert ran.out == ""
    assert "Traceback" not in ran.err
    (line,) = ran.err.splitlines()
    name, _, message = line.partition(": ")
    assert name == f"tulle {command}".rstrip()
    return message


# --- what all commands share -----------------------------------------------------------------------------------------

LEAVES = (
    [[name] for name in COMMANDS if name not in ("account", "federated", "ledger")]
    + [["account", name] for name in ("cost", "noise", "plan", "published")]
    + [["federated", name] for name in ("server", "client", "simulate")]
    + [["ledger", name] for name in ("open", "show")]
)


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS), *LEAVES], ids=" ".join)
def test_help_works_everywhere(run: Any, words: list[str]) -> None:
    """Every command and subcommand says what it is for, with exit code 0 and nothing on standard error."""
    ran = run(*words, "--help")
    assert ran.code == 0
    assert ran.err == ""
    assert ran.out.startswith(f"usage: {' '.join(['tulle', *words])}")
    if words in LEAVES:
        assert all(option in ran.out for option in ("--json", "--quiet", "--debug"))


def test_every_option_is_explained() -> None:
    """No option and no argument of any command stands in the help without a word."""
    for name, parser in tulle.cli.parser()._subparsers._group_actions[0].choices.items():  # type: ignore[union-attr]
        for leaf in tulle.cli._leaves(parser):
            silent = [action.dest for action in leaf._actions if not action.help]
            assert not silent, (name, leaf.prog, silent)


def test_the_version_is_the_packages(run: Any) -> None:
    """As `tulle.__version__` says."""
    assert run("--version") == (0, f"tulle {tulle.__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the following arguments are required: COMMAND; see: tulle --help"),
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["fit"], "the following arguments are required: DATA, --epsilon, -o/--output; see: tulle fit --help"),
        (["fit", "x.csv", "--epsilon", "much", "-o", "m"], "must be a number > 0, or none, not 'much'"),
        (["fit", "x.csv", "--epsilon", "1", "-o", "m", "--format", "xls"], "invalid choice: 'xls'"),
        (["predict", "m", "x.csv", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["ledger"], "the following arguments are required: open|show"),
        (["account", "published", "nobody", "--epsilon", "1", "--delta", "1e-5"], "invalid choice: 'nobody'"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_wrong_usage_is_exit_code_2_in_text_and_json(run: Any, words: list[str], message: str) -> None:
    """One line, or one object; the help is named and not printed."""
    assert message in one_line(run(*words), words[0] if {*words[:1]} <= {*COMMANDS} and words else "")
    ran = run(*words, "--json")
    assert (ran.code, ran.err) == (2, "")
    assert set(ran.values) == {"error"}
    assert ran.values["error"]["kind"] == "input"
    assert ran.values["error"]["exit_code"] == 2
    assert message in ran.values["error"]["message"]


FAILURES: dict[str, tuple[BaseException, int, str, str]] = {
    "interrupted": (KeyboardInterrupt(), 130, "interrupted", "interrupted"),
    "interrupted with words": (KeyboardInterrupt("3 of 5 are kept"), 130, "interrupted", "3 of 5 are kept"),
    "a division by zero": (
        ZeroDivisionError("1 / 0"),
        70,
        "bug",
        "ZeroDivisionError (test_cli.py, line ",
    ),
    "a wrong type": (TypeError("None + 1"), 70, "bug", "run again with --debug and report it"),
    "an assertion": (AssertionError(), 70, "bug", "AssertionError (test_cli.py"),
    "a library's refusal": (ValueError("'Jane Doe' is no float"), 2, "input", "ValueError (test_cli.py, line "),
    "a full disk": (OSError(28, "No space left on device", "m/model.npz"), 2, "input", "m/model.npz: No space left"),
    "too little memory": (MemoryError(), 2, "input", "not enough memory; use fewer rows or columns"),
    "a library that is missing": (ImportError("install pyarrow"), 2, "input", "install pyarrow"),
}


@pytest.mark.parametrize("way", FAILURES)
def test_failures_have_their_exit_codes(run: Any, monkeypatch: Any, way: str) -> None:
    """Ctrl-C is 130, a bug of ours 70 with the word --debug, what the user can mend 2; in text and in JSON. What was
    not raised by tulle itself may quote a cell, and its type and place are told in place of its words."""
    error, code, kind, message = FAILURES[way]

    def failing(arguments: Any) -> Any:
        raise error

    monkeypatch.setattr("tulle.cli.predict.run", failing)
    assert message in one_line(run("predict", "m", "x.csv"), "predict", code)
    ran = run("predict", "m", "x.csv", "--json")
    assert ran.code == code
    assert ran.values["error"] | {"message": ""} == {"kind": kind, "message": "", "exit_code": code}
    assert message in ran.values["error"]["message"]


def test_debug_shows_the_traceback(run: Any, monkeypatch: Any) -> None:
    """On standard error, with the lines of code and the types of errors; what libraries say stays out."""

    def failing(arguments: Any) -> Any:
        try:
            float("Jane Doe")
        except ValueError as error:
            raise ZeroDivisionError("Jane Doe") from error

    monkeypatch.setattr("tulle.cli.predict.run", failing)
    ran = run("predict", "m", "x.csv", "--debug")
    assert ran.code == 70
    assert "Traceback (most recent call last)" in ran.err
    assert "in failing" in ran.err
    assert "ZeroDivisionError (test_cli.py" in ran.err
    assert "ValueError (test_cli.py" in ran.err
    # The traceback shows lines of code, where this test's own words stand: nothing else does.
    assert all('"Jane Doe"' in line for line in ran.err.splitlines() if "Jane" in line)


def in_a_process(*words: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tulle", *map(str, words)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **environment},
        timeout=120,
    )


def test_python_m_tulle_and_the_script_are_the_same() -> None:
    """Both are `tulle.cli.main`, with its exit codes."""
    (script,) = entry_points(group="console_scripts", name="tulle")
    assert script.load() is main
    path = shutil.which("tulle", path=sysconfig.get_path("scripts"))
    assert path is not None
    words = ("account", "cost", "--delta", "1e-5", "gaussian:0")
    by_script = subprocess.run([path, *words], capture_output=True, encoding="utf-8", timeout=120)
    by_module = in_a_process(*words)
    assert (by_script.returncode, by_script.stdout, by_script.stderr) == (2, "", by_module.stderr)
    assert by_module.returncode == 2
    assert by_module.stderr.startswith("tulle account: 'gaussian:0': ")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_terminal_without_greek_letters(encoding: str) -> None:
    """What it cannot show is written as a code; JSON stays JSON."""
    words = ("account", "cost", "--delta", "1e-5", "gaussian:8")
    text = in_a_process(*words, PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert (text.returncode, text.stderr) == (0, "")
    assert "\\u03b5 = 0.4" in text.stdout
    values = json.loads(in_a_process(*words, "--json", PYTHONIOENCODING=encoding, PYTHONUTF8="0").stdout)
    assert values["bill"][0]["release"] == "1: gaussian:8"


@pytest.mark.skipif(os.name == "nt", reason="a pipe of a POSIX shell")
def test_a_closed_pipe_is_no_error(place: Path, tmp_path: Path) -> None:
    """`tulle predict ... | head -1` on more than a pipe holds: one line, no traceback, exit code 0."""
    table(1, 20_000)[[*NAMES]].to_csv(tmp_path / "many.csv", index=False)
    command = f"'{sys.executable}' -m tulle predict m_outcome '{tmp_path}/many.csv' --probabilities --quiet | head -1"
    ran = subprocess.run(
        ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True, cwd=place, timeout=120
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "prediction,probability_home,probability_ward\n"


@pytest.mark.parametrize("statement", ["import tulle", "from tulle.cli import main; main(['--help'])"])
def test_help_and_import_load_nothing_heavy(statement: str) -> None:
    """They are fast, because neither numpy nor anything built on it is loaded for them."""
    code = f"import sys\n{statement}\nprint(*sorted(sys.modules), file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = {name.partition(".")[0] for name in ran.stderr.split()}
    assert "tulle" in loaded
    assert loaded.isdisjoint({"numpy", "scipy", "sklearn", "numba", "torch", "dp_accounting", "pandas", "matplotlib"})


# --- fit -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["outcome.csv", "outcome.csv.gz", "outcome.parquet", "outcome.npz", "outcome.svm"])
def test_fit_and_predict_on_every_format(run: Any, place: Path, tmp_path: Path, data: str) -> None:
    """The same rows in each format give a model, its four files, and predictions that are the model's."""
    words = fit_words(place, tmp_path / "m", data=data, target=data.startswith(("outcome.csv", "outcome.p")))
    ran = run(*words, "--json")
    assert (ran.code, ran.err) == (0, "")
    values = ran.values
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == sorted(FILES)
    assert (values["n_rows"], values["n_features"], values["n_nonzero"]) == (N, 4, 2)
    assert values["model"] == str(tmp_path / "m" / "model.npz")
    assert values["ledger"] == ""
    assert "warnings" not in values
    model, about = load_saved(values["model"])
    assert isinstance(model, SparseClassifier)
    assert model.privacy_ == PrivacyReport.from_dict(values["privacy"])
    assert 0.9 < model.privacy_.epsilon <= 1
    assert model.privacy_.asked == (1.0, 1e-5)
    assert not model.privacy_.seeded
    assert (about.title, about.data, about.asked_by, about.ledger) == ("m", data, "", "")
    assert about.made.endswith("+00:00")
    predicted = run("predict", tmp_path / "m", place / data, "--json", "--quiet")
    X = table()[[*NAMES]].to_numpy()
    assert predicted.values == {"n_rows": N, "prediction": model.set_params().predict(plain(model, X)).tolist()}


def plain(model: Any, X: Any) -> Any:
    """Rows under the names that the model knows."""
    return pd.DataFrame(X, columns=model.feature_names_in_) if hasattr(model, "feature_names_in_") else X


def test_fit_says_what_it_did(run: Any, place: Path, tmp_path: Path) -> None:
    """In text: what is proved, the largest weights, where the files are; and the files agree with each other."""
    ran = run(*fit_words(place, tmp_path / "m", "--by", "A. Smith", "--purpose", "triage", "--title", "Out"))
    assert (ran.code, ran.err) == (0, "")
    assert "Fitted 600 rows of 4 features: 2 features have a weight." in ran.out
    assert "Proved: ε = " in ran.out
    assert f"Written: {tmp_path / 'm' / 'model.npz'}, report.html, privacy.json, weights.csv" in ran.out
    model, about = load_saved(tmp_path / "m" / "model.npz")
    assert (about.title, about.asked_by, about.purpose) == ("Out", "A. Smith", "triage")
    report = PrivacyReport.from_dict(json.loads((tmp_path / "m" / "privacy.json").read_text()))
    assert report == model.privacy_
    with (tmp_path / "m" / "weights.csv").open() as file:
        lines = [*csv.DictReader(file)]
    kept = {NAMES[k]: model.coef_[0, k] for k in model.support_}
    assert {line["feature"]: float(line["weight"]) for line in lines} == kept
    assert abs(float(lines[0]["weight"])) >= abs(float(lines[1]["weight"]))
    page = (tmp_path / "m" / "report.html").read_text(encoding="utf-8")
    assert "A. Smith" in page
    assert "triage" in page


def test_progress_goes_to_standard_error(run: Any, place: Path, tmp_path: Path) -> None:
    """Unless --quiet says otherwise; standard output holds the outcome alone."""
    words = [word for word in fit_words(place, tmp_path / "m") if word != "--quiet"]
    ran = run(*words)
    assert "answers" in ran.err
    assert ran.out.startswith("Fitted 600 rows")


def test_fit_of_several_classes(run: Any, place: Path) -> None:
    """Weights of each class, by magnitude, in the file and in the model."""
    model = load(place / "m_triage" / "model.npz")
    with (place / "m_triage" / "weights.csv").open() as file:
        lines = [*csv.DictReader(file)]
    classes = [str(name) for name in model.classes_]
    assert classes == ["green", "red", "yellow"]
    assert len(lines) == np.count_nonzero(model.coef_)
    for line in lines:
        assert model.coef_[classes.index(line["class"]), NAMES.index(line["feature"])] == float(line["weight"])
    sizes = [abs(float(line["weight"])) for line in lines]
    assert sizes == sorted(sizes, reverse=True)


def test_fit_of_numbers(place: Path) -> None:
    """A regression, with its bound on the target."""
    model = load(place / "m_cost" / "model.npz")
    assert isinstance(model, SparseRegressor)
    assert model.bounds.label == 3.0
    assert model.score(*numbers("cost")) > 0.5


def numbers(target: str) -> tuple[Any, Any]:
    frame = table(1)
    return frame[[*NAMES]], frame[target]


def test_a_fit_without_privacy_says_so(run: Any, place: Path, tmp_path: Path) -> None:
    """Whoever asks for it gets it, in words that nobody can miss."""
    ran = run(*fit_words(place, tmp_path / "m", "--epsilon", "none"))
    assert ran.code == 0
    assert "No privacy: this fit used no noise." in ran.out
    assert load(tmp_path / "m" / "model.npz").privacy_.asked is None


@pytest.mark.parametrize(
    ("target", "more", "estimator", "message"),
    [
        ("outcome", (), SparseClassifier, ""),
        ("triage", (), SparseClassifier, ""),
        ("two", (), SparseClassifier, ""),
        ("codes", ("--task", "classification"), SparseClassifier, ""),
        ("codes", ("--task", "regression"), SparseRegressor, ""),
        ("codes", (), None, "the target holds numbers: say --task regression, or --task classification if they are"),
        ("outcome", ("--task", "regression"), None, "holds words; --task regression needs numbers"),
        ("same", (), None, "at least two classes"),
        ("cost", ("--task", "classification"), None, "Unknown label type"),
    ],
)
def test_the_task_is_guessed_only_where_it_is_plain(
    run: Any, tmp_path: Path, target: str, more: Any, estimator: Any, message: str
) -> None:
    """Words, or two values, are classes; other numbers could be either, and the user must say."""
    frame = table()
    frame["two"] = np.where(frame["outcome"] == "home", 7, 3)
    frame["codes"] = np.digitize(frame["cost"], (-0.5, 0.5))
    frame["same"] = "home"
    frame[[*NAMES, target]].to_csv(tmp_path / "data.csv", index=False)
    options = ("--target", target, "--epsilon", 3, "--row-linf", 1, "--label-bound", 3, "--quiet", *more)
    ran = run("fit", tmp_path / "data.csv", *options, "-o", tmp_path / "m")
    if estimator is None:
        assert message in one_line(ran, "fit")
        assert not (tmp_path / "m").exists()
    else:
        assert ran.code == 0
        assert isinstance(load(tmp_path / "m" / "model.npz"), estimator)


def test_people_with_several_rows(run: Any, tmp_path: Path) -> None:
    """--groups and --rows-per-person: the promise is to people, and ids are no features."""
    frame = table()
    frame["person"] = np.arange(N) // 3
    frame[[*NAMES, "person", "outcome"]].to_csv(tmp_path / "data.csv", index=False)
    words = ("--target", "outcome", "--groups", "person", "--rows-per-person", 2, "--epsilon", 3, "--row-linf", 1)
    ran = run("fit", tmp_path / "data.csv", *words, "-o", tmp_path / "m", "--json", "--quiet")
    assert ran.values["n_features"] == 4
    assert "2 rows" in ran.values["privacy"]["unit"]


def test_a_number_of_features_that_rows_decided_was_published(run: Any, place: Path, tmp_path: Path) -> None:
    """Of an svmlight file without --n-features, read at once or by way of blocks; and of no other."""
    said = f"The number of features, {len(NAMES)}, was published"
    assert run("convert", place / "outcome.svm", tmp_path / "counted.blocks").code == 0
    assert run("convert", place / "outcome.svm", tmp_path / "known.blocks", "--n-features", len(NAMES)).code == 0
    for number, (data, more, published) in enumerate(
        (
            (place / "outcome.svm", (), True),
            (place / "outcome.svm", ("--n-features", len(NAMES)), False),
            (tmp_path / "counted.blocks", (), True),
            (tmp_path / "known.blocks", (), False),
            (place / "outcome.npz", (), False),
        )
    ):
        folder = tmp_path / f"m{number}"
        ran = run("fit", data, "--epsilon", 1, "--row-linf", 1, "--quiet", "--json", *more, "-o", folder)
        assert ran.code == 0
        for text in (ran.out, *((folder / name).read_text() for name in ("privacy.json", "report.html"))):
            assert (said in text) == published
        assert (said in str(load(folder / "model.npz").privacy_)) == published


# --- what is wrong with a file ---------------------------------------------------------------------------------------


def damaged(kind: str, place: Path, path: Path) -> Path:
    """A bad file, by what is wrong with it; its path with the right suffix."""
    text = (place / "outcome.csv").read_text().splitlines()
    suffix, _, what = kind.partition(" ")
    path = path / f"bad.{suffix}"
    binary = {"npz": "outcome.npz", "parquet": "outcome.parquet", "svm": "outcome.svm", "csv.gz": "outcome.csv.gz"}
    content = (place / binary.get(suffix, "outcome.csv")).read_bytes()
    if what == "corrupt":
        # Values in a Parquet file have no checksum unless its writer was asked for one; its directory is at the end.
        middle = len(content) - 600 if suffix == "parquet" else len(content) // 2
        content = (
            content[:middle] + bytes(255 - byte for byte in content[middle : middle + 400]) + content[middle + 400 :]
        )
    elif what == "truncated":
        content = content[: len(content) // 2]
    elif what == "empty":
        content = b""
    elif what == "huge index":
        content += b"1 99999999999:1\n"
    elif what == "index that fills the memory":
        content += b"1 2147483646:1\n"
    elif what == "index from 0":
        content = content.replace(b" 1:", b" 0:")
    elif what == "wrong type":
        content = "\n".join([*text[:5], "0.1,tall,0.2,0.3,home", *text[5:]]).encode()
    elif what == "NaN":
        content = "\n".join([*text[:5], "0.1,,0.2,0.3,home", *text[5:]]).encode()
    elif what == "infinity":
        content = "\n".join([*text[:5], "0.1,inf,0.2,0.3,home", *text[5:]]).encode()
    elif what == "NaN target":
        content = "\n".join([*text[:5], "0.1,0.1,0.2,0.3,", *text[5:]]).encode()
    elif what == "Windows-1252":
        content = "\n".join([text[0].replace("dose", "Größe"), *text[1:]]).encode("cp1252")
    elif what == "header-less":
        content = "\n".join(text[1:]).encode()
    elif what == "duplicate columns":
        content = "\n".join([text[0].replace("dose", "age"), *text[1:]]).encode()
    elif what == "short row":
        content = "\n".join([*text[:5], "0.1,0.2", *text[5:]]).encode()
    elif what == "objects":
        np.savez(path, X=np.array([[object()]] * 4), y=np.arange(4), allow_pickle=True)
        return path
    elif what == "other":
        content = (place / "outcome.parquet").read_bytes()
    path.write_bytes(content)
    return path


BAD = [
    *("npz corrupt", "npz truncated", "npz empty", "npz objects", "npz other"),
    *("parquet corrupt", "parquet truncated", "parquet empty"),
    *("svm huge index", "svm index from 0", "svm corrupt", "svm empty"),
    *("csv.gz corrupt", "csv.gz truncated"),
    *("csv wrong type", "csv NaN", "csv infinity", "csv NaN target", "csv Windows-1252", "csv header-less"),
    *("csv duplicate columns", "csv short row", "csv empty", "csv other", "xlsx unknown"),
]


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_costs_nothing(run: Any, place: Path, tmp_path: Path, ledger: Path, kind: str) -> None:
    """Exit code 2, one line that names the file, nothing billed, nothing written; the same in JSON."""
    path = damaged(kind, place, tmp_path)
    target = ["--target", "outcome"] if kind.startswith(("csv", "parquet", "xlsx")) else []
    budget = ["--epsilon", 1, "--row-linf", 1, "--ledger", ledger, "--dataset", DATASET]
    words = ["fit", path, *target, *budget, "--quiet", "-o", tmp_path / "models" / "m"]
    before = ledger.read_bytes()
    message = one_line(run(*words), "fit")
    assert message.startswith(str(path))
    assert len(message) < 600
    ran = run(*words, "--json")
    # Which row it is goes to standard error alone.
    without = re.sub(r", (line|row) [0-9]+", "", message)
    assert (ran.code, ran.values["error"]["message"]) == (2, without)
    assert ran.err == ("" if without == message else f"tulle fit: {message}\n")
    assert ledger.read_bytes() == before
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("kind", ["npz truncated", "parquet corrupt", "svm huge index", "csv wrong type", "csv NaN"])
def test_no_prediction_for_a_bad_file(run: Any, place: Path, tmp_path: Path, kind: str) -> None:
    """Predictions are made for all rows or for none."""
    path = damaged(kind, place, tmp_path)
    message = one_line(run("predict", place / "m_outcome", path, "--quiet", "-o", tmp_path / "out.csv"), "predict")
    assert message.startswith(str(path))
    assert not (tmp_path / "out.csv").exists()


def test_an_encoding_can_be_named(run: Any, place: Path, tmp_path: Path) -> None:
    """The advice for a file from old Windows works."""
    path = damaged("csv Windows-1252", place, tmp_path)
    assert "--encoding" in one_line(run(*fit_words(tmp_path, tmp_path / "m", data=path.name)), "fit")
    assert run(*fit_words(tmp_path, tmp_path / "m", "--encoding", "cp1252", data=path.name)).code == 0
    assert list(load(tmp_path / "m" / "model.npz").feature_names_in_) == ["age", "Größe", "sodium", "weight"]


# --- options that are wrong, or dangerous ----------------------------------------------------------------------------

WRONG: dict[str, tuple[tuple[Any, ...], str]] = {
    "epsilon 0": (("--epsilon", 0), "epsilon must be a finite number > 0, got 0.0"),
    "epsilon -1": (("--epsilon", -1), "epsilon must be a finite number > 0, got -1.0"),
    "epsilon nan": (("--epsilon", "nan"), "epsilon must be a finite number > 0, got nan"),
    "epsilon inf": (("--epsilon", "inf"), "epsilon must be a finite number > 0, got inf"),
    "delta 2": (("--delta", 2), "delta must lie in [0, 1), got 2.0"),
    "delta -1": (("--delta=-1e-9",), "delta must lie in [0, 1), got -1e-09"),
    "delta nan": (("--delta", "nan"), "delta must lie in [0, 1), got nan"),
    "method": (("--method", "magic"), "method='magic' is unknown; choose one of ['auto'"),
    "loss": (("--loss", "squared"), "loss='squared' is unknown for classification"),
    "n-nonzero": (("--n-nonzero", 0), "n_nonzero must be an integer >= 1 or None, got 0"),
    "row-l2": (("--row-l2", -1), "Bounds(row_l2=...) must be a finite number > 0, got -1.0"),
    "row-linf": (("--row-linf", "nan"), "Bounds(row_linf=...) must be a finite number > 0, got nan"),
    "rows-per-person": (("--rows-per-person", 0), "Bounds(rows_per_person=...) must be an integer >= 1, got 0"),
    "seed": (("--seed", -1), "random_state must be None, an integer >= 0"),
    "target": (("--target", "outcomes"), "no column is called 'outcomes'"),
    "ignore": (("--ignore", "nothing"), "no column is called 'nothing'"),
    "encoding": (("--encoding", "klingon"), "--encoding 'klingon' is unknown"),
    "delimiter": (("--delimiter", "ab"), "--delimiter is one character"),
    "n-features": (("--n-features", 7), "4 features, where 7 are wanted"),
    "by": (("--by", "A. Smith\n  2  forged"), "--by must be printable text on one line"),
    "purpose": (("--purpose", "\udcff"), "--purpose must be printable text on one line"),
    "title": (("--title", "\x1b[2J"), "--title must be printable text on one line"),
    "data set": (("--dataset", "visits 2025"), "has no account for 'visits 2025'; did you mean 'visits 2026'?"),
    "ledger": (("--ledger", "nowhere.json"), "there is no such ledger"),
}


@pytest.mark.parametrize("way", WRONG)
def test_wrong_options_cost_nothing(run: Any, place: Path, tmp_path: Path, ledger: Path, way: str) -> None:
    """Exit code 2 and one line that says what to change; nothing billed, nothing written."""
    options, message = WRONG[way]
    words = fit_words(place, tmp_path / "m", "--ledger", ledger, "--dataset", DATASET)
    before = ledger.read_bytes()
    assert message in one_line(run(*words, *options), "fit")
    assert ledger.read_bytes() == before
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("option", [("--ledger", "budget.json"), ("--dataset", "visits")])
def test_a_ledger_and_its_data_set_go_together(run: Any, place: Path, tmp_path: Path, option: Any) -> None:
    """One without the other would bill nothing, or somebody else."""
    message = one_line(run(*fit_words(place, tmp_path / "m", *option)), "fit")
    assert message.startswith("--ledger FILE and --dataset NAME go together")


def test_a_model_is_replaced_only_where_that_is_said(run: Any, place: Path, tmp_path: Path, ledger: Path) -> None:
    """Refused before the ledger is billed; with --replace no old report stays beside the new model."""
    words = fit_words(place, tmp_path / "m", "--ledger", ledger, "--dataset", DATASET)
    assert run(*words).code == 0
    old = {name: (tmp_path / "m" / name).read_bytes() for name in FILES}
    (tmp_path / "m-internal.html").write_text("of the old model")
    before = ledger.read_bytes()
    assert "exists; name another folder with -o, or pass --replace" in one_line(run(*words), "fit")
    assert ledger.read_bytes() == before
    assert (tmp_path / "m" / "model.npz").read_bytes() == old["model.npz"]
    assert run(*words, "--replace").code == 0
    new = {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()}
    assert new.keys() == old.keys()
    assert all(new[name] != old[name] for name in ("model.npz", "report.html", "weights.csv"))
    assert not (tmp_path / "m-internal.html").exists()
    assert len(FileLedger(ledger, DATASET).entries) == 2


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_billed(
    run: Any, place: Path, tmp_path: Path, ledger: Path
) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "file").write_text("in the way")
    before = ledger.read_bytes()
    for output in (tmp_path / "file", tmp_path / "file" / "m"):
        one_line(run(*fit_words(place, output, "--ledger", ledger, "--dataset", DATASET)), "fit")
    assert ledger.read_bytes() == before


def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_is_billed(
    run: Any, place: Path, tmp_path: Path, ledger: Path, monkeypatch: Any
) -> None:
    """It is there, or can be made, and takes no file: a disk that is full, or rights that are missing."""
    written = Path.write_bytes

    def refusing(path: Path, content: bytes) -> int:
        if tmp_path / "m" in path.parents:
            raise PermissionError(13, "Permission denied", str(path))
        return written(path, content)

    before = ledger.read_bytes()
    monkeypatch.setattr(Path, "write_bytes", refusing)
    message = one_line(run(*fit_words(place, tmp_path / "m", "--ledger", ledger, "--dataset", DATASET)), "fit")
    assert message.endswith("Permission denied")
    assert ledger.read_bytes() == before
    assert not (tmp_path / "m").exists()


def test_a_large_delta_is_warned_of(run: Any, place: Path, tmp_path: Path) -> None:
    """In text on standard error; in JSON as part of the one object."""
    ran = run(*fit_words(place, tmp_path / "a", "--delta", 0.01))
    assert ran.code == 0
    assert "tulle: warning: delta = 0.01 is not below 1 / (number of rows)" in ran.err
    ran = run(*fit_words(place, tmp_path / "b", "--delta", 0.01, "--json"))
    assert (ran.code, ran.err) == (0, "")
    (warning,) = ran.values["warnings"]
    assert warning.startswith("delta = 0.01 is not below")


def test_warnings_stand_beside_an_error_too(run: Any, place: Path, tmp_path: Path, ledger: Path) -> None:
    """What was said before the refusal is part of the one object."""
    words = fit_words(place, tmp_path / "m", "--delta", 0.5, "--ledger", ledger, "--dataset", DATASET)
    ran = run(*words, "--json")
    assert (ran.code, ran.err) == (3, "")
    assert "delta = 0.5 is not below" in ran.values["warnings"][0]


# --- ledgers ---------------------------------------------------------------------------------------------------------


def test_a_fit_is_billed(run: Any, place: Path, tmp_path: Path, ledger: Path) -> None:
    """Who, what for and which model, in the ledger; the ledger's state in the outcome, and not in the model's file."""
    words = fit_words(
        place, tmp_path / "m", "--ledger", ledger, "--dataset", DATASET, "--by", "me", "--purpose", "test"
    )
    values = run(*words, "--json").values
    (entry,) = FileLedger(ledger, DATASET).entries
    assert entry.note == "me; test; model: m"
    assert entry.what == "SparseClassifier.fit"
    assert (entry.epsilon, entry.delta) == pytest.approx((1.0, 1e-5), rel=1e-3)
    assert values["ledger"].startswith(f"{DATASET}: cap epsilon = 3")
    about = load_saved(tmp_path / "m" / "model.npz").about
    assert (about.data, about.ledger) == (DATASET, "")
    shown = run("ledger", "show", ledger)
    assert shown.code == 0
    assert "me; test; model: m" in shown.out
    (account,) = run("ledger", "show", ledger, "--json").values["datasets"]
    assert account["dataset"] == DATASET
    assert account["cap"] == {"epsilon": 3.0, "delta": 1e-4}
    assert account["share"] == entry.share
    assert account["entries"][0]["note"] == entry.note


def test_past_the_cap_nothing_is_released(run: Any, place: Path, tmp_path: Path, ledger: Path) -> None:
    """Exit code 3; no file, no folder, and the ledger as it was."""
    before = ledger.read_bytes()
    words = fit_words(place, tmp_path / "deep" / "m", "--epsilon", 9, "--ledger", ledger, "--dataset", DATASET)
    message = one_line(run(*words), "fit", code=3)
    assert "nothing was released" in message
    ran = run(*words, "--json")
    assert ran.code == 3
    assert ran.values == {"error": {"kind": "refused", "message": message, "exit_code": 3}}
    assert ledger.read_bytes() == before
    assert not (tmp_path / "deep").exists()


def test_a_ledger_fills_up(run: Any, place: Path, tmp_path: Path, ledger: Path) -> None:
    """Fits of epsilon 1 under a cap of 3: a few pass, then all are refused, and the cap is never passed."""
    codes = [
        run(*fit_words(place, tmp_path / f"m{k}", "--ledger", ledger, "--dataset", DATASET)).code for k in range(12)
    ]
    assert codes == sorted(codes)
    assert set(codes) == {0, 3}
    found = FileLedger(ledger, DATASET)
    assert len(found.entries) == codes.count(0) == len([*tmp_path.glob("m*/model.npz")])
    assert found.share <= 1
    assert codes.count(0) >= 3


def test_a_fit_without_privacy_has_no_price(run: Any, place: Path, tmp_path: Path, ledger: Path) -> None:
    """No cap allows it."""
    before = ledger.read_bytes()
    words = fit_words(place, tmp_path / "m", "--epsilon", "none", "--ledger", ledger, "--dataset", DATASET)
    one_line(run(*words), "fit", code=3)
    assert ledger.read_bytes() == before


def weights(folder: Path) -> bytes:
    model = load(folder / "model.npz")
    found: bytes = np.append(model.coef_, model.intercept_).tobytes()
    return found


def test_a_seed_repeats_a_fit_but_not_under_a_ledger(run: Any, place: Path, tmp_path: Path, ledger: Path) -> None:
    """Without a ledger the same weights; with one, noise that is different, as a difference would give it away."""
    for name, more in (
        ("a", ()),
        ("b", ()),
        ("c", ("--seed", 8)),
        ("d", billed := ("--ledger", ledger, "--dataset", DATASET)),
        ("e", billed),
    ):
        assert run(*fit_words(place, tmp_path / name, "--seed", 7, *more)).code == 0
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert len({weights(tmp_path / name) for name in "acde"}) == 4
    assert load(tmp_path / "a" / "model.npz").privacy_.seeded
    assert load(tmp_path / "a" / "model.npz").random_state is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_a_billed_fit_that_comes_to_nothing_says_so(
    run: Any, place: Path, tmp_path: Path, ledger: Path, monkeypatch: Any, error: Any
) -> None:
    """Noise was drawn: the bill stands, and the user is told; no empty folder stays."""

    def failing(*_: Any) -> None:
        raise error

    monkeypatch.setattr(SparseClassifier, "_keep", failing)
    words = fit_words(place, tmp_path / "m", "--ledger", ledger, "--dataset", DATASET)
    ran = run(*words)
    assert ran.code == (130 if error is KeyboardInterrupt else 70)
    assert "The budget is spent: the fit had been billed, and it stays on the ledger" in ran.err
    assert len(FileLedger(ledger, DATASET).entries) == 1
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("billed", [True, False], ids=["ledger", "no-ledger"])
@pytest.mark.parametrize("what", ["model.npz", "report.html"])
def test_a_full_disk_after_the_bill_has_an_exit_code_of_its_own(
    run: Any, place: Path, tmp_path: Path, ledger: Path, monkeypatch: Any, what: str, billed: bool
) -> None:
    """Code 2 says that nothing was spent."""
    import tulle.archive
    import tulle.durable

    real = tulle.durable.write_durably

    def full(path: Any, *content: Any) -> None:
        if Path(path).name == what:
            raise OSError(28, "No space left on device", str(path))
        real(path, *content)

    for module in (tulle.durable, tulle.archive):
        monkeypatch.setattr(module, "write_durably", full)
    words = fit_words(place, tmp_path / "m", *(("--ledger", ledger, "--dataset", DATASET) if billed else ()))
    message = one_line(run(*words), "fit", code=4)
    assert "No space left on device" in message
    assert ("The budget is spent: the fit had been billed" if billed else "its epsilon is spent") in message
    assert len(FileLedger(ledger, DATASET).entries) == billed
    assert (tmp_path / "m").exists() == (what != "model.npz")
    failed = run(*words, "--replace", "--json").values["error"]
    assert (failed["kind"], failed["exit_code"]) == ("spent", 4)


_STOPPED = """
import sys, time
import tulle.cli, tulle.fitting
def hang(*_, **__):
    print("here", file=sys.__stdout__, flush=True)
    time.sleep(60)
tulle.fitting.{name} = hang
sys.exit(tulle.cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("spent", [False, True], ids=["before-the-bill", "after-the-bill"])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_fit_that_is_stopped_cleans_up_and_says_what_was_spent(
    place: Path, tmp_path: Path, ledger: Path, how: signal.Signals, spent: bool
) -> None:
    """By Ctrl-C or by a scheduler: no folder stays, and a bill is told."""
    words = fit_words(place, tmp_path / "deep" / "m", "--ledger", ledger, "--dataset", DATASET)
    process = subprocess.Popen(
        [sys.executable, "-c", _STOPPED.format(name="_rows" if spent else "bill_open_ledgers"), *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts what runs in its background with SIGINT ignored, and so would this process's children be.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.send_signal(how)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + how
    assert ("interrupted" if how == signal.SIGINT else "terminated") in said
    assert ("The budget is spent: the fit had been billed" in said) == spent
    assert len(FileLedger(ledger, DATASET).entries) == spent
    assert not (tmp_path / "deep").exists()


def test_files_of_before_say_that_their_delta_leaves_finite_precision_out(run: Any, tmp_path: Path) -> None:
    """In what ledger show and report print, in the page, and as a warning."""
    for name in ("ledger.json", "model.npz"):
        (tmp_path / name).write_bytes((Path(__file__).parent / "written_before" / name).read_bytes())
    shown = run("ledger", "show", tmp_path / "ledger.json")
    assert "1 entry was written before tulle counted in delta" in shown.out
    assert "1 entry was written before tulle counted in delta" in shown.err
    written = run("report", tmp_path / "model.npz")
    assert "This report was written before" in written.out
    assert "This report was written before" in written.err
    assert "This report was written before" in (tmp_path / "report.html").read_text()


def test_a_command_leaves_signals_as_they_were(run: Any) -> None:
    """Where another program runs it, or has SIGTERM ignored."""
    for before in (signal.SIG_DFL, signal.SIG_IGN):
        kept = signal.signal(signal.SIGTERM, before)
        try:
            run("ledger", "show", "no-such-file")
            assert signal.getsignal(signal.SIGTERM) == before
        finally:
            signal.signal(signal.SIGTERM, kept)


def test_a_model_outlives_a_report_that_fails(run: Any, place: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """The budget is gone: the model is written first, and the user is told where it is."""

    def failing(*_: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tulle.pages.fit_page", failing)
    message = one_line(run(*fit_words(place, tmp_path / "m")), "fit", code=4)
    safe = f"No space left on device The model itself is safe in {tmp_path / 'm' / 'model.npz'}."
    assert message == f"{safe} The fit was done and its noise drawn: its epsilon is spent."
    load(tmp_path / "m" / "model.npz")
    monkeypatch.undo()
    assert run("report", tmp_path / "m").code == 0


def test_ledgers_are_opened_once(run: Any, tmp_path: Path) -> None:
    """A second cap for the same data set is refused, and so is a cap that is none; a damaged file spends nothing."""
    path = tmp_path / "budget.json"
    words = ("ledger", "open", path, "--dataset", "a", "--epsilon", 1, "--delta", "1e-6")
    opened = run(*words, "--json")
    assert opened.code == 0
    assert opened.values["cap"] == {"epsilon": 1.0, "delta": 1e-6}
    assert opened.values["entries"] == []
    before = path.read_bytes()
    assert "has an account for 'a' already" in one_line(run(*words), "ledger")
    for option, value in (
        ("--epsilon", 0),
        ("--epsilon", "nan"),
        ("--delta", 1),
        ("--dataset", ""),
        ("--dataset", "a\nb"),
    ):
        one_line(run(*words, option, value), "ledger")
    assert path.read_bytes() == before
    assert run("ledger", "open", path, "--dataset", "b", "--epsilon", 2, "--delta", 0).code == 0
    assert [ledger["dataset"] for ledger in run("ledger", "show", path, "--json").values["datasets"]] == ["a", "b"]
    assert [
        ledger["dataset"] for ledger in run("ledger", "show", path, "--dataset", "b", "--json").values["datasets"]
    ] == ["b"]
    path.write_bytes(path.read_bytes().replace(b'"epsilon": 1.0', b'"epsilon": 9.0'))
    assert "is not a ledger of tulle" in one_line(run("ledger", "show", path), "ledger")
    assert "there is no such ledger" in one_line(run("ledger", "show", tmp_path / "nowhere.json"), "ledger")


# --- predict ---------------------------------------------------------------------------------------------------------


def predictions(ran: Ran) -> list[str]:
    assert (ran.code, ran.err) == (0, "")
    return [line["prediction"] for line in csv.DictReader(io.StringIO(ran.out))]


@pytest.mark.parametrize("kind", ["outcome", "triage", "cost"])
def test_predictions_are_the_models(run: Any, place: Path, tmp_path: Path, kind: str) -> None:
    """On standard output, in JSON and in a file; by folder or by the model's file."""
    frame = table(1, 50)
    frame[[*NAMES]].to_csv(tmp_path / "new.csv", index=False)
    model = load(place / f"m_{kind}" / "model.npz")
    expected = model.predict(frame[[*NAMES]]).tolist()
    words = ("predict", place / f"m_{kind}", tmp_path / "new.csv", "--quiet")
    assert predictions(run(*words)) == [str(value) for value in expected]
    assert run(*words, "--json").values == {"n_rows": 50, "prediction": expected}
    ran = run("predict", place / f"m_{kind}" / "model.npz", *words[2:], "-o", tmp_path / "out.csv")
    assert ran.out == f"Predicted 50 rows: {tmp_path / 'out.csv'}\n"
    written = pd.read_csv(tmp_path / "out.csv")["prediction"].tolist()
    assert written == (pytest.approx(expected, rel=1e-12) if kind == "cost" else expected)


def test_probabilities(run: Any, place: Path, tmp_path: Path) -> None:
    """One column a class, which add up to 1; a regression has none."""
    frame = table(1, 50)[[*NAMES]]
    frame.to_csv(tmp_path / "new.csv", index=False)
    values = run("predict", place / "m_triage", tmp_path / "new.csv", "--probabilities", "--json", "--quiet").values
    expected = load(place / "m_triage" / "model.npz").predict_proba(frame)
    found = [values[f"probability_{name}"] for name in ("green", "red", "yellow")]
    np.testing.assert_array_equal(np.transpose(found), expected)
    assert np.sum(found, axis=0) == pytest.approx(1.0)
    message = one_line(run("predict", place / "m_cost", tmp_path / "new.csv", "--probabilities", "--quiet"), "predict")
    assert "this model has no probabilities" in message


def test_columns_are_found_by_name(run: Any, place: Path, tmp_path: Path) -> None:
    """In another order, with others between them and with the target still there: the same predictions."""
    frame = table(1, 50)
    frame[[*NAMES]].to_csv(tmp_path / "plain.csv", index=False)
    frame["extra"] = "words"
    frame[["outcome", "weight", "extra", "sodium", "age", "cost", "dose"]].to_csv(tmp_path / "mixed.csv", index=False)
    words = ("predict", place / "m_outcome")
    expected = predictions(run(*words, tmp_path / "plain.csv", "--quiet"))
    assert predictions(run(*words, tmp_path / "mixed.csv", "--quiet")) == expected
    assert set(expected) == {"home", "ward"}
    frame[["age", "doses", "weight"]] = frame[["age", "dose", "weight"]]
    frame[["age", "doses", "weight"]].to_csv(tmp_path / "fewer.csv", index=False)
    message = one_line(run(*words, tmp_path / "fewer.csv", "--quiet"), "predict")
    assert "2 of 4 features are not there: " in message
    assert "dose" in message


def test_files_without_names_must_have_the_models_features(run: Any, place: Path, tmp_path: Path) -> None:
    """As many as the model has, in its order; otherwise refused."""
    X = table(1, 50)[[*NAMES]].to_numpy()
    np.savez(tmp_path / "right.npz", X=X)
    sp.save_npz(tmp_path / "sparse.npz", sp.csr_matrix(X))
    np.savez(tmp_path / "wide.npz", X=np.hstack([X, X]))
    expected = load(place / "m_outcome" / "model.npz").predict(pd.DataFrame(X, columns=NAMES)).tolist()
    for name in ("right.npz", "sparse.npz"):
        assert predictions(run("predict", place / "m_outcome", tmp_path / name, "--quiet")) == expected
    assert "8 features, where 4 are wanted" in one_line(
        run("predict", place / "m_outcome", tmp_path / "wide.npz", "--quiet"), "predict"
    )


def test_files_without_a_header(run: Any, place: Path, tmp_path: Path) -> None:
    """Columns are numbers then: the target is named by its place, and left out by --ignore where it is still there."""
    table()[[*NAMES, "outcome"]].to_csv(tmp_path / "rows.csv", index=False, header=False)
    words = ("--epsilon", 3, "--row-linf", 1, "--quiet", "--no-header")
    assert run("fit", tmp_path / "rows.csv", "--target", 4, *words, "-o", tmp_path / "m").code == 0
    model = load(tmp_path / "m" / "model.npz")
    ran = run("predict", tmp_path / "m", tmp_path / "rows.csv", "--no-header", "--quiet", "--ignore", 4)
    X = table()[[*NAMES]].to_numpy()
    assert predictions(ran) == model.predict(X).tolist()


def test_no_file_is_overwritten_by_accident(run: Any, place: Path, tmp_path: Path) -> None:
    """Neither the rows nor the model; nor is a place that cannot be written found out at the end."""
    shutil.copytree(place / "m_outcome", tmp_path / "m")
    shutil.copy(place / "outcome.csv", tmp_path / "rows.csv")
    words = ("predict", tmp_path / "m", tmp_path / "rows.csv", "--quiet", "-o")
    for output in (tmp_path / "rows.csv", tmp_path / "m" / "model.npz"):
        before = output.read_bytes()
        assert "would be overwritten; name another file" in one_line(run(*words, output), "predict")
        assert output.read_bytes() == before
    assert "its folder does not exist" in one_line(run(*words, tmp_path / "nowhere" / "x.csv"), "predict")
    assert "it is a folder" in one_line(run(*words, tmp_path), "predict")


@pytest.mark.skipif(os.name == "nt", reason="links and pipes of POSIX")
@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "link to a file", "link to nothing"])
def test_a_device_or_a_link_is_never_replaced(run: Any, place: Path, tmp_path: Path, kind: str) -> None:
    """A file is replaced as a whole, so that -o /dev/null, given by root, would take it away from everybody."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("kept")
    output = tmp_path / kind
    if kind != "pipe":
        output.symlink_to(tmp_path / kind.rpartition(" ")[2])
    before = output.lstat()
    words = ("predict", place / "m_outcome", place / "outcome.csv", "--quiet", "-o", output)
    assert "only a plain file can be replaced" in one_line(run(*words), "predict")
    assert output.lstat() == before
    assert (tmp_path / "file").read_text() == "kept"


def test_what_is_no_model(run: Any, place: Path, tmp_path: Path) -> None:
    """A folder without one, a file of rows, a damaged file: one line each."""
    rows = place / "outcome.csv"
    assert "does not exist; name a folder that tulle fit made" in one_line(run("predict", tmp_path, rows), "predict")
    assert "is no tulle model file" in one_line(run("predict", rows, rows), "predict")
    assert "is no tulle model file" in one_line(run("predict", place / "outcome.npz", rows), "predict")
    (tmp_path / "model.npz").write_bytes((place / "m_outcome" / "model.npz").read_bytes()[:-20])
    assert "is no tulle model file, or is damaged" in one_line(run("predict", tmp_path, rows), "predict")


# --- account ---------------------------------------------------------------------------------------------------------


def gaussian_delta(sigma: float, epsilon: float) -> float:
    """The delta of Gaussian noise by the formula of Balle and Wang (2018), theorem 8."""
    a, b = 1 / (2 * sigma), epsilon * sigma
    return float(norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b))


def test_noise_of_one_gaussian_answer_is_the_known_figure(run: Any) -> None:
    """3.73 at (1, 1e-5), and the closed formula to many digits; the cost of that noise is the budget again."""
    values = run("account", "noise", "--epsilon", 1, "--delta", "1e-5", "gaussian:1", "--json").values
    sigma = values["bill"][0]["noise_per_sensitivity"]
    assert sigma == pytest.approx(3.73, abs=0.005)
    assert gaussian_delta(sigma, 1.0) == pytest.approx(1e-5, rel=1e-4)
    cost = run("account", "cost", "--delta", "1e-5", f"gaussian:{sigma}", "--json").values
    assert cost["epsilon"] == pytest.approx(1.0, rel=1e-6)
    fifty = run("account", "noise", "--epsilon", 1, "--delta", "1e-5", "gaussian:1x50", "--json").values
    assert fifty["bill"][0]["noise_per_sensitivity"] == pytest.approx(sigma * math.sqrt(50), rel=1e-6)


@pytest.mark.parametrize(
    ("release", "delta", "known"),
    [("laplace:20", 0, 0.05), ("laplace:20x10", 0, 0.5), ("top1:8", 0, 0.25), ("top5:9", 0, 10 / 9)],
)
def test_pure_releases_cost_what_is_known(run: Any, release: str, delta: float, known: float) -> None:
    """Laplace noise b costs 1 / b an answer, the exponential mechanism with Gumbel noise b 2 / b a choice."""
    assert run("account", "cost", "--delta", delta, release, "--json").values["epsilon"] == pytest.approx(known)


BILLS: dict[str, tuple[Any, int]] = {
    "gaussian:8x10": (Gaussian(NoisePerSensitivity(8.0)), 10),
    "laplace:20x3": (Laplace(NoisePerSensitivity(20.0)), 3),
    "top50:9": (TopK(NoisePerSensitivity(9.0), 50), 1),
    "poisson:2:0.01x300": (SampledGaussian(NoisePerSensitivity(2.0), Sampling("poisson", 10**9, 10**7)), 300),
    "fixed:2:0.01x300": (SampledGaussian(NoisePerSensitivity(2.0), Sampling("without_replacement", 10**9, 10**7)), 300),
}


@pytest.mark.parametrize("words", [*([name] for name in BILLS), ["gaussian:8x10", "laplace:20x3", "top50:9"]], ids=str)
def test_costs_are_the_accountants(run: Any, words: list[str]) -> None:
    """The same figure as `tulle.privacy.proof`, and a bill that names each release as it was written."""
    plan = Plan(tuple(Release(f"{k}", *BILLS[name]) for k, name in enumerate(words)))
    epsilon, accountant = proof(plan, 1e-5)
    values = run("account", "cost", "--delta", "1e-5", *words, "--json").values
    assert values["epsilon"] == epsilon
    assert values["accountant"] == accountant
    assert values["asked"] is None
    written = [f"{k}: {name.rpartition('x')[0] if BILLS[name][1] > 1 else name}" for k, name in enumerate(words, 1)]
    assert [line["release"] for line in values["bill"]] == written
    assert [line["count"] for line in values["bill"]] == [BILLS[name][1] for name in words]
    text = run("account", "cost", "--delta", "1e-5", *words).out
    assert all(line in text for line in written)
    assert accountant in text


def test_noise_is_the_accountants(run: Any) -> None:
    """Ratios are kept, and the budget met as `tulle.privacy.calibrate` meets it."""
    releases = [Release("a", BILLS["gaussian:8x10"][0], 10), Release("b", BILLS["top50:9"][0], 1)]
    expected = [release.mechanism.noise.value for release in calibrate(releases, Budget(2.0, 1e-6))]
    values = run("account", "noise", "--epsilon", 2, "--delta", "1e-6", "gaussian:8x10", "top50:9", "--json").values
    found = [line["noise_per_sensitivity"] for line in values["bill"]]
    assert found == pytest.approx(expected, rel=1e-9)
    assert found[0] / found[1] == pytest.approx(8 / 9)
    assert 1.99 < values["epsilon"] <= 2


@pytest.mark.parametrize(
    ("release", "message"),
    [
        ("gaussian", "is not a release; write for example gaussian:8x10"),
        ("gaussian:0", "the noise must lie in"),
        ("gaussian:-1", "must be >= 0"),
        ("gaussian:nan", "must be >= 0"),
        ("gaussian:inf", "the noise must lie in"),
        ("gaussian:1e-300", "the noise must lie in"),
        ("gaussian:8x0", "a count in [1, 1e9]"),
        ("gaussian:8x-1", "is not a release"),
        ("gaussian:8x99999999999", "a count in [1, 1e9]"),
        ("gaussian:8:0.1", "they alone, have a RATE"),
        ("poisson:8", "they alone, have a RATE"),
        ("poisson:8:0", "they alone, have a RATE"),
        ("fixed:8:1.5", "they alone, have a RATE"),
        ("top:8", "write top and a number"),
        ("top0:8", "write top and a number"),
        ("cauchy:3", "there is no 'cauchy'"),
        ("gaussian:a", "could not convert"),
    ],
)
def test_releases_that_are_none(run: Any, release: str, message: str) -> None:
    """One line that shows what was written, and what can be."""
    said = one_line(run("account", "cost", "--delta", "1e-5", release), "account")
    assert repr(release) in said
    assert message in said


@pytest.mark.parametrize("delta", [1, -1, 2, "nan"])
def test_a_cost_needs_a_delta(run: Any, delta: Any) -> None:
    """In [0, 1)."""
    assert "--delta must lie in [0, 1)" in one_line(run("account", "cost", "--delta", delta, "laplace:1"), "account")


def test_gaussian_noise_proves_nothing_at_delta_0(run: Any) -> None:
    """Infinity is a word in JSON."""
    assert run("account", "cost", "--delta", 0, "gaussian:8", "--json").values["epsilon"] == "inf"


@pytest.mark.parametrize("paper", PAPERS)
def test_what_published_noise_proves(run: Any, paper: str) -> None:
    """Every paper of the list has a verdict, and the verdict agrees with the figure."""
    ran = run("account", "published", paper, "--epsilon", 4, "--delta", "1e-5", "--json")
    assert (ran.code, ran.err) == (0, "")
    values = ran.values
    epsilon = float(values["epsilon"])
    assert values["asked"] == 4
    assert values["bill"]
    if math.isinf(epsilon):
        assert values["verdict"] == "nothing is proved for it"
    elif epsilon > 4:
        assert values["verdict"] == f"that is {epsilon / 4:.3g} times the claim"
    else:
        assert values["verdict"].startswith("the claim holds")
        assert values["verdict"].endswith("fail") == bool(values["failed_conditions"])


def test_the_noise_of_dp_ight_proves_4_84_for_4(run: Any) -> None:
    """Remark 5.3 of its paper prints sqrt(8 T log(1/delta)) / epsilon for T steps: a Gaussian of known cost."""
    values = run("account", "published", "dp-ight", "--epsilon", 4, "--delta", "1e-5", "--steps", 9, "--json").values
    assert values["epsilon"] == pytest.approx(4.84, abs=0.005)
    (line,) = values["bill"]
    assert line["count"] == 9
    assert gaussian_delta(line["noise_per_sensitivity"] / 3, values["epsilon"]) == pytest.approx(1e-5, rel=1e-3)
    text = run("account", "published", "dp-ight", "--epsilon", 4, "--delta", "1e-5").out
    assert "ε = 4.84" in text
    assert "Verdict: that is 1.21 times the claim." in text


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--epsilon", 0), "epsilon must be a finite number > 0"),
        (("--delta", 2), "delta must lie in [0, 1)"),
        (("--steps", 0), "must be an integer >= 1"),
        (("--passes", 2), "--passes has no meaning for dp-ight"),
        (("--rows", 1), "--rows must be at least 2"),
        (("--features", 0), "--features at least 1"),
        (("--n-nonzero", 0), "n_nonzero must be an integer >= 1"),
    ],
)
def test_published_noise_of_impossible_fits(run: Any, more: Any, message: str) -> None:
    """One line each."""
    words = ("account", "published", "dp-ight", "--epsilon", 4, "--delta", "1e-5")
    assert message in one_line(run(*words, *more), "account")


def test_a_plan_is_what_a_fit_releases(run: Any, place: Path, tmp_path: Path) -> None:
    """From the numbers of rows and features alone: the bill of the fit, line by line."""
    shape = ("--rows", N, "--features", 4, "--epsilon", 1, "--row-linf", 1, "--n-nonzero", 2)
    planned = run("account", "plan", *shape, "--task", "classification", "--json").values
    fitted = run(*fit_words(place, tmp_path / "m"), "--json").values["privacy"]
    assert planned["bill"] == fitted["bill"]
    assert planned["epsilon"] == fitted["epsilon"]
    assert planned["method"] == fitted["method"]
    assert "say --task" in one_line(run("account", "plan", *shape), "account")
    assert "method='magic' is unknown" in one_line(
        run("account", "plan", *shape, "--task", "regression", "--method", "magic"), "account"
    )


# --- audit -----------------------------------------------------------------------------------------------------------

FUNCTIONS = """
import numpy as np
print("a word at import")

def leaky(X, y, rng):
    print("a word in each run")
    return np.append(X.T @ y / len(y) + rng.normal(0, 0.1, X.shape[1]), np.abs(y).max())

def noisy(X, y, rng):
    return rng.normal(0, 100.0, 1)

def broken(X, y, rng):
    return {}["nothing"]

def wordy(X, y, rng):
    return "words"

not_callable = 3
"""
NEIGHBOURS = (
    "\ndef neighbours():\n    X = np.zeros((4, 1))\n    return (X, np.zeros(4)), (X, np.array([9.0, 0, 0, 0]))\n"
)


@pytest.fixture
def functions(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FUNCTIONS)
    return path


@pytest.mark.parametrize("more", ["", NEIGHBOURS], ids=["worlds made by the audit", "worlds of one's own"])
def test_a_function_that_leaks_is_refuted(run: Any, functions: Path, tmp_path: Path, more: str) -> None:
    """Exit code 1; the object on standard output is one, whatever the function prints; the file holds the same."""
    functions.write_text(FUNCTIONS + more)
    words = ("audit", f"{functions}:leaky", "--claimed", 1, "--runs", 400, "--seed", 1)
    ran = run(*words, "--json", "-o", tmp_path / "audit.json")
    assert ran.code == 1
    values = ran.values
    assert values["refuted"]
    assert 1 < values["epsilon"] <= values["best_possible"]
    assert json.loads((tmp_path / "audit.json").read_text()) | {"seconds": 0} == values | {"seconds": 0}
    assert "a word in each run" in ran.err
    text = run(*words)
    assert text.code == 1
    assert "THE CLAIM IS FALSE" in text.out
    assert "a word" not in text.out


def test_a_function_that_does_not_leak_is_not_refuted(run: Any, functions: Path) -> None:
    """Exit code 0; so too where nothing is claimed."""
    ran = run("audit", f"{functions}:noisy", "--claimed", 1, "--runs", 200, "--seed", 1, "--quiet")
    assert ran.code == 0
    assert "no violation was found" in ran.out
    assert "nothing was claimed" in run("audit", f"{functions}:leaky", "--runs", 200, "--seed", 1, "--quiet").out


@pytest.mark.parametrize(
    ("subject", "more", "message"),
    [
        ("mine.py:broken", (), "broken(X, y, rng) must return numbers, and failed: KeyError (mine.py, line "),
        ("mine.py:wordy", (), "wordy(X, y, rng) must return numbers, and failed: ValueError"),
        ("mine.py:nothing", (), "has no function 'nothing'"),
        ("mine.py:not_callable", (), "has no function 'not_callable'"),
        ("nowhere.py:leaky", (), "nowhere.py does not exist"),
        ("raising.py:leaky", (), "cannot be imported: ZeroDivisionError"),
        ("exiting.py:leaky", (), "cannot be imported: SystemExit (exiting.py, line 2)"),
        ("strange.py:leaky", (), "neighbours() must return ((X, y), (X, y))"),
        ("mine.py:leaky", ("--epsilon", 1), "leave out --epsilon; --claimed is what it claims"),
        ("mine.py:leaky", ("--claimed", "nan"), "--claimed must be a finite number >= 0"),
        ("mine.py:leaky", ("--runs", 0), "--runs must be >= 16"),
        ("mine.py:leaky", ("--rows", 2), "--rows must be >= 3"),
        ("mine.py:leaky", ("--features", 0), "--features must be >= 1"),
        ("mine.py:leaky", ("--jobs", 0), "--jobs must be a number of processes"),
        ("mine.py:leaky", ("--confidence", 1), "--confidence must be strictly between 0 and 1"),
        ("mine.py:leaky", ("--delta", 2), "delta must lie in [0, 1)"),
        ("mine.py:leaky", ("-o", "nowhere/audit.json"), "its folder does not exist"),
        ("mine.py:leaky", ("--method", "auto"), "name what to audit"),
    ],
)
def test_audits_that_cannot_be(
    run: Any, functions: Path, monkeypatch: Any, subject: str, more: Any, message: str
) -> None:
    """Mistakes in a user's file are told as the user's, and wrong figures before the runs."""
    monkeypatch.chdir(functions.parent)
    Path("raising.py").write_text("1 / 0")
    Path("exiting.py").write_text("import sys\nsys.exit(5)")
    Path("strange.py").write_text(FUNCTIONS + "\ndef neighbours():\n    return 3\n")
    ran = run("audit", subject, "--runs", 100, "--quiet", *more, "--json")
    assert ran.code == 2
    assert message in ran.values["error"]["message"]


def test_a_method_is_audited(run: Any, tmp_path: Path) -> None:
    """With a budget of its own, which a sound method keeps."""
    words = ("--method", "two_stage", "--epsilon", 2, "--runs", 100, "--seed", 0, "--quiet")
    ran = run("audit", *words, "--json", "-o", tmp_path / "audit.json")
    assert ran.code == 0
    assert ran.values["claimed"] == 2
    assert ran.values["delta"] == 1e-5
    assert not ran.values["refuted"]
    assert "method='magic' is unknown" in one_line(run("audit", "--method", "magic", "--quiet"), "audit")
    assert "name what to audit" in one_line(run("audit"), "audit")


@pytest.fixture(scope="module")
def audited(place: Path) -> Path:
    """What `tulle audit --output` wrote about a saved model."""
    path = place / "audit.json"
    assert main([str(word) for word in fit_words(place, place / "m_two", "--method", "two_stage", "--epsilon", 3)]) == 0
    words = ("audit", place / "m_two", "--runs", 100, "--seed", 0, "--quiet", "-o", path)
    assert main([str(word) for word in words]) == 0
    return path


def test_a_saved_model_is_audited_with_its_own_settings(run: Any, place: Path, audited: Path) -> None:
    """Its budget is the claim; settings on the command line would be another model's and are refused."""
    values = json.loads(audited.read_text())
    assert values["claimed"] == 3.0
    assert values["delta"] == load(place / "m_two" / "model.npz").privacy_.delta
    for option in (("--epsilon", 9), ("--delta", 0.1), ("--row-l2", 5), ("--task", "regression"), ("--loss", "huber")):
        assert f"leave out {option[0]}" in one_line(run("audit", place / "m_outcome", *option), "audit")
    assert "does not exist; name a folder" in one_line(run("audit", place / "nowhere"), "audit")


def test_models_that_cannot_be_audited(run: Any, place: Path, tmp_path: Path) -> None:
    """Without privacy there is no claim; of a local model the channel is audited."""
    run(*fit_words(place, tmp_path / "m", "--epsilon", "none"))
    assert "promises nothing that could be audited" in one_line(run("audit", tmp_path / "m"), "audit")
    from tulle.local import LabelPrivateSparseClassifier

    X, y = numbers("outcome")
    save(LabelPrivateSparseClassifier(3.0, n_nonzero=2).fit(X, y), tmp_path / "local.npz")
    assert "audit its channel with tulle.audit.audit_channel" in one_line(run("audit", tmp_path / "local.npz"), "audit")


def test_an_audit_goes_on_where_it_was_left(run: Any, functions: Path, tmp_path: Path) -> None:
    """The same function in the same folder: the same result; another function is refused."""
    words = ("--claimed", 1, "--runs", 200, "--seed", 1, "--quiet", "--json", "--resume", tmp_path / "kept")
    first = run("audit", f"{functions}:leaky", *words).values
    assert run("audit", f"{functions}:leaky", *words).values | {"seconds": 0} == first | {"seconds": 0}
    assert "holds another audit" in run("audit", f"{functions}:noisy", *words).values["error"]["message"]


# --- report ----------------------------------------------------------------------------------------------------------

COMPARISON = {
    "format": "tulle comparison 1",
    "data": "visits.csv",
    "task": "classification",
    "metric": "test error",
    "n_train": 700,
    "n_test": 300,
    "n_features": 50,
    "delta": 1e-5,
    "trials": 5,
    "seed": 0,
    "tulle": "0.1.0",
    "rows": [
        {
            "method": "auto",
            "epsilon": epsilon,
            "mean": 0.2 / epsilon,
            "standard_error": 0.01,
            "trials": 5,
            "proved": epsilon,
            "nonzero": 20.0,
        }
        for epsilon in (0.5, 1.0, 2.0)
    ],
    "no_privacy": {"method": "auto", "mean": 0.05, "standard_error": 0.0, "nonzero": 20.0},
    "null_model": {"mean": 0.5},
}


@pytest.fixture
def compared(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "comparison.json").write_text(json.dumps(COMPARISON))
    return folder


@pytest.fixture
def model(place: Path, tmp_path: Path) -> Path:
    """A copy of a model's folder."""
    return Path(shutil.copytree(place / "m_outcome", tmp_path / "model"))


def test_the_public_report(run: Any, model: Path) -> None:
    """Written again beside the model, as the fit wrote it."""
    before = (model / "report.html").read_bytes()
    (model / "report.html").unlink()
    ran = run("report", model, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.values == {"report": str(model / "report.html"), "internal": False}
    assert (model / "report.html").read_bytes() == before


def test_an_audit_feeds_the_report(run: Any, model: Path, audited: Path, tmp_path: Path) -> None:
    """What `tulle audit --output` wrote is what `tulle report --audit` reads."""
    assert run("report", model, "--audit", audited, "-o", tmp_path / "signed.html").code == 0
    assert "The audit" in (tmp_path / "signed.html").read_text(encoding="utf-8")
    assert "The audit" not in (model / "report.html").read_text(encoding="utf-8")


def test_accuracy_is_for_the_internal_form_alone(run: Any, model: Path, compared: Path) -> None:
    """Errors on private rows are no part of a public report; the internal one is another file and says what it is."""
    message = one_line(run("report", model, "--comparison", compared), "report")
    assert message == "accuracy on private rows is not for release: pass --internal with --comparison"
    ran = run("report", model, "--comparison", compared, "--internal")
    assert ran.out == f"Written: {model.with_name(model.name + '-internal.html')} (not for release)\n"
    page = model.with_name(f"{model.name}-internal.html").read_text(encoding="utf-8")
    assert "Accuracy" in page
    assert "Accuracy" not in (model / "report.html").read_text(encoding="utf-8")


def test_a_ledger_is_for_the_internal_form_alone(run: Any, place: Path, tmp_path: Path, ledger: Path) -> None:
    """What was spent on the data set, as the ledger has it now."""
    assert run(*fit_words(place, tmp_path / "m", "--ledger", ledger, "--dataset", DATASET)).code == 0
    assert "cap epsilon" not in (tmp_path / "m" / "report.html").read_text(encoding="utf-8")
    assert "not for release" in one_line(run("report", tmp_path / "m", "--ledger", ledger), "report")
    assert run("report", tmp_path / "m", "--ledger", ledger, "--internal").code == 0
    assert "cap epsilon = 3" in (tmp_path / "m-internal.html").read_text(encoding="utf-8")


def test_the_report_of_a_comparison_is_internal(run: Any, compared: Path) -> None:
    """In the comparison's folder, marked as not for release."""
    ran = run("report", compared, "--json")
    assert ran.values == {"report": str(compared / "report.html"), "internal": True}
    assert (compared / "report.html").exists()
    assert "belong to the report of a model" in one_line(run("report", compared, "--audit", "x.json"), "report")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "3",
        '"text"',
        "{}",
        '{"epsilon": 1}',
        "\0",
        '{"format": "tulle comparison 1", "rows": 3, "hit_rates": 3}',
    ],
)
def test_damaged_results_are_refused(run: Any, model: Path, compared: Path, content: str) -> None:
    """Of an audit or of a comparison: one line, and the report that is there stays."""
    before = (model / "report.html").read_bytes()
    (compared / "comparison.json").write_text(content)
    words = "is damaged, or not a file that tulle wrote"
    assert words in one_line(run("report", model, "--internal", "--comparison", compared), "report")
    assert words in one_line(run("report", model, "--audit", compared / "comparison.json"), "report")
    assert words in one_line(run("report", compared), "report")
    assert (model / "report.html").read_bytes() == before


def test_reports_overwrite_nothing_that_they_read(run: Any, model: Path, audited: Path) -> None:
    """Neither the model nor the audit."""
    for output in (model / "model.npz", audited):
        before = output.read_bytes()
        assert "would be overwritten" in one_line(run("report", model, "--audit", audited, "-o", output), "report")
        assert output.read_bytes() == before
    assert "does not exist; tulle compare and" in one_line(run("report", model, "--audit", "nowhere.json"), "report")
    assert "does not exist; name a folder" in one_line(run("report", model / "nowhere"), "report")


def test_a_fit_in_a_ledger_is_at_the_ledgers_delta(run: Any, place: Path, tmp_path: Path) -> None:
    """Unless another is asked for: a promise at a laxer delta is worth less there than it says."""
    FileLedger.create(tmp_path / "strict.json", DATASET, Budget(3.0, 1e-9))
    words = fit_words(place, tmp_path / "m", "--ledger", tmp_path / "strict.json", "--dataset", DATASET)
    assert run(*words).code == 0
    assert json.loads((tmp_path / "m" / "privacy.json").read_text())["delta"] == 1e-9


def test_a_fit_never_writes_over_what_it_reads(run: Any, place: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Rows called weights.csv and a ledger called privacy.json lie where the model would go: refused, and untouched."""
    monkeypatch.chdir(tmp_path)
    Path("weights.csv").write_bytes((place / "outcome.csv").read_bytes())
    FileLedger.create("privacy.json", DATASET, Budget(3.0, 1e-4))
    before = {name: Path(name).read_bytes() for name in ("weights.csv", "privacy.json")}
    words = ["fit", "weights.csv", "--target", "outcome", "--epsilon", "1", "--row-linf", "1", "-o", "."]
    words += ["--ledger", "privacy.json", "--dataset", DATASET]
    assert "exists; name another folder" in one_line(run(*words), "fit")
    assert "would be overwritten" in one_line(run(*words, "--replace"), "fit")
    assert {name: Path(name).read_bytes() for name in before} == before


def test_a_report_never_writes_over_a_ledger(run: Any, model: Path, tmp_path: Path) -> None:
    """Whichever option names it."""
    FileLedger.create(tmp_path / "budget.json", DATASET, Budget(3.0, 1e-4))
    before = (tmp_path / "budget.json").read_bytes()
    for words in (("report", model), ("report", model, "--internal", "--ledger", tmp_path / "budget.json")):
        assert "is a ledger and would be overwritten" in one_line(run(*words, "-o", tmp_path / "budget.json"), "report")
    assert (tmp_path / "budget.json").read_bytes() == before


def test_an_internal_report_lies_outside_of_what_is_for_release(run: Any, model: Path, monkeypatch: Any) -> None:
    """Also where the command is given from inside the folder."""
    monkeypatch.chdir(model)
    assert run("report", ".", "--internal").code == 0
    assert run("report", "model.npz", "--internal").code == 0
    assert model.with_name(f"{model.name}-internal.html").exists()
    assert not list(model.glob("*internal*"))


@pytest.mark.parametrize("wrong", ["", "cmp"])
def test_a_model_goes_into_a_folder_of_its_own(
    run: Any, place: Path, tmp_path: Path, monkeypatch: Any, wrong: str
) -> None:
    """Not into the folder of a comparison, which is not for release, nor into one that was not named."""
    monkeypatch.chdir(tmp_path)
    Path("cmp").mkdir()
    Path("cmp", "comparison.json").write_text("{}")
    message = one_line(run(*fit_words(place, wrong, "--replace")), "fit")
    assert "holds a comparison" in message or "names no folder" in message


@pytest.mark.parametrize(
    "forged", [{"epsilon": "inf"}, {"confidence": 50}, {"delta": -1}, {"runs": 0}, {"hit_rates": [3.0]}]
)
def test_a_forged_audit_is_refused(
    run: Any, model: Path, audited: Path, tmp_path: Path, forged: dict[str, Any]
) -> None:
    """Figures that no audit can have found do not come onto a page that somebody signs."""
    (tmp_path / "forged.json").write_text(json.dumps(json.loads(audited.read_text()) | forged))
    message = one_line(run("report", model, "--audit", tmp_path / "forged.json", "-o", tmp_path / "r.html"), "report")
    assert "is damaged, or not a file that tulle wrote" in message
    assert not (tmp_path / "r.html").exists()


def test_a_verdict_is_computed_and_not_believed(run: Any, model: Path, audited: Path, tmp_path: Path) -> None:
    """A file that says "refuted: false" beside an epsilon above the claim."""
    values = json.loads(audited.read_text()) | {"epsilon": 5.0, "claimed": 1.0, "refuted": False}
    (tmp_path / "forged.json").write_text(json.dumps(values))
    assert run("report", model, "--audit", tmp_path / "forged.json", "-o", tmp_path / "r.html").code == 0
    assert "The claim is false" in (tmp_path / "r.html").read_text(encoding="utf-8")
