"""Logs of whole fits, searches, studies and commands, searched for cells of the rows: none are there.

Rows have distinctive values, labels, ids and words planted in them. A companion test plants leaks in the log and sees
that the same search finds each.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logged_cells import forms_of, kept_log, leaks
from replayed import Seen, differences, replayed

from tulle import Bounds, Budget, FileLedger, PrivateSearch, SparseClassifier, SparseRegressor, private_score
from tulle.backends.table_conversion import convert_table
from tulle.cli import main
from tulle.federated.client_side.client import Client
from tulle.federated.client_side.linear_study import linear_terms
from tulle.federated.link import DirectLink
from tulle.federated.server_side.aggregator import RowsAtClients
from tulle.federated.server_side.server import Server as FederatedServer
from tulle.federated.server_side.server import StudyStoppedError
from tulle.federated.server_side.simulation import simulate
from tulle.federated.terms import Terms
from tulle.local import LocalSparseRegressor
from tulle.local.server_side.http_server import HttpStudy
from tulle.local.server_side.protocols import LdpIht
from tulle.local.server_side.study_server import Server
from tulle.local.user_side.http_client import HttpUserClient, answer_for
from tulle.local.user_side.user import User
from tulle.methods import HardThresholding

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

N, D = 240, 5
NUMBERS = (731.8264519, -0.0594871236, 48193.57, 6.417938e-7)
LABELS = ("malignantxyz", "benignquux")
WORDS = ("zanzibarium", "Ötztal-Syndrom")
IDS = tuple(f"patient-{88231907 + 7 * k}" for k in range(N))
SEED = 918273645
# Labels of no class: how many there are must not be told either.
N_UNLABELLED = 17


def rows(seed: int = 0) -> Any:
    X = np.random.default_rng(seed).standard_normal((N, D))
    X[3, 1], X[7, 2], X[11, 0], X[19, 4] = NUMBERS
    return X


def labels() -> Any:
    y = np.array(LABELS, dtype=object)[(rows()[:, 0] > 0).astype(int)]
    y[-N_UNLABELLED:] = "unlabelledqq"
    return y


PLANTED: tuple[Any, ...] = (*NUMBERS, *LABELS, "unlabelledqq", *WORDS, *IDS[:40], SEED)


def sums() -> tuple[float, ...]:
    """Exact sums over the rows, and means."""
    X = rows()
    return (*X.sum(axis=0), *X.mean(axis=0), *np.abs(X).sum(axis=0), float((X**2).sum()), float(np.linalg.norm(X[3])))


def found_in(text: str) -> list[str]:
    """What a log must not have: planted cells, from four digits on, ordinary cells and sums from seven on. Of some 300
    numbers of seven digits one is in a log of 60 other numbers by chance once in 1,000 changes of the seeds here."""
    return [*leaks(text, PLANTED), *leaks(text, (*rows()[:60].ravel(), *sums()), 7)]


BOUNDS = Bounds(row_l2=1.0, label=2.0)


def classifier(**more: Any) -> SparseClassifier:
    return SparseClassifier(2.0, 1e-6, bounds=BOUNDS, classes=list(LABELS), random_state=SEED, **more)


def fit_under_a_ledger(folder: Path) -> None:
    FileLedger.create(folder / "budget", "visits 2026", Budget(5.0, 1e-5))
    with FileLedger(folder / "budget", "visits 2026", analyst="A. Smith", rows=IDS[0]):
        model = classifier().fit(rows(), labels(), groups=np.array(IDS))
        private_score(model, rows(), labels(), epsilon=0.5, random_state=SEED)
        Bounds.estimate(rows(), epsilon=0.5, random_state=SEED)
        with pytest.raises(RuntimeError):
            SparseClassifier(50.0, 1e-6, bounds=BOUNDS, classes=list(LABELS)).fit(rows(), labels())


def search(folder: Path) -> None:
    run_search(SEED)


def run_search(seed: int) -> None:
    search = PrivateSearch(classifier(), {"n_nonzero": [1, 2]}, Budget(3.0, 1e-6), n_trials=3, random_state=seed)
    search.fit(rows(), labels())


def local_study(folder: Path) -> None:
    """Simulated, and over HTTP with a message that does not count."""
    y = np.clip(rows()[:, 1], -1, 1)
    LocalSparseRegressor(1.0, bounds=Bounds(row_linf=1.0, label=1.0), random_state=SEED).fit(rows(), y)
    users = IDS[:6]
    protocol = LdpIht(Budget(1.0), D, Bounds(row_linf=1.0, label=1.0), True, n_gradients=1)
    server = Server(protocol, users, "a study", folder / "journal")
    with HttpStudy(server) as study:
        running = threading.Thread(target=study.run, args=(5.0,))
        running.start()
        with closing(HttpUserClient(study.url)) as client:
            assert not client.send(users[0], b"no answer")
        assert answer_for(study.url, [User(name, row, 0.5, max_epsilon=1.0) for name, row in zip(users, rows())]) == 6
        running.join(20.0)
    assert server.finished


def federated_terms() -> Terms:
    model = linear_terms(D, step=2.0, classes=LABELS, row_l2=2.0)
    return Terms("a study", model, 3, 1, 4, 2.0, 0.5, batch=20, epsilon=4.0, delta=1e-4)


def parts() -> dict[str, Any]:
    X, y = rows(), labels()
    return {IDS[0]: (X[:120], y[:120]), IDS[1]: (X[120:], y[120:])}


def simulated_federation(folder: Path) -> None:
    simulate(federated_terms(), parts(), folder=folder / "clients", seed=SEED)


def clients(folder: Path, **more: Any) -> DirectLink:
    """Clients that have people's names, with ledgers that do not."""
    made = {}
    for number, (name, (X, y)) in enumerate(parts().items()):
        ledger = FileLedger.create(folder / f"budget {number}", f"rows {number}", Budget(5.0, 1e-4))
        made[name] = Client(name, X, y, ledger=ledger, state=folder / f"state {number}", **more)
    return DirectLink({name: client.answer for name, client in made.items()})


