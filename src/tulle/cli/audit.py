"""Attack a method, a saved model's settings or your own function, for a lower bound on its epsilon.

  tulle audit --method screen_refine --epsilon 1 --delta 1e-5 --runs 5000
  tulle audit models/readmission -o audit.json          # its settings, on synthetic data; then: tulle report
  tulle audit my_fit.py:fit --claimed 1 --delta 1e-5    # fit(X, y, rng) -> everything that it would publish
  tulle audit my_model.py:make --claimed 1 --delta 0    # an estimator of any library, or a function that makes one
  tulle audit --method hard_thresholding --judge gaussian   # tests the mu of its plan
  tulle audit my_fit.py:fit --claimed 1 --sequential --resume runs/  # stops when sure; Ctrl-C, and the same again

No private rows are read: the audit makes neighbouring data sets from the bounds. The exit code is 1 if the claim is
refuted. An audit that finds nothing shows only that this attack, with this many runs, found no leak. A file with a
function may also define neighbours() -> ((X, y), (X, y)), which returns the two data sets.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tulle.cli.data import add_model_arguments, estimator_class, model_settings
from tulle.cli.logs import is_silent
from tulle.cli.outcome import BAD_NEWS, DONE, Outcome, UserError, output_file
from tulle.files.error_messages import describe_error

if TYPE_CHECKING:
    from tulle.audit import AuditResult, SequentialResult

# What a saved model knows itself.
_SETTINGS = ("epsilon", "delta", "row_l2", "row_linf", "label_bound", "task", "n_nonzero", "loss")
# The judges that test each claim.
_TESTED_BY = {
    "claimed": ("any",),
    "claimed_mu": ("gaussian", "curve"),
    "claimed_range": ("bounded_range", "curve"),
    "claimed_curve": ("curve",),
}
_RUNS, _MOST_RUNS, _PILOT_RUNS = 2_000, 20_000, 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", nargs="?", metavar="SUBJECT", help="a model's folder or file, or FILE.py:FUNCTION")
    parser.add_argument("--method", metavar="NAME", help="audit this method, with the settings given here")
    parser.add_argument("--epsilon", type=float, metavar="E", help="with --method: the budget, default 1")
    parser.add_argument("--delta", type=float, metavar="D", help="default 1e-5")
    parser.add_argument("--claimed", type=float, metavar="E", help="the epsilon to refute; default: the budget")
    parser.add_argument(
        "--calibration", choices=("rigorous", "published"), default="rigorous", help="published: the paper's noise"
    )
    parser.add_argument(
        "--judge",
        choices=("any", "gaussian", "bounded_range", "curve"),
        default="any",
        help="any (default): assume nothing, test an epsilon; gaussian: test a claim of mu-GDP, with more power; "
        "bounded_range: test the range of a choice; curve: test a mu, a range or a curve at many thresholds",
    )
    parser.add_argument(
        "--claimed-mu", type=float, metavar="MU", help="with --judge gaussian: the mu to refute; default: the plan's"
    )
    parser.add_argument(
        "--claimed-range",
        type=float,
        metavar="R",
        help="with --judge bounded_range: the range to refute; default: the plan's",
    )
    parser.add_argument(
        "--claimed-curve", metavar="E:D,…", help="with --judge curve: pairs epsilon:delta that are claimed at once"
    )
    add_model_arguments(parser)
    running = parser.add_argument_group("the audit")
    running.add_argument("--runs", type=int, metavar="N", help=f"fits on each of the two data sets (default {_RUNS:,})")
    running.add_argument(
        "--sequential", action="store_true", help="stop as soon as the claim is refuted; may be stopped and resumed"
    )
    running.add_argument(
        "--most-runs",
        type=int,
        metavar="N",
        help=f"with --sequential: runs on each data set after which it gives up (default {_MOST_RUNS:,})",
    )
    running.add_argument("--rows", type=int, default=6, metavar="N", help="rows of the synthetic data sets (default 6)")
    running.add_argument("--features", type=int, default=2, metavar="D", help="their features (default 2)")
    running.add_argument("--confidence", type=float, default=0.95, metavar="P", help="of the verdict (default 0.95)")
    running.add_argument("--seed", type=int, metavar="N", help="to repeat an audit")
    running.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    running.add_argument("--seconds", type=float, metavar="T", help="stop after this time and use the finished runs")
    running.add_argument("--resume", metavar="FOLDER", help="store finished runs here and resume from them")
    running.add_argument("-o", "--output", metavar="FILE", help="write the result as JSON, for tulle report --audit")
    running.add_argument("--page", metavar="FILE", help="write the result as an HTML page with the trade-off curve")
    running.add_argument("--plot", metavar="FILE", help="draw the attack (needs matplotlib)")


def run(arguments: argparse.Namespace) -> Outcome:
    from tulle.audit import SequentialResult

    if (arguments.subject is None) == (arguments.method is None):
        raise UserError("choose what to audit: --method NAME, a saved model, or FILE.py:FUNCTION")
    # Before the runs: an audit can take hours.
    for option, allowed, sound in (
        ("runs", ">= 16", arguments.runs is None or arguments.runs >= 16),
        ("most_runs", ">= 24", arguments.most_runs is None or arguments.most_runs >= 24),
        ("rows", ">= 3: one that changes and two others", arguments.rows >= 3),
        ("features", ">= 1", arguments.features >= 1),
        ("jobs", "a number of processes, or -1 for all cores", arguments.jobs != 0),
        ("confidence", "strictly between 0 and 1", 0 < arguments.confidence < 1),
        ("claimed", "a finite number >= 0", arguments.claimed is None or 0 <= arguments.claimed < math.inf),
        ("claimed_mu", "a finite number >= 0", arguments.claimed_mu is None or 0 <= arguments.claimed_mu < math.inf),
        (
            "claimed_range",
            "a number in [0, 500)",
            arguments.claimed_range is None or 0 <= arguments.claimed_range < 500,
        ),
    ):
        if not sound:
            raise UserError(f"--{option.replace('_', '-')} must be {allowed}, got {getattr(arguments, option)}")
    _check_claims(arguments)
    if not arguments.sequential and arguments.most_runs is not None:
        raise UserError("--most-runs belongs to --sequential; an audit of a fixed size has --runs")
    if arguments.sequential and arguments.runs is not None:
        raise UserError("--sequential stops when it is sure: limit its runs with --most-runs, and omit --runs")
    if arguments.sequential and arguments.plot is not None:
        raise UserError(
            "--plot draws the attack of an audit of a fixed size; --page draws the evidence of --sequential"
        )
    for name in (arguments.output, arguments.page, arguments.plot):
        if name is not None:
            output_file(name, arguments.subject)
    if arguments.plot is not None and importlib.util.find_spec("matplotlib") is None:
        raise UserError("--plot needs matplotlib; install it, or omit --plot")
    try:
        result = _audit(arguments)
    except KeyboardInterrupt as stop:
        if arguments.resume is None:
            raise
        again = "the same command continues with the finished runs"
        raise KeyboardInterrupt(f"interrupted; {again} in {arguments.resume}") from stop
    if arguments.output is not None:
        from tulle.files.durable_writes import write_durably

        write_durably(arguments.output, result.to_json().encode())
    if arguments.page is not None:
        result.save_page(arguments.page)
    if arguments.plot is not None and not isinstance(result, SequentialResult):
        result.plot(arguments.plot)
    return Outcome(str(result), result.to_dict(), BAD_NEWS if result.refuted else DONE)


def _check_claims(arguments: argparse.Namespace) -> None:
    """One claim at most, of the kind that the judge tests."""
    given = [name for name in _TESTED_BY if getattr(arguments, name) is not None]
    if arguments.judge == "gaussian" and "claimed" in given:
        raise UserError("--judge gaussian tests a mu, and an epsilon at one delta is none: use --judge any")
    for name in given:
        if arguments.judge not in _TESTED_BY[name]:
            here = "--claimed, an epsilon" if arguments.judge == "any" else "another kind of claim"
            raise UserError(
                f"{_option(name)} is tested by --judge {' or '.join(_TESTED_BY[name])}; --judge {arguments.judge} "
                f"tests {here}"
            )
    if len(given) > 1:
        raise UserError(f"pass one claim, and not {' and '.join(map(_option, given))}")
    if arguments.claimed_curve is not None:
        try:
            pairs = [tuple(map(float, pair.split(":"))) for pair in arguments.claimed_curve.split(",")]
            sound = all(len(pair) == 2 for pair in pairs)
        except ValueError:
            sound = False
        if not sound:
            raise UserError(
                "--claimed-curve must be pairs epsilon:delta with commas between them, as 1:0,0.5:0.01, got "
                f"{arguments.claimed_curve!r}"
            )
        arguments.claimed_curve = pairs


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _audit(arguments: argparse.Namespace) -> AuditResult | SequentialResult:
    if arguments.method is not None:
        return _audit_settings(_settings(arguments), arguments)
    if ".py:" in arguments.subject:
        return _audit_file(arguments)
    return _audit_settings(_saved(arguments), arguments)


def _claims(arguments: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in _TESTED_BY}


def _schedule(arguments: argparse.Namespace) -> dict[str, Any]:
    """How the runs are made, and how many."""
    schedule = {
        "confidence": arguments.confidence,
        "seed": arguments.seed,
        "n_jobs": arguments.jobs,
        "seconds": arguments.seconds,
        "folder": arguments.resume,
        "verbose": 0 if is_silent(arguments) else 1,
    }
    if arguments.sequential:
        return schedule | {"most_runs": _MOST_RUNS if arguments.most_runs is None else arguments.most_runs}
    return schedule | {"runs": _runs(arguments)}


def _runs(arguments: argparse.Namespace) -> int:
    return _RUNS if arguments.runs is None else arguments.runs


def _pilot_runs(arguments: argparse.Namespace) -> int:
    if not arguments.sequential:
        return max(100, _runs(arguments) // 10)
    return min(_PILOT_RUNS, max(40, _schedule(arguments)["most_runs"] // 10))


def _settings(arguments: argparse.Namespace) -> Any:
    """An unfitted model of the method and settings on the command line."""
    settings = model_settings(arguments)
    bounds = settings["bounds"]
    if bounds.missing(("row_l2", "label")):
        from dataclasses import replace

        # Neighbours are made from the bounds; a method is as private at one as at another.
        known = {} if not bounds.missing(("row_l2",)) else {"row_l2": 1.0}
        settings["bounds"] = replace(bounds, label=bounds.label or 1.0, **known)
    return estimator_class(arguments.task or "classification")(
        1.0 if arguments.epsilon is None else arguments.epsilon,
        1e-5 if arguments.delta is None else arguments.delta,
        method=arguments.method,
        calibration=arguments.calibration,
        **settings,
    )


def _saved(arguments: argparse.Namespace) -> Any:
    """An unfitted model with a saved one's settings."""
    for option in _SETTINGS:
        if getattr(arguments, option) is not None:
            raise UserError(
                f"a saved model is audited with its own settings: omit --{option.replace('_', '-')}, or audit a "
                "method with --method"
            )
    from sklearn.base import clone

    from tulle.cli.predict import model_path
    from tulle.estimators.saved_steps import last_model
    from tulle.estimators.saving import load

    saved = last_model(load(model_path(arguments.subject)))
    if not hasattr(saved, "_request"):
        raise UserError(
            f"{arguments.subject} is a {type(saved).__name__}, where each user randomises their own data; audit its "
            "channel with tulle.audit.audit_channel"
        )
    if saved.privacy_.asked is None:
        raise UserError(f"{arguments.subject} was fitted without privacy and has no guarantee to audit")
    model = clone(saved)
    return model.set_params(n_nonzero=None, delta=saved.privacy_.delta, verbose=0)


