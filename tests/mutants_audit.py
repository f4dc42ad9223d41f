"""Planted bugs in the audit's Gaussian judge. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_JUDGES = "tests/audit/test_judges.py::"

AUDIT_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "the whole failure for each of two sides",
        "two intervals at 95 % taken for a joint statement at 95 %, the usual slip in published audits",
        "    failure = (1 - confidence) / 2\n",
        "    failure = 1 - confidence\n",
        (_JUDGES + "test_the_mu_of_counts_is_that_of_two_exact_intervals",),
        at="mu_lower_bound",
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
        at="mu_lower_bound",
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
        "scores = _oriented(score, first[learnt:chosen], second[learnt:chosen], swapped)",
        "scores = _oriented(score, first[chosen:runs], second[chosen:runs], swapped)",
        (_JUDGES + "test_thresholds_are_chosen_on_other_runs_than_those_that_are_judged",),
    ),
    Mutant(
        "judged on all runs, those of the choice included",
        "every run counted, after half of them have chosen the event",
        "_oriented(score, first[chosen:runs], second[chosen:runs], swapped), threshold, delta, confidence, judge\n",
        "_oriented(score, first[:runs], second[:runs], swapped), threshold, delta, confidence, judge\n",
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
        "_Store(schedule, subject.fingerprint() + look)",
        "_Store(schedule, subject.fingerprint())",
        (_JUDGES + "test_runs_in_a_folder_are_not_judged_again_by_another_judge",),
    ),
)
