"""The terms of a federated study, as options of the command and as an object."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from tulle.cli.data import add_bound_arguments, add_loss_arguments
from tulle.cli.fit import epsilon_or_none
from tulle.cli.outcome import Outcome, UserError

if TYPE_CHECKING:
    from tulle.federated.masked_terms import MaskedTerms
    from tulle.federated.terms import Terms

# Settings of a study that do not apply to a trusted aggregator, with their defaults.
STUDY_DEFAULTS: dict[str, Any] = {
    "rounds": 50,
    "local_steps": 1,
    "batch": None,
    "snapshot_batch": None,
    "difference_clip": None,
    "step": None,
    "clip": None,
    "memory": None,
    "penalty": 0.0,
    "weighting": "rows",
    "average": 0.0,
    "journal": None,
}


def add_terms_arguments(parser: argparse.ArgumentParser, *, of_file: bool = False) -> None:
    """What all clients are asked to agree to; shape and classes where no file says them."""
    study = parser.add_argument_group("the study")
    study.add_argument(
        "--study",
        required=not of_file,
        default="simulation",
        metavar="NAME",
        help="name of the study, which clients see and write into their ledgers (not with a trusted aggregator)",
    )
    if not of_file:
        study.add_argument(
            "--features",
            type=int,
            metavar="D",
            help="number of features, the same and in the same order at all clients",
        )
    kind = study.add_mutually_exclusive_group(required=not of_file)
    kind.add_argument(
        "--classes",
        metavar="A,B",
        help="the class labels, such as home,ward or 0,1; rows with other labels contribute nothing"
        + (" (default: those of the file, or --regression)" if of_file else ""),
    )
    kind.add_argument("--regression", action="store_true", help="the target is a number")
    budget = parser.add_argument_group("the budget")
    budget.add_argument(
        "--epsilon",
        required=True,
        type=epsilon_or_none,
        metavar="E",
        help="privacy loss that each client allows for the whole study; none: no privacy",
    )
    budget.add_argument(
        "--delta",
        type=float,
        metavar="D",
        help="well below 1 / (rows of the largest client); default 1e-6"
        + ("" if of_file else "; with --trust aggregator as in tulle fit"),
    )
    add_bound_arguments(parser)
    model = parser.add_argument_group("the model")
    model.add_argument("--n-nonzero", type=int, metavar="S", help="number of weights to keep")
    add_loss_arguments(model)
    steps = parser.add_argument_group("the steps")
    steps.add_argument(
        "--rounds",
        type=int,
        default=STUDY_DEFAULTS["rounds"],
        metavar="R",
        help="number of rounds (default 50)",
    )
    steps.add_argument(
        "--local-steps",
        type=int,
        default=STUDY_DEFAULTS["local_steps"],
        metavar="K",
        help="steps of a client per round (default 1)",
    )
    steps.add_argument(
        "--batch",
        type=_batch,
        metavar="B",
        help="expected rows of a step, drawn at random by each client; all: every row in every step (default all)",
    )
    steps.add_argument(
        "--snapshot-batch",
        type=_snapshot_batch,
        metavar="B",
        help="steps with snapshots (DP-SCSG-HT): expected rows of the snapshot at the start of each round, at least "
        "--batch, or all (default: no snapshots)",
    )
    steps.add_argument(
        "--difference-clip",
        type=float,
        metavar="C",
        help="with snapshots: the largest change of a row's slope since, in (0, 2], in units of --clip (default 0.2)",
    )
    steps.add_argument(
        "--step",
        type=float,
        metavar="X",
        help="size of a step (default: 1 / the loss's curvature for rows at their bound)",
    )
    steps.add_argument(
        "--clip", type=float, metavar="C", help="largest slope of a row (default: by the loss; none without privacy)"
    )
    steps.add_argument(
        "--memory",
        type=int,
        metavar="M",
        help="weights remembered between steps, at least --n-nonzero (default: --n-nonzero, as in the paper)",
    )
    steps.add_argument(
        "--penalty", type=float, default=STUDY_DEFAULTS["penalty"], metavar="P", help="ℓ2 penalty (default 0)"
    )
    steps.add_argument(
        "--weighting",
        choices=("rows", "equal"),
        default=STUDY_DEFAULTS["weighting"],
        help="weights of the clients in the mean (default rows)",
    )
    steps.add_argument(
        "--average",
        type=float,
        default=STUDY_DEFAULTS["average"],
        metavar="A",
        help="mean of the last part A of all rounds (default 0: the last)",
    )


def _batch(text: str) -> int | None:
    if text == "all":
        return None
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number of rows, or all, not {text!r}") from None


def _snapshot_batch(text: str) -> int | str:
    return text if text == "all" else _batch(text) or 0  # 0 is refused, as any other number below the batch


def parse_classes(text: str) -> tuple[str | int | float, ...]:
    """Labels as numbers where all of them are, as files hold them."""
    words = [word.strip() for word in text.split(",")]
    for kind in (int, float):
        try:
            return tuple(kind(word) for word in words)
        except ValueError:
            pass
    return tuple(words)


def run_terms(arguments: argparse.Namespace) -> Outcome:
    """`tulle federated terms`: what a server with these options would ask clients to agree to."""
    if arguments.trust == "aggregator":
        raise UserError("fits of a trusted aggregator have no terms; omit --trust aggregator")
    terms: Terms | MaskedTerms
    if arguments.trust == "masked":
        from tulle.cli.federated_masked import make_masked_terms

        terms = make_masked_terms(arguments)
    else:
        terms = make_server_terms(arguments)
    values = {"study": terms.study, "digest": terms.digest, "terms": terms.describe_fully()}
    return Outcome(f"{terms.describe_fully()}\ndigest: {terms.digest}", values)


def make_server_terms(arguments: argparse.Namespace) -> Terms:
    """The terms of a study whose features and classes are options, since no file says them."""
    if arguments.features is None:
        raise UserError("pass the number of features that all clients have: --features D")
    classes = None if arguments.regression else parse_classes(arguments.classes)
    return make_terms(arguments, arguments.features, classes)


def public_settings(arguments: argparse.Namespace, classes: tuple[Any, ...] | None) -> dict[str, Any]:
    """The public settings of a linear model, except its features and its intercept."""
    return {
        "classes": classes,
        "loss": arguments.loss or ("squared" if classes is None else "logistic"),
        "row_l2": arguments.row_l2,
        "row_linf": arguments.row_linf,
        "label": arguments.label_bound,
        "normalise": arguments.normalise,
    }


def make_terms(arguments: argparse.Namespace, n_features: int, classes: tuple[Any, ...] | None) -> Terms:
    from tulle.federated.client_side.linear_study import linear_terms
    from tulle.federated.terms import Terms

    public = public_settings(arguments, classes)
    if arguments.n_nonzero is None:
        raise UserError("pass the number of weights to keep: --n-nonzero S")
    private = arguments.epsilon is not None
    if not private and arguments.delta is not None:
        raise UserError("--delta needs an --epsilon; omit it")
    bounded = linear_terms(n_features, step=1.0, fit_intercept=False, **public)
    if private:
        try:
            bounded.check_bounded()
        except ValueError:
            raise UserError("declare --row-l2, --row-linf or --normalise: nothing is estimated from rows") from None
    step, clip = arguments.step, arguments.clip
    if step is None:
        known = bounded.public(1)
        curvature = known.loss.typical_curvature(known.label) * known.row_l2**2
        if not 0 < curvature < math.inf:
            raise UserError("no bound on the row norm to derive the step size from; pass --step, or --row-l2")
        step = 1.0 / curvature
    if clip is None:
        clip = bounded.resolved_loss.default_clip(bounded.public(1).label) if private else math.inf
        if private and not clip < math.inf:
            raise UserError("the slope of a row has no bound: pass --label-bound, or --clip")
    model = linear_terms(n_features, step=step, fit_intercept=arguments.fit_intercept, **public)
    return Terms(
        study=arguments.study,
        model=model,
        rounds=arguments.rounds,
        local_steps=arguments.local_steps,
        n_nonzero=arguments.n_nonzero,
        step=step,
        clip=clip,
        batch=arguments.batch,
        epsilon=arguments.epsilon,
        delta=(1e-6 if arguments.delta is None else arguments.delta) if private else None,
        memory=arguments.memory,
        penalty=arguments.penalty,
        snapshot_batch=arguments.snapshot_batch,
        **({} if arguments.difference_clip is None else {"difference_clip": arguments.difference_clip}),
    )
