"""Planted bugs in budgets and reports of rho (zCDP). See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_RHO, _FITS = "tests/accounting/test_zcdp.py::", "tests/estimators/test_rho_budgets.py::"

ZCDP_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "the rho of half a sensitivity",
        "[IGHT] prints noise for sqrt(2) G / n where a replaced row moves the mean by 2 G / n: half the true rho",
        "    return event.gaussian_mu() ** 2 / 2\n",
        "    return event.gaussian_mu() ** 2 / 4\n",
        (_RHO + "TestOneRelease::test_rho_is_above_the_curve_at_every_order[1.0]",),
        at="_gaussian_rho",
    ),
    Mutant(
        "Laplace noise as a bounded range",
        "epsilon² / 8 for every pure release: it holds for the exponential mechanism alone",
        "epsilon**2 / 2 if epsilon < 1e-3 else epsilon + math.expm1(-epsilon)",
        "epsilon**2 / 8",
        (_RHO + "TestOneRelease::test_rho_is_above_divergences_by_definition[2.0-1.0]",),
    ),
    Mutant(
        "pure privacy as a bounded range",
        "the same for permute-and-flip and Laplace's noisy max",
        "    return epsilon * math.tanh(epsilon / 2)\n",
        "    return epsilon**2 / 8\n",
        (_RHO + "TestOneRelease::test_rho_is_above_divergences_by_definition[2.0-1.0]",),
    ),
    Mutant(
        "a rho without the estimated bounds",
        "what was asked before the fit, left out of what the fit adds up",
        "return math.inf if plan.inexact else _sum_rho(compose(plan))",
        "return math.inf if plan.inexact else _sum_rho(compose(plan.releases))",
        (_RHO + "TestPlans::test_everything_is_added_up",),
    ),
    Mutant(
        "a rho of answers that are nearly ideal",
        "finite precision has its part of delta, and zCDP has no delta",
        "return math.inf if plan.inexact else _sum_rho(compose(plan))",
        "return _sum_rho(compose(plan))",
        (_RHO + "TestPlans::test_what_is_not_exact_has_none",),
    ),
    Mutant(
        "bounds that cost no rho",
        "the whole rho for the method, after a part of it was spent on bounds",
        "    left = rho - total_rho(releases)\n",
        "    left = rho\n",
        (_RHO + "TestBudget::test_what_bounds_leave",),
    ),
    Mutant(
        "a budget in rho remembered as its epsilon",
        "noise from a cache, calibrated to the looser of two budgets that compare equal",
        "(self.epsilon, self.delta, self.rho) == (other.epsilon, other.delta, rho_of(other))",
        "(self.epsilon, self.delta) == (other.epsilon, other.delta)",
        (_RHO + "TestCalibration::test_no_mix_up_with_the_implied_epsilon",),
    ),
    Mutant(
        "one sensitivity for the printed rho",
        "sigma² = T G² / (n² rho) taken for noise per sensitivity: the report would say rho / 2 where 2 rho is true",
        "noise = NoisePerSensitivity(math.sqrt(settings.n_iter / rho) / 2)",
        "noise = NoisePerSensitivity(math.sqrt(settings.n_iter / rho))",
        (_FITS + "TestPublished::test_as_printed",),
    ),
    Mutant(
        "the rho that was asked for, reported as proved",
        "the paper's claim printed in the place of what its noise proves",
        "        rho=rho,\n        asked_rho=rho_of(budget),\n",
        "        rho=rho and (rho_of(budget) or rho),\n        asked_rho=rho_of(budget),\n",
        (_FITS + "TestPublished::test_the_report_says_twice_the_rho",),
    ),
    Mutant(
        "the rho of one plan out of several",
        "plans of one epsilon have different rho, and private bounds choose among them",
        "if self.budget is None or math.isinf(most) or (self.wanted and self.rho is None):",
        "if self.budget is None or math.isinf(most):",
        (_FITS + "TestFits::test_none_where_plans_depend_on_answers",),
    ),
    Mutant(
        "a plan with more rho than was promised",
        "nobody looks at the plan that was settled on",
        "            confirm_rho(chosen.plan, rho)\n",
        "            pass\n",
        (_FITS + "TestRefusals::test_a_plan_with_more_rho_than_was_promised",),
    ),
    Mutant(
        "the rho of one trial for a whole search",
        "a search's report, made from that of the trial that it returned",
        '{"rho": None, "renyi": (), "mu": None, "zero_out": None}',
        '{"mu": None, "zero_out": None}',
        (_FITS + "TestReports::test_a_search_has_none_of_one_trial",),
    ),
    Mutant(
        "a rho rounded to the nearest",
        "five digits, half of the time below what is proved",
        'proved += f" ρ = {rounded_up(self.rho)} is proved',
        'proved += f" ρ = {self.rho:.5g} is proved',
        (_FITS + "TestReports::test_a_printed_rho_is_rounded_up",),
    ),
    Mutant(
        "the Rényi curve of what comes after the bounds",
        "a curve of the releases alone, without the preliminary ones",
        "return () if plan.inexact else _curve(compose(plan))",
        "return () if plan.inexact else _curve(compose(plan.releases))",
        (_RHO + "TestPlans::test_the_curve_of_a_report",),
    ),
)
