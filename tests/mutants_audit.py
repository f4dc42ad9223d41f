"""Planted bugs in the audit's judges and in audits by betting. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_JUDGES = "tests/audit/test_judges.py::"
_CURVES = "tests/audit/test_curve_judges.py::"
_BETS = "tests/audit/test_sequential.py::"
_POWER, _REPLAY = "tests/audit/test_power.py::", "tests/audit/test_replay.py::"
_WORST = "tests/audit/test_worst_cases.py::"
_FIRST, _PAGE = "tests/audit/test_estimator_audit.py::", "tests/reports/test_audit_page.py::"
_TARGETS = "tests/audit/test_sequential_targets.py::"
_PASSES_BY = _REPLAY + "test_what_passes_the_answers_by_is_found"
_REFUSED = _FIRST + "test_a_target_that_cannot_be_audited_is_refused_before_the_runs"

AUDIT_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "right guesses that may fail ten times as often",
        "a bound at half of the stated confidence",
        "low, _ = clopper_pearson(right, 2 * runs, 1 - confidence)",
        "low, _ = clopper_pearson(right, 2 * runs, 10 * (1 - confidence))",
        (_WORST + "test_right_guesses_exceed_mu_no_more_often_than_stated",),
    ),
    Mutant(
        "right guesses without their precondition",
        "a tail bound used at a confidence for which it is not proved",
        "return low if confidence >= 0.75 else np.full_like(low, -math.inf)",
        "return low",
        (_WORST + "test_right_guesses_prove_more_of_a_symmetric_event_and_nothing_below_three_quarters",),
    ),
    Mutant(
        "an attack that knows how rows were divided",
        "a secret of the fit used by the attack: sound claims would be refuted",
        "    if watch is not None and split is None:\n",
        "    if watch is not None:\n",
        (_WORST + "test_a_method_that_divides_rows_shows_no_ratio",),
    ),
    Mutant(
        "one row of a person",
        "units of several rows audited on one of them, a part of what is promised",
        "        worlds = [(np.vstack([*[x] * k, rest]), np.r_[np.full(k, y), labels]) for x, y in rows]\n",
        "        more = [nothing] * (k - 1)\n"
        "        worlds = [(np.vstack([x, *more, rest]), np.r_[np.full(k, y), labels]) for x, y in rows]\n",
        (_WORST + "test_a_mean_gradient_moves_by_its_sensitivity",),
    ),
    Mutant(
        "a ratio of worlds exchanged",
        "the density on the second data set taken for that on the first",
        "            return first - second\n        if name not in self._batches:\n",
        "            return second - first\n        if name not in self._batches:\n",
        (_WORST + "test_the_ratio_of_a_noisy_mean_is_that_of_two_densities",),
    ),
    Mutant(
        "the whole failure for each of two sides",
        "two intervals at 95 % taken for a joint statement at 95 %, the usual slip in published audits",
        "    failure = (1 - np.asarray(confidence, dtype=float)) / 2\n",
        "    failure = 1 - np.asarray(confidence, dtype=float)\n",
        (_JUDGES + "test_the_mu_of_counts_is_that_of_two_exact_intervals",),
    ),
    Mutant(
        "hit rates as they were counted",
        "a lower bound without confidence: point estimates of both rates",
        "    return np.asarray(ndtri(np.maximum(low - moved, 0.0)) - ndtri(np.minimum(high + moved, 1.0)))\n",
        "    return np.asarray(ndtri(np.asarray(hits) / runs) - ndtri(np.asarray(false_hits) / runs))\n",
        (_JUDGES + "test_the_bound_on_mu_is_wrong_no_more_often_than_stated",),
    ),
    Mutant(
        "both bounds towards the claim's refutation",
        "the upper bound of the hit rate in the place of the lower one",
        "    low, _ = clopper_pearson(hits, runs, failure)\n",
        "    _, low = clopper_pearson(hits, runs, failure)\n",
        (_JUDGES + "test_the_bound_on_mu_is_wrong_no_more_often_than_stated",),
    ),
    Mutant(
        "the sum of two quantiles, not their difference",
        "Phi^-1(1 - FPR) and Phi^-1(FPR) mixed up: the sign of the second term",
        "(np.maximum(low - moved, 0.0)) - ndtri(",
        "(np.maximum(low - moved, 0.0)) + ndtri(",
        (_JUDGES + "test_the_mu_of_counts_is_that_of_two_exact_intervals",),
    ),
    Mutant(
        "finite precision for the judge alone",
        "an ideal law tested by counts of one that is only close to it",
        "return mu_lower_bound(hits, false_hits, runs, confidence, self.moved)",
        "return mu_lower_bound(hits, false_hits, runs, confidence)",
        (_JUDGES + "test_finite_precision_takes_its_part_of_both_rates",),
    ),
    Mutant(
        "thresholds chosen on the judged runs",
        "the best threshold of the runs that are counted, reported as if it had been fixed: most published audits",
        "scores = orient(score, first[learnt:], second[learnt:], swapped)",
        "scores = orient(score, counted, counted_other, swapped)",
        (_JUDGES + "test_thresholds_are_chosen_on_other_runs_than_those_that_are_judged",),
    ),
    Mutant(
        "judged on all runs, those of the choice included",
        "every run counted, after half of them have chosen the event",
        "(first[:half], second[:half], first[half:runs], second[half:runs], delta, confidence, judge)",
        "(first[:half], second[:half], first, second, delta, confidence, judge)",
        (_JUDGES + "test_thresholds_are_chosen_on_other_runs_than_those_that_are_judged",),
    ),
    Mutant(
        "an audited epsilon rounded up",
        "the function that rounds promises up, used for a lower bound",
        "return gaussian_epsilon(max(bound, 0.0), delta) * (1 - 3e-7)",
        "return gaussian_epsilon(max(bound, 0.0), delta)",
        (_JUDGES + "test_the_epsilon_of_a_bound_is_below_the_one_that_mu_has",),
    ),
    Mutant(
        "an epsilon tested as a mu",
        "a claim of (epsilon, delta) judged against a Gaussian curve that nobody claimed",
        "    if claimed is not None or claimed_mu is None:\n",
        "    claimed_mu = claimed if claimed_mu is None else claimed_mu\n    if claimed_mu is None:\n",
        (_JUDGES + "test_a_claim_that_is_no_mu_is_refused_before_any_run",),
    ),
    Mutant(
        "a paper's claim taken for the mu of its noise",
        "what the accountant finds for the printed noise, tested in the place of what the paper claims",
        "    if request.published:\n",
        "    if False:\n",
        (_JUDGES + "test_a_model_whose_claim_is_no_mu_is_refused",),
        at="judge_of_model",
    ),
    Mutant(
        "mu added up and not its square",
        "a claim that is too large is never refuted",
        "math.fsum(count * event.gaussian_mu() ** 2 for event, count in compose(plan))",
        "math.fsum((count * event.gaussian_mu()) ** 2 for event, count in compose(plan))",
        (_JUDGES + "test_squares_of_mu_add_up_over_a_plan",),
    ),
    Mutant(
        "the mu of what has one",
        "releases without a mu left out of the claim",
        "math.fsum(count * event.gaussian_mu() ** 2 for event, count in compose(plan))",
        "math.fsum(n * e.gaussian_mu() ** 2 for e, n in compose(plan) if e.gaussian_mu() < math.inf)",
        (_JUDGES + "test_a_plan_without_a_mu_is_refused_by_name",),
    ),
    Mutant(
        "a claim that follows the noise",
        "the mu of a plan with too little noise, tested as if it were what the user asked for",
        "    if order.budget is not None and not proved <= order.budget.epsilon * (1 + 1e-9):\n"
        '        raise PlanError(f"the plan of {order.what} proves epsilon = {proved:.6g}',
        '    if False:\n        raise PlanError(f"the plan of {order.what} proves epsilon = {proved:.6g}',
        (_JUDGES + "test_a_plan_with_too_little_noise_raises_and_does_not_raise_the_claim",),
    ),
    Mutant(
        "the claim judged by the weaker bound",
        "the assumption-free epsilon decides, and what the Gaussian judge proved is printed only",
        "            return self.mu > self.claimed_mu\n",
        "            return (self.epsilon_any or 0.0) > (self.claimed or 0.0)\n",
        (_JUDGES + "test_two_thirds_of_the_noise_are_refuted_and_the_right_noise_is_not",),
    ),
    Mutant(
        "a second look by another judge",
        "saved runs judged again until a judge refutes the claim",
        'kept = {"subject": subject.fingerprint() + look,',
        'kept = {"subject": subject.fingerprint(),',
        (_JUDGES + "test_runs_in_a_folder_are_not_judged_again_by_another_judge",),
    ),
    Mutant(
        "a range as a difference of logarithms",
        "odds and rates mixed up: a bound on epsilon printed as a bound on a range",
        "logit(np.maximum(low - moved, 0.0)) - logit(np.minimum(high + moved, 1.0))",
        "np.log(np.maximum(low - moved, 0.0)) - np.log(np.minimum(high + moved, 1.0))",
        (_CURVES + "test_the_range_of_counts_is_that_of_two_exact_intervals",),
    ),
    Mutant(
        "finite precision for the judge of ranges alone",
        "an ideal law tested by counts of one that is only close to it",
        "return range_lower_bound(hits, false_hits, runs, confidence, self.moved)",
        "return range_lower_bound(hits, false_hits, runs, confidence)",
        (_CURVES + "test_the_range_of_counts_is_that_of_two_exact_intervals",),
    ),
    Mutant(
        "ranges added up over choices",
        "a second choice depends on the first, and the interval of its log-ratios with it",
        "type(events[0][0]) is BoundedRangeEvent and events[0][1] == 1:",
        "type(events[0][0]) is BoundedRangeEvent:",
        (_CURVES + "test_the_range_of_a_plan_is_that_of_its_one_choice",),
    ),
    Mutant(
        "an epsilon tested as a range",
        "a release with a pure epsilon can have twice the range",
        "        if claimed is not None or claimed_range is None:\n",
        "        claimed_range = claimed if claimed_range is None else claimed_range\n"
        "        if claimed_range is None:\n",
        (_CURVES + "test_a_claim_of_the_wrong_kind_is_refused_before_any_run",),
    ),
    Mutant(
        "no union bound over the thresholds of a curve",
        "the largest excess of many intervals, each of them at the stated confidence: the usual ROC band",
        "confidences = 1 - (1 - confidence) * failure_shares(len(thresholds))",
        "confidences = 1 - (1 - confidence) * np.ones(len(thresholds))",
        (_CURVES + "test_all_bounds_of_a_curve_fail_together_with_the_stated_probability",),
    ),
    Mutant(
        "a curve for one order of the worlds",
        "f-DP limits both orders of neighbours; only one was tested",
        "np.maximum(ahead, reversed_order) - 1e-12",
        "ahead - 1e-12",
        (_CURVES + "test_a_curve_holds_for_both_orders_of_the_worlds",),
    ),
    Mutant(
        "a curve judged at the event with the least uncertainty",
        "the largest excess on the runs that choose: events that always happen, which prove nothing",
        "return np.asarray(seen / (seen - self._excess(low, high) + 1e-9))",
        "return self._excess(low, high)",
        (_CURVES + "test_the_judge_of_curves_chooses_events_that_can_prove_something",),
    ),
    Mutant(
        "finite precision for the judge of curves alone",
        "an ideal law tested by counts of one that is only close to it",
        "low, high = np.maximum(low - self.moved, 0.0), np.minimum(high + self.moved, 1.0)",
        "low, high = np.maximum(low, 0.0), np.minimum(high, 1.0)",
        (_CURVES + "test_all_bounds_of_a_curve_fail_together_with_the_stated_probability",),
    ),
    Mutant(
        "the claim of a curve judged by its epsilon",
        "the excess is printed, and the epsilon at one delta decides",
        "            return self.excess > 0\n",
        "            return self.claimed is not None and self.epsilon > self.claimed\n",
        (_CURVES + "test_the_epsilon_of_a_curve_audit_assumes_nothing_and_refutes_nothing",),
    ),
    Mutant(
        "the best of several parts at the confidence of one",
        "cross-fitting without a correction for the number of folds",
        "return 1 - (1 - confidence) / splits",
        "return confidence",
        (_CURVES + "test_each_part_is_counted_by_an_attack_of_the_others_at_a_corrected_confidence",),
    ),
    Mutant(
        "parts counted by an attack that was chosen on them",
        "folds that are not left out of the choice",
        "others = np.setdiff1d(np.arange(runs), part)",
        "others = part",
        (_CURVES + "test_each_part_is_counted_by_an_attack_of_the_others_at_a_corrected_confidence",),
    ),
    Mutant(
        "saved runs tested against another curve",
        "claims tried on the same runs until one is refuted",
        'return f", judge {self.name} of {self.claim.text}"',
        'return f", judge {self.name}"',
        (_CURVES + "test_runs_in_a_folder_are_not_tested_against_another_curve_or_split",),
    ),
    Mutant(
        "bets without the factor e^epsilon",
        "P(A) <= Q(A) + delta taken for the claim: every leak refutes it",
        "slopes = np.concatenate([np.exp(epsilons), np.exp(-epsilons), [0.0]])",
        "slopes = np.concatenate([np.ones_like(epsilons), np.exp(-epsilons), [0.0]])",
        (_BETS + "test_the_capital_does_not_grow_on_average_under_a_true_claim",),
    ),
    Mutant(
        "bets that forget delta",
        "the line of (epsilon, 0) tested where (epsilon, delta) is claimed",
        "heights = np.concatenate([deltas, 1 - np.exp(-epsilons) * (1 - deltas), [1.0]])",
        "heights = np.concatenate([0 * deltas, 1 - np.exp(-epsilons) * (1 - deltas), [1.0]])",
        (_BETS + "test_the_capital_does_not_grow_on_average_under_a_true_claim",),
    ),
    Mutant(
        "a line that cuts the Gaussian curve",
        "the slope of the tangent without its quadratic term: the bet wins on average under a true claim",
        "np.exp(-self.mu * ndtri(false_rate) - self.mu**2 / 2)",
        "np.exp(-self.mu * ndtri(false_rate))",
        (_BETS + "test_the_capital_does_not_grow_on_average_under_a_true_claim",),
    ),
    Mutant(
        "a line that cuts the curve of a range",
        "the chord from the origin taken for the tangent",
        "return np.asarray(hit * (1 - hit) / (false_rate * (1 - false_rate)))",
        "return np.asarray(hit / false_rate)",
        (_BETS + "test_the_capital_does_not_grow_on_average_under_a_true_claim",),
    ),
    Mutant(
        "a bet that ignores the other world",
        "false hits cost nothing: the capital grows under every claim",
        "np.log1p(-size * self.slope * (false_hits - self.false_rate))",
        "np.log1p(-0 * size * self.slope * (false_hits - self.false_rate))",
        (_BETS + "test_the_capital_does_not_grow_on_average_under_a_true_claim",),
    ),
    Mutant(
        "bets chosen after the runs that they are on",
        "look-ahead: attack, threshold and bet of a round from that round's own runs",
        "        score, threshold, swapped, bet = self._choose_bet()\n",
        "        self._rounds.append((first, second))\n"
        "        score, threshold, swapped, bet = self._choose_bet()\n"
        "        self._rounds.pop()\n",
        (_BETS + "test_bets_are_chosen_before_the_runs_that_they_are_on",),
    ),
    Mutant(
        "the best of the capitals, not their average",
        "the bet that did best in hindsight: three tests at the price of one",
        "capitals = logsumexp(logs, axis=0) - math.log(len(FRACTIONS))",
        "capitals = logsumexp(logs, axis=0)",
        (_BETS + "test_the_capital_is_the_average_of_the_bets",),
    ),
    Mutant(
        "refuted by less capital than stated",
        "a capital of 1 / confidence taken for the one that has probability 1 - confidence",
        "self.target = -math.log(1 - confidence)",
        "self.target = -math.log(confidence)",
        (_BETS + "test_the_capital_is_the_average_of_the_bets",),
    ),
    Mutant(
        "bets against another claim on the same runs",
        "claims tried on saved runs until one falls",
        ', bets against {claim.text}"',
        ', bets"',
        (_BETS + "test_a_folder_of_another_claim_is_refused",),
    ),
    # --- power ---
    Mutant(
        "power from expected counts",
        "half of such audits see less than the count that is expected",
        "    hits, false_hits = binom.ppf(miss, runs, hit), binom.ppf(1 - miss, runs, false)\n",
        "    hits, false_hits = np.round(runs * hit), np.round(runs * false)\n",
        (_POWER + "test_randomised_response_of_the_stated_epsilon_is_seen_as_often_as_stated",),
    ),
    Mutant(
        "power of all runs",
        "the runs that choose the attack counted as evidence",
        "runs - runs // 2 if counted is None else counted, delta, claim",
        "runs if counted is None else counted, delta, claim",
        (_POWER + "test_a_result_states_its_power_and_that_it_had_none",),
    ),
    Mutant(
        "no word of an audit without power",
        "an audit that cannot fail, presented as passed",
        '        if self.has_power:\n            return ""\n',
        '        if self.has_power or self.runs_needed:\n            return ""\n',
        (_POWER + "test_a_result_states_its_power_and_that_it_had_none",),
    ),
    # --- replay ---
    Mutant(
        "printed numbers compared",
        "repr of a long array has dots where the difference is",
        "one.tobytes() == other.tobytes()",
        "repr(one) == repr(other)",
        (_REPLAY + "test_values_are_compared_to_the_last_bit", _PASSES_BY),
    ),
    Mutant(
        "fewer questions are no difference",
        "a fit that stops early on one row",
        "        if self._played != len(self._answers):\n",
        "        if False:\n",
        (_PASSES_BY,),
    ),
    Mutant(
        "a mismatch that the fit caught is forgotten",
        "code that tries again on any error",
        "        if self.mismatch is not None:\n            raise self.mismatch\n",
        "        if False:\n            raise self.mismatch\n",
        (_PASSES_BY,),
    ),
    Mutant(
        "the sensitivity of the second rows",
        "a sensitivity that is computed from rows grows with the row that moves",
        "                if known.sensitivity != sensitivity:\n",
        "                if False:\n",
        (_PASSES_BY,),
    ),
    Mutant(
        "every change measured in the largest coordinate",
        "noise for ℓ2, compared in ℓ∞",
        "        length = _NORMS[norm]\n",
        '        length = _NORMS["linf"]\n',
        (_REPLAY + "test_the_norm_is_that_of_the_sensitivity",),
    ),
    # --- targets ---
    Mutant(
        "a fixed seed is audited",
        "the same noise in every run: two data sets are told apart at any epsilon",
        "    _check_noise(name, released, runs, times)\n",
        "",
        (_REFUSED,),
    ),
    Mutant(
        "state between runs is not looked for",
        "a warm start makes runs depend on each other, and binomial bounds wrong",
        "    if changed and not np.array_equal(runs[0], runs[2], equal_nan=True):\n",
        "    if False:\n",
        (_REFUSED,),
    ),
    Mutant(
        "rows that a run has changed",
        "later runs are on other rows than those that are said to be neighbours",
        "    if digest(*worlds[0], *worlds[1]) != rows:\n",
        "    if False:\n",
        (_REFUSED,),
    ),
    Mutant(
        "clones with one seed",
        "an integer in random_state is the seed of every run",
        "return made.set_params(**dict.fromkeys(seeds, seed))",
        "return made",
        (_FIRST + "test_every_run_has_a_seed_of_its_own_and_the_same_audit_has_the_same_ones",),
    ),
    # --- the page ---
    Mutant(
        "a page without what it does not say",
        "an audit report that reads as a certificate",
        '        section("not-said", "What this audit does not say", listing(not_said)),\n',
        "",
        (_PAGE + "test_every_page_says_that_a_passing_audit_proves_nothing",),
    ),
    Mutant(
        "the Gaussian claim drawn as an epsilon",
        "the curve of (epsilon, delta) in the place of that of mu",
        '    if audit.get("claimed_mu") is not None:\n        claimed_mu = float',
        "    if False:\n        claimed_mu = float",
        (_PAGE + "test_the_drawn_curves_are_the_attack_and_the_claim",),
    ),
    # --- sequential audits of models, estimators and channels ---
    Mutant(
        "bets without the first runs",
        "a function that keeps state or has no noise, refuted or passed by bets that mean nothing",
        "    check_first_runs(\n        fit, subject.worlds, Schedule(int(most_runs)",
        "    (lambda *_, **__: None)(\n        fit, subject.worlds, Schedule(int(most_runs)",
        (_REFUSED,),
    ),
    Mutant(
        "bets against the ideal law",
        "finite precision allowed by the judges of a fixed size and forgotten by the bets",
        "        return moved_claim(GaussianClaim(self.claimed_mu), self.moved)\n",
        "        return GaussianClaim(self.claimed_mu)\n",
        (_TARGETS + "test_the_distance_of_finite_precision_is_part_of_the_tested_curve",),
    ),
    Mutant(
        "a distance on one of two rates",
        "total variation moves the hit rate and the false-hit rate",
        "        moved = np.minimum(np.asarray(false_rate, dtype=float) + self.distance, 1.0)\n",
        "        moved = np.asarray(false_rate, dtype=float)\n",
        (_TARGETS + "test_a_claim_up_to_a_distance_allows_what_lies_that_far",),
    ),
    Mutant(
        "a pair chosen anew at every start",
        "a second pilot chooses other data sets, and the saved runs are refused or mixed",
        "    if kept is None or not kept.exists():\n",
        "    if True:\n",
        (_TARGETS + "test_the_pilot_chooses_the_pair_and_the_folder_keeps_it",),
    ),
    Mutant(
        "a channel's claim without its delta",
        "an (epsilon, delta) channel tested as a pure one: sound code is refuted",
        "    claim = Profile(((channel.epsilon if claimed is None else claimed, channel.delta),))\n",
        "    claim = Profile(((channel.epsilon if claimed is None else claimed, 0.0),))\n",
        (_TARGETS + "test_a_channel_keeps_its_epsilon_and_half_of_it_is_refuted",),
    ),
    Mutant(
        "an epsilon bet on at delta 0",
        "the delta of a model's budget lost on the way to the bets",
        "    claim = audit.judge.curve(audit.epsilon, audit.request.delta)\n",
        "    claim = audit.judge.curve(audit.epsilon, 0.0)\n",
        (_TARGETS + "test_a_model_is_tested_against_the_mu_of_its_plan",),
    ),
    Mutant(
        "a time limit that any round may pass",
        "time looked at after a round that takes an hour",
        "            if now - start + size * (now - begun) / made > seconds:\n",
        "            if now - start > seconds:\n",
        (_FIRST + "test_a_slow_target_says_how_long_it_takes",),
    ),
    Mutant(
        "a test that bounds nothing in a signed report",
        "evidence against a claim printed where a report shows a bound",
        '        sequential = needed == "hit_rates" and "capital" in values\n',
        "        sequential = False\n",
        ("tests/cli/test_sequential_audit_command.py::test_a_report_refuses_a_test_that_bounds_nothing",),
    ),
    Mutant(
        "a refuted claim with exit code 0",
        "a pipeline that goes on after an audit has refuted its model",
        "return Outcome(str(result), result.to_dict(), BAD_NEWS if result.refuted else DONE)",
        "return Outcome(str(result), result.to_dict(), DONE)",
        ("tests/cli/test_sequential_audit_command.py::test_a_function_that_leaks_is_refuted_and_the_audit_stops",),
    ),
    Mutant(
        "the line of the page elsewhere than the verdict's",
        "a chart whose threshold is another than the one that decides",
        '        1 / (1 - float(audit["confidence"])),\n        None if',
        '        1 / float(audit["confidence"]),\n        None if',
        (_PAGE + "test_a_page_of_bets_shows_the_evidence_over_the_runs_and_the_line_that_refutes",),
    ),
)

# --- one run ---

_ONE_RUN = "tests/audit/test_one_run.py::"
_FEW_ROWS = _ONE_RUN + "test_no_mechanism_for_few_rows_beats_the_bound"
_BINOMIAL = _ONE_RUN + "test_without_delta_the_bound_is_the_binomial_tail"

ONE_RUN_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "the recursion of one run is off by one",
        "a wrong guess too few in each step: r - c in the place of r - c + 1",
        "least / np.maximum(r - c + 1, 1)",
        "least / np.maximum(r - c, 1)",
        (_BINOMIAL, _FEW_ROWS),
    ),
    Mutant(
        "one number of right guesses for that many or more",
        "a bound on P(W = v) reported as a p-value, which is P(W >= v)",
        "pulled = _equalised(r[:, None], v[:, None], slopes) * failure[:, None] - canaries * heights",
        "pulled = v[:, None] * failure[:, None] - canaries * heights",
        (_BINOMIAL, _FEW_ROWS),
    ),
    Mutant(
        "delta for the guessed rows alone",
        "rows that were not guessed could have been: delta counts once for every canary",
        "* failure[:, None] - canaries * heights",
        "* failure[:, None] - r[:, None] * heights",
        (_FEW_ROWS, _ONE_RUN + "test_the_bound_is_near_the_worst_mechanism"),
    ),
    Mutant(
        "a small tail rounded the wrong way",
        "binomial tails from a library, wrong in the third digit where they are small, and nothing rounded down",
        "return np.asarray(v / tail * (1 - _MARGIN - 1e-15 * r))",
        "return np.asarray(v / tail * (1 + 1e-7))",
        (_ONE_RUN + "test_what_a_tail_adds_is_never_rounded_up",),
    ),
    Mutant(
        "chords for tangents",
        "lines through the origin with the slope of the curve: they cut it",
        "heights = np.maximum(allowed - slopes * _TOUCHES, 0.0) + _ROUNDING * allowed",
        "heights = 0 * allowed",
        (_ONE_RUN + "test_lines_lie_above_their_curve",),
    ),
    Mutant(
        "finite precision left out of one run",
        "an ideal law tested by a run of one that is only close to it",
        "return Lines(slopes, heights + moved * (1 + slopes))",
        "return Lines(slopes, heights)",
        (_ONE_RUN + "test_lines_lie_above_their_curve",),
    ),
    Mutant(
        "refuted one right guess too early",
        "a strict inequality read the other way round",
        "    return [int(one) for one in high]\n",
        "    return [int(one) for one in low]\n",
        (_ONE_RUN + "test_one_right_guess_more_is_refuted_and_one_less_is_not",),
    ),
    Mutant(
        "the number of guesses chosen after the run",
        "the number with most right guesses among several, and no union bound over them",
        "    half = plan.guesses // 2\n",
        "    tried = [max(1, plan.guesses // n) for n in (2, 4, 8)]\n"
        "    half = max(tried, key=lambda n: (coins[order[-n:]].sum() + (~coins[order[:n]]).sum()) / n)\n"
        '    plan = OneRunPower(**{**vars(plan), "guesses": 2 * half})\n',
        (_ONE_RUN + "test_guesses_are_fixed_before_the_coins_are_drawn",),
    ),
    Mutant(
        "coins that are not fair",
        "canaries present more often than absent, and guesses of the common version counted as attacks",
        "coins = keyed_generator(seed, (0,)).random(canaries) < 0.5",
        "coins = keyed_generator(seed, (0,)).random(canaries) < 0.7",
        (_ONE_RUN + "test_versions_are_drawn_by_fair_coins_row_by_row",),
    ),
    Mutant(
        "one stream for coins and noise",
        "the fit's own noise tells the coins, and a sound fit is refuted",
        "score, keyed_generator(seed, (1,)))[rows]",
        "score, keyed_generator(seed, (0,)))[rows]",
        (_ONE_RUN + "test_versions_are_drawn_by_fair_coins_row_by_row",),
    ),
    Mutant(
        "the power of one run from expected counts",
        "half of such audits see less than the count that is expected",
        "return float(binom.ppf(miss / 2, guesses, hit / (hit + false)))",
        "return float(guesses * hit / (hit + false))",
        (_ONE_RUN + "test_a_violation_of_the_stated_size_is_seen_as_often_as_stated",),
    ),
    Mutant(
        "scores that are no numbers",
        "NaN sorts to the end, and counts as the surest guess",
        "    if np.isnan(scores).any():\n",
        "    if False:\n",
        (_ONE_RUN + "test_a_target_or_a_score_that_fails_is_named",),
    ),
    Mutant(
        "a curve exceeded by one guess too few",
        "the largest number that does not refute, taken for one that does",
        "excess = (right - plan.fewest_right + 1) / plan.guesses",
        "excess = (right - plan.fewest_right + 2) / plan.guesses",
        (_ONE_RUN + "test_judges_agree_and_the_gaussian_one_proves_more",),
    ),
)
AUDIT_MUTANTS = (*AUDIT_MUTANTS, *ONE_RUN_MUTANTS)
