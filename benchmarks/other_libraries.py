"""tulle next to general libraries for differential privacy, on the same rows and at the same (epsilon, delta).

    DIFFPRIVLIB_PYTHON=.../python OPACUS_PYTHON=.../python python benchmarks/other_libraries.py [data ...]

A library runs in the interpreter that its variable names (they want other versions of scikit-learn than each other);
one whose variable is not set is left out, with a message. Real data is read from the folder in TULLE_DATA. tulle runs
with its defaults. The others run with the best of several settings, chosen *by looking at the test rows*, and are
then run again with fresh seeds. Writes docs/pictures/other_libraries.csv, which docs/other_libraries.md shows.

    DIFFPRIVLIB_PYTHON=.../python python benchmarks/other_libraries.py --attack

attacks the weights of diffprivlib's linear regression and writes docs/pictures/other_libraries_attack.csv.

    python benchmarks/other_libraries.py --weights

asks tulle for few weights where few matter and writes docs/pictures/other_libraries_weights.csv.

    DIFFPRIVLIB_PYTHON=... OPACUS_PYTHON=... SKGLM_PYTHON=... python benchmarks/other_libraries.py --speed [data ...]

races a private fit of tulle against these and against scikit-learn, and writes docs/speed/libraries.csv. There every
library has fixed settings: they decide about errors, and hardly about times.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from process_memory import megabytes

TABLE = Path(__file__).resolve().parent.parent / "docs/pictures/other_libraries.csv"
COLUMNS = (
    *("data", "n", "d", "task", "library", "version", "epsilon", "promised", "delta"),
    *("loss", "spread", "seconds", "megabytes", "setting", "refusal"),
)
DELTA = 1e-5
SEEDS = (1, 2, 3)


# --- data: rows are divided by their public bound, so that every library is told that norms are at most 1 ------------


def dense_classes(d: int) -> dict[str, Any]:
    """Entries uniform on (-1, 1), five weights that matter, labels by the logistic model."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (25_000, d))
    y = np.where(rng.random(25_000) < 1 / (1 + np.exp(-4 * X[:, :5].sum(axis=1))), 1.0, -1.0)
    return _split(X / np.sqrt(d), y, 20_000, entry=1 / np.sqrt(d))