def _audit_settings(model: Any, arguments: argparse.Namespace) -> AuditResult | SequentialResult:
    from tulle.audit import audit_model, audit_model_sequentially

    audit: Any = audit_model_sequentially if arguments.sequential else audit_model
    result: AuditResult | SequentialResult = audit(
        model,
        n_rows=arguments.rows,
        n_features=arguments.features,
        pilot_runs=min(1_000, _pilot_runs(arguments)),
        judge=arguments.judge,
        **_claims(arguments),
        **_schedule(arguments),
    )
    return result


def _audit_file(arguments: argparse.Namespace) -> AuditResult | SequentialResult:
    from tulle.audit import TargetError, audit_function, audit_sequentially
    from tulle.audit.estimator_audit import choose_pair

    name, _, function = arguments.subject.rpartition(":")
    path = Path(name)
    if not path.exists():
        raise UserError(f"{path} does not exist")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UserError(f"{path} cannot be imported: {describe_error(error)}") from error
    found = getattr(module, function, None)
    if not callable(found):
        raise UserError(f"{path} has no function {function!r}; write fit(X, y, rng) that returns what it would publish")
    if arguments.epsilon is not None:
        raise UserError(
            "a function has no budget to set: omit --epsilon, and pass the epsilon that it claims with --claimed"
        )
    if arguments.judge == "gaussian" and arguments.claimed_mu is None:
        raise UserError("--judge gaussian tests a mu that is claimed: pass it with --claimed-mu, or use --judge any")
    if (arguments.sequential or arguments.judge != "any") and not any(
        value is not None for value in _claims(arguments).values()
    ):
        options = [_option(name) for name, judges in _TESTED_BY.items() if arguments.judge in judges]
        what = "--sequential" if arguments.judge == "any" else f"--judge {arguments.judge}"
        raise UserError(f"{what} tests a claim: pass it with {' or '.join(options)}")
    delta = 1e-5 if arguments.delta is None else arguments.delta
    worlds = None
    if hasattr(module, "neighbours"):
        try:
            first, second = ((X, y) for X, y in module.neighbours())
            worlds = (first, second)
        except Exception as error:
            raise UserError(f"neighbours() must return ((X, y), (X, y)): {describe_error(error)}") from error
    try:
        if _is_estimator(found):
            return _audit_estimator(found, worlds, delta, arguments)
        if worlds is None:
            pilot = _pilot(arguments, delta)
            worlds, _ = choose_pair(found, _pairs(arguments), runs=_pilot_runs(arguments), **pilot)
        if arguments.sequential:
            return audit_sequentially(found, *worlds, **_sequential_claim(arguments, delta) | _schedule(arguments))
        words = _claims(arguments) | _schedule(arguments) | {"judge": arguments.judge, "delta": delta}
        return audit_function(found, *worlds, **words)
    except TargetError as error:
        raise UserError(str(error)) from error


