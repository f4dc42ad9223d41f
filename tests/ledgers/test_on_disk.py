"""Ledgers on disk: nothing is released that is not on the bill, whoever is killed and whenever."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import tulle.trusted.fit
from tulle import Bounds, Budget, FileLedger, Ledger, PrivateSearch, SparseClassifier, private_score
from tulle.files.error_messages import PrivacyWarning
from tulle.ledgers.chain import Chain
from tulle.ledgers.conversion import convert
from tulle.ledgers.ledger import BudgetExceededError
from tulle.ledgers.on_disk import LedgerFileError, read_ledgers
from tulle.local import LocalSparseRegressor
from tulle.methods import HardThresholding
from tulle.trusted.accountants import best_accountant
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import Gaussian
from tulle.trusted.plan import Plan, Release, compose

DELTA = 1e-5
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (2_000, 4))
Y = X[:, 1] > 0


def model(epsilon: float | None = 0.5, **settings: Any) -> SparseClassifier:
    return SparseClassifier(epsilon, DELTA, **{"n_nonzero": 2, "bounds": Bounds(row_linf=1.0), **settings})


def plan(noise: float = 50.0) -> Plan:
    return Plan((Release("answer", Gaussian(NoisePerSensitivity(noise)), 1),))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    FileLedger.create(tmp_path / "budget", "visits", Budget(3.0, DELTA))
    return tmp_path / "budget"


def contents(path: Path) -> dict[str, bytes]:
    """Every file of a ledger."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def entry_files(path: Path, dataset: str = "visits") -> list[Path]:
    """The files of a data set's entries, without its opening."""
    return sorted(Chain(path, dataset).folder.glob("0*.json"))[1:]


# --- accounts --------------------------------------------------------------------------------------------------------


def test_fits_are_written_down_and_stay(path: Path) -> None:
    """Two blocks, as two processes would: the second goes on where the first stopped, with time, plan and note."""
    with FileLedger(path, "visits", note="A. Smith") as first:
        model().fit(X, Y)
    assert first.epsilon == pytest.approx(0.5, rel=1e-3)
    with FileLedger(path, "visits") as second:
        assert second.share == first.share > 0
        model().fit(X, Y)
    entries = FileLedger(path, "visits").entries
    assert [(entry.what, entry.note) for entry in entries] == [
        ("SparseClassifier.fit", "A. Smith"),
        ("SparseClassifier.fit", ""),
    ]
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\dT[\d:]+\+00:00", entry.time) for entry in entries)
    assert all(any("objective perturbation" in line for line in entry.plan) for entry in entries)
    assert entries[0].epsilon_so_far < entries[1].epsilon_so_far == FileLedger(path, "visits").epsilon
    assert "A. Smith" in str(second)
    assert "visits: cap epsilon = 3" in str(second)


def test_several_data_sets_share_a_folder_and_nothing_else(path: Path) -> None:
    """Each has its cap and its entries; an account cannot be opened twice, and none is opened by a slip of the pen."""
    FileLedger.create(path, "claims", Budget(1.0, DELTA))
    with FileLedger(path, "claims"):
        model().fit(X, Y)
    ledgers = read_ledgers(path)
    assert {(name, ledger.cap.epsilon, len(ledger.entries)) for name, ledger in ledgers.items()} == {
        ("visits", 3.0, 0),
        ("claims", 1.0, 1),
    }
    with pytest.raises(ValueError, match="an account for 'claims', and its cap cannot be changed"):
        FileLedger.create(path, "claims", Budget(9.0, DELTA))
    with pytest.raises(ValueError, match=r"no account for 'clams'; did you mean 'claims'\?"):
        FileLedger(path, "clams")
    assert FileLedger(path, "claims").cap == Budget(1.0, DELTA)


@pytest.mark.parametrize("name", ["cafe\u0301 2026", "CAFÉ 2026", "café  2026", "ｃafé 2026"])
def test_names_that_look_alike_are_one(tmp_path: Path, name: str) -> None:
    """Written otherwise in Unicode, in capitals or with another blank: no second cap for the same people."""
    path = tmp_path / "budget"
    FileLedger.create(path, "café 2026", Budget(1.0, DELTA))
    with pytest.raises(ValueError, match="an account for 'café 2026'"):
        FileLedger.create(path, name, Budget(1.0, DELTA))
    assert FileLedger(path, "cafe\u0301 2026").dataset == "café 2026"