def dense_numbers(d: int) -> dict[str, Any]:
    """The same with numbers as targets, in [-1, 1]."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (25_000, d))
    y = np.clip(X[:, :5].sum(axis=1) / 5 + rng.normal(0, 0.05, 25_000), -1, 1)
    return _split(X / np.sqrt(d), y, 20_000, entry=1 / np.sqrt(d))


def a9a() -> dict[str, Any]:
    """Adult census: 14 indicators a row, so that norms are at most the root of 14."""
    from tulle.datasets import load_a9a

    data, bound = load_a9a(), np.sqrt(14)
    return {
        "X_train": data.X_train / bound,
        "y_train": data.y_train,
        "X_test": data.X_test / bound,
        "y_test": data.y_test,
        "entry": 1 / bound,
    }


def rcv1(words: int | None) -> dict[str, Any]:
    """The RCV1 subset, with its commonest words alone or with all 47,236."""
    from tulle.datasets import load_rcv1_subset

    data = load_rcv1_subset()
    columns: Any = slice(None)
    if words is not None:
        columns = np.sort(np.argsort(-np.bincount(data.X_train.indices, minlength=data.X_train.shape[1]))[:words])
    return {
        "X_train": sp.csr_array(data.X_train)[:, columns],
        "y_train": data.y_train,
        "X_test": sp.csr_array(data.X_test)[:, columns],
        "y_test": data.y_test,
        "entry": 1.0,
    }


def _split(X: Any, y: Any, n: int, entry: float) -> dict[str, Any]:
    return {"X_train": X[:n], "y_train": y[:n], "X_test": X[n:], "y_test": y[n:], "entry": entry}


FEW_WORDS, MORE_WORDS, ALL_WORDS = "RCV1, 2,000 words", "RCV1, 10,000 words", "RCV1, all words"
DATA: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "dense, 20 features": ("classification", lambda: dense_classes(20)),
    "a9a": ("classification", a9a),
    FEW_WORDS: ("classification", lambda: rcv1(2_000)),
    MORE_WORDS: ("classification", lambda: rcv1(10_000)),
    ALL_WORDS: ("classification", lambda: rcv1(None)),
    "dense, 20 features, regression": ("regression", lambda: dense_numbers(20)),
    "dense, 200 features, regression": ("regression", lambda: dense_numbers(200)),
}

# A dense copy of more than this many numbers is not made: it would not fit into the memory of a laptop.
MOST_NUMBERS = 3e8


# --- the libraries: settings to choose from, and one fit that gives a prediction function ----------------------------


def tulle_fit(task: str, X: Any, y: Any, entry: float, epsilon: float, seed: int, setting: Any) -> Any:
    from tulle import Bounds, SparseClassifier, SparseRegressor

    if task == "classification":
        bounds = Bounds(row_l2=1.0, row_linf=entry)
        return SparseClassifier(epsilon, DELTA, bounds=bounds, random_state=seed).fit(X, y).predict
    bounds = Bounds(row_l2=1.0, row_linf=entry, label=1.0)
    return SparseRegressor(epsilon, DELTA, bounds=bounds, random_state=seed).fit(X, y).predict


def fit_without_privacy(task: str, X: Any, y: Any, entry: float, epsilon: float, seed: int, setting: Any) -> Any:
    from tulle import SparseClassifier

    return SparseClassifier(epsilon=None, random_state=seed).fit(X, y).predict


PUBLIC_ROWS = 3_000


def fit_with_public_rows(task: str, X: Any, y: Any, entry: float, epsilon: float, seed: int, setting: Any) -> Any:
    """The first rows are public, the others private."""
    from tulle import Bounds, SparseClassifier

    model = SparseClassifier(epsilon, DELTA, bounds=Bounds(row_l2=1.0, row_linf=entry), random_state=seed)
    return model.fit(X[PUBLIC_ROWS:], y[PUBLIC_ROWS:], public=X[:PUBLIC_ROWS]).predict


def diffprivlib_fit(task: str, X: Any, y: Any, entry: float, epsilon: float, seed: int, setting: Any) -> Any:
    models = import_module("diffprivlib.models")
    if task == "classification":
        model = models.LogisticRegression(epsilon=epsilon, data_norm=1.0, C=setting, max_iter=1000, random_state=seed)
    else:
        model = models.LinearRegression(
            epsilon=epsilon, bounds_X=(-entry, entry), bounds_y=(-1.0, 1.0), random_state=seed
        )
    return model.fit(X, y).predict


# Noise over the distance by which a replaced row moves a sum, of the fits of Opacus in this process.
noises: list[float] = []


def opacus_fit(task: str, X: Any, y: Any, entry: float, epsilon: float, seed: int, setting: Any) -> Any:
    """DP-SGD of a linear model: ten epochs on Poisson batches of a tenth of the rows.

    The intercept has a step of its own: its column is 1 in every row, and steps that suit the weights make it diverge.
    """
    torch, opacus = import_module("torch"), import_module("opacus")
    data = import_module("torch.utils.data")
    torch.manual_seed(seed)
    step, clip = setting
    epochs, X = 10, X.astype(np.float32)

    class Rows(data.Dataset):  # type: ignore[name-defined, misc]
        """Sparse rows are made dense a batch at a time."""

        def __len__(self) -> int:
            return int(X.shape[0])

        def __getitems__(self, which: Sequence[int]) -> tuple[Any, Any]:
            block = X[which].toarray() if sp.issparse(X) else X[which]
            targets = (y[which] + 1) / 2 if task == "classification" else y[which]
            return torch.from_numpy(block), torch.tensor(targets, dtype=torch.float32)

        def __getitem__(self, which: int) -> Any:
            return tuple(part[0] for part in self.__getitems__([which]))

    model = torch.nn.Linear(X.shape[1], 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD([{"params": [model.weight], "lr": step}, {"params": [model.bias], "lr": 0.5}])
    loader = data.DataLoader(Rows(), batch_size=X.shape[0] // 10, collate_fn=lambda batch: batch)
    model, optimizer, loader = opacus.PrivacyEngine().make_private_with_epsilon(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        target_epsilon=epsilon,
        target_delta=DELTA,
        epochs=epochs,
        max_grad_norm=clip,
    )
    loss = torch.nn.BCEWithLogitsLoss() if task == "classification" else torch.nn.MSELoss()
    for _ in range(epochs):
        for rows, targets in loader:
            optimizer.zero_grad()
            loss(model(rows).squeeze(1), targets).backward()
            optimizer.step()
    # What tulle calls sensitivity is of a replaced row: two clips, where Opacus counts one.
    noises.append(optimizer.noise_multiplier / 2)
    weights, constant = (part.detach().numpy().astype(float) for part in model.parameters())

    def predict(rows: Any) -> Any:
        margins = rows @ weights.ravel() + constant[0]
        return np.where(margins > 0, 1.0, -1.0) if task == "classification" else margins

    return predict


def replacing(noise: float, n: int) -> float:
    """The epsilon that ten epochs of DP-SGD have for replacing a row, as `opacus_fit` sets them up."""
    from tulle.trusted.accountants import epsilon
    from tulle.trusted.events import NoisePerSensitivity
    from tulle.trusted.mechanisms import SampledGaussian
    from tulle.trusted.plan import Release
    from tulle.trusted.sampling import Sampling

    batches = -(-n // (n // 10))  # an epoch; a row is in a batch with probability 1 / batches
    mechanism = SampledGaussian(NoisePerSensitivity(noise), Sampling("poisson", 1_000 * batches, 1_000))
    return epsilon((Release("steps", mechanism, 10 * batches),), DELTA)


SAME_PROMISE = "tulle (at Opacus's promise)"
Library = tuple[str, Callable[..., Any], dict[str, tuple[Any, ...]], bool]
LIBRARIES: dict[str, Library] = {  # the variable with its interpreter, its fit, settings, whether rows must be dense
    "tulle": ("", tulle_fit, {"classification": ("defaults",), "regression": ("defaults",)}, False),
    "diffprivlib": (
        "DIFFPRIVLIB_PYTHON",
        diffprivlib_fit,
        {"classification": (0.01, 0.1, 1.0, 10.0, 100.0), "regression": ("defaults",)},
        True,
    ),
    "opacus": (
        "OPACUS_PYTHON",
        opacus_fit,
        {
            task: tuple((step, clip) for step in (1.0, 8.0, 64.0, 512.0) for clip in (0.1, 0.5))
            for task in ("classification", "regression")
        },
        False,
    ),
    # tulle once more, at the epsilon that the noise of the fit of Opacus before it has for replacing a row.
    SAME_PROMISE: ("OPACUS_PYTHON", tulle_fit, {"classification": ("defaults",), "regression": ("defaults",)}, False),
}


def loss_of(task: str, predicted: Any, y: Any) -> float:
    """Test error, or 1 − R²."""
    if task == "classification":
        return float(np.mean(predicted != y))
    return float(np.sum((predicted - y) ** 2) / np.sum((y - y.mean()) ** 2))


# --- one cell, in the library's own interpreter ----------------------------------------------------------------------


def save_parts(parts: dict[str, Any], folder: Path) -> None:
    for name, part in parts.items():
        if sp.issparse(part):
            sp.save_npz(folder / f"{name}.npz", sp.csr_matrix(part), compressed=False)
        else:
            np.save(folder / f"{name}.npy", part)


def load_part(folder: Path, name: str) -> Any:
    sparse = folder / f"{name}.npz"
    return sp.csr_array(sp.load_npz(sparse)) if sparse.exists() else np.load(folder / f"{name}.npy")


def work(library: str, task: str, epsilon: float, folder: Path, setting: Any) -> dict[str, Any]:
    """What one library does with the rows in a folder: the loss with fresh seeds, time, memory, or its refusal."""
    _, fit, settings, dense = LIBRARIES[library]
    X, y, X_test, y_test = (load_part(folder, name) for name in ("X_train", "y_train", "X_test", "y_test"))
    entry = float(np.load(folder / "entry.npy"))
    found: dict[str, Any] = {"version": version(library.partition(" ")[0])}
    if dense and sp.issparse(X):
        try:
            fit(task, X, y, entry, epsilon, 0, settings[task][0])
        except (TypeError, ValueError) as refusal:
            found["refusal"] = f"{type(refusal).__name__}: {refusal}"
        if X.shape[0] * X.shape[1] > MOST_NUMBERS:
            return found
        X, X_test = X.toarray(), X_test.toarray()
    if fit is tulle_fit:
        fit(task, X, y, entry, epsilon, 0, None)  # compiles what numba compiles, once on a machine

    def measured(seed: int, setting: Any) -> tuple[float, float]:
        start = time.process_time()  # of one thread (OMP_NUM_THREADS=1), independent of other load
        predict = fit(task, X, y, entry, epsilon, seed, setting)
        return time.process_time() - start, loss_of(task, predict(X_test), y_test)

    choices = settings[task] if setting is None else (setting,)
    best = choices[0] if len(choices) == 1 else min(choices, key=lambda setting: measured(0, setting)[1])
    seconds, losses = zip(*(measured(seed, best) for seed in SEEDS))
    return found | {
        "loss": round(float(np.mean(losses)), 4),
        "spread": round(float(np.std(losses, ddof=1)), 4),
        "seconds": float(f"{np.median(seconds):.2g}"),
        "megabytes": round(megabytes("VmHWM")),
        "setting": json.dumps(best),
        "noise": noises[-1] if noises else None,
    }


def answer_of(call: Sequence[str]) -> dict[str, Any]:
    """What a process of one thread prints last."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    environment = {**os.environ, **threads}
    answer = subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return dict(json.loads(answer.splitlines()[-1]))