def _is_estimator(found: Any) -> bool:
    """Whether a file's object is an estimator, its class, or a function that makes one; others are fit(X, y, rng)."""
    if hasattr(found, "fit"):
        return True
    parameters = inspect.signature(found).parameters.values()
    return sum(one.default is inspect.Parameter.empty for one in parameters) < 2


def _sequential_claim(arguments: argparse.Namespace, delta: float) -> dict[str, Any]:
    """The claim of a test by betting: a delta belongs to an epsilon alone."""
    return _claims(arguments) | {"delta": None if arguments.claimed is None else delta}


def _audit_estimator(
    found: Any, worlds: Any, delta: float, arguments: argparse.Namespace
) -> AuditResult | SequentialResult:
    from tulle.audit import audit_estimator, audit_estimator_sequentially
    from tulle.cli.data import bounds_of

    bounds = bounds_of(arguments).known(arguments.features)
    settings: dict[str, Any] = {
        "task": arguments.task,
        "row_l2": bounds.row_l2 if bounds.row_l2 < math.inf else 1.0,
        "row_linf": bounds.row_linf,
        "label": bounds.label if bounds.label < math.inf else 1.0,
        "n_rows": arguments.rows,
        "n_features": arguments.features,
        "pilot_runs": _pilot_runs(arguments),
        **_schedule(arguments),
    }
    if arguments.sequential:
        return audit_estimator_sequentially(found, worlds, **_sequential_claim(arguments, delta), **settings)
    return audit_estimator(found, worlds, delta=delta, judge=arguments.judge, **_claims(arguments), **settings)


def _pilot(arguments: argparse.Namespace, delta: float) -> dict[str, Any]:
    from tulle.audit.sequential_targets import pilot_claim

    names = ("confidence", "seed", "n_jobs", "folder")
    running = {name: _schedule(arguments)[name] for name in names}
    if arguments.sequential:
        return pilot_claim(arguments.claimed, delta) | running
    return {"delta": delta, "judge": arguments.judge} | _claims(arguments) | running


def _pairs(arguments: argparse.Namespace) -> dict[str, Any]:
    from tulle.audit.estimator_audit import ready_pairs
    from tulle.cli.data import bounds_of

    bounds = bounds_of(arguments).known(arguments.features)
    return ready_pairs(arguments.task or "regression", bounds, arguments.rows, arguments.features)
