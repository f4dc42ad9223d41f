"""Planted bugs about the one delta of local answers, federated clients and what is printed of it. See mutants.py."""

from __future__ import annotations

from planted import Mutant

_BILLING, _LABELS = "tests/local/test_local_bill.py::", "tests/local/test_label_randomisers.py::"
_HARD, _PAGES = "tests/federated/test_federated_hardening.py::", "tests/reports/test_pages.py::"
_EVERYWHERE = _BILLING + "test_whole_rows_state_the_delta_of_their_arithmetic_everywhere[priv_unit-4.0-20]"
_LAST_LAPLACE = _LABELS + "test_the_last_laplace_answers_have_their_chances_to_twenty_digits[1.0]"

FED_MUTANTS: tuple[Mutant, ...] = (
    # --- local answers ---
    Mutant(
        "a local answer promises no delta for its arithmetic",
        "'purely private' said of a channel that is so in real numbers alone",
        "        return self.arithmetic_delta\n",
        "        return 0.0\n",
        (_EVERYWHERE,),
    ),
    Mutant(
        "statistical distances of local answers taken as deltas",
        "e^epsilon is forgotten: 3,000 times too little at epsilon = 8",
        "min(1.0, (1 + math.exp(self.epsilon)) * self.rounding)",
        "min(1.0, 2 * self.rounding)",
        (_EVERYWHERE,),
    ),
    Mutant(
        "a ledger is billed the delta that was asked for, not the one that is stated",
        "two figures for one promise: the report prints one and the bill holds the other",
        "bill_open_ledgers(what, [plan], (proved, protocol.delta), 1)",
        "bill_open_ledgers(what, [plan], (proved, protocol.budget.delta if protocol.budget else 0.0), 1)",
        (_EVERYWHERE,),
    ),
    Mutant(
        "the bill of a local study leaves finite precision out",
        "a bound that is printed at the end of the report and enters no sum",
        "return self.channel.rounding",
        "return 0.0",
        (_EVERYWHERE,),
    ),
    Mutant(
        "a user allows any delta for finite precision",
        "a limit on the delta of the formula, and none on that of the computer",
        "channel.delta > max_delta",
        "channel.delta - channel.arithmetic_delta > max_delta",
        (_EVERYWHERE,),
    ),
    Mutant(
        "finite precision may take all of a local study's delta",
        "a slack that is compared with delta and not with a tenth of it",
        "needed > MOST_ARITHMETIC * self.budget.delta",
        "needed > self.budget.delta",
        (_BILLING + "test_a_delta_that_is_asked_for_has_room_for_finite_precision_or_is_refused",),
    ),
    Mutant(
        "Laplace noise from few bits",
        "an inverse distribution function of one double: its largest values name the side that they come from",
        "_NOISE_UNIFORMS = 4",
        "_NOISE_UNIFORMS = 2",
        (_LAST_LAPLACE,),
    ),
    Mutant(
        "Laplace answers as far as bits reach",
        "no cut of the tails: an answer beyond the last draw of one label is given by the other alone",
        "FARTHEST: ClassVar[float] = 60.0",
        "FARTHEST: ClassVar[float] = 600.0",
        (_LAST_LAPLACE,),
    ),
    Mutant(
        "labels are rounded past their bound",
        "a grid that the bounds do not lie on: two values come to lie a unit further apart than noise was made for",
        "        below = np.floor(exact)\n",
        "        exact = np.where(np.abs(exact) == self.steps, exact * (1 + 1 / self.steps), exact)\n"
        "        below = np.floor(exact)\n",
        (_LABELS + "test_a_label_between_two_units_is_rounded_by_chance_and_never_past_the_bound",),
    ),
    # --- federated clients ---
    Mutant(
        "a study of an earlier version is gone on with",
        "states are read as long as their fields fit: what was billed for rounds of before was too little",
        "    if raw.startswith(_BEFORE):\n",
        "    if raw.startswith(_BEFORE):\n        raw = MAGIC + raw[len(_BEFORE) :]\n    if False:\n",
        (_HARD + "test_a_study_begun_by_an_earlier_version_is_not_gone_on_with",),
    ),
    Mutant(
        "federated steps with noise of draws in float64",
        "exact sums and noise added up in floats: the sum's last bits show the sum",
        "from_units(add_noise(answer, scale, grid, self.LAW, generator), grid)",
        "from_units(answer / grid + add_noise(0.0 * answer, scale, grid, self.LAW, generator), grid)",
        (
            "tests/federated/test_client_noise.py::test_what_is_released_is_a_gradient_and_never_a_sum_with_the_servers_weights",
        ),
    ),
    # --- what is printed ---
    Mutant(
        "finite precision is printed as a part of a delta that never counted it",
        "an old report read as a new one: 'of which 0.013' of a delta of 5e-6",
        "    if not 0 < slack <= delta:\n",
        "    if slack == 0:\n",
        (
            "tests/reports/test_report.py::TestText::test_the_part_of_delta_for_finite_precision_is_said_where_there_is_one",
        ),
    ),
    Mutant(
        "a report of an earlier version without its box",
        "a page that shows the smaller of two figures",
        "    if slack > report.delta:  # no part of it\n",
        "    if slack > 1:\n",
        (_PAGES + "TestPromise::test_an_earlier_report_is_counted_with_both",),
    ),
)