def test_a_note_is_one_line(path: Path) -> None:
    """A forged entry in what people read would be the least of it."""
    with pytest.raises(ValueError, match="printable text on one line"):
        FileLedger(path, "visits", note="x\n    2  2026-01-01")


def test_other_folders_and_files_are_no_ledgers(tmp_path: Path) -> None:
    """A folder of other files, a file or a pipe is refused before anything is written to it, or waited for."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "rows.csv").write_text("a,b\n")
    pipe, rows = (tmp_path / "pipe", "not a ledger"), (tmp_path / "rows.csv", "is a file")
    for place, words in ((tmp_path, "no ledger.json"), pipe, rows):
        with pytest.raises(LedgerFileError, match=words):
            FileLedger(place, "visits")
    for place, words in ((tmp_path, "holds other files"), pipe, rows):
        with pytest.raises(LedgerFileError, match=words):
            FileLedger.create(place, "visits", Budget(1.0, DELTA))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["pipe", "rows.csv"]


@pytest.mark.parametrize("name", ["", " visits", "a\nb", 3])
def test_names_that_cannot_be_told_apart_are_refused(path: Path, name: Any) -> None:
    """Empty, padded, with line breaks, or no text."""
    with pytest.raises(ValueError, match="the name of a data set must be printable text"):
        FileLedger.create(path, name, Budget(1.0, DELTA))


def test_a_missing_ledger_is_not_made_by_opening_it(tmp_path: Path) -> None:
    """A wrong path must not give a fresh budget."""
    with pytest.raises(FileNotFoundError, match="no such ledger; create it with"):
        FileLedger(tmp_path / "none", "visits")
    assert list(tmp_path.iterdir()) == []


# --- the cap ---------------------------------------------------------------------------------------------------------


def test_the_cap_holds_over_many_openings(path: Path) -> None:
    """Fits of one size until one is refused: the folder is then as it was, to the byte, and no noise is drawn."""
    for _ in range(30):
        before = contents(path)
        try:
            with FileLedger(path, "visits"):
                model().fit(X, Y)
        except BudgetExceededError:
            break
    else:
        raise AssertionError("30 fits at 0.5 passed a cap of 3")
    assert contents(path) == before
    ledger = FileLedger(path, "visits")
    assert 12 < len(ledger.entries) < 30  # far more than plain sums allow
    assert ledger.share <= 1
    assert ledger.epsilon <= 3.0


def test_a_single_fit_may_spend_the_whole_cap(tmp_path: Path) -> None:
    """The first thing that anybody tries: a cap of 1 and a fit at 1."""
    FileLedger.create(tmp_path / "one", "visits", Budget(1.0, DELTA))
    with FileLedger(tmp_path / "one", "visits") as ledger:
        model(1.0).fit(X, Y)
        assert ledger.epsilon == pytest.approx(1.0, rel=1e-3)
        with pytest.raises(BudgetExceededError):
            model(0.01).fit(X, Y)


def test_a_spend_that_is_the_cap_but_for_rounding_can_be_read_again(tmp_path: Path) -> None:
    """0.1 + 0.2 is more than 0.3 by a rounding: accepted, and then the entry must not be refused for it."""
    path = tmp_path / "budget"
    FileLedger.create(path, "visits", Budget(0.3, 0.0))
    with FileLedger(path, "visits"):
        Bounds.estimate(X, epsilon=0.1 + 0.2)
    assert FileLedger(path, "visits").share > 1


def test_two_openings_see_each_other(path: Path) -> None:
    """What one has spent the other cannot spend again, though it was opened before."""
    first, second = FileLedger(path, "visits"), FileLedger(path, "visits")
    first.bill("test", [plan(2.0)], (2.2, DELTA))
    with pytest.raises(BudgetExceededError):
        second.bill("test", [plan(2.0)], (2.2, DELTA))
    assert second.share == first.share
    assert len(first.refresh().entries) == 1


def test_the_default_method_follows_hard_thresholding(path: Path) -> None:
    """A ledger in memory fixes Gaussian mu² and refuses the second; one that lasts must not."""
    with FileLedger(path, "visits") as ledger:
        model(method=HardThresholding(noise="gaussian")).fit(X, Y)
        model().fit(X, Y)
        model(method="frank_wolfe").fit(X, Y)
    assert len(ledger.entries) == 3


@pytest.mark.parametrize("noises", [[50.0] * 3, [20.0, 60.0], [15.0]])
def test_no_less_is_billed_than_everything_proves_together(path: Path, noises: list[float]) -> None:
    """What the ledger says is at least what the best accountant says of all plans at once, and at most the cap."""
    ledger = FileLedger(path, "visits")
    for noise in noises:
        alone = best_accountant(compose(plan(noise)), DELTA)[0]
        ledger.bill("test", [plan(noise)], (alone, DELTA))
    together = best_accountant(compose([r for noise in noises for r in plan(noise)]), DELTA)[0]
    assert together * (1 - 1e-9) <= ledger.epsilon <= 3.0


def test_a_fit_without_privacy_is_refused(path: Path) -> None:
    """epsilon=None passes any cap."""
    with FileLedger(path, "visits"), pytest.raises(BudgetExceededError):
        model(None).fit(X, Y)
    assert FileLedger(path, "visits").entries == ()


def test_another_unit_of_privacy_is_refused(path: Path) -> None:
    """Rows and people of three rows cannot be added up, in another process either."""
    with FileLedger(path, "visits"):
        model().fit(X, Y)
    with FileLedger(path, "visits"), pytest.raises(ValueError, match="units of 1 row"):
        model(bounds=Bounds(row_linf=1.0, rows_per_person=3)).fit(X, Y)


@pytest.mark.usefixtures("fixed_nonce")
def test_a_seed_gives_each_fit_its_own_noise(path: Path) -> None:
    """Two fits with one seed in two openings of one ledger differ; their difference would else be free of noise."""
    found = []
    for _ in range(2):
        with FileLedger(path, "visits"):
            found.append(model(random_state=3).fit(X, Y).coef_)
    assert not np.array_equal(*found)


@pytest.mark.usefixtures("fixed_nonce")
def test_a_seed_gives_each_data_set_its_own_noise(path: Path) -> None:
    """The same rows under two names, or in two ledgers: one seed, two noises. In one ledger they come again."""
    FileLedger.create(path, "copy", Budget(3.0, DELTA))
    FileLedger.create(path.with_name("other"), "visits", Budget(3.0, DELTA))
    found = []
    for file, name in ((path, "visits"), (path, "copy"), (path.with_name("other"), "visits")):
        with FileLedger(file, name):
            found.append(model(random_state=3).fit(X, Y).coef_)
    assert not any(np.array_equal(found[i], found[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    assert FileLedger(path, "visits").stream(0) == FileLedger(path, "visits").stream(0)


def _releases() -> dict[str, Any]:
    """What each kind of release gives with one seed, and its report."""
    fit = model(random_state=3).fit(X, Y)
    # About 3/4: noisy scores of a good model are cut at 1, which two noises can have in common.
    score = private_score(fit, X, Y[np.arange(len(Y)) // 2 * 2], epsilon=0.1, random_state=3)
    label, whole = X[:, 0], {"n_nonzero": 2, "bounds": Bounds(row_linf=1.0, row_l2=2.0, label=1.0), "random_state": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = PrivateSearch(SparseClassifier(bounds=Bounds(row_linf=1.0)), {}, Budget(0.5, DELTA), random_state=3)
        found = search.fit(X, Y)
        local = LocalSparseRegressor(0.5, **whole).fit(X, label)
    bounds = Bounds.estimate(X, epsilon=0.01, random_state=3)
    return {
        "fit": (fit.coef_.tolist(), fit.privacy_),
        "score": ([score.value], score.privacy),
        "search": ([found.best_score_, found.best_estimator_.coef_.tolist()], found.privacy_),
        "local": (local.coef_.tolist(), local.privacy_),
        "bounds": ([bounds.row_l2, bounds.row_linf], None),
    }


def _rolled_back(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same releases with the same seed before and after an older copy of the ledger is put back."""
    FileLedger.create(path, "roomy", Budget(10.0, 1e-3))
    shutil.copytree(path, path.with_name("copy"))
    with FileLedger(path, "roomy"):
        one = _releases()
    shutil.rmtree(path)
    path.with_name("copy").rename(path)
    with FileLedger(path, "roomy") as ledger:
        two = _releases()
    assert len(ledger.entries) == len(one)
    return one, two


