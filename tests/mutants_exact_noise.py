"""Planted bugs of noise without rounding errors, and of the one delta that is printed."""

from __future__ import annotations

from planted import Mutant

_EXACT, _LAZY = "tests/trusted/test_exact_noise.py::", "tests/fast/test_lazy_noise.py::"
_MECHANISMS, _CURATOR = "tests/trusted/test_mechanisms.py::", "tests/trusted/test_curator.py::"
_FOLLOWING, _ONE_DELTA = "tests/fast/test_scores_on_demand.py::", "tests/trusted/test_one_delta.py::"

EXACT_NOISE_MUTANTS: tuple[Mutant, ...] = (
    # --- draws ---
    Mutant(
        "the sign is the first bit of the number",
        "one word for two things: large noise, whose number begins with zeros, is then always positive",
        "^= self._words << np.uint64(63)  # the sign bit",
        "^= self._words & np.uint64(2**63)  # the sign bit",
        (_EXACT + "TestRounding::test_law_on_a_coarse_grid[normal-1.0-True]",),
    ),
    Mutant(
        "further bits are zeros",
        "a uniform number of 64 bits taken for a real one: its cell has one point",
        "number << 64 | int(self._generator.integers(0, 2**64, dtype=np.uint64)), bits + 64",
        "number << 64 | 0 * int(self._generator.integers(0, 2**64, dtype=np.uint64)), bits + 64",
        (_EXACT + "TestRounding::test_next_to_a_border_more_bits_decide",),
    ),
    Mutant(
        "short numbers stay short",
        "far out in the tail 64 bits are few: noise of numbers that begin with many zeros is on a visible lattice",
        "_SHORT = 2**46\n",
        "_SHORT = 2**20\n",
        (_EXACT + "TestDraws", _EXACT + "TestErrors"),
    ),
    Mutant(
        "borders to float precision",
        "decimal arithmetic with too few digits decides about bits that it does not see",
        "_decimals(int(0.302 * bits) + 40)",
        "_decimals(20)",
        (_EXACT + "TestDraws::test_is_below_draws_as_many_bits_as_decide",),
    ),
    Mutant(
        "decimal arithmetic as a user has set it up",
        "a global context: three digits, or an error at the first inexact result",
        "with localcontext(_decimals(_CHOICE_DIGITS)):",
        "with localcontext():",
        (_EXACT + "TestChoices",),
    ),
    # --- rounding ---
    Mutant(
        "no draw is in doubt",
        "float64 taken at its word next to a border of the grid",
        "for place in np.flatnonzero(distance > 0.5):",
        "for place in np.flatnonzero(distance > math.inf):",
        (_EXACT + "TestRounding::test_next_to_a_border_more_bits_decide",),
    ),
    Mutant(
        "borders at whole numbers",
        "rounding to nearest in one place and downwards in the other",
        'return law.tail((middle + Decimal("0.5")) / Decimal(steps))',
        'return law.tail((middle + Decimal("1")) / Decimal(steps))',
        (_EXACT + "TestRounding",),
    ),
    Mutant(
        "one border where an error spans many",
        "a search among neighbours, for scales at which they are not all that is possible",
        "high = math.ceil(scaled[place] + error[place])",
        "high = low + 1",
        (_EXACT + "TestRounding::test_so_many_steps_that_everything_is_in_doubt",),
    ),
    Mutant(
        "noise of the answer's sensitivity alone",
        "rounding to a grid taken for free: two answers end up further apart than they were",
        "noise * (moved + grid * coordinates)",
        "noise * moved",
        (_EXACT + "TestGridAndScale",),
    ),
    Mutant(
        "the l1 grid counted as in l2",
        "rounding moves each of d numbers by up to a unit: d units in l1, sqrt(d) in l2",
        "(sensitivity.l1, float(count))",
        "(sensitivity.l1, math.sqrt(count))",
        (_MECHANISMS + "TestFinitePrecision::test_the_grid_joins_the_sensitivity_in_the_norm_of_the_noise",),
    ),
    Mutant(
        "half the rounding of a batch",
        "a batch with a unit against one without it: half of the sensitivity, but all of the rounding",
        "    ROUNDINGS = 2.0\n",
        "    ROUNDINGS = 1.0\n",
        (_ONE_DELTA + "test_rounding_is_counted_on_top_of_what_a_unit_adds_to_a_batch",),
        at="SampledGaussian",
    ),
    Mutant(
        "answers are added before they are rounded",
        "noise rounded to floats near the answer: its size shows in what is released",
        "    noisy = in_units(exact, grid)\n    noisy +=",
        "    noisy = exact / grid\n    noisy +=",
        (_MECHANISMS + "TestFinitePrecision::test_what_leaves_lies_on_the_grid",),
    ),
    Mutant(
        "roundings next to public weights not counted",
        "w - step × gradient taken for a real number: however large w is, no digit of the gradient is lost",
        "            if largest < math.inf:\n",
        "            if largest < 0:\n",
        (_CURATOR + "test_roundings_next_to_public_weights_join_the_sensitivity",),
    ),
    Mutant(
        "the error of the linear term not hidden",
        "objective perturbation proves for real noise b; the solver is given floats",
        "moves.minimiser + 2 * off, math.sqrt(count))",
        "moves.minimiser + 0 * off, math.sqrt(count))",
        (
            "tests/trusted/test_objective_perturbation.py::TestMechanism::test_the_error_of_the_linear_term_is_hidden_too",
        ),
    ),
    # --- choices and events ---
    Mutant(
        "near ties go to float64",
        "the best of noisy scores in floats: which of two is taken depends on how large both are",
        "for column in np.flatnonzero(~(least > most)):",
        "for column in np.flatnonzero(least < -math.inf):",
        (_EXACT + "TestChoices",),
    ),
    Mutant(
        "events by float borders",
        "geometric gaps rounded down in float64",
        "for place in np.flatnonzero(doubtful & (nearest > 0)):",
        "for place in np.flatnonzero(doubtful & (nearest < 0)):",
        (_EXACT + "TestDrawEvents::test_next_to_a_border_more_bits_decide",),
    ),
    Mutant(
        "lazy noise reaches one level less",
        "off by one in the bits that are known to be zero",
        "-float(ndtri(2.0 ** -(level + 1)))",
        "-float(ndtri(2.0**-level)) if level else 0.0",
        (_LAZY + "TestFallingNoise::test_the_ceiling_holds_for_all_that_is_not_drawn",),
    ),
    Mutant(
        "ties are left undrawn",
        "a strict comparison, where whole numbers are equal often",
        "        near = np.abs(values) >= self.border\n",
        "        near = np.abs(values) > self.border\n",
        (_LAZY + "test_ties_go_to_the_first_lines",),
    ),
    # --- one delta ---
    Mutant(
        "delta for the ideal law alone",
        "the lemma that adds finite precision to delta, and a printed delta without it",
        "    if tv == 0:\n",
        "    if tv >= 0:\n",
        (_ONE_DELTA + "test_a_proof_leaves_room_in_delta_for_finite_precision",),
    ),
    Mutant(
        "one answer's part of delta for all of them",
        "total variation of a single draw, where a fit makes thousands",
        "return sum(release.answers * release.mechanism.inexact for release in self)",
        "return sum(release.mechanism.inexact for release in self)",
        (_MECHANISMS + "TestScoresOnDemand::test_a_plan_adds_up_what_its_answers_take",),
    ),
    Mutant(
        "ledgers leave finite precision out",
        "the share of a fit by its events, which know nothing of arithmetic",
        "return (1 + exp_or_inf(cap.epsilon)) * plan.inexact / cap.delta",
        "return 0.0 * plan.inexact / cap.delta",
        (_ONE_DELTA + "test_a_ledger_counts_what_finite_precision_takes_of_its_delta",),
    ),
    Mutant(
        "the epsilon of the plan that was taken",
        "two_stage with published noise: which epsilon is printed depends on private answers",
        "return Receipt(self._settled, self.promise, ",
        "return Receipt(self._settled, Proved.of([self._settled], self.order.delta), ",
        (_ONE_DELTA + "test_the_printed_epsilon_is_the_largest_over_all_plans_that_bounds_can_lead_to",),
    ),
    Mutant(
        "scores on demand of more rows than planned",
        "a part of delta that was planned for a smaller data set",
        " or (scale and scores.n_rows > self.rows):\n",
        ":\n",
        (_CURATOR + "test_scores_on_demand_reach_the_mechanism_with_the_noise_of_their_sensitivity",),
    ),
    Mutant(
        "trials with a part of delta that nobody pays",
        "a price in Rényi divergences, which have no room for total variation",
        "        if plan.inexact:  #",
        "        if plan.inexact > 1:  #",
        ("tests/tuning/test_search.py::test_trials_have_no_part_of_delta_for_finite_precision",),
    ),
    Mutant(
        "searches draw on demand where they are told to",
        "a setting of the user's that overrides what a bill has room for",
        "    if is_plain() or public.exact_only or public.loss.n_outputs > 1:\n",
        "    if is_plain() or public.loss.n_outputs > 1:\n",
        (_FOLLOWING + "TestChosenEngine::test_what_the_user_says_counts_but_where_many_fits_share_a_bill",),
    ),
    Mutant(
        "an engine chosen without the bounds' epsilon",
        "exp(epsilon) of the part of the budget that is left, where the promise is about all of it",
        "math.exp(min(epsilon + public.spent, 700))",
        "math.exp(min(epsilon, 700))",
        (_FOLLOWING + "TestChosenEngine::test_auto_falls_back_where_finite_precision_would_take_too_much",),
    ),
)
