"""Planted bugs about the one delta of local answers, federated clients and what is printed of it. See mutants.py."""

from __future__ import annotations

from planted import Mutant

_BILLING, _LABELS = "tests/local/test_local_bill.py::", "tests/local/test_label_randomisers.py::"
_HARD, _PAGES = "tests/federated/test_federated_hardening.py::", "tests/reports/test_pages.py::"
_QUORUM, _LIMITS = "tests/federated/test_study_quorum.py::", "tests/federated/test_update_limits.py::"
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
    # --- before anybody is billed ---
    Mutant(
        "clients enrol before there are enough of them",
        "a server that counts its clients after they have paid",
        "            self._wait_for_quorum(link)\n",
        "",
        (_QUORUM + "test_an_unmet_quorum_bills_nobody",),
    ),
    Mutant(
        "a client on two connections is two of a quorum",
        "connections counted in place of clients",
        "len(names := {self._willing[at] for at in self._find_willing(link)})",
        "len(names := [self._willing[at] for at in self._find_willing(link)])",
        (_QUORUM + "test_one_name_on_two_connections_is_one_client",),
    ),
    Mutant(
        "clients that refused in the dry run are asked to enrol",
        "a list of those who are connected, made before anybody answered",
        "new = self._find_willing(link)",
        "self._find_willing(link)\n        new = [at for at in link.connected() if at not in self._enrolled]",
        (_QUORUM + "test_only_those_who_are_willing_and_listed_are_asked_to_enrol",),
    ),
    Mutant(
        "a client of any name counts for the quorum",
        "names that are looked at after the bill only",
        "elif about is not None and not self._may_take_part(link, at, about.client):",
        "elif False:",
        (_QUORUM + "test_a_stranger_who_would_take_part_is_not_counted",),
    ),
    Mutant(
        "a dry run is billed",
        "a question about the price that buys",
        "        raise NotBilledError\n",
        "        return super().bill(what, plans, promise, rows_per_unit)\n",
        (_QUORUM + "test_a_dry_run_bills_nothing_and_writes_nothing",),
    ),
    Mutant(
        "a dry run does not ask the ledger",
        "a client that says yes to any price, and no to the bill",
        "            self._admission.quote(terms, plan, bill_again=state is None)\n",
        "",
        (_QUORUM + "test_a_dry_run_refuses_where_the_bill_would_pass_the_cap[0.999]",),
    ),
    Mutant(
        "a dry run does not see what other processes have spent",
        "a cached balance",
        "        self._ledger.refresh()  # as before a bill: other processes may have spent since\n",
        "",
        (_QUORUM + "test_a_dry_run_refuses_where_the_bill_would_pass_the_cap[1.001]",),
    ),
    Mutant(
        "a study whose state is gone is quoted as paid",
        "a quote that finds the old entry, and a bill that does not",
        "self._admission.quote(terms, plan, bill_again=state is None)",
        "self._admission.quote(terms, plan, bill_again=False)",
        (_QUORUM + "test_a_study_whose_state_is_gone_is_quoted_as_it_is_billed",),
    ),
    Mutant(
        "a dry run is quoted less than the bill",
        "two ways to work out one price",
        "super().quote(what, plans, promise, rows_per_unit)",
        "super().quote(what, plans, (promise[0] / 2, promise[1]), rows_per_unit)",
        (_QUORUM + "test_the_price_of_a_dry_run_is_the_price_that_is_billed",),
    ),
    Mutant(
        "a dry run prepares the rows",
        "a client that looks whether its labels are those of the study before it says yes",
        "            state = self._read(terms.digest)\n            self._admission.check_state(",
        "            terms.model.task(self._X, self._y, self._groups, self._rows_per_person)\n"
        "            state = self._read(terms.digest)\n            self._admission.check_state(",
        (_QUORUM + "test_a_dry_run_has_no_rows_and_no_labels[change0]",),
    ),
    # --- approval ---
    Mutant(
        "terms that changed after their approval",
        "a data steward who approves a study by its name, and a server that asks for more under the same name",
        "        check_approved(terms.digest, self.approved, terms.describe_fully, self.tell)\n",
        "",
        (_QUORUM + "test_terms_that_changed_after_their_approval_are_refused[epsilon]",),
    ),
    Mutant(
        "an empty list approves everything",
        "a list that is tested for being empty where it should be tested for being there",
        "if approved is None or digest in approved:",
        "if not approved or digest in approved:",
        (_QUORUM + "test_nothing_is_approved_by_an_empty_list_and_everything_without_one",),
    ),
    Mutant(
        "beginnings of digests approve",
        "short hashes, of which a server can make two that are alike",
        'if not re.fullmatch("[0-9a-f]{64}", one):',
        'if not re.fullmatch("[0-9a-f]{16,64}", one):',
        (_QUORUM + "test_only_whole_digests_approve[16]",),
    ),
    # --- limits of updates ---
    Mutant(
        "a stranger's huge weight is averaged",
        "federated averaging of whatever is finite: one client's 1e99 is the model",
        "return finite and few and self._limits.contain(weights, start, client)",
        "return finite and few",
        (_LIMITS + "test_a_strangers_weight_beyond_the_terms_does_not_count_and_stops_nothing[None-None]",),
    ),
    Mutant(
        "a client's limit is as large as the noise that it states",
        "a bound by a figure that the bounded one chooses",
        "noise = self._level, min(client.noise, most)",
        "noise = self._level, client.noise",
        (_LIMITS + "test_noise_that_the_budget_does_not_need_is_not_believed",),
    ),
    Mutant(
        "batches that hold more rows than expected are rejected",
        "Poisson batches taken for batches of a fixed size",
        "return min(float(n_rows), batch + third + math.sqrt(third**2 + 2 * batch * self._log_chance))",
        "return float(batch)",
        (_LIMITS + "test_no_honest_update_is_rejected[terms6]",),
    ),
    Mutant(
        "the noise of a round is taken for that of one step",
        "a bound from one draw, and K of them in an update",
        "+ math.sqrt(steps) * sd * wide",
        "+ sd * wide",
        (_LIMITS + "test_steps_on_all_rows_reach_their_clip_and_their_noise",),
    ),
    Mutant(
        "an update is compared with nothing that the server sent",
        "a limit on the size of weights, which any model passes after enough rounds",
        "before = _values_at(start, update.lines)",
        "before = np.zeros_like(update.values)",
        (_LIMITS + "test_what_is_left_of_the_servers_weights[0.0]",),
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
    Mutant(
        "the journal begins with the first round, and not before the bill",
        "a server that was killed between, and says that no client was billed",
        "            if not self._goes_on:  # a server",
        "            if False:  # a server",
        (
            "tests/federated/test_study_quorum.py::test_a_study_that_was_interrupted_goes_on_with_those_who_have_paid[0]",
        ),
    ),
)