def test_an_older_copy_of_the_ledger_and_the_same_seed_do_not_repeat_noise(path: Path) -> None:
    """Two models with one noise can be subtracted from each other. The reports speak of no seed: none decided."""
    one, two = _rolled_back(path)
    for kind in set(one) - {"bounds"}:
        assert one[kind][0] != two[kind][0], kind
        assert not one[kind][1].seeded, kind
        assert not any("seed" in line or "test hook" in line for line in one[kind][1].assumptions), kind
    # Bounds are powers of two, which agree by chance: they have the same stream as all others.
    assert FileLedger(path, "roomy").stream(0) != FileLedger(path, "roomy").stream(0)


@pytest.mark.usefixtures("fixed_nonce")
def test_a_test_hook_repeats_noise_and_every_report_names_it(path: Path) -> None:
    """So that a report of a fit under the hook cannot be taken for a private one's."""
    one, two = _rolled_back(path)
    for kind in one:
        assert one[kind][0] == two[kind][0], kind
        if kind != "bounds":
            assert one[kind][1].seeded, kind
            assert any("fixed by a test hook" in line for line in one[kind][1].assumptions), kind


def test_it_works_inside_and_beside_a_ledger_in_memory(path: Path) -> None:
    """Both are billed; where one refuses, the other is not charged."""
    with FileLedger(path, "visits") as lasting, Ledger(Budget(0.6, DELTA)) as short:
        model().fit(X, Y)
        with pytest.raises(BudgetExceededError):
            model().fit(X, Y)
    assert len(lasting.entries) == len(short.fits) == 1