# --- all cells -------------------------------------------------------------------------------------------------------


def cells(names: Sequence[str], before: Sequence[dict[str, str]]) -> Iterator[dict[str, Any]]:
    """Each data set with each library and budget."""
    # With more words a search takes hours: the setting is the one that was best on 2,000 of them.
    chosen = {(row["library"], float(row["epsilon"])): row["setting"] for row in before if row["data"] == FEW_WORDS}
    noise: dict[float, float] = {}
    for data in names:
        task, make = DATA[data]
        parts = make()
        with tempfile.TemporaryDirectory() as folder:
            save_parts(parts, Path(folder))
            n, d = parts["X_train"].shape
            for library, (variable, *_) in LIBRARIES.items():
                python = os.environ.get(variable) if variable else sys.executable
                if python and LIBRARIES[library][1] is tulle_fit:
                    python = sys.executable
                if not python:
                    print(f"{library} is left out: name an interpreter that has it in {variable}", file=sys.stderr)
                    continue
                for epsilon in (1.0, 4.0):
                    promised = replacing(noise[epsilon], n) if library == SAME_PROMISE else epsilon
                    known = chosen.get((library, epsilon)) if data in (MORE_WORDS, ALL_WORDS) else None
                    call = [python, "-W", "ignore", __file__, "--cell", library, task, str(promised), folder]
                    call.append(known or "null")
                    about = {"data": data, "n": n, "d": d, "task": task, "library": library}
                    found = answer_of(call)
                    if data == FEW_WORDS:
                        chosen[library, epsilon] = found["setting"]
                    if library == "opacus":
                        noise[epsilon] = found["noise"]
                    yield about | {"epsilon": epsilon, "promised": round(promised, 4), "delta": DELTA} | found


