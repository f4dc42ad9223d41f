"""`tulle fit --ledger` and `tulle ledger`: what is billed, and what is said of it."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands_and_files import DATASET, files_of, fit_words, one_line

from tulle import FileLedger, SparseClassifier, load
from tulle.estimators.saving import load_saved
from tulle.ledgers.chain import Chain


def test_a_fit_is_billed(run: Any, place: Path, tmp_path: Path, ledger: Path) -> None:
    """Who, what for and which model, in the ledger; the ledger's state in the outcome, and not in the model's file."""
    words = fit_words(
        place, tmp_path / "m", "--ledger", ledger, "--dataset", DATASET, "--by", "me", "--purpose", "test"
    )
    values = run(*words, "--json").values
    (entry,) = FileLedger(ledger, DATASET).entries
    assert (entry.analyst, entry.purpose, entry.note) == ("me", "test", "model: m")
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
    assert account["share"] == FileLedger(ledger, DATASET).share
    assert account["share"] == math.nextafter(entry.share, 1)  # sums are rounded up
    (line,) = account["entries"]
    assert (line["analyst"], line["purpose"], line["note"]) == ("me", "test", "model: m")


def test_past_the_cap_nothing_is_released(run: Any, place: Path, tmp_path: Path, ledger: Path) -> None:
    """Exit code 3; no file, no folder, and the ledger as it was."""
    before = files_of(ledger)
    words = fit_words(place, tmp_path / "deep" / "m", "--epsilon", 9, "--ledger", ledger, "--dataset", DATASET)
    message = one_line(run(*words), "fit", code=3)
    assert "nothing was released" in message
    ran = run(*words, "--json")
    assert ran.code == 3
    assert ran.values == {"error": {"kind": "refused", "message": message, "exit_code": 3}}
    assert files_of(ledger) == before
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
    before = files_of(ledger)
    words = fit_words(place, tmp_path / "m", "--epsilon", "none", "--ledger", ledger, "--dataset", DATASET)
    one_line(run(*words), "fit", code=3)
    assert files_of(ledger) == before


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
    assert "The budget is spent: the fit was billed and stays on the ledger" in ran.err
    assert len(FileLedger(ledger, DATASET).entries) == 1
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("billed", [True, False], ids=["ledger", "no-ledger"])
@pytest.mark.parametrize("what", ["model.npz", "report.html"])
def test_a_full_disk_after_the_bill_has_an_exit_code_of_its_own(
    run: Any, place: Path, tmp_path: Path, ledger: Path, monkeypatch: Any, what: str, billed: bool
) -> None:
    """Code 2 says that nothing was spent."""
    import tulle.files.archive
    import tulle.files.durable_writes

    real = tulle.files.durable_writes.write_durably

    def full(path: Any, *content: Any) -> None:
        if Path(path).name == what:
            raise OSError(28, "No space left on device", str(path))
        real(path, *content)

    for module in (tulle.files.durable_writes, tulle.files.archive):
        monkeypatch.setattr(module, "write_durably", full)
    words = fit_words(place, tmp_path / "m", *(("--ledger", ledger, "--dataset", DATASET) if billed else ()))
    message = one_line(run(*words), "fit", code=4)
    assert "No space left on device" in message
    assert ("The budget is spent: the fit was billed" if billed else "its epsilon is spent") in message
    assert len(FileLedger(ledger, DATASET).entries) == billed
    assert (tmp_path / "m").exists() == (what != "model.npz")
    failed = run(*words, "--replace", "--json").values["error"]
    assert (failed["kind"], failed["exit_code"]) == ("spent", 4)


_STOPPED = """
import sys, time
import tulle.cli, tulle.estimators.request, tulle.trusted.fit
def hang(*_, **__):
    print("here", file=sys.__stdout__, flush=True)
    # In short sleeps: a signal just before a call that blocks is handled when the call returns.
    while True:
        time.sleep(0.05)
tulle.{name} = hang
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
        [
            sys.executable,
            "-c",
            _STOPPED.format(name="estimators.request.clip_and_plan" if spent else "trusted.fit.bill_open_ledgers"),
            *map(str, words),
        ],
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
    assert ("The budget is spent: the fit was billed" in said) == spent
    assert len(FileLedger(ledger, DATASET).entries) == spent
    assert not (tmp_path / "deep").exists()