# --- before the noise ------------------------------------------------------------------------------------------------


def test_the_bill_is_on_the_disk_before_noise_is_drawn(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the generator is made, the entry is there, and both its file and its folder were synchronised."""
    synced: list[bool] = []
    real_sync, real_generator = os.fsync, tulle.trusted.fit.keyed_generator

    def sync(handle: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(handle).st_mode))
        real_sync(handle)

    def generator(*arguments: Any) -> Any:
        assert len(entry_files(path)) == 1
        assert synced == [False, True]
        synced.append(True)
        return real_generator(*arguments)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(tulle.trusted.fit, "keyed_generator", generator)
    with FileLedger(path, "visits"):
        model().fit(X, Y)
    assert len(synced) == 3


_BILLING = """
import os, sys
from tulle.ledgers.on_disk import FileLedger
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import Gaussian
from tulle.trusted.plan import Plan, Release
from tulle.ledgers.ledger import BudgetExceededError

path, log, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
plan = Plan((Release("answer", Gaussian(NoisePerSensitivity(500.0)), 1),))
handle = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
print("ready", flush=True)
for _ in range(times):
    try:
        FileLedger(path, "visits").bill("billing", [plan], (0.005, 1e-12))
    except BudgetExceededError:
        break
    os.write(handle, b"released\\n")  # the noise would be drawn here
"""


def released(log: Path) -> int:
    return log.read_text().count("released") if log.exists() else 0


def test_a_process_killed_at_random_moments_never_undercounts(path: Path, tmp_path: Path) -> None:
    """Killed eight times while it does nothing but bill: the ledger reads well, and holds what was released.

    Each kill falls into a write with a chance of about one half (half of the time goes into writing). At most the one
    entry of a kill is on the bill without a release.
    """
    rng, log = random.Random(0), tmp_path / "log"
    for kills in range(1, 9):
        child = subprocess.Popen(
            [sys.executable, "-c", _BILLING, str(path), str(log), "100000"], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.0, 0.1))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        entries = FileLedger(path, "visits").entries
        assert released(log) <= len(entries) <= released(log) + kills
    assert released(log) >= 5  # a hundred or more on a quiet machine


def test_several_processes_spend_one_after_the_other(path: Path, tmp_path: Path) -> None:
    """Four processes bill at once until the cap: no entry is lost, and together they stay below it."""
    log = tmp_path / "log"
    small = path.with_name("small")
    FileLedger.create(small, "visits", Budget(0.2, DELTA))
    children = [
        subprocess.Popen([sys.executable, "-c", _BILLING, str(small), str(log), "1000"], stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    for child in children:
        child.communicate(timeout=120)
        assert child.returncode == 0
    ledger = FileLedger(small, "visits")
    assert len(ledger.entries) == released(log) >= 8
    assert ledger.share <= 1
    assert ledger.share > 0.97  # it was used up


def test_a_fit_killed_at_random_moments_never_undercounts(path: Path, tmp_path: Path) -> None:
    """`tulle fit --ledger` by SIGKILL: whenever there is a model, its entry is there; the ledger is never damaged."""
    data = tmp_path / "rows.npz"
    np.savez(data, X=X, y=Y.astype(float))
    rng = random.Random(1)
    command = [sys.executable, "-m", "tulle", "fit", str(data), "--epsilon", "0.1", "--row-linf", "1", "--quiet"]
    command += ["--ledger", str(path), "--dataset", "visits", "-o"]
    start = time.monotonic()
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    took = time.monotonic() - start
    for number in range(3):
        output = tmp_path / f"model{number}"
        before = len(FileLedger(path, "visits").entries)
        child = subprocess.Popen([*command, str(output)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Most moments towards the end, where reading is over.
        time.sleep(took * rng.betavariate(4, 1.5))
        child.send_signal(signal.SIGKILL)
        child.wait()
        after = len(FileLedger(path, "visits").entries)
        assert after - before in (0, 1)
        assert after - before == 1 or not (output / "model.npz").exists()
    assert len(FileLedger(path, "visits").entries) >= 1


_WORKER = """
import numpy as np
from tulle import Bounds, Budget, Ledger, SparseClassifier
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (500, 3))
with Ledger(Budget(99.0, 1e-5)):
    SparseClassifier(50.0, bounds=Bounds(row_linf=1.0)).fit(X, X[:, 0] > 0)