# --- an attack on a printed epsilon ----------------------------------------------------------------------------------

ATTACKED = {"epsilon": 0.5, "runs": 2_000, "threshold": 85.0}


def guesses() -> dict[str, Any]:
    """How often the weight of a regression on two rows is above a threshold fixed beforehand, in two worlds.

    The worlds differ in one row, x = 0.01 or x = 1, of a feature in [0, 1]. The weight is noise divided by the sum of
    x², so that it is 5,000 times as large in one of them where that sum has no noise.
    """
    model = import_module("diffprivlib.models").LinearRegression
    counts = []
    for first in (0.01, 1.0):
        X, y = np.array([[first], [0.01]]), np.zeros(2)
        settings = {"epsilon": ATTACKED["epsilon"], "bounds_X": (0, 1), "bounds_y": (0, 1), "fit_intercept": False}
        weights = [abs(model(**settings).fit(X, y).coef_[0]) for _ in range(int(ATTACKED["runs"]))]
        counts.append(int(np.sum(np.array(weights) > ATTACKED["threshold"])))
    return {"version": version("diffprivlib"), "hits": counts[0], "false_hits": counts[1]}


def attack() -> None:
    from tulle.audit import epsilon_lower_bound

    python = os.environ.get("DIFFPRIVLIB_PYTHON")
    if not python:
        sys.exit("name an interpreter that has diffprivlib in DIFFPRIVLIB_PYTHON")
    call = [python, "-W", "ignore", __file__, "--guesses"]
    found = json.loads(subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout)
    proved = epsilon_lower_bound(found["hits"], found["false_hits"], int(ATTACKED["runs"]), 0.0, 0.95)
    row = ATTACKED | found | {"confidence": 0.95, "proved": float(proved)}
    with TABLE.with_name("other_libraries_attack.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(row), lineterminator="\n")
        table.writeheader()
        table.writerow(row)
    print(json.dumps(row))


# --- few weights, where few matter -----------------------------------------------------------------------------------


def few_weights() -> None:
    """tulle on 200 dense features of which five matter, asked for 20 weights."""
    from tulle import Bounds, SparseRegressor

    data = dense_numbers(200)
    bounds = Bounds(row_l2=1.0, row_linf=data["entry"], label=1.0)
    with TABLE.with_name("other_libraries_weights.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("data", "epsilon", "n_nonzero", "loss", "spread"))
        for epsilon in (1.0, 4.0):
            losses = [
                1
                - SparseRegressor(epsilon, DELTA, n_nonzero=20, bounds=bounds, random_state=seed)
                .fit(data["X_train"], data["y_train"])
                .score(data["X_test"], data["y_test"])
                for seed in SEEDS
            ]
            row = ("dense, 200 features, regression", epsilon, 20, round(np.mean(losses), 4), round(np.std(losses), 4))
            print(*row)
            table.writerow(row)


# --- how long they take ----------------------------------------------------------------------------------------------

SPEED_TABLE = TABLE.parent.parent / "speed/libraries.csv"
SPEED_COLUMNS = (
    *("data", "n", "d", "library", "version", "what", "private"),
    *("seconds", "ratio", "first_seconds", "megabytes", "error", "needed_megabytes", "refusal"),
)
WIDER = "dense, 200 features"
RACED = ("dense, 20 features", WIDER, FEW_WORDS, ALL_WORDS)
# A fit longer than this is timed once.
LONG = 20.0


def liblinear_fit(task: str, X: Any, y: Any, entry: float, epsilon: float, seed: int, setting: Any) -> Any:
    linear = import_module("sklearn.linear_model")
    return linear.LogisticRegression(C=1.0, l1_ratio=1.0, solver="liblinear", random_state=seed).fit(X, y).predict


def saga_fit(task: str, X: Any, y: Any, entry: float, epsilon: float, seed: int, setting: Any) -> Any:
    linear = import_module("sklearn.linear_model")
    return linear.LogisticRegression(C=1.0, l1_ratio=1.0, solver="saga", random_state=seed).fit(X, y).predict


def sgd_fit(task: str, X: Any, y: Any, entry: float, epsilon: float, seed: int, setting: Any) -> Any:
    linear = import_module("sklearn.linear_model")
    return linear.SGDClassifier(loss="log_loss", random_state=seed).fit(X, y).predict


def skglm_fit(task: str, X: Any, y: Any, entry: float, epsilon: float, seed: int, setting: Any) -> Any:
    """The same objective as scikit-learn's with C = 1: there the loss is a sum, here a mean."""
    return import_module("skglm").SparseLogisticRegression(alpha=1 / X.shape[0]).fit(X, y).predict


class Racer(NamedTuple):
    """One line of the race: the fit, its interpreter, whether it is private, whether rows must be dense."""

    package: str
    what: str
    variable: str
    private: bool
    fit: Callable[..., Any]
    setting: Any = None
    dense: bool = False


RACERS = {
    "tulle": Racer("tulle", "all defaults, ε = 1", "", True, tulle_fit),
    "diffprivlib": Racer(
        "diffprivlib", "LogisticRegression, C = 1, ε = 1", "DIFFPRIVLIB_PYTHON", True, diffprivlib_fit, 1.0, dense=True
    ),
    "opacus": Racer("opacus", "DP-SGD, ten epochs, ε = 1", "OPACUS_PYTHON", True, opacus_fit, (64.0, 0.1)),
    "liblinear": Racer("scikit-learn", "ℓ1 LogisticRegression, liblinear, C = 1", "", False, liblinear_fit),
    "saga": Racer("scikit-learn", "ℓ1 LogisticRegression, saga, C = 1", "", False, saga_fit),
    "skglm": Racer("skglm", "SparseLogisticRegression, the same penalty", "SKGLM_PYTHON", False, skglm_fit),
}
COMPARED = tuple(RACERS)
# Of whole jobs alone (benchmarks/whole_jobs.py).
RACERS |= {
    "tulle, no privacy": Racer("tulle", "epsilon=None", "", False, fit_without_privacy),
    "tulle, public rows": Racer("tulle", "all defaults, ε = 1, public rows", "", True, fit_with_public_rows),
    "SGDClassifier": Racer("scikit-learn", "SGDClassifier, log_loss", "", False, sgd_fit),
}


def timed(name: str, folder: Path) -> dict[str, Any]:
    """The CPU seconds of one thread of a fit after the first, the first one's, memory and test error."""
    racer = RACERS[name]
    X, y, X_test, y_test = (load_part(folder, part) for part in ("X_train", "y_train", "X_test", "y_test"))
    entry = float(np.load(folder / "entry.npy"))
    found: dict[str, Any] = {"version": version(racer.package)}

    def fit(seed: int) -> tuple[float, Any]:
        start = time.process_time()
        predict = racer.fit("classification", X, y, entry, 1.0, seed, racer.setting)
        return time.process_time() - start, predict

    if racer.dense and sp.issparse(X):
        try:
            fit(0)
        except (TypeError, ValueError) as refusal:
            found["refusal"] = f"{type(refusal).__name__}: {refusal}"
        if X.shape[0] * X.shape[1] > MOST_NUMBERS:
            return found | {"needed_megabytes": round(8 * X.shape[0] * X.shape[1] / 1e6)}
        X, X_test = X.toarray(), X_test.toarray()
    first, predict = fit(0)
    seconds = [first] if first > LONG else [fit(seed)[0] for seed in SEEDS]
    return found | {
        "seconds": float(np.median(seconds)),
        "first_seconds": first,
        "megabytes": round(megabytes("VmHWM")),
        "error": loss_of("classification", predict(X_test), y_test),
    }


def timed_in_process(name: str, folder: str) -> dict[str, Any] | None:
    """`timed` in a new process of the library's interpreter; None, with a message, without one."""
    variable = RACERS[name].variable
    python = os.environ.get(variable) if variable else sys.executable
    if not python:
        print(f"{name} is left out: name an interpreter that has it in {variable}", file=sys.stderr)
        return None
    return answer_of([python, "-W", "ignore", __file__, "--timed", name, folder])


def race(names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Each data set with each library, tulle just before each of the others: its time is what theirs is divided by."""
    for data in names:
        parts = dense_classes(200) if data == WIDER else DATA[data][1]()
        n, d = parts["X_train"].shape
        with tempfile.TemporaryDirectory() as folder:
            save_parts(parts, Path(folder))
            for name in COMPARED:
                racer = RACERS[name]
                ours = timed_in_process("tulle", folder)
                found = ours if name == "tulle" else timed_in_process(name, folder)
                if ours is None or found is None:
                    continue
                if "seconds" in found:
                    found["ratio"] = found["seconds"] / ours["seconds"]
                for figure in ("seconds", "ratio", "first_seconds", "error"):
                    if figure in found:
                        found[figure] = float(f"{found[figure]:.3g}")
                about = {"data": data, "n": n, "d": d, "library": name, "what": racer.what, "private": racer.private}
                yield about | found


def speed(names: Sequence[str]) -> None:
    rows: list[dict[str, Any]] = []
    if SPEED_TABLE.exists():
        with SPEED_TABLE.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["data"] not in names]
    for row in race(names):
        print(json.dumps(row, ensure_ascii=False), flush=True)
        rows.append({column: str(row.get(column, "")) for column in SPEED_COLUMNS})
        SPEED_TABLE.parent.mkdir(exist_ok=True)
        with SPEED_TABLE.open("w", newline="") as file:
            table = csv.DictWriter(file, SPEED_COLUMNS, lineterminator="\n")
            table.writeheader()
            table.writerows(sorted(rows, key=lambda row: RACED.index(row["data"])))


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["--timed"]:
        print(json.dumps(timed(arguments[1], Path(arguments[2]))))
        return
    if arguments[:1] == ["--speed"]:
        speed(list(arguments[1:]) or list(RACED))
        return
    if arguments == ["--guesses"]:
        print(json.dumps(guesses()))
        return
    if arguments == ["--attack"]:
        attack()
        return
    if arguments == ["--weights"]:
        few_weights()
        return
    if arguments[:1] == ["--cell"]:
        library, task, epsilon, folder, setting = arguments[1:]
        print(json.dumps(work(library, task, float(epsilon), Path(folder), json.loads(setting))))
        return
    names = list(arguments) or list(DATA)
    before: list[dict[str, str]] = []
    if TABLE.exists():
        with TABLE.open(newline="") as file:
            before = list(csv.DictReader(file))
    rows = [row for row in before if row["data"] not in names]
    for row in cells(names, before):
        print(json.dumps(row), flush=True)
        rows.append({column: str(row.get(column, "")) for column in COLUMNS})
        with TABLE.open("w", newline="") as file:
            table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            table.writeheader()
            table.writerows(sorted(rows, key=lambda row: list(DATA).index(row["data"])))


if __name__ == "__main__":
    main(sys.argv[1:])
