"""Planted bugs in the price of objective perturbation and of estimated bounds. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_OBJECTIVE, _TABLE = "tests/trusted/test_objective_perturbation.py::", "tests/trusted/test_objective_table.py::"
_FIT, _AGAIN = "tests/trusted/test_fit.py::", "tests/methods/test_fit_again.py::"
_CERTIFICATE = "tests/trusted/test_certificate.py::"

OBJECTIVE_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a constant longer than the bound",
        "the constant column keeps its value, whatever the bound on the row is",
        "entry * counted[:, None]",
        "intercept_value * counted[:, None]",
        (_OBJECTIVE + "TestMinimiserQuery::test_a_constant_is_never_longer_than_the_bound",),
    ),
    Mutant(
        "the second fit taken for post-processing",
        "features that were chosen privately are public; the rows that are fitted to them again are not",
        'plan.append(Release("fit again", again, len(settings.again) * outputs))',
        'plan.append(Release("fit again", again.scaled(1e6), len(settings.again) * outputs))',
        (_AGAIN + "test_the_cost_is_divided_as_the_parameters_say",),
    ),
    Mutant(
        "one class's second fit at the price of all",
        "one-vs-rest fits share the rows: every class is another release, with a part of mu² of its own",
        "again = perturbation(most, settings.again_share / outputs, public)",
        "again = perturbation(most, settings.again_share, public)",
        (_AGAIN + "test_the_cost_is_divided_as_the_parameters_say",),
    ),
    Mutant(
        "a penalty for the mu of the whole budget",
        "the curvature that a penalty allows is in units of the mu of its own release",
        "return curvature_of(public, self.curvature or xi, share / public.loss.n_outputs)",
        "return curvature_of(public, self.curvature or xi, 1.0)",
        (_AGAIN + "test_the_cost_is_divided_as_the_parameters_say",),
    ),
    Mutant(
        "every later fit at the price of all",
        "the share of a loop given to each pass through it",
        "share * fits / max(rounds - 1, 1)",
        "share * fits",
        (_AGAIN + "test_the_cost_is_divided_as_the_parameters_say",),
    ),
    Mutant(
        "later fits billed once",
        "a loop of releases under one name, and a plan that counts the name",
        'plan.append(Release("fit again", again, len(settings.again) * outputs))',
        'plan.append(Release("fit again", again, outputs))',
        (_AGAIN + "test_the_cost_is_divided_as_the_parameters_say",),
    ),
    Mutant(
        "the smaller neighbour of the table",
        "F grows with xi: between two entries the larger one holds",
        "return min(from_below, table[place] if place < len(_XI) else math.inf)",
        "return table[max(place - 1, 0)]",
        (_TABLE + "test_between_entries_the_larger_neighbour_is_taken_or_less[True]",),
    ),
    Mutant(
        "one column for all losses",
        "rows that pull either way can empty both tails at once: two-sided losses cost more",
        "table = _ONE_SIDED if one_sided else _TWO_SIDED",
        "table = _ONE_SIDED",
        (_TABLE + "test_between_entries_the_larger_neighbour_is_taken_or_less[False]",),
    ),
    Mutant(
        "a slip in the table",
        "an entry that is below what is proved",
        "1.0759, ",
        "1.0579, ",
        (_TABLE + "test_entries_are_upper_bounds_and_no_looser_than_their_last_digit[0.5]",),
    ),
    Mutant(
        "curvature per whole mu",
        "one row moves the gradient by half of what a replaced row moves it by: xi is twice that",
        "xi = 2 * self.rows_per_unit * curvature / mu * (1 + 1e-12)",
        "xi = self.rows_per_unit * curvature / mu * (1 + 1e-12)",
        (_OBJECTIVE + "TestVectors::test_noise_per_gradient_bound[1.0-1e-05-0.05-7.524-7.934-7.461]",),
    ),
    Mutant(
        "the curvature of a person as that of a row of all mu",
        "k rows have mu / k each: their curvature counts k times as much",
        "xi = 2 * self.rows_per_unit * curvature / mu * (1 + 1e-12)",
        "xi = 2 * curvature / mu * (1 + 1e-12)",
        (_OBJECTIVE + "TestComposition::test_many_rows_are_a_chain_of_single_ones",),
    ),
    Mutant(
        "the solver's distance from the minimum for free",
        "the noise that hides where the solver stopped is a second release",
        "return math.hypot(mu * objective_factor(xi, self.one_sided), mu / self.certificate)",
        "return mu * objective_factor(xi, self.one_sided)",
        (_OBJECTIVE + "TestVectors::test_what_hides_the_solver_costs_little",),
    ),
    Mutant(
        "no factor at all",
        "the curvature of the replaced row makes the law of the minimiser denser somewhere",
        "return math.hypot(mu * objective_factor(xi, self.one_sided), mu / self.certificate)",
        "return math.hypot(mu, mu / self.certificate)",
        (_OBJECTIVE + "TestExactOnALine::test_the_determinant_counts[one-sided]",),
    ),
    Mutant(
        "fewer rows per unit with the determinant of more",
        "the same change of log det by fewer rows is more curvature of each",
        "or moves.rows_per_unit != self.rows_per_unit",
        "or moves.rows_per_unit > self.rows_per_unit",
        (_OBJECTIVE + "TestMechanism::test_other_rows_per_unit_than_planned_are_refused[1]",),
    ),
    Mutant(
        "a choice as half of a Gaussian of its range",
        "a constant below that of the logistic shift",
        "return pure_gaussian_mu(self.epsilon / 2)",
        "return pure_gaussian_mu(self.epsilon / 2.1)",
        ("tests/trusted/test_events.py::TestBoundedRange::test_the_constant_is_tight",),
    ),
    Mutant(
        "composed plans proved by the accountant that proves the least",
        "preliminary answers choose the rest: only bounds of the whole trade-off curve compose with them",
        "        best = GaussianAccountant.prove\n",
        "        best = best_accountant\n",
        (_FIT + "test_composed_plans_are_proved_by_the_gaussian_accountant_alone",),
    ),
    Mutant(
        "inexact answers composed with preliminary ones",
        "plans that preliminary answers lead to could divide delta between mu and finite precision in other ways",
        "        if tv:  # how delta is divided between mu and tv could hang on preliminary answers\n",
        "        if tv > 1:\n",
        (_FIT + "test_answers_that_are_not_exact_are_not_composed_with_preliminary_ones",),
    ),
    Mutant(
        "added up for some plans and composed for others",
        "a mixture over preliminary answers is covered by neither theorem",
        "return one.preliminary == other.preliminary and one.together == other.together",
        "return one.preliminary == other.preliminary",
        (_FIT + "test_how_first_answers_are_composed_is_the_same_for_all_plans",),
    ),
    # --- the certificate in floats ---
    Mutant(
        "a certificate that rounding can fake",
        "a computed gradient is compared with the tolerance, and what its margins lost is not counted",
        "if length + self._hidden(theta, _ERROR) <= enough:",
        "if length <= enough:",
        (_CERTIFICATE + "test_a_gradient_that_rounding_could_hide_is_no_certificate",),
    ),
    Mutant(
        "margins of one rounding",
        "a sum of p products is rounded p times; the penalty's part is not all that rounding moves",
        "relative = (len(theta) + 8) * error * self.steepest + 8 * _ERROR * self.penalty",
        "relative = 8 * _ERROR * self.penalty",
        (_CERTIFICATE + "test_what_rounding_hides_is_bounded",),
    ),
    Mutant(
        "narrow floats that are called wide",
        "the error of wide floats is counted for sums of float64",
        "return self.gradient(wide, theta.astype(np.longdouble)).astype(np.float64)",
        "return self.gradient(part, theta)",
        (_CERTIFICATE + "test_wider_floats_hide_less",),
    ),
    Mutant(
        "squares of a short gradient vanish",
        "a length that underflows to 0 certifies every point",
        "return float(compute_lengths(vector[None, :].astype(np.float64))[0]) if len(vector) else 0.0",
        "return float(np.linalg.norm(vector))",
        (_CERTIFICATE + "test_gradients_whose_squares_underflow_are_no_certificate",),
    ),
    Mutant(
        "machines with narrower floats are believed",
        "a client of another kind computes in float64 what the server takes for wider floats",
        "if self.wide_error < _WIDE_ERROR:",
        "if self.wide_error < 0:",
        (_CERTIFICATE + "test_a_machine_with_narrower_floats_refuses_at_every_point",),
    ),
    Mutant(
        "penalties that floats cannot tell from none",
        "where a step of descent is rounded by as much as it moves, nothing ends near the minimiser",
        "if self._step_rounding(public) > 1 / 256 and self._gradient_moves(public) < math.inf:",
        "if self._step_rounding(public) > math.inf:",
        (_CERTIFICATE + "test_a_penalty_that_is_too_small_for_floats_is_refused",),
    ),
    Mutant(
        "descent that ends where it is",
        "momentum and rounding can keep a point away from the minimiser for ever: plain steps cannot",
        "for momentum, steps, start in (fast, plain):",
        "for momentum, steps, start in ((fast[0], 1, theta),):",
        (_CERTIFICATE + "test_plain_steps_end_near_the_minimiser",),
    ),
    Mutant(
        "a tolerance that descent cannot reach",
        "points that are long are rounded, and so is every step from them",
        "least = max(self._rounding(public), self._step_rounding(public) * self._reach(public))",
        "least = self._rounding(public)",
        (_CERTIFICATE + "test_the_tolerance_is_never_below_what_descent_can_reach",),
    ),
    Mutant(
        "a long linear term that costs no rounding",
        "where noise leads far away, the solver stops further from the minimiser",
        "off = (2.0 * LARGEST_ERROR + 41.0 * moves.rounding) * spread",
        "off = 2.0 * LARGEST_ERROR * spread",
        (_OBJECTIVE + "TestLaw::test_what_hides_the_solver",),
    ),
    Mutant(
        "counts that fall no further than squares",
        "a target below 0 pulls a Poisson margin down without an end",
        "return math.inf  # where y < 0",
        "return label_bound * label_bound / 2",
        (_CERTIFICATE + "test_the_fall_of_a_loss_is_bounded",),
    ),
)