print("fitted unbilled")
"""


def test_a_worker_with_a_ledger_of_its_own_is_refused(path: Path) -> None:
    """In one process both ledgers would be billed; a child process cannot bill its parent's."""
    with FileLedger(path, "visits"):
        done = subprocess.run([sys.executable, "-c", _WORKER], capture_output=True, text=True)
    assert "a ledger is open in another process" in done.stderr
    assert done.stdout == ""


def test_a_worker_that_outlives_its_killed_parent_is_refused(path: Path, tmp_path: Path) -> None:
    """The parent dies by SIGKILL with its ledger open; its child must not take that for a closed ledger."""
    orphaned = "import os, sys, time\nwhile os.getppid() == int(sys.argv[1]):\n    time.sleep(0.01)\n"
    (tmp_path / "worker.py").write_text(f"{orphaned}{_WORKER}")
    parent = (
        "import os, signal, subprocess, sys\nfrom tulle import FileLedger\n"
        f"with FileLedger({str(path)!r}, 'visits'):\n"
        f"    with open({str(tmp_path / 'log')!r}, 'w') as log:\n"
        f"        worker = [sys.executable, {str(tmp_path / 'worker.py')!r}, str(os.getpid())]\n"
        "        subprocess.Popen(worker, stdout=log, stderr=log)\n"
        "    print(os.getpid(), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True)
    deadline = time.monotonic() + 60
    said = ""
    while time.monotonic() < deadline and not any(end in said for end in ("above this one", "fitted unbilled")):
        time.sleep(0.2)
        said = (tmp_path / "log").read_text()  # first a warning about epsilon
    assert f"process {done.stdout.strip()}, above this one, had a ledger open when this process was started" in said


# --- files of earlier versions ---------------------------------------------------------------------------------------


OLD = Path(__file__).parents[1] / "written_before" / "ledger.json"


def test_entries_of_before_say_that_their_delta_leaves_finite_precision_out(tmp_path: Path) -> None:
    """Each time that the ledger is opened and shown, also after new entries were written."""
    shutil.copy(OLD, tmp_path / "old.json")
    path, imprecise = convert(tmp_path / "old.json", tmp_path / "budget")
    assert imprecise == {"visits": 1}
    with pytest.warns(PrivacyWarning, match="visits: 1 entry was written before .* omits that part") as caught:
        ledger = FileLedger(path, "visits")
    assert len(caught) == 1
    assert str(caught[0].message) in str(ledger)
    with ledger:
        model().fit(X, Y)
    with pytest.warns(PrivacyWarning, match="visits: 1 entry was written before"):
        again = FileLedger(path, "visits")
    assert [entry.finite_precision for entry in again.entries] == [False, True]
    assert again.entries == ledger.entries


def test_nothing_is_said_of_entries_of_now(path: Path) -> None:
    """Warnings are errors here."""
    with FileLedger(path, "visits"):
        model().fit(X, Y)
    assert "written before" not in str(FileLedger(path, "visits"))


# --- the folder ------------------------------------------------------------------------------------------------------


def test_damage_is_noticed_and_nothing_is_released(path: Path) -> None:
    """Cut anywhere, or one character changed anywhere: refused in words, the files left as they are."""
    with FileLedger(path, "visits") as ledger:
        model().fit(X, Y)
        (file,) = entry_files(path)
        whole = file.read_bytes()
        rng = random.Random(0)
        damaged = [whole[: rng.randrange(len(whole) - 1)] for _ in range(20)]
        for _ in range(60):
            place = rng.randrange(len(whole))
            damaged.append(whole[:place] + bytes([whole[place] ^ (1 << rng.randrange(7))]) + whole[place + 1 :])
        refused = 0
        for content in damaged:
            file.write_bytes(content)
            try:
                model().fit(X, Y)
            except LedgerFileError as error:
                assert "othing is released" in str(error)  # noqa: PT017
                refused += 1
                assert file.read_bytes() == content
            else:  # a space more or less
                file.write_bytes(whole)
                entry_files(path)[-1].unlink()
                (path / Chain(path, "visits").folder.name / "last").unlink()
                ledger._last = ledger._chain.last(ledger._chain.opening)
    assert refused > 60


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not that of a tulle ledger"),
        (b"[]", "not that of a tulle ledger"),
        (b'{"format": "tulle ledger 4"}', "of another tulle; upgrade"),
        (b'{"format": "something else"}', "of another tulle"),
    ],
)
def test_foreign_folders_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    """And left as they are."""
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "ledger.json").write_bytes(content)
    with pytest.raises(LedgerFileError, match=words):
        FileLedger(tmp_path / "x", "visits")
    with pytest.raises(LedgerFileError, match=words):
        FileLedger.create(tmp_path / "x", "visits", Budget(1.0, DELTA))
    assert contents(tmp_path / "x") == {"ledger.json": content}