def federated_study(folder: Path) -> None:
    """The second study is refused: the ledgers have no room for it."""
    link = clients(folder, seed=SEED)
    FederatedServer(federated_terms(), patience=1.0).run(link)
    with pytest.raises(StudyStoppedError):
        FederatedServer(replace(federated_terms(), study="another"), patience=0.1).run(link)


def trusted_aggregator(folder: Path) -> None:
    classifier().fit(RowsAtClients(clients(folder, trusts_aggregator=True)), None)


SCHEMA = f"""\
[columns]
amount = {{ range = [-1000, 100000] }}
town = {{ categories = ["{WORDS[0]}", "other"], other = true }}
note = {{ text = 4 }}
id = "ignore"

[target]
column = "outcome"
classes = ["{LABELS[0]}", "{LABELS[1]}"]
"""


def write_table(folder: Path) -> list[str]:
    """Words of a command that fits a raw table."""
    lines = ["id,amount,town,note,outcome"]
    for k, (name, row, label) in enumerate(zip(IDS, rows(), labels())):
        lines.append(f"{name},{NUMBERS[k % 4]!r},{WORDS[k % 2]},{WORDS[1]} {row[0]!r},{label}")
    (folder / "visits.csv").write_text("\n".join(lines), encoding="utf-8")
    (folder / "columns.toml").write_text(SCHEMA, encoding="utf-8")
    words = ["fit", str(folder / "visits.csv"), "--schema", str(folder / "columns.toml"), "--epsilon", "2"]
    return [*words, "--seed", str(SEED), "-o", str(folder / "model"), "-q"]


def command(folder: Path) -> None:
    assert main([*write_table(folder), "--log-json", str(folder / "log"), "--log-level", "debug"]) == 0


WORK: dict[str, Callable[[Path], None]] = {
    "fits, a score and an estimate": fit_under_a_ledger,
    "search": search,
    "local study": local_study,
    "simulated federation": simulated_federation,
    "federated study": federated_study,
    "trusted aggregator": trusted_aggregator,
    "command": command,
}


@pytest.mark.parametrize("what", WORK)
def test_no_cell_of_any_row_is_in_the_log(what: str, tmp_path: Path) -> None:
    with kept_log() as lines:
        WORK[what](tmp_path)
    assert len(lines) >= 3
    text = "\n".join(lines)
    if (tmp_path / "log").exists():
        text += (tmp_path / "log").read_text(encoding="utf-8")
    assert found_in(text) == []
    assert "A. Smith" not in text


@pytest.mark.parametrize("what", ["fits, a score and an estimate", "federated study", "trusted aggregator"])
def test_how_many_rows_have_no_label_is_not_in_the_log(what: str, tmp_path: Path) -> None:
    """Nor how many have one. Numbers of rows are those of the tables."""
    with kept_log() as lines:
        WORK[what](tmp_path)
    text = "\n".join(lines)
    for count in (N_UNLABELLED, N - N_UNLABELLED, 120 - N_UNLABELLED):
        assert f"={count} " not in f"{text} ".replace(",", " ").replace("\n", " ")
        assert f": {count}}}" not in text


