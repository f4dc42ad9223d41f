"""Planted bugs in survival: persons and periods, curves, concordance. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_TESTS = "tests/survival/test_survival.py::"

SURVIVAL_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a row of a period counts for a person",
        "person-periods fitted as if they were people: somebody who lives long has as many rows as periods",
        "rows_per_person=n_periods),",
        "rows_per_person=1),",
        (_TESTS + "test_the_unit_is_a_person_and_the_ledger_has_one_entry",),
        at="SparseHazard.fit",
    ),
    Mutant(
        "only periods that were lived through become rows",
        "the usual person-period table: its length is the sum of everybody's times",
        "    return PersonPeriods(stack_periods(rows, n_periods, period_value), labels, people, weights)",
        "    kept = np.array([label is not None for label in labels])\n"
        "    stacked = stack_periods(rows, n_periods, period_value)\n"
        "    return PersonPeriods(stacked[kept], labels[kept], people[kept], weights[kept])",
        (_TESTS + "test_rows_of_a_person_are_of_that_person_alone",),
    ),
    Mutant(
        "people who are lost count as at risk for the whole period",
        "hazards that are too small wherever many are lost",
        "at_risk = from_here - ends[..., :-1] / 2",
        "at_risk = from_here",
        (_TESTS + "test_without_noise_curves_are_actuarial",),
    ),
    Mutant(
        "intervals of curves without the noise",
        "Greenwood's formula on noisy counts",
        "return np.asarray(generator.poisson(means) + generator.laplace(0.0, scale, means.shape))",
        "return np.asarray(means + 0.0)",
        (_TESTS + "test_intervals_of_curves_hold_the_truth",),
    ),
    Mutant(
        "groups that are found in the rows",
        "a curve for the one person of a group",
        "names, place = tuple(declared.tolist()), intake.encode_labels(cells, declared)",
        "declared = np.unique(cells.astype(str))\n"
        "        names, place = tuple(declared.tolist()), np.searchsorted(declared, cells.astype(str))",
        (_TESTS + "test_nothing_leaves_but_answers[curve]",),
    ),
)