def test_an_old_copy_put_back_is_noticed(path: Path) -> None:
    """By a process that has it open; a fresh process needs a head or a witness."""
    shutil.copytree(path, path.with_name("copy"))
    with FileLedger(path, "visits"):
        model().fit(X, Y)
        shutil.rmtree(path)
        path.with_name("copy").rename(path)
        with pytest.raises(LedgerFileError, match=r"entry 1 .* is missing"):
            model().fit(X, Y)
    assert FileLedger(path, "visits").entries == ()


def test_links_lead_to_one_budget(path: Path, tmp_path: Path) -> None:
    """A symbolic link spends from the folder behind it."""
    link = tmp_path / "link"
    link.symlink_to(path)
    with FileLedger(link, "visits"):
        model().fit(X, Y)
    assert len(FileLedger(path, "visits").entries) == 1


def test_the_folder_is_for_its_owner_unless_its_owner_says_otherwise(path: Path) -> None:
    """New ledgers are readable by the owner alone; entries follow the mode of the folder."""
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.rglob("*.json")} == {0o600}
    path.chmod(0o770)
    FileLedger(path, "visits").bill("test", [plan()], (0.1, 0.0))
    assert stat.S_IMODE(entry_files(path)[0].stat().st_mode) == 0o660  # for any umask


# --- rows are only a hint --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_a_changed_row_does_not_reset_the_budget(path: Path, sparse: bool) -> None:
    """The name is the data set. Two hints were left, and what was spent stays spent."""
    changed = X.copy()
    changed[7, 1] += 0.5
    rows = [sp.csr_array(data) if sparse else data for data in (X, changed, X)]
    for data in rows:
        with FileLedger(path, "visits", rows=(data, Y)):
            model(0.2).fit(data, Y)
    assert len(FileLedger(path, "visits").entries) == 3
    assert len(list((path / "hints").iterdir())) == 2
    assert FileLedger(path, "visits").share > 0


def test_the_same_rows_under_another_name_are_told(path: Path) -> None:
    """A warning that names the other account; other rows, or no rows, say nothing."""
    FileLedger.create(path, "copy", Budget(3.0, DELTA))
    with FileLedger(path, "visits", rows=(X, Y)):
        model().fit(X, Y)
    with pytest.warns(UserWarning, match="the same rows were billed as 'visits' before"):
        FileLedger(path, "copy", rows=(X, Y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FileLedger(path, "copy", rows=(X + 1, Y))
        FileLedger(path, "copy")
        FileLedger(path, "visits", rows=(X, Y))


def test_hints_of_two_ledgers_cannot_be_compared(tmp_path: Path) -> None:
    """Each ledger has a key of its own, so that a hint of one says nothing about another. No entry holds one."""
    hints = set()
    for name in ("a", "b"):
        FileLedger.create(tmp_path / name, "visits", Budget(3.0, DELTA))
        ledger = FileLedger(tmp_path / name, "visits", rows=(X, Y, np.array(["word", None], dtype=object)))
        ledger.bill("test", [plan()], (0.1, 0.0))
        (hint,) = (tmp_path / name / "hints").iterdir()
        hints.add(hint.name.partition(".")[0])
        assert hint.name.partition(".")[0] not in entry_files(tmp_path / name)[0].read_text()
    assert len(hints) == 2