@pytest.mark.parametrize("cell", [*NUMBERS, *LABELS, *WORDS, IDS[5], sums()[0], SEED], ids=str)
def test_the_search_finds_a_planted_leak(cell: Any) -> None:
    """In every way in which the cell is written, inside of a longer line, in a message or in a field."""
    logger = logging.getLogger("tulle.estimators.request")
    for form in forms_of(cell, 4 if cell in PLANTED else 7):
        with kept_log() as lines:
            logger.info("fitted row %s of many", form)
        assert form in found_in("\n".join(lines))
        with kept_log() as lines:
            logger.debug("fitted", extra={"largest": form})
        assert form in found_in("\n".join(lines))


def test_the_number_of_trials_of_a_search_is_not_in_the_log() -> None:
    """It is secret. Searches of many and of few trials have the same log, and nothing of it is a trial's."""
    seen = set()
    for seed in range(6):
        with kept_log() as lines:
            run_search(seed)
        seen.add("\n".join(lines))
    assert len(seen) == 1
    assert len(seen.pop().splitlines()) == 3  # begin, billed, end


def test_the_groups_of_a_simulated_study_are_not_in_the_log() -> None:
    """Their sizes follow from the seed: who can guess it from them can take the noise off."""
    seen = set()
    for seed in range(4):
        with kept_log() as lines:
            y = np.clip(rows()[:, 1], -1, 1)
            LocalSparseRegressor(1.0, bounds=Bounds(row_linf=1.0, label=1.0), random_state=seed).fit(rows(), y)
        seen.add("\n".join(lines))
    assert len(seen) == 1
    assert "local.round round=2" in seen.pop()


def test_a_long_fit_has_ten_lines_of_progress() -> None:
    """Not one for each answer: how long a single answer takes depends slightly on the rows."""
    with kept_log() as lines:
        classifier(method=HardThresholding(n_iter=40)).fit(rows(), labels())
    assert sum(line.startswith("release.progress") for line in lines) == 10


def test_a_conversion_logs_nothing_that_was_found_in_the_rows(tmp_path: Path) -> None:
    """Files of equally many rows, one with more entries and a larger last index, have the same log."""
    seen = set()
    for name, row in (("few", "1 1:0.5"), ("many", "1 1:0.5 3:0.25 977:2")):
        (tmp_path / f"{name}.svm").write_text(f"{row}\n" * 50, encoding="utf-8")
        with kept_log() as lines:
            convert_table(tmp_path / f"{name}.svm", tmp_path / f"{name}.blocks")
        seen.add("\n".join(lines))
    assert len(seen) == 1
    assert "convert.end n_rows=50 n_blocks=1" in seen.pop()


def told(_: Any) -> dict[str, Any]:
    return {}


def logged(one: Seen) -> list[str]:
    return one.logged


def regressor() -> SparseRegressor:
    return SparseRegressor(2.0, 1e-6, bounds=BOUNDS, random_state=1)


REPLAYED: dict[str, Callable[[Any, Any], Any]] = {
    "classifier": lambda X, y: classifier().fit(X, y),
    "people": lambda X, y: classifier().fit(X, y, groups=np.arange(N) // 2),
    "estimated bounds": lambda X, y: SparseClassifier(2.0, 1e-6, classes=list(LABELS), random_state=1).fit(X, y),
    "regression": lambda X, y: regressor().fit(X, np.clip(X[:, 0], -2, 2)),
    "score": lambda X, y: private_score(FITTED, X, y, epsilon=1.0, random_state=1),
    "estimate": lambda X, y: Bounds.estimate(X, epsilon=1.0, random_state=1),
}
FITTED = SparseClassifier(None, classes=list(LABELS)).fit(rows(), labels())


@pytest.mark.parametrize("what", REPLAYED)
def test_the_log_follows_from_public_facts_and_answers(what: str) -> None:
    """Front replay: unrelated rows of the same shape, other labels and fewer of them, and the answers of the first."""
    compute = REPLAYED[what]
    others = 1e5 * np.random.default_rng(9).standard_normal((N, D))
    other_labels = np.array([*LABELS, "neither"], dtype=object)[np.arange(N) % 3]
    pair = replayed(lambda: compute(rows(), labels()), lambda: compute(others, other_labels), told)
    assert len(logged(pair[0])) >= 3
    assert differences(*pair) == []