def test_files_of_before_say_that_their_delta_leaves_finite_precision_out(run: Any, tmp_path: Path) -> None:
    """In what ledger show and report print, in the page, and as a warning."""
    for name in ("ledger.json", "model.npz"):
        (tmp_path / name).write_bytes((Path(__file__).parents[1] / "written_before" / name).read_bytes())
    assert "convert it: tulle ledger convert" in one_line(run("ledger", "show", tmp_path / "ledger.json"), "ledger")
    converted = run("ledger", "convert", tmp_path / "ledger.json", tmp_path / "budget")
    assert "visits: 1 entry without the effect of finite precision in delta, which stays so." in converted.out
    assert (tmp_path / "ledger.json.converted").exists()
    shown = run("ledger", "show", tmp_path / "budget")
    assert "1 entry was written before tulle included" in shown.out
    assert "1 entry was written before tulle included" in shown.err
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


_FORKING = """
import os, signal, sys, time
import tulle.cli
from tulle.cli.outcome import Outcome
def fork(arguments):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, b"x")
        while True:
            time.sleep(0.05)
    os.read(read, 1)
    os.kill(child, signal.SIGTERM)
    return Outcome(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
import tulle.cli.predict
tulle.cli.predict.run = fork
sys.exit(tulle.cli.main(["predict", "m", "x.csv"]))
"""


def test_a_forked_worker_ends_by_sigterm_as_any_process() -> None:
    """It has nothing of the command to clean up, and does not report for it."""
    ran = subprocess.run([sys.executable, "-c", _FORKING], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{-signal.SIGTERM}\n", "")


def test_a_model_outlives_a_report_that_fails(run: Any, place: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """The budget is gone: the model is written first, and the user is told where it is."""

    def failing(*_: Any, **__: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tulle.reports.pages.fit_page", failing)
    message = one_line(run(*fit_words(place, tmp_path / "m")), "fit", code=4)
    safe = f"No space left on device The model is saved in {tmp_path / 'm' / 'model.npz'}."
    assert message == f"{safe} The fit had begun to draw its noise: its epsilon is spent."
    load(tmp_path / "m" / "model.npz")
    monkeypatch.undo()
    assert run("report", tmp_path / "m").code == 0


def test_ledgers_are_opened_once(run: Any, tmp_path: Path) -> None:
    """A second cap for the same data set is refused, and so is a cap that is none; a damaged file spends nothing."""
    path = tmp_path / "budget"
    words = ("ledger", "open", path, "--dataset", "a", "--epsilon", 1, "--delta", "1e-6")
    opened = run(*words, "--json")
    assert opened.code == 0
    assert opened.values["cap"] == {"epsilon": 1.0, "delta": 1e-6}
    assert opened.values["entries"] == []
    before = files_of(path)
    assert "already has an account for 'a'" in one_line(run(*words), "ledger")
    for option, value in (
        ("--epsilon", 0),
        ("--epsilon", "nan"),
        ("--delta", 1),
        ("--dataset", ""),
        ("--dataset", "a\nb"),
    ):
        one_line(run(*words, option, value), "ledger")
    assert files_of(path) == before
    assert run("ledger", "open", path, "--dataset", "b", "--epsilon", 2, "--delta", 0).code == 0
    shown = run("ledger", "show", path, "--json").values["datasets"]
    assert sorted(ledger["dataset"] for ledger in shown) == ["a", "b"]
    assert [
        ledger["dataset"] for ledger in run("ledger", "show", path, "--dataset", "b", "--json").values["datasets"]
    ] == ["b"]
    opening = Chain(path, "a").folder / "00000000.json"
    opening.write_bytes(opening.read_bytes().replace(b'"epsilon": 1.0', b'"epsilon": 9.0'))
    shown = one_line(run("ledger", "show", path, "--dataset", "a"), "ledger")
    assert "is not a valid entry of a tulle ledger" in shown
    assert "no such ledger" in one_line(run("ledger", "show", tmp_path / "nowhere"), "ledger")
