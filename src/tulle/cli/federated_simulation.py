"""`tulle federated simulate`: a study in one process, with the rows of a file divided among clients."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tulle.cli.data import read_data, state_width, task_of
from tulle.cli.federated_output import (
    ROUNDS,
    RoundLog,
    check_study_words,
    make_printer,
    room_for_study,
    save_study,
    study_outcome,
)
from tulle.cli.federated_terms import make_terms, parse_classes
from tulle.cli.model_folder import make_folder, output_folder
from tulle.cli.outcome import Outcome, UserError

if TYPE_CHECKING:
    from tulle.files.tables import Table


def run_simulation(arguments: argparse.Namespace) -> Outcome:
    from tulle.federated.server_side.server import StudyStoppedError
    from tulle.federated.server_side.simulation import simulate

    if arguments.groups is not None:
        raise UserError("omit --groups: simulated clients protect one row each")
    check_study_words(arguments)
    folder = output_folder(arguments.output, arguments.replace, arguments.data, also=(ROUNDS,))
    table = read_data(arguments)
    terms = make_terms(arguments, table.X.shape[1], _classes_of(arguments, table))
    parts = _parts(table, arguments.parts, arguments.skew, arguments.seed)
    with (
        make_folder(folder, room_for_study(terms, table.feature_names)) as reserved,
        RoundLog(folder / ROUNDS, terms.rounds, False, make_printer(arguments)) as rounds,
    ):
        try:
            fit = simulate(
                terms,
                parts,
                seed=arguments.seed,
                weighting=arguments.weighting,
                average=arguments.average,
                progress=rounds.add,
            )
        except StudyStoppedError as stop:
            raise UserError(str(stop)) from stop
        fit = replace(fit, privacy=state_width(fit.privacy, table))
        model = save_study(fit, folder, arguments, reserved, table.feature_names)
    return study_outcome(fit, model, folder)


def _classes_of(arguments: argparse.Namespace, table: Table) -> tuple[Any, ...] | None:
    """The declared classes, or those in the file: the set of labels is public, as in tulle fit."""
    import numpy as np

    if arguments.classes is not None:
        return parse_classes(arguments.classes)
    arguments.task = "regression" if arguments.regression else None
    assert table.y is not None
    if task_of(arguments, table) == "regression":
        return None
    return tuple(label.item() if hasattr(label, "item") else label for label in np.unique(table.y))


def _parts(table: Table, count: int, skew: bool, seed: int | None) -> dict[str, tuple[Any, Any]]:
    """The rows of a table, dealt to so many clients."""
    import numpy as np

    assert table.y is not None
    n = len(table.y)
    if not 1 <= count <= n // 4:
        raise UserError(f"--parts must be from 1 to a quarter of the {n:,} rows, got {count}")
    generator = np.random.default_rng(seed)
    order = generator.permutation(n)
    if skew:
        runs = np.array_split(order[np.argsort(table.y[order], kind="stable")], 2 * count)
        dealt = generator.permutation(2 * count)
        hands = [np.concatenate([runs[k] for k in dealt[2 * i : 2 * i + 2]]) for i in range(count)]
    else:
        hands = np.array_split(order, count)
    return {f"part {i + 1}": (table.X[np.sort(hand)], table.y[np.sort(hand)]) for i, hand in enumerate(hands)}
