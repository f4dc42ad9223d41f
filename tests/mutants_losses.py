"""Planted bugs in the sums of bounded losses and in choices that are taken together. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_ROWS = "tests/accounting/test_row_limit.py::"
_PAIRS, _CHOICES = "tests/accounting/test_bounded_pairs.py::", "tests/accounting/test_choices.py::"

LOSSES_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "choices at the price of their limit",
        "epsilon² / 4 in mu² for each choice, as zCDP's epsilon² / 8 suggests: a single one costs pi / 2 of it",
        "(128, 1.03), (256, 1.20))",
        "(128, 1.03), (256, 0.0))",
        (_CHOICES + "test_the_constants_are_large_enough",),
    ),
    Mutant(
        "constants without what a grid rounds up",
        "values of a game on a grid, extrapolated to no grid at all",
        "(8, 0.64), (16, 0.71), (32, 0.80)",
        "(8, 0.55), (16, 0.60), (32, 0.65)",
        (_CHOICES + "test_the_constants_are_large_enough",),
    ),
    Mutant(
        "half the range",
        "a range of 2 / noise taken for the 1 / noise of a monotone score",
        "    mu = math.sqrt(choices_square(uses[best])) * best.epsilon / 2 * _ROUNDED_UP\n",
        "    mu = math.sqrt(choices_square(uses[best])) * best.epsilon / 4 * _ROUNDED_UP\n",
        (_CHOICES + "TestMerging::test_choices_of_one_range_are_one_gaussian",),
    ),
    Mutant(
        "other ranges dropped with the first",
        "a filter by type where one by value was meant",
        "for event, count in composition if event != best)",
        "for event, count in composition if type(event) is not BoundedRangeEvent)",
        (_CHOICES + "TestMerging::test_of_two_ranges_one_is_merged",),
    ),
    Mutant(
        "pure releases as choices",
        "the exponential mechanism's composition for permute-and-flip and Laplace's noisy max",
        "        if type(event) is BoundedRangeEvent and 0 < event.epsilon < 1e100:  # beyond, squares overflow\n",
        "        if isinstance(event, BoundedRangeEvent.__base__) and 0 < event.epsilon < math.inf:  # type: ignore\n",
        (_CHOICES + "TestMerging::test_nothing_to_merge[composition3]",),
    ),
    Mutant(
        "the losses of Laplace noise as those of a choice",
        "the exponential mechanism's pair for every pure release",
        "        return BoundedLossPair.laplace(pure)\n",
        "        return BoundedLossPair.logistic(pure)\n",
        (
            _PAIRS + "TestWhichPair::test_by_type",
            _PAIRS + "test_one_laplace_answer_in_closed_form[0.01-2.0]",
        ),
    ),
    Mutant(
        "a pure release as Laplace noise",
        "half of the worst losses of randomised response forgotten",
        "        return cls(epsilon, 0.0, 1 / (1 + math.exp(-epsilon)))\n",
        "        return cls(epsilon, 0.5, 0.5)\n",
        (_PAIRS + "test_many_randomised_responses_against_the_exact_sum[0.1-50-0.001]",),
    ),
    Mutant(
        "losses rounded down to a grid",
        "an optimistic estimate, as libraries have it next to the pessimistic one",
        "        higher = np.minimum(excess / -np.expm1(-np.diff(losses)) * _ROUNDED_UP, mass)\n",
        "        higher = 0.0 * mass\n",
        (_PAIRS + "TestOnePair::test_on_a_grid_it_is_larger_at_every_threshold[7.3-1.0-range]",),
    ),
    Mutant(
        "a grid that ends before the largest loss",
        "a loss that P passes with a chance that is not counted",
        "        return self.span * _ROUNDED_UP\n",
        "        return self.span / 2\n",
        (_PAIRS + "TestOnePair::test_on_a_grid_it_is_larger_at_every_threshold[7.3-1.0-laplace]",),
    ),
    Mutant(
        "what has no pair costs nothing",
        "an event that the accountant does not know, skipped",
        "        if pair is None or pair.distance > _LARGEST_MU:\n            return math.inf\n",
        "        if pair is None or pair.distance > _LARGEST_MU:\n            continue\n",
        (_PAIRS + "TestWhichPair::test_no_promise_has_no_pair[ExposedEvent]",),
    ),
    Mutant(
        "uses of a pair forgotten",
        "dp-accounting 0.6 bills 50 randomised responses as one",
        "            parts.append((pair, count))\n",
        "            parts.append((pair, 1))\n",
        (_PAIRS + "test_many_randomised_responses_against_the_exact_sum[0.1-50-0.001]",),
    ),
    Mutant(
        "a divergence without half of the atom",
        "what starts the search is returned where it is less, and must hold by itself",
        "+ np.log(self.atom)) + b * self.span\n",
        "+ np.log(self.atom / 2)) + b * self.span\n",
        (_PAIRS + "TestOnePair::test_the_renyi_divergence[10.0-1.0-response]",),
    ),
    Mutant(
        "total variation of the ends alone",
        "a plan of choices within delta, so it seems, that costs nothing",
        "        return self.body * math.expm1(-self.span / 2) ** 2 - self.atom * math.expm1(-self.span)\n",
        "        return -self.atom * math.expm1(-self.span)\n",
        (_PAIRS + "TestOnePair::test_total_variation_is_the_profile_at_zero[1.0-range]",),
    ),
    Mutant(
        "any number of rows",
        "the bound on the rounding of sums holds up to a number of rows that nobody looks at",
        "        if self.budget is not None:\n            check_row_count(n_rows)\n",
        "",
        (_ROWS + "test_nothing_is_billed[declared]",),
        at="FitRequest.public",
    ),
)
