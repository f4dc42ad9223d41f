"""Planted privacy bugs: each a patch of a line or two on a copy of tulle, which the named tests must catch.

Every patch breaks a promise and raises nothing by itself: the tests have to notice. `python tests/mutants.py` plants
them all and prints which test caught each, and how fast.
"""

from __future__ import annotations

import compileall
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from queue import SimpleQueue

from forked_runs import ForkedRuns
from mutants_audit import AUDIT_MUTANTS
from mutants_conversion import CONVERSION_MUTANTS
from mutants_exact_noise import EXACT_NOISE_MUTANTS
from mutants_extensions import EXTENSION_MUTANTS
from mutants_features import FEATURE_MUTANTS
from mutants_fed import FED_MUTANTS
from mutants_federated import FEDERATED_MUTANTS
from mutants_front import FRONT_MUTANTS
from mutants_inference import INFERENCE_MUTANTS
from mutants_intake import INTAKE_MUTANTS
from mutants_ledger import LEDGER_MUTANTS
from mutants_local import LOCAL_MUTANTS
from mutants_losses import LOSSES_MUTANTS
from mutants_masked import MASKED_MUTANTS
from mutants_monitoring import MONITORING_MUTANTS
from mutants_objective import OBJECTIVE_MUTANTS
from mutants_preprocessing import PREPROCESSING_MUTANTS
from mutants_public import PUBLIC_MUTANTS
from mutants_replay import REPLAY_MUTANTS
from mutants_reports import REPORT_MUTANTS
from mutants_rows import ROWS_MUTANTS
from mutants_schema import SCHEMA_MUTANTS
from mutants_signing import SIGNING_MUTANTS
from mutants_spread import SPREAD_MUTANTS
from mutants_steps import STEP_MUTANTS
from mutants_survival import SURVIVAL_MUTANTS
from mutants_transport import TRANSPORT_MUTANTS
from mutants_zcdp import ZCDP_MUTANTS
from planted import Mutant

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tulle"


@dataclass(frozen=True)
class Outcome:
    """What the named tests said of a copy of tulle.

    Attributes
    ----------
    caught_by : str or None
        The test that failed because a statement was false; None where none did.
    code : int
        pytest's exit status: 0 all passed, 1 some failed, others are errors of the run itself.
    seconds : float
    output : str
    """

    caught_by: str | None
    code: int
    seconds: float
    output: str


_PRIVACY, _QUERIES, _MECHANISMS = (
    "tests/trusted/test_accountants.py::",
    "tests/trusted/test_queries.py::",
    "tests/trusted/test_mechanisms.py::",
)
_LEDGER, _CURATOR, _EVENTS = (
    "tests/ledgers/test_ledger.py::",
    "tests/trusted/test_curator.py::",
    "tests/trusted/test_events.py::",
)
_ESTIMATORS, _NEW = "tests/estimators/test_sparse.py::", "tests/trusted/test_caught_by_mutants.py::"
_TRIALS, _SCORES, _TUNING = (
    "tests/tuning/test_best_of_trials.py::",
    "tests/tuning/test_private_score.py::",
    "tests/tuning/test_search.py::",
)
_OBJECTIVE, _SOLVER = "tests/trusted/test_objective_perturbation.py::", "tests/trusted/test_objectives.py::"
_SCREEN, _SETS, _ROWS = (
    "tests/methods/test_screen_refine.py::",
    "tests/methods/test_feasible_sets.py::",
    "tests/trusted/test_rows.py::",
)
_SCREEN_REFINE_DATA = "tests/methods/test_screen_refine_data.py::"
_TWO_STAGE_AND_AUTO = "tests/methods/test_two_stage_and_auto.py::"
_PRINTED = "tests/methods/test_printed_algorithms.py::"
_LAZY = "tests/fast/test_lazy_noise.py::"
_SAMPLING, _BATCHES = "tests/trusted/test_sampling.py::", "tests/trusted/test_batches.py::"
_ON_BATCHES, _STOCHASTIC = (
    "tests/trusted/test_batch_queries.py::",
    "tests/methods/test_stochastic_hard_thresholding.py::",
)
_AUDIT = "tests/audit/test_audit.py::"
_SAMPLED = "tests/trusted/test_sampled_events.py::"
_CLIPPED_SUM = "tests/trusted/test_clipped_sum.py::"
_BOUNDARY, _FOLLOWING = "tests/test_trust_boundary.py::", "tests/fast/test_scores_on_demand.py::"
_SCORES_LAW = "tests/fast/test_scores_law.py::"
_DESCENT = "tests/methods/test_coordinate_descent.py::"
_TRANSFER, _STUDENTS = "tests/methods/test_knowledge_transfer.py::", "tests/transfer/test_students.py::"
_PUBLIC, _SYNTHETIC = "tests/transfer/test_public_features.py::", "tests/transfer/test_synthetic.py::"

MUTANTS: tuple[Mutant, ...] = (
    # --- sensitivities of queries ---
    Mutant(
        "gradient sensitivity C/n, not 2 C/n",
        "the hard-thresholding papers take sqrt(2) C/n or C/n; replacing a row moves the mean by 2 C/n",
        "return 2.0 * level * public.rows_per_unit / public.n_rows",
        "return level * public.rows_per_unit / public.n_rows",
        (_QUERIES + "TestWorstCases::test_clipped_gradient[l2-logistic-0.0-True-1]",),
    ),
    Mutant(
        "a person's rows counted as one in the gradient",
        "example-level noise sold as user-level privacy, the usual slip with several records per person",
        "return 2.0 * level * public.rows_per_unit / public.n_rows",
        "return 2.0 * level / public.n_rows",
        (_QUERIES + "TestWorstCases::test_clipped_gradient[l2-logistic-0.0-True-3]",),
    ),
    Mutant(
        "mean over the realised number of rows",
        "DP-SGD code that divides by the drawn batch's size, with the noise of the expected one",
        "total /= public.n_rows",
        "total /= max(sum(int(block.active.sum()) for block in rows.blocks), 1)",
        (_NEW + "test_a_row_among_many_surplus_rows_pulls_no_harder",),
    ),
    Mutant(
        "the mean gradient clipped, not each row's",
        "batch clipping: torch's clip_grad_norm_ on the mean gradient in code that calls itself DP-SGD",
        "factor = np.where(norms <= level, 1.0, np.where(norms < np.inf, level / norms, 0.0))",
        "factor = np.full(len(norms), min(1.0, level * len(norms) / max(float(norms.sum()), 1e-300)))",
        (_NEW + "test_a_row_among_rows_that_pull_little_is_clipped_all_the_same",),
    ),
    Mutant(
        "a norm that overflows goes unclipped",
        "min(1, C / norm) guarded by isfinite: the record that is too large to measure is the one that is let through",
        "factor = np.where(norms <= level, 1.0, np.where(norms < np.inf, level / norms, 0.0))",
        "factor = np.where(norms < np.inf, np.minimum(1.0, level / np.maximum(norms, 1e-300)), 1.0)",
        (_NEW + "test_a_gradient_whose_norm_overflows_is_clipped",),
    ),
    Mutant(
        "one record that is not finite wipes out the answer",
        "NaN * 0 is NaN: a sum turns to NaN, and to zero, for one person's sake",
        "np.where(np.isfinite(slopes) & block.active[:, None], slopes, 0.0)",
        "np.where(block.active[:, None], slopes, 0.0)",
        (_QUERIES + "test_a_label_that_is_not_finite_moves_an_answer_no_further_than_another",),
    ),
    Mutant(
        "the intercept outside the row bound",
        "row norms taken before the constant column is appended; its entry moves the gradient too",
        'bound_norms(block.norms("l2"), n_lines, a)',
        'block.norms("l2")',
        (_QUERIES + "TestWorstCases::test_clipped_gradient[l2-squared-4.0-True-1]",),
    ),
    Mutant(
        "the intercept outside the bound of chosen features",
        "two-stage selection: the refit's bound counts the s features and forgets the constant column",
        "slopes[:, column] * bound_norms(block.norms_on(chosen), n_lines, a)",
        "slopes[:, column] * block.norms_on(chosen)",
        (_QUERIES + "TestWorstCases::test_clipped_gradient_on_a_support[squared-4.0-True-1]",),
    ),
    Mutant(
        "each class clipped apart, one record's noise",
        "one-vs-rest fits treated as if a record touched one class; it touches them all",
        "norms = compute_lengths(slopes) * bound_norms",
        "norms = np.abs(slopes).max(axis=1) * bound_norms",
        (_QUERIES + "TestWorstCases::test_clipped_gradient[l2-one vs rest-0.0-False-1]",),
    ),
    Mutant(
        "clipped in l-inf, claimed in l2",
        "entries scaled to [-1, 1] and the row norm taken as 1: min-max scaling before DP logistic regression",
        'if self.norm == "linf":\n            norms',
        "if self.support is None:\n            norms",
        (_QUERIES + "TestNoNeighbourMovesFurther::test_clipped_gradient[l2-False-squared-dense]",),
    ),
    Mutant(
        "tightened bound in the sensitivity alone",
        "a Lipschitz constant believed, not enforced: DP-IGHT Corollary 5.6 needs a G that no clip imposes",
        "math.prod(self.shape)), self.level)",
        "math.prod(self.shape)), np.inf)",
        (_QUERIES + "TestTightening::test_the_bound_is_enforced_on_a_loss_that_lies",),
    ),
    Mutant(
        "surplus rows of a person counted",
        "contribution bounding that drops rows from the count and leaves them in the sum",
        "np.isfinite(slopes) & block.active[:, None]",
        "np.isfinite(slopes)",
        (_QUERIES + "test_surplus_rows_add_nothing_to_the_constant_column",),
    ),
    Mutant(
        "noise for the gradient on the step",
        "noise moved from the gradient to the weights, and the step size left behind",
        "return self.query.sensitivity(public).times(abs(self.factor))",
        "return self.query.sensitivity(public)",
        (_QUERIES + "TestWorstCases::test_clipped_gradient_on_a_support[squared-0.0-True-1]",),
        at="Affine.sensitivity",
    ),
    Mutant(
        "quantile score sensitivity halved",
        "exponential mechanisms with the 1/2 of the exponent applied twice, once as sensitivity",
        "Sensitivity(linf=float(public.rows_per_unit))",
        "Sensitivity(linf=public.rows_per_unit / 2)",
        (_QUERIES + "test_worst_case_of_quantile_scores",),
    ),
    Mutant(
        "a person's rows counted as one in the quantile",
        "bounds estimated per row for a model that promises privacy per person",
        "Sensitivity(linf=float(public.rows_per_unit))",
        "Sensitivity(linf=1.0)",
        (_QUERIES + "test_worst_case_of_quantile_scores",),
    ),
    Mutant(
        "squares of tiny slopes underflow",
        "a norm computed as the root of a sum of squares: 0 for what is far above a tiny clip, and nothing is clipped",
        "norms = compute_lengths(slopes) * b",
        "norms = np.sqrt((slopes**2).sum(axis=1)) * b",
        (_QUERIES + "test_tiny_slopes_are_clipped_too[None]",),
    ),
    Mutant(
        "squares of tiny entries underflow",
        "a row that looks empty has no length to clip by, and a slope as huge as its entries are small",
        "norms + 1e-150 * math.sqrt(n_features)",
        "norms",
        (_QUERIES + "test_rows_whose_squares_vanish_are_clipped_too[all-dense]",),
    ),
    Mutant(
        "curvature's sensitivity without the square",
        "second moments noised like first ones: X'X moves by the squared row bound",
        "bound_change(self.level, public), self.level * public.rows_per_unit / public.n_rows",
        "bound_change(self.level, public), math.sqrt(self.level) * public.rows_per_unit / public.n_rows",
        (_QUERIES + "test_worst_case_of_curvature",),
    ),
    Mutant(
        "curvature not clipped to the bound it claims",
        "a bound on the chosen features used for the noise and never imposed on the rows",
        "return np.clip(slopes, -self.level, self.level)",
        "return slopes",
        (_QUERIES + "test_curvature_of_a_row_beyond_the_bound_counts_as_the_bound",),
    ),
    # --- mechanisms ---
    Mutant(
        "sigma squared where sigma belongs",
        "the papers print σ²; numpy's normal takes σ: a variance below 1 squared away",
        "add_noise(answer, scale, grid, self.LAW, generator)",
        "add_noise(answer, scale**2, grid, self.LAW, generator)",
        (_MECHANISMS + "TestAdditiveNoise::test_law[gaussian-1.0-True-0]",),
    ),
    Mutant(
        "noise scale passed as location",
        "np.random.laplace(b, size=n): the first argument is the location, the scale stays 1",
        "noisy += round_noise(law, Draws.fresh(exact.size, generator), scale / grid).reshape(exact.shape)",
        "noisy += scale / grid + round_noise(law, Draws.fresh(exact.size, generator), 1 / grid).reshape(exact.shape)",
        (_MECHANISMS + "TestAdditiveNoise::test_law[laplace-1.0-True-0]",),
    ),
    Mutant(
        "Laplace noise for the l2 sensitivity",
        "noisy gradients with Laplace noise scaled to the Euclidean clip, short by up to sqrt(d)",
        "(sensitivity.l1, float(count))",
        "(sensitivity.l2, float(count))",
        (_MECHANISMS + "TestAdditiveNoise::test_law[laplace-1.0-True-0]",),
    ),
    Mutant(
        "support chosen before the noise",
        "Stoddard et al. 2014 (Lyu, Su, Li 2017, algorithm 5): noise on what is released, none on what is compared",
        "return answer if then is None else then(answer)",
        "return answer if then is None else np.where(then(exact + 1e-9) != 0, answer, 0.0)",
        (_MECHANISMS + "TestAdditiveNoise::test_law_after_a_threshold[gaussian-1.0-True-0]",),
        at="AdditiveNoise.release",
    ),
    Mutant(
        "values of the selection leave without noise",
        "Roth's lecture notes 2011 (Lyu, Su, Li 2017, algorithm 3): a selection's answers without noise of their own",
        "            return release.mechanism.release(exact, sensitivity, self._generator, then)",
        "            answer = release.mechanism.release(exact, sensitivity, self._generator, then)\n"
        '            return exact if name == "values" else answer',
        (_ESTIMATORS + "test_noise_scales_with_the_rows_of_a_person[selection]",),
    ),
    Mutant(
        "low-order bits of the noisy values",
        "Mironov 2012: textbook floating-point Laplace noise tells neighbours apart by its last bits",
        "    np.rint(units, out=units)\n",
        "",
        (_MECHANISMS + "TestFinitePrecision::test_what_leaves_lies_on_the_grid",),
    ),
    Mutant(
        "float sums trusted to be exact",
        "Casacuberta et al. 2022: DP libraries widely understate the sensitivity of a float sum",
        "sensitivity = sensitivity.times(summation_slack(self._public.n_rows))",
        "sensitivity = sensitivity.times(1.0)",
        (_CURATOR + "test_the_noise_covers_what_float_sums_can_move_beyond_exact_ones",),
    ),
    Mutant(
        "arg-min of score plus Gumbel",
        "Gumbel noise is not symmetric: Frank-Wolfe minimises, and score + Gumbel is then another law",
        "noisy = scores + scale * noise",
        "noise = -noise\n    noisy = scores + scale * noise",
        (_MECHANISMS + "TestTopK::test_noisy_max_is_the_exponential_mechanism[1.0-True-0]",),
    ),
    Mutant(
        "selection noise under the root",
        "peeling with sqrt(s log(1/δ) / ε) for the scale sqrt(s log(1/δ)) / ε",
        "return choose_largest(exact, scale, self.k, GUMBEL, generator)",
        "return choose_largest(exact, math.sqrt(scale), self.k, GUMBEL, generator)",
        (_MECHANISMS + "TestTopK::test_noisy_max_is_the_exponential_mechanism[1.0-True-0]",),
    ),
    # --- the bill ---
    Mutant(
        "range of a choice 1 / noise, not 2 / noise",
        "Talwar, Thakurta, Zhang 2015: noisy min billed at Δ/scale; all other scores can move the other way",
        "return 2.0 * choice.noise.inverse",
        "return choice.noise.inverse",
        (_MECHANISMS + "test_the_bill_of_one_release",),
    ),
    Mutant(
        "top k billed as one choice",
        "Lee and Clifton 2014 (Lyu, Su, Li 2017, algorithm 4): noise that does not grow with the number of choices",
        "one.k * one.columns",
        "one.columns",
        (_MECHANISMS + "TestTopK::test_every_choice_is_on_the_bill",),
    ),
    Mutant(
        "classes billed as if they had different rows",
        "one-vs-rest taken for parallel composition; every class reads every row",
        "one.k * one.columns",
        "one.k",
        (_MECHANISMS + "TestTopK::test_every_choice_is_on_the_bill",),
    ),
    Mutant(
        "composition forgotten",
        "the noise of one step in each of T steps",
        "total[event] += uses * release.count",
        "total[event] += uses",
        (_PRIVACY + "TestVectors::test_noise_of_fifty_steps",),
    ),
    Mutant(
        "equal events counted once",
        "a dict keyed by the event: two releases with the same noise overwrite each other",
        "total[event] += uses * release.count",
        "total[event] = uses * release.count",
        ("tests/estimators/test_bounds.py::TestPrivateQuantile::test_the_releases_cost_what_they_say",),
    ),
    Mutant(
        "more answers than the plan holds",
        "Chen et al. 2015 (Lyu, Su, Li 2017, algorithm 6): no limit on answers; methods that run until they converge",
        "if self._used[name] >= release.answers:",
        "if release.count == 0:",
        (_PRIVACY + "TestBill::test_more_than_planned_raises",),
    ),
    Mutant(
        "bounds found from the data, not added",
        "pre-processing and tuning on the private rows at no charge, as in all five papers",
        "return first + rest, 0.0, name",
        "return max(first, rest), 0.0, name",
        (_PRIVACY + "TestPureSums::test_preliminary_releases_are_added_and_never_composed",),
    ),
    # --- accountants ---
    Mutant(
        "replace-one noise read as add/remove noise",
        "dp-accounting 0.6: its Rényi and PLD accountants read one number in two conventions, a factor of 2 apart",
        'event.noise.value if library == "rdp" else _per_record_bound(event)',
        "_per_record_bound(event)",
        (_PRIVACY + "TestNoiseConvention::test_both_libraries_speak_of_the_same_noise[2.0-1]",),
    ),
    Mutant(
        "order for moment in the Renyi conversion",
        "the moments accountant's λ is α - 1: dividing by α instead proves too little",
        "return (math.log(1 / delta) - np.log(orders)) / (orders - 1)",
        "return (math.log(1 / delta) - np.log(orders)) / orders",
        (_PRIVACY + "TestVectors::test_concentrated_conversion",),
    ),
    Mutant(
        "sqrt(2 log(1.25/delta)) at large epsilon",
        "Dwork and Roth's formula holds for ε < 1; DPSL-KT Lemma 2.6 states it for any ε, and is false at ε = 8",
        "return find_epsilon(lambda epsilon: gaussian_delta(epsilon, mu), delta)",
        "epsilon = find_epsilon(lambda epsilon: gaussian_delta(epsilon, mu), delta)\n"
        "    return min(epsilon, mu * math.sqrt(2 * math.log(1.25 / delta)))",
        (_PRIVACY + "TestGaussianFunctions::test_the_stated_epsilon_is_enough",),
    ),
    Mutant(
        "exponential mechanism taken for a Gaussian",
        "ε²/8-zCDP does not make a trade-off curve that lies above that of a Gaussian",
        "return pure_gaussian_mu(self.epsilon / 2)",
        "return self.epsilon / 2",
        (_EVENTS + "TestBoundedRange::test_the_gaussian_dominates_the_envelope",),
    ),
    # --- fits, reports, ledgers ---
    Mutant(
        "undeclared bounds read off the rows",
        "diffprivlib's default where no bounds are given: read them off the data (it warns of the leak)",
        "        chosen = clip_and_plan(request, rows, X.shape, found, planned)",
        "        found = {of: float(abs(X).max()) for of in found}\n"
        "        chosen = clip_and_plan(request, rows, X.shape, found, planned)",
        (_NEW + "test_one_extreme_row_does_not_set_the_bounds",),
    ),
    Mutant(
        "noise seeded by the data",
        "Diffix's sticky noise, a function of the rows, broken by Gadotti et al. 2019",
        "    with open_logged_account(request.order(planned)",
        "    if request.seed is None:\n        request = replace(request, seed=hash(targets.tobytes()) & 0xFFFF)\n"
        "    with open_logged_account(request.order(planned)",
        (_ESTIMATORS + "test_without_a_seed_every_fit_has_its_own_noise[SparseClassifier]",),
    ),
    Mutant(
        "numpy's default generator",
        "Garfinkel and Leclerc 2020: noise from a generator whose past tells its future",
        "np.random.Generator(AESCounter(key=key))",
        "np.random.default_rng(key)",
        ("tests/trusted/test_randomness.py::test_the_stream_is_aes_128_in_counter_mode",),
    ),
    Mutant(
        "a key of 32 bits",
        "np.random.seed takes 32 bits: all noise that a release can have is tried out in minutes",
        "secrets.randbits(128)",
        "secrets.randbits(32)",
        ("tests/trusted/test_randomness.py::test_fresh_keys_have_128_bits",),
    ),
    Mutant(
        "one row too many of each person",
        "contribution bounding off by one",
        "position < limit",
        "position <= limit",
        ("tests/estimators/test_bounds.py::TestPeople",),
    ),
    Mutant(
        "asked epsilon reported for published noise",
        "the five papers' figures carry the ε that was put into the formula, not the one that the noise proves",
        "epsilon=promise.epsilon,",
        "epsilon=promise.epsilon if budget is None else budget.epsilon,",
        ("tests/methods/test_hard_thresholding.py::test_the_report_of_a_published_fit_says_that_it_proves_more",),
    ),
    Mutant(
        "epsilon cut off in print",
        "1.0049 printed as 1.00: a printed promise below the proved one",
        "if float(text) >= value:",
        "if text:",
        ("tests/reports/test_report.py::test_rounding_up_never_rounds_down_nor_far",),
    ),
    Mutant(
        "fits of a ledger share one seed's noise",
        "random_state=0 in every fold: the difference of two models is free of noise",
        "return tuple(word for ledger, number in entries for word in ledger.stream(number))",
        "return ()",
        (_LEDGER + "test_a_seed_gives_each_fit_in_a_ledger_its_own_noise",),
    ),
    Mutant(
        "each fit below the cap, not their sum",
        "hyper-parameters chosen on the training rows: every run is private, the search over them is not",
        "if self.share + share > 1 + ROUNDING:",
        "if share > 1 + ROUNDING:",
        ("tests/estimators/test_bounds.py::TestEstimate::test_is_within_its_bill",),
    ),
    Mutant(
        "only the innermost ledger bills",
        "budget scopes as a stack of which the top alone is charged",
        "ledgers = list(open_ledgers)",
        "ledgers = list(open_ledgers)[-1:]",
        (_LEDGER + "test_nested_ledgers_both_bill",),
    ),
    Mutant(
        "the ledger forgets what bounds cost",
        "clipping bounds tuned on the private rows outside of the account",
        "total_mu = math.sqrt(sum(count * event.gaussian_mu() ** 2 for event, count in compose(plan)))",
        "total_mu = math.sqrt(sum(count * event.gaussian_mu() ** 2 for event, count in compose(plan.releases)))",
        (_LEDGER + "test_estimating_bounds_is_billed",),
    ),
    Mutant(
        "the best currency anew for each fit",
        "the least of several accountants after each release: filters hold for one order, chosen beforehand",
        "currency = self._currency or self._first_currency(plans, promise)",
        "currency = self._first_currency(plans, promise)",
        (_NEW + "test_a_ledger_proves_no_less_than_the_best_accountant_of_everything",),
    ),
    # --- screen and refine ---
    Mutant(
        "a third of the noise in the refinement",
        "a linear term that is scaled to less than how far the objective's gradient can move",
        "minimiser = exact.minimise(spread * draw)",
        "minimiser = exact.minimise(spread / 3 * draw)",
        (_SCREEN_REFINE_DATA + "test_the_refinement_has_the_noise_that_was_billed",),
    ),
    Mutant(
        "a person's rows counted as one in the refinement",
        "the cases of the proof grow with the rows of a person; the gradient bound alone does not tell",
        "constants.log_determinant, of_one_output(public.loss).one_sided, public.rows_per_unit\n",
        "constants.log_determinant, of_one_output(public.loss).one_sided\n",
        (_SCREEN + "test_all_rows_of_a_person_count_in_the_refinement",),
    ),
    Mutant(
        "a cost that follows the estimated bounds",
        "a plan that is chosen by private estimates must cost what was billed before they were known",
        "curvature = min(curvature, _LARGEST_CURVATURE)",
        "curvature = min(curvature * min(1.0, unit), _LARGEST_CURVATURE)",
        (_SCREEN + "test_the_cost_of_a_plan_does_not_depend_on_the_bounds",),
    ),
    Mutant(
        "the penalty of each class for the mu of all of them",
        "one-vs-rest fits share the rows: every class is another release, with a part of mu² of its own",
        "refining = (1 - share) * (1 - start_share - rescale_share) / (rounds * public.loss.n_outputs)",
        "refining = (1 - share) * (1 - start_share - rescale_share) / rounds",
        (_SCREEN + "test_the_cost_is_divided_as_the_parameters_say",),
    ),
    Mutant(
        "every round refines at the price of one",
        "the shares of a loop's parts set for a single pass through it",
        "each = refining / (rounds * outputs)",
        "each = refining / outputs",
        (_SCREEN + "test_the_cost_is_divided_as_the_parameters_say",),
    ),
    Mutant(
        "rescaling taken for post-processing",
        "Platt scaling and recalibration on the training rows, done after the private fit and never billed",
        "        event, uses = price_of(release.mechanism)\n        total",
        "        event, uses = price_of(release.mechanism)\n"
        '        uses *= release.name not in ("spread", "rescale")\n        total',
        (_SCREEN + "test_no_part_is_free",),
    ),
    Mutant(
        "a choice of several without noise",
        "top-k taken from the exact scores, noise on the values alone: the support leaves as it is",
        "GUMBEL, generator) if scale else mark_largest",
        "GUMBEL, generator) if scale and self.k == 1 else mark_largest",
        (_SCREEN_REFINE_DATA + "test_what_is_chosen_on_empty_rows_is_left_to_chance",),
    ),
    Mutant(
        "convexity believed of any subclass",
        "objective perturbation on losses that are convex by assumption: the proof needs it, and no clip enforces it",
        "return convex if type(convex) in CONVEX else None",
        "return convex",
        (_OBJECTIVE + "TestMinimiserQuery::test_a_loss_that_claims_to_be_convex_is_refused",),
    ),
    Mutant(
        "a bound for one loss and an answer for another",
        "what a loss says it is, asked again for every use: a bound is stated for the first and enforced on the next",
        "    @cached_property\n    def convex_loss(",
        "    @property\n    def convex_loss(",
        (_OBJECTIVE + "TestMinimiserQuery::test_a_loss_that_changes_is_the_same_in_bound_and_answer",),
    ),
    Mutant(
        "slopes cut at the largest label found",
        "a declared bound replaced by the data's own range: diffprivlib's fit overwrites declared bounds",
        "    return request.plan(shape, known, together) if found or not planned else planned[0]\n",
        "    largest = max(float(abs(block.targets).max()) for block in rows.blocks)\n"
        "    known = KnownBounds(known.row_l2, known.row_linf, min(known.label, largest), known.normalise)\n"
        "    return request.plan(shape, known)\n",
        (_SCREEN + "test_the_bill_does_not_look_at_data",),
    ),
    Mutant(
        "published noise per row sold as noise per sensitivity",
        "Kifer, Smith and Thakurta print G sqrt(...) / e with one row's bound G; replacing a row moves 2 G",
        "NoisePerSensitivity(deviation / (2 * public.rows_per_unit))",
        "NoisePerSensitivity(deviation / public.rows_per_unit)",
        (_TWO_STAGE_AND_AUTO + "test_two_stage_noise_as_published",),
    ),
    Mutant(
        "the whole epsilon for each of two stages",
        "selection and estimation each run at the epsilon of the whole",
        "half = budget.epsilon / 2",
        "half = budget.epsilon",
        (_TWO_STAGE_AND_AUTO + "test_two_stage_noise_as_published",),
    ),
    Mutant(
        "billed first, warned afterwards",
        "a fit that stops at its own warning has released nothing, and must not have cost anything",
        "    warn_beforehand(request, planned)\n"
        "    with open_logged_account("
        "request.order(planned), __name__, about, holders=holders, ledgers=ledgers) as account:\n",
        "    with open_logged_account("
        "request.order(planned), __name__, about, holders=holders, ledgers=ledgers) as account:\n"
        "        warn_beforehand(request, planned)\n",
        ("tests/estimators/test_hopeless_fits.py::test_a_fit_that_can_only_guess_warns_before_it_spends",),
    ),
    Mutant(
        "a warning that looks at the rows",
        "diagnostics on private rows, printed for free: whether they come is an answer without noise",
        "    warn_beforehand(request, planned)\n    with",
        "    if abs(X).max() > 0:\n        warn_beforehand(request, planned)\n    with",
        ("tests/estimators/test_hopeless_fits.py::test_whether_a_fit_warns_does_not_depend_on_the_rows",),
    ),
    # --- searches and scores ---
    Mutant(
        "the best of many trials billed as one",
        "Liu and Talwar 2019: the best of k private runs, reported at the cost of the run that won",
        "total = at_order + several + math.log(self.trials.mean) / (self.price.order - 1)",
        "total = at_order",
        (_TRIALS + "TestTheorem::test_vectors",),
    ),
    Mutant(
        "the law's shape forgotten in the bound",
        "Papernot and Steinke 2022: every law of the number of trials billed like the logarithmic one",
        "return (1 + trials.shape) * (",
        "return (",
        (_TRIALS + "TestTheorem::test_vectors",),
    ),
    Mutant(
        "a bound at one order claimed at all",
        "divergences grow with the order: a figure at order 30 says nothing of order 300",
        "return np.where(orders <= self.price.order, total, math.inf)",
        "return np.full_like(orders, total)",
        (_TRIALS + "TestTheorem::test_nothing_is_claimed_above_the_order_nor_in_other_currencies",),
    ),
    Mutant(
        "a fixed number of trials",
        "Papernot and Steinke 2022, section 3: with a fixed number the best can cost as much as all together",
        "range(search.trials.draw(generator))",
        "range(round(search.trials.mean))",
        (_TUNING + "test_the_number_of_trials_is_random",),
    ),
    Mutant(
        "a geometric number billed as a logarithmic one",
        "the sampler and the theorem must speak of one law",
        "chance *= -math.expm1(-g) * (k + shape) / (k + 1)",
        "chance *= -math.expm1(-g)",
        (_TRIALS + "TestLaw::test_draws_follow_the_law_and_no_neighbouring_one",),
    ),
    Mutant(
        "the order that is cheaper decides",
        "a trial must keep within its price at both orders of the theorem",
        "return float(np.max(curve / self.divergences))",
        "return float(np.min(curve / self.divergences))",
        (_TRIALS + "TestTrialLedger::test_the_dearer_order_counts",),
    ),
    Mutant(
        "every setting at one epsilon",
        "grid points with equal (ε, δ) have different Rényi curves; the theorem is about curves",
        "found = _dearest(lambda epsilon: self._share(model, loss, epsilon), self._guess)",
        "found = 1.2 * self._guess",
        (_TUNING + "test_every_setting_takes_the_same_price",),
    ),
    Mutant(
        "trials that nobody bills",
        "a switch that turns the account off for inner fits, and with it every check of them",
        "        ledgers = [prepaid]\n",
        "        return ()\n",
        (_TUNING + "test_a_trial_that_is_too_dear_is_refused",),
    ),
    Mutant(
        "the account stays off after a search",
        "a context that is not left again: later fits are free of charge",
        "_prepaid.reset(token)",
        "token = None",
        (_TRIALS + "TestBilledTo::test_open_ledgers_bill_again_afterwards",),
    ),
    Mutant(
        "scored on rows that were trained on",
        "parallel composition claimed for parts that overlap: such a row pays for fit and score",
        "training, held_out = np.sort(shuffled[n_held_out:])",
        "training, held_out = np.sort(shuffled)",
        (_TUNING + "test_the_parts_are_disjoint_and_look_at_no_data",),
    ),
    Mutant(
        "fitted to the rows that it is scored on",
        "a refit on all rows inside the loop: the parts are disjoint, and the fit does not look at its own",
        "parts.training_rows, targets[parts.training])",
        "offers._rows, targets)",
        (_TUNING + "test_no_row_is_both_fitted_to_and_scored_on",),
    ),
    Mutant(
        "estimated bounds are free within a trial",
        "the private quantiles that bounds come from are left out of the trial's price",
        "curve = renyi_curve(compose(plan),",
        "curve = renyi_curve(compose(plan.releases),",
        (_TRIALS + "TestTrialLedger::test_preliminary_releases_count",),
    ),
    Mutant(
        "trials share one seed",
        "random_state=0 in every candidate: their differences are free of noise",
        "random_state=int(generator.integers(2**63)) if account.seeded else None",
        "random_state=account.order.seed",
        (_TUNING + "test_trials_have_noise_of_their_own",),
    ),
    Mutant(
        "the winner's own epsilon on the label",
        "the tuned model sold with the figure of a single fit",
        "best.model.privacy_ = self.privacy_ = privacy",
        "self.privacy_ = privacy",
        (_TUNING + "test_the_best_model_speaks_for_the_whole_search",),
    ),
    Mutant(
        "the score's noise for add/remove counts",
        "a histogram's sensitivity 1 is that of adding a row; replacing one moves two cells",
        "return Sensitivity(l1=2 * rows, l2=math.sqrt(2) * rows, linf=rows)",
        "return Sensitivity(l1=rows, l2=rows, linf=rows)",
        (_SCORES + "TestSensitivity::test_some_neighbour_moves_them_as_far",),
    ),
    Mutant(
        "a bounded mean without its bounds",
        "a loss on the hold-out taken as lying in [0, 1] because it usually does",
        "slopes = np.maximum(slopes, 0.0) if self.non_negative else slopes",
        "slopes = slopes + 0.0",
        (_SCORES + "TestSensitivity::test_no_neighbour_moves_means_further",),
    ),
    Mutant(
        "a person's rows counted as one in the score",
        "per-row noise on the test set, per-person promise in the paper",
        "both, one = bound_change(self.level, public), self.level * public.rows_per_unit / public.n_rows",
        "both, one = bound_change(self.level, public), self.level / public.n_rows",
        (_SCORES + "TestSensitivity::test_some_neighbour_moves_them_as_far",),
    ),
    Mutant(
        "test scores are free",
        "accuracy on private held-out rows printed beside the model's ε, and never billed",
        '    with open_logged_account(order, __name__, {"n_rows": public.n_rows, "method": chosen.name}) as account:\n'
        "        note_release()\n        answer = ask_score(",
        "    from tulle.audit.own_ledger import AuditLedger\n\n"
        "    with open_logged_account(order, __name__, ledgers=(AuditLedger(),)) as account:\n"
        "        note_release()\n        answer = ask_score(",
        (_SCORES + "test_is_billed_purely",),
    ),
    Mutant(
        "an interval that forgets the noise",
        "binomial intervals around a noisy accuracy",
        "reach = -scale * math.log(part)  #",
        "reach = 0.0  #",
        (_SCORES + "test_intervals_cover",),
    ),
    # --- objective perturbation ---
    Mutant(
        "objective perturbation's gradient moved by G, not 2 G",
        "Kifer, Smith, Thakurta 2012 and Iyengar et al. 2019 add or remove a row; a replaced one moves twice as far",
        "return 2.0 * self.slope_clip * self.row_bound * public.rows_per_unit",
        "return self.slope_clip * self.row_bound * public.rows_per_unit",
        (_OBJECTIVE + "TestExactOnALine::test_the_bound_holds[logistic, cut]",),
    ),
    Mutant(
        "a person's rows counted as one in the objective",
        "the sensitivity of one row's gradient in the noise of a release that promises privacy per person",
        "return 2.0 * self.slope_clip * self.row_bound * public.rows_per_unit",
        "return 2.0 * self.slope_clip * self.row_bound",
        (_OBJECTIVE + "TestExactOnALine::test_two_rows_pull_twice_as_hard",),
    ),
    Mutant(
        "the determinant forgotten",
        "the density of a minimiser has a Jacobian: without it this would be a plain Gaussian release",
        "log_determinant=math.log1p(curvature) * public.rows_per_unit,",
        "log_determinant=0.0,",
        (_OBJECTIVE + "TestExactOnALine::test_the_determinant_counts",),
    ),
    Mutant(
        "one row's determinant for all rows of a person",
        "a rank-one argument where the rank is k",
        "log_determinant=math.log1p(curvature) * public.rows_per_unit,",
        "log_determinant=math.log1p(curvature),",
        (_OBJECTIVE + "TestMinimiserQuery::test_some_neighbour_moves_the_determinant_so_far",),
    ),
    Mutant(
        "a mean's determinant for a sum's penalty",
        "lambda of the mean objective and Lambda = n lambda of the sum, confused",
        "log_determinant=math.log1p(curvature) * public.rows_per_unit,",
        "log_determinant=math.log1p(curvature / public.n_rows) * public.rows_per_unit,",
        (_OBJECTIVE + "TestMinimiserQuery::test_some_neighbour_moves_the_determinant_so_far",),
    ),
    Mutant(
        "rows not clipped on the chosen features",
        "a two-stage method whose refit is calibrated to a bound on s features that nothing imposes",
        "np.where(counted, np.minimum(1.0, room / norms), 0.0)",
        "np.where(counted, 1.0, 0.0)",
        (_OBJECTIVE + "TestMinimiserQuery::test_rows_are_never_longer_than_the_bound",),
    ),
    Mutant(
        "the constant column outside the refit's bound",
        "the intercept is penalised and noised with the weights, and forgotten in the rows' length",
        "room = min(bound, math.sqrt(bound - entry) * math.sqrt(bound + entry)) /",
        "room = bound /",
        (_OBJECTIVE + "TestMinimiserQuery::test_rows_are_never_longer_than_the_bound",),
    ),
    Mutant(
        "surplus rows of a person in the refit",
        "rows dropped from the gradient and kept in the objective",
        "counted = block.active & (norms < np.inf)",
        "counted = norms < np.inf",
        (_OBJECTIVE + "TestMinimiserQuery::test_rows_are_never_longer_than_the_bound",),
    ),
    Mutant(
        "second moments moved by R², not sqrt(2) R²",
        "sufficient statistics with the sensitivity of adding a row; two orthogonal rows are sqrt(2) R² apart",
        "l2 = math.sqrt(2) * one",
        "l2 = one",
        (_OBJECTIVE + "TestSecondMoments::test_some_neighbour_moves_them_so_far",),
    ),
    Mutant(
        "second moments of vectors as long as their square may be",
        "|v v'| is |v|², and the clip is on |v| with the bound of |v|²",
        "math.sqrt(self.level) * (1.0 - 2.0**-52)",
        "self.level",
        (_CLIPPED_SUM + "test_some_neighbour_moves_it_so_far[itself-1]",),
    ),
    Mutant(
        "second moments not clipped",
        "a label bound declared, used for the noise and not imposed",
        "return clip_contributions(slopes, norms, math.sqrt(self.level) * (1.0 - 2.0**-52))",
        "return slopes",
        (_CLIPPED_SUM + "test_no_neighbour_moves_it_further_whatever_the_row_function_returns[itself]",),
    ),
    Mutant(
        "the solver stops where the data say",
        "a tolerance relative to the first gradient: how near the answer is depends on the rows",
        "tolerance=self._tolerance(public),",
        "tolerance=1e-9 * (1.0 + float(np.nan_to_num(rows.blocks[0].norms('l2')).sum())),",
        (_SOLVER + "TestAnswers::test_the_tolerance_is_public",),
    ),
    Mutant(
        "features that were chosen win again",
        "without a constant score below all others the rounds of a selection are not what the plan says",
        "np.copyto(scores, _PASSED_OVER, where=False if self.passed_over is None else self.passed_over)",
        "pass",
        (_OBJECTIVE + "TestPassedOver::test_features_that_are_passed_over_are_never_chosen",),
    ),
    Mutant(
        "slopes not cut in the objective",
        "the Lipschitz constant of the clipped loss with the minimiser of the loss itself",
        "return np.clip(np.nan_to_num(slopes, nan=0.0), -self.slope_clip, self.slope_clip)",
        "return np.nan_to_num(slopes, nan=0.0)",
        (_OBJECTIVE + "TestMinimiserQuery::test_some_neighbour_moves_the_gradient_so_far",),
    ),
    Mutant(
        "an answer without its certificate",
        "max_iter reached and what there is returned: Iyengar et al. 2019 on solvers that stop early",
        "return self._descend(theta if nearer else self.centre, linear_term, enough)",
        "return theta",
        (_SOLVER + "TestTheSlowRoad::test_it_is_taken_where_newton_stalls",),
    ),
    Mutant(
        "the linear term lost on the way",
        "noise that is drawn and billed, and reaches no gradient",
        "start = linear_term + self.penalty * (theta - self.centre)\n",
        "start = self.penalty * (theta - self.centre)\n",
        (_SOLVER + "TestAnswers::test_the_answer_has_the_gradient_of_minus_the_linear_term",),
    ),
    Mutant(
        "minimisers leave as the solver found them",
        "proofs for exact minima, code with approximate ones: where the solver stopped tells neighbours apart",
        "return from_units(add_noise(minimiser, scale, grid, NORMAL, generator), grid)",
        "return minimiser",
        (_OBJECTIVE + "TestLaw::test_what_hides_the_solver",),
    ),
    Mutant(
        "what hides the solver thirty times too small",
        "the event counts mu / 30 for it, the mechanism draws it at mu",
        "grid_and_scale(self.CERTIFICATE * self.noise.value, moves",
        "grid_and_scale(self.noise.value, moves",
        (_OBJECTIVE + "TestLaw::test_what_hides_the_solver",),
    ),
    Mutant(
        "one draw for both noises",
        "b used again as the noise on theta: the two cancel in part",
        "return from_units(add_noise(minimiser, scale, grid, NORMAL, generator), grid)",
        "return np.rint((minimiser + scale * draw) / grid) * grid",
        (_OBJECTIVE + "TestMechanism::test_the_hiding_noise_is_drawn_apart_from_the_linear_term",),
    ),
    Mutant(
        "variance for deviation in the linear term",
        "Kifer, Smith, Thakurta 2012 print a variance; normal draws take its root",
        "minimiser = exact.minimise(spread * draw)",
        "minimiser = exact.minimise(spread**2 * draw)",
        (_OBJECTIVE + "TestLaw::test_the_linear_term",),
    ),
    Mutant(
        "a larger determinant than planned is answered",
        "the penalty chosen after the bill was written",
        "not moves.log_determinant <= self.log_determinant * self.ROUNDED_UP\n            or moves.rows_per_unit",
        "moves.rows_per_unit",
        (_OBJECTIVE + "TestMechanism::test_a_query_that_moves_in_more_ways_than_planned_is_refused",),
    ),
    Mutant(
        "people's rows in a plan for single rows",
        "the unit of privacy changed after the bill was written",
        "            or moves.rows_per_unit != self.rows_per_unit\n",
        "",
        (_OBJECTIVE + "TestMechanism::test_a_query_that_moves_in_more_ways_than_planned_is_refused",),
    ),
    Mutant(
        "a two-sided loss in a one-sided plan",
        "a proof for classification losses, a plan that is asked for regression",
        "or (self.one_sided and not moves.one_sided)\n",
        "\n",
        (_OBJECTIVE + "TestMechanism::test_a_query_that_moves_in_more_ways_than_planned_is_refused",),
    ),
    Mutant(
        "the determinant not in the Renyi curve",
        "the two accountants must bill the same event",
        "with_determinants = event.log_determinant + bound + hidden",
        "with_determinants = bound + hidden",
        (_OBJECTIVE + "TestVectors::test_the_renyi_curve_is_the_smallest_of_three_bounds",),
    ),
    Mutant(
        "the curvature at the clip for every logistic loss",
        "s (1 - s) is the largest curvature only where slopes are cut below 1/2",
        "return slope * (1 - slope) if slope < 0.5 else 0.25",
        "return slope * (1 - slope) if slope < 1 else 0.25",
        (_OBJECTIVE + "TestLosses::test_curvature_within_bounds_the_cut_loss",),
    ),
    Mutant(
        "counts curve no more than their slope",
        "exp(m) - y below tau leaves exp(m) up to tau + y",
        "return min(slope + label_bound, math.exp(self.cap))",
        "return min(slope, math.exp(self.cap))",
        (_OBJECTIVE + "TestLosses::test_curvature_within_bounds_the_cut_loss",),
    ),
    Mutant(
        "Huber's loss called one-sided",
        "a residual has either sign, whatever the label's",
        "class ConvexHuber(ConvexLoss):\n",
        "class ConvexHuber(ConvexLoss):\n    one_sided = True\n",
        (_OBJECTIVE + "TestLosses::test_one_sided_where_no_slope_has_the_targets_sign",),
    ),
    # --- choices of one candidate ---
    Mutant(
        "noisy max with the noise turned round",
        "score - Gumbel: a minimum taken as the maximum of minus the noisy scores",
        "lambda draws: -np.log(EXPONENTIAL.noise(draws)),",
        "lambda draws: np.log(EXPONENTIAL.noise(draws)),",
        (_MECHANISMS + "TestNoisyMax::test_law[gumbel-1.0-True-0]",),
    ),
    Mutant(
        "Laplace noise of deviation 1 for a choice",
        "libraries that ask for the standard deviation, given the scale: short by sqrt(2)",
        "lambda values: -np.log(2.0 * values)",
        "lambda values: -math.sqrt(0.5) * np.log(2.0 * values)",
        (_MECHANISMS + "TestNoisyMax::test_law[laplace-1.0-True-0]",),
    ),
    Mutant(
        "permute and flip without the factor of two",
        "coins of exp(epsilon score / sensitivity), where scores that move both ways need exp(epsilon score / 2 ...)",
        "lambda draws: np.where(draws.sides, -np.log(draws.values), -np.log1p(-draws.values)),",
        "lambda draws: 0.5 * np.where(draws.sides, -np.log(draws.values), -np.log1p(-draws.values)),",
        (_MECHANISMS + "TestNoisyMax::test_law[permute and flip-1.0-True-0]",),
    ),
    Mutant(
        "a choice for every class billed as one",
        "one release of k arg-maxes taken for one arg-max; each of them reads all rows",
        "GumbelMax: lambda one: (events.BoundedRangeEvent(_choice_range(one)), one.columns)",
        "GumbelMax: lambda one: (events.BoundedRangeEvent(_choice_range(one)), 1)",
        (_MECHANISMS + "test_the_bill_of_one_release",),
    ),
    Mutant(
        "Laplace choices billed as exponential mechanisms",
        "bounded range holds for Gumbel noise alone (Durfee and Rogers 2019); other noisy maxima cost twice as much",
        "LaplaceMax: lambda one: (events.PureEvent(",
        "LaplaceMax: lambda one: (events.BoundedRangeEvent(",
        (_MECHANISMS + "TestNoisyMax::test_only_gumbel_noise_has_a_range_of_its_pure_epsilon[laplace-9.0]",),
    ),
    Mutant(
        "permute and flip billed as if scores only grew",
        "noisy max costs 1 / noise for counts, all of which move one way; slopes move both ways",
        "PermuteAndFlip: lambda one: (events.PureEvent(_choice_range(one)), one.columns)",
        "PermuteAndFlip: lambda one: (events.PureEvent(_choice_range(one) / 2), one.columns)",
        (_MECHANISMS + "TestNoisyMax::test_no_outcome_moves_by_more_than_its_pure_epsilon[permute and flip-9.0]",),
    ),
    Mutant(
        "scores on demand drawn with noise per sensitivity",
        "the noise multiplier handed on as the scale: right for sensitivity 1 only",
        "return np.array([scores.draw(scale, generator)])",
        "return np.array([scores.draw(self.noise.value, generator)])",
        (_MECHANISMS + "TestScoresOnDemand::test_gumbel_noise_passes_its_scale_on",),
    ),
    Mutant(
        "cells of scores on demand not counted",
        "a part of delta for finite precision that does not count the proposals of a draw",
        " + 600.0 * (3.0 * cells + 1.0)",
        "",
        (_MECHANISMS + "TestScoresOnDemand::test_what_finite_precision_takes_is_what_the_proof_counts",),
    ),
    # --- pure releases ---
    Mutant(
        "any pure release at an exponential mechanism's price",
        "epsilon²/8 zCDP (Cesar and Rogers 2021) taken for all (epsilon, 0)-DP releases, which have epsilon²/2",
        "return np.minimum(exact * (1 + 1e-13), epsilon)",
        "return np.minimum(exact * (1 + 1e-13), orders * epsilon**2 / 8)",
        (_EVENTS + "TestPure::test_renyi_is_that_of_randomised_response[2.0-1.0]",),
    ),
    Mutant(
        "randomised responses for the library that forgets their number",
        "dp-accounting 0.6, PLD: a self-composed RandomizedResponseDpEvent is billed once",
        ', 2) if library == "rdp" else None',
        ", 2)",
        (_EVENTS + "test_what_the_pld_accountant_lacks_is_said_and_not_guessed",),
    ),
    Mutant(
        "the last of several equal releases is billed",
        "a dictionary by epsilon that is written over, not added to",
        "uses[event.pure_epsilon()] += count",
        "uses[event.pure_epsilon()] = count",
        (_PRIVACY + "TestOptimalComposition::test_equal_epsilons_are_one_kind_whatever_the_mechanism",),
    ),
    Mutant(
        "T - 1 choices on the bill",
        "Talwar, Thakurta, Zhang 2015: the loop of Algorithm 2 runs to T - 1, the code's to T",
        "for epsilon, count in _pure_uses(composition).items():",
        "for epsilon, count in ((e, uses - (uses > 1)) for e, uses in _pure_uses(composition).items()):",
        (_PRIVACY + "TestVectors::test_one_selection_fewer_is_another_table",),
    ),
    Mutant(
        "chances that err are taken at their word",
        "composition by logarithms of factorials, their rounding not kept off delta",
        "room = delta * (1 - 4e-15 * (100 + size))",
        "room = delta",
        (_PRIVACY + "TestOptimalComposition::test_rounding_goes_up",),
    ),
    # --- scores of vertices and coordinates ---
    Mutant(
        "vertex scores with the sensitivity of the gradient",
        "Frank-Wolfe code that is calibrated for the gradient's entries and scores |v| times as much",
        "linf=rounding * self._radius() * self.query",
        "linf=rounding * self.query",
        (_QUERIES + "TestWorstCases::test_vertex_scores[squared-0.0-True-1]",),
    ),
    Mutant(
        "Euclidean lengths of vertices in Hölder's inequality",
        "<v, g> bounded by |v|_2 times the largest entry of g; it takes |v|_1, up to sqrt(d) more",
        "linf=rounding * self._radius() * self.query",
        "linf=rounding * float(np.sqrt((self.vertices**2).sum(axis=1).max())) * self.query",
        (_NEW + "test_a_vertex_of_many_features_moves_by_its_l1_norm",),
    ),
    Mutant(
        "the radius of an average vertex",
        "a sensitivity that holds for most candidates: the others are told apart too well",
        "return float(lengths.max()) * (",
        "return float(lengths.mean()) * (",
        (_QUERIES + "TestWorstCases::test_vertex_scores[squared-0.0-True-1]",),
    ),
    Mutant(
        "|-128| is -128 in a byte",
        "sparse vertices of one-byte integers keep their type, and their radius with it",
        "sp.csr_array(self.vertices, dtype=float, copy=True)",
        "sp.csr_array(self.vertices, copy=True)",
        (_SETS + "test_the_radius_of_a_polytope_of_small_numbers[csr-int8]",),
    ),
    Mutant(
        "vertices that the caller can still change",
        "np.asarray keeps the caller's memory: scores of vertices that grow pass the radius taken before",
        """else np.array(self.vertices, dtype=float)
        entries: Any = points.data if sparse else points
        entries.flags.writeable = False
""",
        """else np.asarray(self.vertices, dtype=float)
        entries: Any = points.data if sparse else points
""",
        (_SETS + "test_a_polytope_keeps_its_own_vertices[dense]",),
    ),
    Mutant(
        "coordinate scores without their radius",
        "noise for entries of the gradient, scores of the vertices of a ball of radius c",
        "linf=self.reach * bound_change(",
        "linf=bound_change(",
        (_QUERIES + "TestWorstCases::test_along_a_walk[plain dense-False-squared-0.0-True-1]",),
    ),
    Mutant(
        "slopes along a walk go unclipped",
        "Frank-Wolfe papers assume a Lipschitz loss; code takes the constant and clips nothing",
        "return np.clip(slopes, -cap, cap)",
        "return slopes",
        (_QUERIES + "TestWorstCases::test_along_a_walk[plain dense-False-squared-0.0-True-1]",),
    ),
    Mutant(
        "the clip stays while the level shrinks",
        "a bound that a loss of the user's own states, relied on and not enforced",
        "np.nan_to_num(self.level / np.maximum(sizes",
        "np.nan_to_num(2.0 * self.level / np.maximum(sizes",
        (_QUERIES + "TestTheLevelAlongAWalk::test_a_loss_that_lies_is_clipped_to_its_word",),
    ),
    Mutant(
        "rows clipped before they are put in units",
        "scores divided by feature scales after the clip: a small scale lifts a row above it",
        "sizes = np.maximum(block.norms_in(self.units[: self.shape[0] - bool(a)]), a / self.units[-1])",
        'sizes = np.maximum(block.norms("linf"), a)',
        (_QUERIES + "TestWorstCases::test_along_a_walk[plain dense-True-squared-0.0-True-1]",),
    ),
    Mutant(
        "the intercept outside the size of a row",
        "the constant column is a candidate like all others, and was left out of the largest entry",
        'sizes = np.maximum(block.norms("linf"), a)',
        'sizes = block.norms("linf")',
        (_QUERIES + "TestWorstCases::test_along_a_walk[plain dense-False-squared-4.0-True-1]",),
    ),
    Mutant(
        "a coordinate's slope with the sensitivity of its score",
        "DP-GCD: the choice is made in units of sqrt(M_j), the value is not, and both take one sensitivity",
        "if self.coordinates is None else units[self.coordinates]",
        "if self.coordinates is None else np.ones(len(self.coordinates))",
        (_DESCENT + "test_the_sensitivity_of_a_value_is_in_the_units_of_its_feature[1]",),
    ),
    Mutant(
        "outputs of a step counted once",
        "one coordinate for each class moves in a step; the vector of their slopes is longer than one of them",
        "moved * float(np.sqrt((units**2).sum()))\n",
        "moved * float(units.max())\n",
        (_QUERIES + "TestWorstCases::test_along_a_walk[plain dense-False-one vs rest-0.0-False-1]",),
    ),
    Mutant(
        "an engine chosen by the number of entries",
        "running time and a line on stderr that tell how many entries the private rows hold",
        "not isinstance(point, PathPoint) or not isinstance(block, SparseBlock):",
        "not isinstance(point, PathPoint) or not isinstance(block, SparseBlock) or not block._csc.nnz:",
        (_QUERIES + "test_followed_or_not_is_decided_by_public_figures_and_what_can_be_followed",),
    ),
    Mutant(
        "row sizes in units from before rows were scaled",
        "normalised rows with the norms of the rows that came in: short rows pass the clip",
        "        x = self._with_factors(self._held)\n",
        "        x = self._held\n",
        (_ROWS + "test_norms_in_units_are_those_of_rows_as_they_now_are[one block-float64]",),
    ),
    Mutant(
        "what was kept of a walk serves other units",
        "a cache keyed by the walk alone: rows are clipped in the units of the query before",
        "all(one is other for one, other in zip(self._kept[0], key, strict=True))",
        "self._kept[0][0] is key[0]",
        (_ROWS + "TestKept::test_only_the_last_is_kept[one block]",),
    ),
    # --- Frank-Wolfe ---
    Mutant(
        "the step of Frank-Wolfe by a look at the labels",
        "line search, short steps and stopping rules on the private loss: reads that are on no bill",
        "        radius = settings.feasible.radius\n        scores = CoordinateScores(",
        "        radius = settings.feasible.radius\n"
        '        rows = getattr(getattr(ask, "__self__", None), "_rows", None)\n'
        "        radius = min(radius, float(abs(rows.blocks[0].targets).max())) if rows is not None else radius\n"
        "        scores = CoordinateScores(",
        (_BOUNDARY + "test_no_method_reaches_for_rows[frank_wolfe.py]",),
    ),
    Mutant(
        "a path of radii planned as its longest fit",
        "a regularisation path or grid search at the price of one model",
        "count=sum(plan.count for plan in plans)",
        "count=max(plan.count for plan in plans)",
        (_BOUNDARY + "test_a_path_of_radii_asks_what_its_plan_says[private-Squared-selection]",),
    ),
    # --- scores on demand ---
    Mutant(
        "rows that do not count are followed",
        "padding and surplus rows of a person skipped by one engine and not by the other",
        "np.where(self._active, cap * (1 - 2.0**-50), 0.0)",
        "cap * (1 - 2.0**-50)",
        (_SCORES_LAW + "test_rows_that_do_not_count_are_not_followed[0.6-surplus]",),
    ),
    Mutant(
        "a draw on demand twice as sharp",
        "exp(epsilon score / sensitivity) in a sampler of its own, exp(epsilon score / 2 ...) on the bill",
        "self._reach / scale, generator)",
        "2 * self._reach / scale, generator)",
        (_FOLLOWING + "test_private_walks_have_one_law_whatever_the_engine[incremental]",),
    ),
    Mutant(
        "drift charged against remembered slopes",
        "a stale slope that a move brings back to where it was remembered: nothing is charged, and a bound is too low",
        "changed = min(data.curvature * abs(moved), 2.0 * data.cap[i])",
        "changed = abs(slope - path.slopes[i])",
        (_FOLLOWING + "test_a_bound_from_a_sum_of_its_own_outlives_stale_slopes",),
    ),
    Mutant(
        "a block's bound forgets drift in length",
        "one of three running sums left out: candidates that have grown are proposed too seldom",
        "\n        + weights.longest[b] * (path.drift[2] - weights.stamp[b, 2])",
        "",
        (_SCORES_LAW + "test_draws_have_the_law_of_the_exponential_mechanism[squared hinge-simplex-concentrated]",),
    ),
    Mutant(
        "taken by the bound of long ago",
        "rejection sampling whose acceptance does not know by how much the proposal was loosened",
        "weights.log[k] + loosened if uniforms",
        "weights.log[k] if uniforms",
        (_SCORES_LAW + "test_draws_have_the_law_of_the_exponential_mechanism[squared-vertices-in between]",),
    ),
    Mutant(
        "a vertex's sign certain too early",
        "the error of a remembered sum taken off where it must be put on: near ties always fall one way",
        "if side < _plus(g + error, draw.sharpness):",
        "if side < _plus(g - error, draw.sharpness):",
        (_SCORES_LAW + "test_draws_have_the_law_of_the_exponential_mechanism[huber-vertices-in between]",),
    ),
    Mutant(
        "a change of level taken for no change of slopes",
        "clipped slopes move when the clip does, and bounds on their sums with them",
        "changed = abs(slope - before)",
        "changed = 0.0 * abs(slope - before)",
        (_FOLLOWING + "test_bounds_outlive_a_change_of_level[squared-vertices]",),
    ),
    # --- noise that is not drawn ---
    Mutant(
        "listed lines are taken off twice",
        "a count of the lines that are left, where listed ones had been taken off before",
        "_Part(n_lines - len(listed), 0.0,",
        "_Part(n_lines - 2 * len(listed), 0.0,",
        (_LAZY + "TestLaw::test_of_listed_means[few listed, small-as it comes]",),
    ),
    Mutant(
        "a level forgets what is drawn",
        "the chance of a level among all lines, taken for that among the lines that are left",
        "self._next_level(level, 2 ** (level + 1) - 1, is_exact",
        "self._next_level(level, 2 ** (level + 1), is_exact",
        (_LAZY + "TestFallingNoise::test_some_levels_and_then_the_rest_is_iid_noise",),
    ),
    Mutant(
        "lazy noise has one sign",
        "bits that are shifted in at the end are zeros, and the last bit is the sign",
        "        words = rest >> zeros\n",
        "        words = rest >> zeros << np.uint64(1)\n",
        (_LAZY + "TestFallingNoise::test_some_levels_and_then_the_rest_is_iid_noise",),
    ),
    Mutant(
        "lazy noise stops too early",
        "a threshold algorithm whose bound forgets the mean under the noise",
        "if self.bound + self._noise.ceiling < target:",
        "if self._noise.ceiling < target:",
        (_LAZY + "TestOneAtATime::test_guesses_change_the_cost_alone[spread 0.7, intercept--inf-1]",),
    ),
    Mutant(
        "lazy noise is compared with the border before it has its mean",
        "a filter on the noise instead of on the noisy value",
        "np.flatnonzero(np.abs(values) >= kept.border)",
        "np.flatnonzero(np.abs(noise) >= kept.border)",
        (
            _LAZY + "TestLaw::test_of_dense_means",
            _LAZY + "TestOneAtATime::test_guesses_change_the_cost_alone",
        ),
    ),
    Mutant(
        "lazy noise stops at a guess",
        "a cut estimated from a sample and then trusted",
        "            part.draw(-math.inf, self.kept, self.generator)",
        "            part.draw(goal, self.kept, self.generator)",
        (_LAZY + "TestOneAtATime::test_guesses_change_the_cost_alone[spread 0.7, intercept-50.0-1]",),
    ),
    Mutant(
        "places of lazy noise with replacement",
        "random places by integers(0, m, size), as in many sketches of sparse noise",
        'places = chosen + np.searchsorted(self._places - np.arange(len(self._places)), chosen, side="right")',
        "places = chosen",
        (_LAZY + "TestFallingNoise::test_some_levels_and_then_the_rest_is_iid_noise",),
    ),
    Mutant(
        "bound of a list of means too small",
        "a bin that is bounded by its middle instead of its upper end",
        "else abs(self.factor) * cut / self.grid * (1 + 2.0**-50) + 0.5",
        "else 0.5 * abs(self.factor) * cut / self.grid * (1 + 2.0**-50) + 0.5",
        (_LAZY + "TestOneAtATime::test_guesses_change_the_cost_alone[spread 0.7, intercept--inf-1]",),
    ),
    Mutant(
        "bound of a background forgets the sign of its factor",
        "a step is subtracted: factors are negative",
        "else abs(self.factor) * cut / self.grid * (1 + 2.0**-50) + 0.5",
        "else self.factor * cut / self.grid * (1 + 2.0**-50) + 0.5",
        (_LAZY + "TestOneAtATime::test_guesses_change_the_cost_alone[factor--inf-1]",),
    ),
    Mutant(
        "the intercept sets the border",
        "top-s over all parameters, the intercept taken out afterwards",
        "        kept.add(exact.lines[:free], noisy[:free, column])\n",
        "        kept.add(exact.lines, noisy[:, column])\n"
        "        kept.lines, kept.values = kept.lines[kept.lines < free_from], kept.values[kept.lines < free_from]\n",
        (
            _LAZY + "TestLaw::test_of_listed_means[intercept and listed-as it comes]",
            _LAZY + "test_free_lines_have_no_part_in_the_threshold",
        ),
    ),
    Mutant(
        "listed lines are drawn over the background too",
        "two draws for one coordinate, of which the larger wins",
        "own &= self.listed[nearest] != lines",
        "own &= self.listed[nearest] >= 0",
        (_LAZY + "TestEachLineIsDrawnOnce",),
    ),
    Mutant(
        "lines of a list are drawn again with all lines",
        "nested lists taken for disjoint ones",
        "own = np.abs(means[places]) <= cut\n",
        "own = np.abs(means[places]) < math.inf\n",
        (_LAZY + "TestEachLineIsDrawnOnce",),
    ),
    Mutant(
        "the rest is drawn without its ceiling",
        "noise of the undrawn, drawn as if nothing were known of it",
        "            if bits:\n",
        "            if bits < 0:\n",
        (_LAZY + "TestFallingNoise::test_some_levels_and_then_the_rest_is_iid_noise",),
    ),
    Mutant(
        "only positive means are listed",
        "a comparison that forgets the magnitude",
        "np.flatnonzero(np.abs(column) > cut)",
        "np.flatnonzero(column > cut)",
        (_LAZY + "TestLaw::test_of_dense_means",),
    ),
    Mutant(
        "the compiled loop lists positive means only",
        "the same, in the kernel that long columns use",
        "if abs(values[j]) > cut:",
        "if values[j] > cut:",
        (_LAZY + "test_the_compiled_loop_finds_the_same_lines",),
    ),
    # --- the cost of random batches ---
    Mutant(
        "noise per record taken for noise per sensitivity, batches of a fixed size",
        "dp-accounting 0.6 reads one number in both ways; half the shift is billed",
        "return SampledGaussianPair(mu, 0.0, event.rate)",
        "return SampledGaussianPair(mu / 2, 0.0, event.rate)",
        (
            _SAMPLED
            + "TestEveryBatchWrittenOut::test_no_neighbours_cost_more_than_claimed[without_replacement-5-2-1-0.6]",
        ),
    ),
    Mutant(
        "noise per record halved once more, Poisson batches",
        "the same slip on the other side: z_rec is 2 z_sens, not 4",
        "per_record = mu / 2",
        "per_record = mu / 4",
        (_SAMPLED + "TestEveryBatchWrittenOut::test_no_neighbours_cost_more_than_claimed[poisson-5-2-1-0.6]",),
    ),
    Mutant(
        "batches of a fixed size billed as Poisson ones",
        "TensorFlow Privacy's and Opacus's accountants run on shuffled or fixed-size batches",
        'if event.scheme == "without_replacement" or event.rate == 1:',
        'if event.scheme == "neither" or event.rate == 1:',
        (
            _SAMPLED
            + "TestEveryBatchWrittenOut::test_no_neighbours_cost_more_than_claimed[without_replacement-5-2-1-0.6]",
        ),
    ),
    Mutant(
        "the pair of fixed-size batches not mirrored",
        "an add-or-remove loss distribution composed for replace-one: one direction only",
        "    below = above * np.exp(-losses)\n",
        "    below = np.where(np.arange(n + 1) == 1, 1.0 - float(above[1:].sum()) - infinite, 0.0)\n",
        (_SAMPLED + "TestSumOfLosses::test_losses_on_a_grid_are_larger_at_every_threshold[0.05-without_replacement]",),
    ),
    Mutant(
        "the rate of one row for a unit of several, Poisson",
        "user-level privacy claimed with the sampling rate of an example",
        "-math.expm1(k * math.log1p(-b / n))",
        "-math.expm1(math.log1p(-b / n))",
        (_SAMPLED + "test_the_rate_is_that_of_any_row_of_the_unit[5-2-2-poisson]",),
    ),
    Mutant(
        "the rate of one row for a unit of several, fixed size",
        "the same with q = b / n",
        "sum(math.log1p(-b / (n - i)) for i in range(k))",
        "sum(math.log1p(-b / (n - i)) for i in range(1))",
        (_SAMPLED + "test_the_rate_is_that_of_any_row_of_the_unit[5-2-2-without_replacement]",),
    ),
    Mutant(
        "amplification claimed for shuffled epochs",
        "DP-SGD code that shuffles once an epoch and accounts for random batches",
        "        return events.GaussianEvent(mechanism.noise), 1\n    return events.SampledGaussianEvent(",
        "        rate = batches.batch / batches.n_rows\n"
        '        amplified = events.SampledGaussianEvent(mechanism.noise, rate, "without_replacement")\n'
        "        return amplified, batches.answers_per_release\n    return events.SampledGaussianEvent(",
        (_SAMPLED + "test_an_epoch_of_disjoint_batches_is_one_gaussian_release[1-0.2]",),
    ),
    Mutant(
        "losses rounded down to the grid",
        "an optimistic discretisation: dp-accounting's pessimistic_estimate=False",
        "higher = np.clip(excess / parts, 0.0, mass)",
        "higher = np.zeros_like(mass)",
        (_SAMPLED + "TestSumOfLosses::test_losses_on_a_grid_are_larger_at_every_threshold[0.05-poisson]",),
    ),
    Mutant(
        "sums beyond the window forgotten",
        "a transform on a circle: the tail wraps around to where nobody counts it",
        "room = delta - beyond + math.expm1(log_finite)",
        "room = delta + math.expm1(log_finite)",
        (_SAMPLED + "TestSumOfLosses::test_whatever_the_window_the_result_is_valid[0.5-0.0-6.0-9.0]",),
    ),
    Mutant(
        "the count forgotten in the sum of losses",
        "dp-accounting's PLD accountant bills randomised responses once, however often they are used",
        "transform *= fft.rfft(folded) ** count",
        "transform *= fft.rfft(folded)",
        (_SAMPLED + "TestSumOfLosses::test_never_below_the_exact_sum_and_hardly_above[0.1-50-1e-06]",),
    ),
    Mutant(
        "rounding of the transform ignored",
        "far out all chances are noise of 1e-17, and half of it is negative",
        "rounding = 2.0**-52 * (uses + 16) * math.log2(size) * math.sqrt(np.sum(tilted_sum**2))",
        "rounding = 0.0",
        (_SAMPLED + "TestSumOfLosses::test_whatever_the_window_the_result_is_valid[5.0--8.0-12.0-10000.0]",),
    ),
    Mutant(
        "total variation of one use against delta",
        "a shortcut for rare batches that forgets how many there are",
        "if sum(count * pair.total_variation for pair, count in parts) <= delta:",
        "if sum(pair.total_variation for pair, count in parts) <= delta:",
        (_SAMPLED + "TestAccountant::test_rare_batches_that_delta_covers_cost_nothing",),
    ),
    Mutant(
        "the Rényi curve of small rates and large noise, always",
        "the moments accountant's q² α / z², without its conditions: what Theorems 4.1 and 5.1 of DP-SGD-HT rest on",
        "return sampled_pair(event).renyi(orders)",
        "return event.rate**2 * orders * event.gaussian_mu() ** 2 / 2",
        (_SAMPLED + "TestEveryBatchWrittenOut::test_the_renyi_curve_is_enough[without_replacement-5-2-1-0.25]",),
    ),
    Mutant(
        "calibration of batches ends on the wrong side",
        "a root finder's midpoint returned as if it met the budget",
        "            below, kept = (below / 2 if kept < 0 else below), -1\n    return high",
        "            below, kept = (below / 2 if kept < 0 else below), -1\n    return low",
        (_SAMPLED + "TestCalibration::test_two_kinds_of_batches_keep_their_proportions",),
    ),
    # --- random batches ---
    Mutant(
        "a batch's sum divided by the rows it happens to hold",
        "DP-SGD code in which the mean is taken by the framework: a row in a small batch weighs more than is covered",
        "return batches.mean(total, public.n_rows)",
        "return batches.mean(total, max(sum(block.n_rows for block in rows.blocks), 1))",
        (_ON_BATCHES + "TestCurator::test_sums_are_divided_by_the_public_size[poisson]",),
    ),
    Mutant(
        "batches of all sizes drawn like those that came first",
        "a loader that is built once and kept: later, larger batches are billed at the rate of other ones",
        "sampler, public = self._samplers.setdefault(\n            name,",
        'sampler, public = self._samplers.setdefault(\n            "",',
        ("tests/methods/test_batch_sizes.py::test_steps_are_those_of_plain_numpy[no noise]",),
    ),
    Mutant(
        "one bound of noise where a unit comes and goes",
        "replacing a unit moves a sum of squares by one bound, taking it out by one too: Poisson pairs need two",
        "Sensitivity(l2=max(sensitivity.l2, 2.0 * query.one_unit(public)))",
        "Sensitivity(l2=sensitivity.l2)",
        (_ON_BATCHES + "TestCurator::test_the_noise_covers_a_unit_that_is_in_the_batch_or_not[1-poisson]",),
    ),
    Mutant(
        "batches of an epoch overlap",
        "a loader that steps by less than it takes: some rows are in two batches and billed for one",
        "batch, self._order = self._order[:b], self._order[b:]",
        "batch, self._order = self._order[:b], self._order[max(b - 1, 1) :]",
        (_SAMPLING + "test_a_shuffled_epoch_covers_every_row_once[7-3]",),
    ),
    Mutant(
        "an epoch in which every batch is drawn afresh",
        "batches drawn independently and billed like a shuffled pass: a row may be in all of them",
        "if not len(self._order):",
        "if len(self._order) < n:",
        (_SAMPLING + "test_a_shuffled_epoch_covers_every_row_once[6-2]",),
    ),
    Mutant(
        "batches of a fixed size billed as Poisson",
        "every framework's loader with an accountant of Poisson batches: claimed 4, really 13",
        "return _poisson(n, b / n, generator)",
        "return np.sort(generator.choice(n, b, replace=False, shuffle=False))",
        (_AUDIT + "test_batches_of_a_fixed_size_with_the_noise_of_poisson_batches_are_found",),
    ),
    Mutant(
        "the cost of Poisson batches for all batches",
        "the same, on the side of the bill",
        "SampledGaussianEvent(mechanism.noise, batches.unit_rate, batches.scheme)",
        'SampledGaussianEvent(mechanism.noise, batches.unit_rate, "poisson")',
        (_SAMPLING + "test_a_release_costs_what_its_batches_are[3-1]",),
    ),
    Mutant(
        "random batches billed once a pass",
        "amplification and a parallel composition at once: batches that may share rows are billed as if they did not",
        'return math.ceil(self.n_rows / self.batch) if self.scheme == "shuffled" else 1',
        "return math.ceil(self.n_rows / self.batch)",
        (_SAMPLING + "test_one_use_is_one_answer_or_the_answers_of_an_epoch[poisson-1]",),
    ),
    Mutant(
        "the chance of one row for a unit of several",
        "example-level sampling rates sold as user-level: any of a person's rows brings the person in",
        "min(self.rows_per_unit, self.n_rows)",
        "1",
        (_SAMPLING + "test_the_rate_of_a_unit_counted_over_all_batches[poisson-7-3]",),
    ),
    Mutant(
        "rows drawn a tenth too often",
        "a rate that is rounded, or taken of the rows that are left: the bill knows another one",
        "return _poisson(n, b / n, generator)",
        "return _poisson(n, 1.1 * b / n, generator)",
        (_SAMPLING + "test_poisson_subsets_have_the_chances_of_independent_coins[3-1]",),
    ),
    Mutant(
        "batches from a public seed",
        "a loader's own random state, seeded for reproducibility: whoever knows it knows who was in which batch",
        "sampler.draw(self._generator)",
        "sampler.draw(np.random.default_rng(0))",
        (_ON_BATCHES + "TestCurator::test_who_is_in_a_batch_is_drawn_from_the_secret_generator[poisson]",),
    ),
    Mutant(
        "a plan of batches of other units",
        "a bill for rows in a fit that protects persons",
        " or sampling.rows_per_unit != self._public.rows_per_unit",
        "",
        (_ON_BATCHES + "TestCurator::test_plans_of_other_rows_are_refused",),
    ),
    Mutant(
        "slopes of batches not clipped",
        "SVRG code that clips the snapshot alone",
        "math.prod(self.shape)), self.level)",
        "math.prod(self.shape)), np.inf if self.in_batches else self.level)",
        (_ON_BATCHES + "test_worst_case_of_a_gradient[logistic-1-dense]",),
    ),
    Mutant(
        "differences of gradients not clipped",
        "two clipped gradients differ by up to two clips; the noise is for what is left after clipping again",
        "math.prod(self.shape)), self.level)",
        "math.prod(self.shape)), 1e9 * self.level if self.in_batches else self.level)",
        (_ON_BATCHES + "test_worst_case_of_a_difference[logistic-1]",),
    ),
    Mutant(
        "the distance of two points trusted and not enforced",
        "noise scaled to |x - x~| by a Lipschitz constant that the loss states of itself",
        "math.prod(self.shape)), self.level)",
        "math.prod(self.shape)), 100.0 * self.level if self.in_batches else self.level)",
        (_ON_BATCHES + "test_a_loss_that_lies_is_clipped_to_its_word[1-CurvatureLiar]",),
    ),
    Mutant(
        "noise for half a difference",
        "Theorem 5.1 as printed: the constants of the snapshot and of the difference, 4 l / b, are exchanged",
        "math.prod(self.shape)), self.level)",
        "math.prod(self.shape)), 2.0 * self.level if self.in_batches else self.level)",
        (_ON_BATCHES + "test_worst_case_of_a_difference[squared-1]",),
    ),
    Mutant(
        "one snapshot billed for all epochs",
        "the outer loop's gradient counted like a constant; the bill itself would stop the fit",
        'self._release("snapshot", public, settings, snapshot_noise, large, epochs)',
        'self._release("snapshot", public, settings, snapshot_noise, large, min(epochs, 1))',
        (_STOCHASTIC + "test_every_snapshot_and_every_step_is_on_the_bill[poisson-svrg]",),
    ),
    Mutant(
        "one answer more than a shuffled release has",
        "an off-by-one where a pass is divided: the last batch of the next pass comes for free",
        "if self._used[name] >= release.answers:",
        "if self._used[name] >= release.answers + (release.answers_each > 1):",
        (_SAMPLING + "test_one_use_is_one_answer_or_the_answers_of_an_epoch[shuffled-3]",),
    ),
    Mutant(
        "surplus rows count in sparse batches",
        "a mask that is not carried along when rows are chosen",
        "super().__init__(targets[numbers], active[numbers])",
        "super().__init__(targets[numbers], np.ones(len(numbers), dtype=bool))",
        (_STOCHASTIC + "test_surplus_rows_of_a_person_change_nothing[csr-poisson-sgd]",),
    ),
    Mutant(
        "entries of sparse batches not clipped",
        "a copy in another order that is made before the rows are clipped",
        "if entry_bound < np.inf:",
        "if entry_bound < 0.0:",
        (_BATCHES + "test_a_batch_answers_as_rows_of_its_own[one block-0.5-None-False-csr]",),
    ),
    Mutant(
        "rows of a batch as long as they came",
        "per-row factors left behind with the rows that they were computed for",
        "batch._scale = None if self._scale is None else self._scale[numbers]",
        "batch._scale = None",
        (_BATCHES + "test_a_batch_answers_as_rows_of_its_own[one block-None-1.0-False-csr]",),
        at="FastBlock.take",
    ),
    Mutant(
        "norms of other rows",
        "an index into all rows used in a batch",
        "{norm: norms[numbers] for norm, norms in",
        "{norm: norms[: len(numbers)] for norm, norms in",
        (_BATCHES + "test_a_batch_answers_as_rows_of_its_own[one block-None-1.0-False-csr]",),
    ),
    Mutant(
        "a batch adds to the sums of the one before",
        "scratch space that is not zeroed: rows of one batch speak in the answers about others",
        "            sums[lines] = 0.0\n",
        "",
        (_BATCHES + "test_batches_in_turn_do_not_disturb_each_other[one block-csr]",),
    ),
    Mutant(
        "a batch lists the features of the one before",
        "flags that are not taken back: which features rows of one batch have is seen in the answers about others",
        "            flags[lines] = False\n",
        "",
        (_BATCHES + "test_batches_in_turn_do_not_disturb_each_other[one block-csr]",),
    ),
    Mutant(
        "finite precision of a batch of the expected size",
        "a Poisson batch can hold all rows, and its sum is as much larger",
        "fullest = self._public.n_rows / public.n_rows",
        "fullest = 1.0",
        (_ON_BATCHES + "TestCurator::test_roundings_of_the_fullest_batch_join_the_sensitivity",),
    ),
    Mutant(
        "a warning about a row that is too long",
        "numpy's overflow warnings on standard error: norms of all rows are computed when the first batch is taken",
        'with np.errstate(all="ignore"):',
        "with np.errstate():",
        ("tests/trusted/test_curator.py::test_no_warning_tells_of_an_extreme_row_that_is_not_clipped_yet",),
        at="Curator.ask",
    ),
    # --- knowledge transfer ---
    Mutant(
        "a teacher that moves half as far",
        "output perturbation after Chaudhuri et al. 2011 with G for 2 G: a row that is added, not one that is replaced",
        "l2, root = (moves.gradient + 2.5 * self._tolerance(public)) / self.penalty",
        "l2, root = (0.5 * moves.gradient + 2.5 * self._tolerance(public)) / self.penalty",
        (_OBJECTIVE + "TestMinimiserItself::test_some_neighbour_moves_it_so_far[squared-dense-features-1]",),
    ),
    Mutant(
        "a person's rows counted as one in the teacher",
        "the bound of one row in the stability of a minimiser, which moves with every row that is replaced",
        "l2, root = (moves.gradient + 2.5 * self._tolerance(public)) / self.penalty",
        "l2, root = (moves.gradient / public.rows_per_unit + 2.5 * self._tolerance(public)) / self.penalty",
        (_OBJECTIVE + "TestMinimiserItself::test_some_neighbour_moves_it_so_far[logistic-csr-intercept-2]",),
    ),
    Mutant(
        "a mean's teacher for a sum's penalty",
        "2 G / (n lambda) is for a mean of losses with lambda: a penalty that was multiplied by n already, and again",
        "l2, root = (moves.gradient + 2.5 * self._tolerance(public)) / self.penalty",
        "l2, root = (moves.gradient + 2.5 * self._tolerance(public)) / (public.n_rows * self.penalty)",
        (_OBJECTIVE + "TestMinimiserItself::test_so_far_among_rows_that_are_not_empty[1.0]",),
    ),
    Mutant(
        "the row bound left out of the teacher's gradient",
        "the Lipschitz constant of the loss in the margin, for rows that are said to have length 1",
        "return 2.0 * self.slope_clip * self.row_bound * public.rows_per_unit",
        "return 2.0 * self.slope_clip * public.rows_per_unit",
        (_OBJECTIVE + "TestMinimiserItself::test_some_neighbour_moves_it_so_far[huber-dense-intercept-1]",),
    ),
    Mutant(
        "the teacher taken for the exact minimiser",
        "strong convexity speaks of minimisers; a solver that stops on one data set and goes on for another is not one",
        "l2, root = (moves.gradient + 2.5 * self._tolerance(public)) / self.penalty",
        "l2, root = moves.gradient / self.penalty",
        (_OBJECTIVE + "TestMinimiserItself::test_the_tolerance_does_not_look_at_rows",),
    ),
    Mutant(
        "the teacher's solver stops long before its certificate",
        "max_iter and tol of a library's defaults, with the noise of the minimiser (Iyengar et al. 2019)",
        "tolerance=self._tolerance(public),",
        "tolerance=3e5 * self._tolerance(public) if self.itself else self._tolerance(public),",
        (_TRANSFER + "test_with_no_noise_a_private_fit_is_the_method_that_it_describes[alone-output-True-logistic]",),
    ),
    Mutant(
        "a certificate that floats cannot reach",
        "a tolerance below the rounding of the sums that it is checked with holds on some rows and not on others",
        "return max(least, 1e-6 * self._gradient_moves(public))",
        "return 1e-6 * self._gradient_moves(public)",
        (_OBJECTIVE + "TestMinimiserItself::test_the_tolerance_does_not_look_at_rows",),
    ),
    Mutant(
        "rows scaled down before they are mixed",
        "public directions are no rotation: a row within its bound can be longer in their coordinates",
        "norms = bound_norms(np.sqrt(square_norms(columns)),",
        "norms = bound_norms(np.sqrt(square_norms(block.columns(features))),",
        (_OBJECTIVE + "TestMinimiserItself::test_some_neighbour_moves_it_so_far[squared-dense-mixing-1]",),
    ),
    Mutant(
        "choosing and teaching both take the screening share's cost",
        "the same part of a budget handed to two steps: what the parameters say is not what each step has",
        "teaching = (1 - settings.screening_share) * rest / outputs",
        "teaching = rest / outputs",
        (_TRANSFER + "test_the_cost_is_divided_as_the_parameters_say[two-output-gaussian]",),
    ),
    Mutant(
        "one teacher's share for the teachers of all classes",
        "one-vs-rest teachers share the rows: each is a release of its own",
        "teaching = (1 - settings.screening_share) * rest / outputs",
        "teaching = (1 - settings.screening_share) * rest",
        (_TRANSFER + "test_the_cost_is_divided_as_the_parameters_say[three-output-gaussian]",),
    ),
    Mutant(
        "the whole budget's mu for the penalty of each class's teacher",
        "the curvature that a penalty allows is paid for by the mu of its own release, one class's",
        "teaching = (1 - settings.start_share) * (1 - settings.screening_share) / public.loss.n_outputs",
        "teaching = 1.0",
        (_TRANSFER + "test_the_cost_is_divided_as_the_parameters_say[three-objective-gaussian]",),
    ),
    Mutant(
        "s features chosen with the noise of one choice",
        "one-shot top s is s exponential mechanisms; planned as one it eats what the teacher was promised",
        "    choices = k * columns\n",
        "    choices = columns\n",
        (_TRANSFER + "test_the_cost_is_divided_as_the_parameters_say[two-objective-selection]",),
    ),
    Mutant(
        "the report silent about public features",
        "private rows passed as public ones: the promise counts on it that they are not, and nobody is told",
        "lines += method.assumptions(public)",
        "lines += ()",
        (_TRANSFER + "test_the_report_says_what_was_done",),
    ),
    # --- knowledge transfer as published ---
    Mutant(
        "noise without a proof on the bill as a Gaussian mechanism",
        "theorem 4.3 of DPSL-KT taken at its word: a sensitivity that one row can exceed a hundred times",
        "PRICES.get(type(mechanism) if has_plain_fields(mechanism) else Exact, PRICES[Exact])(mechanism)\n",
        "next(PRICES[kind] for kind in type(mechanism).__mro__ if kind in PRICES)(mechanism)\n",
        ("tests/trusted/test_accountants.py::test_a_mechanism_of_another_package_has_the_price_of_an_exact_answer",),
    ),
    Mutant(
        "the paper's noise times the query's own sensitivity",
        "values that are known already move by nothing, and noise in proportion to that is none",
        "return exact + self.noise.value * self.claimed * generator.standard_normal(exact.shape)",
        "return exact + self.noise.value * sensitivity.l2 * generator.standard_normal(exact.shape)",
        (_TRANSFER + "test_the_student_hears_answers_with_the_printed_noise[True]",),
    ),
    Mutant(
        "half of delta for the lengths of epochs that are fixed",
        "option I's log(2/delta) in the noise of option II and of DP-SVRG-HT, whose theorem has log(1/delta)",
        'delta / 2 if option == "I" else delta',
        "delta / 2",
        (_SAMPLED + "TestPublishedNoise::test_the_constants_are_swapped_in_print",),
    ),
    Mutant(
        "all of delta for the order where epochs have random lengths",
        "option II's log(1/delta) in option I, which has spent half of delta on epochs that last too long",
        'delta / 2 if option == "I" else delta',
        "delta",
        (_SAMPLED + "TestPublishedNoise::test_geometric_lengths_are_paid_for_with_a_constant_and_half_of_delta",),
    ),
    Mutant(
        "T choices where the paper makes T - 1",
        "the start of Algorithm 2 is the first of its T iterates",
        "n_choices = n_iter - 1 if public.as_published else n_iter",
        "n_choices = n_iter",
        (_PRINTED + "test_frank_wolfe_is_as_printed[the same noise-25-regression-l1]",),
    ),
    Mutant(
        "the published Laplace scale for the choices that are made",
        "the paper prints T in its scale, for T - 1 choices",
        "math.sqrt(8 * settings.n_iter * math.log(1 / budget.delta))",
        "math.sqrt(8 * settings.n_choices * math.log(1 / budget.delta))",
        ("tests/methods/test_frank_wolfe.py::test_the_published_noise_and_what_it_proves[1-1e-5-10]",),
    ),
    Mutant(
        "half the variance that the paper prints",
        "4 for 8 in sigma²: sqrt(log(2.5/delta)) copied without its factor of two",
        "math.sqrt(2 * math.log(2.5 / budget.delta))",
        "math.sqrt(math.log(2.5 / budget.delta))",
        (_TRANSFER + "test_the_noise_is_the_one_that_is_printed",),
    ),
    Mutant(
        "log(1.25/delta) for the paper's log(2.5/delta)",
        "the textbook's Gaussian mechanism where the paper splits delta in two",
        "math.log(2.5 / budget.delta)",
        "math.log(1.25 / budget.delta)",
        (_TRANSFER + "test_the_noise_is_the_one_that_is_printed",),
    ),
    Mutant(
        "gamma for the length of a sparse gradient",
        "gamma bounds entries; a gradient of s of them is up to sqrt(s) gamma long",
        "claimed = 2 * math.sqrt(public.n_nonzero) * gamma",
        "claimed = 2 * gamma",
        (_TRANSFER + "test_the_noise_is_the_one_that_is_printed",),
    ),
    Mutant(
        "sigma² over lambda, not over lambda²",
        "strong convexity bounds the distance by 1 / lambda, and the variance by its square",
        "stretch / (public.n_rows * curvature)",
        "stretch / (public.n_rows * math.sqrt(curvature))",
        (_TRANSFER + "test_the_noise_is_the_one_that_is_printed",),
    ),
    Mutant(
        "the noise of one answer on all of them",
        "m answers of one teacher move together: a vector's sensitivity grows with the square root of m",
        "stretch = math.sqrt(n_public_rows(self, public) * largest_second_moment(self.features, public))",
        "stretch = math.sqrt(largest_second_moment(self.features, public))",
        (_TRANSFER + "test_the_noise_is_the_one_that_is_printed",),
    ),
    Mutant(
        "a covariance for a second moment",
        "features off centre stretch a teacher's difference along their mean as well",
        "return (self.high - self.low) ** 2 / 12 + n_features * ((self.high + self.low) / 2) ** 2",
        "return (self.high - self.low) ** 2 / 12",
        (_PUBLIC + "test_the_stretch_is_the_spectral_norm_of_the_second_moment",),
    ),
    Mutant(
        "a false theorem is the secret of those who ask for it",
        "a method that has no noise but the paper's, fitted with the default calibration: nobody asked, nobody is told",
        "    if request.budget is not None and request.published:\n        failed =",
        '    if request.budget is not None and request.calibration == "published":\n        failed =',
        (_TRANSFER + "test_nothing_is_promised_and_everybody_is_told[{}-squared-rigorous]",),
    ),
    Mutant(
        "the paper's noise reported as calibrated",
        "the report repeats what was asked for, not what was done",
        '"published" if request.published else "rigorous"',
        "request.calibration",
        (_TRANSFER + "test_nothing_is_promised_and_everybody_is_told[{}-squared-rigorous]",),
    ),
    Mutant(
        "a report without the reason",
        "a warning scrolls away, the report stays: epsilon = inf and no word on what broke",
        "lines = [f\"The theorem behind the published noise does not apply: {'; '.join(failed)}.\"] if failed else []",
        "lines = []",
        (_TRANSFER + "test_nothing_is_promised_and_everybody_is_told[{}-squared-published]",),
    ),
    Mutant(
        "a ledger that has no price for infinity",
        "a fit of unknown cost is skipped by the sum, and let through",
        "if self.share + share > 1 + ROUNDING:",
        "if 1 + 1e-9 < self.share + share < math.inf:",
        (_TRANSFER + "test_a_ledger_refuses_it_before_noise_is_drawn",),
    ),
    # --- students and data sets ---
    Mutant(
        "everything that nobody is billed for passes",
        "a way around the bill for students, open to private fits too",
        "    if not ledgers and any(release.mechanism.noise.value for plan in order.plans for release in plan):\n",
        "    if False:\n",
        (_STUDENTS + "test_a_private_student_is_billed",),
    ),
    Mutant(
        "a student billed for answers that were paid for",
        "post-processing on the bill: the ledger runs out for fits that read no private row",
        "student._keep(run_fit(student._request(loss, X.shape[0]), X, targets, ledgers=()))",
        "student._keep(run_fit(student._request(loss, X.shape[0]), X, targets))",
        (_STUDENTS + "test_a_student_is_not_billed[exact]",),
    ),
    Mutant(
        "a student that may read any rows for free",
        "an exemption for whoever is called a student, not for the public rows that it was given",
        "        return student.fit(rows, responses)\n",
        "        from tulle.audit.own_ledger import AuditLedger\n"
        "        from tulle.trusted.billing import billed_to\n\n"
        "        with billed_to(AuditLedger()):\n"
        "            return student.fit(rows, responses)\n",
        (_STUDENTS + "test_what_a_student_releases_of_other_rows_is_billed[None]",),
    ),
    Mutant(
        "public rows beyond the bounds of private ones",
        "a teacher of clipped rows asked about rows of any length, with noise for the clipped",
        "    return KnownBounds(public.row_l2, public.row_linf, math.inf, public.normalised).clip_copy(rows)\n",
        "    return rows\n",
        (_PUBLIC + "test_given_rows_are_clipped_as_private_rows_are", _PUBLIC + "test_drawn_rows_are_clipped_too"),
    ),
    Mutant(
        "private rows let through as public features",
        "the rows at hand passed once more: directions and lengths are then read off them, without noise",
        "    if features is not None and _are_the_same(features, X):\n",
        "    if False:\n",
        (_PUBLIC + "test_private_rows_are_refused_as_public_features[array]",),
    ),
    Mutant(
        "a part of the private rows let through as public features",
        "X[:1000] for want of public rows: another object, the same people",
        "    if features is not None and _are_the_same(features, X):\n",
        "    if features is X:\n",
        (_PUBLIC + "test_private_rows_are_refused_as_public_features[part]",),
    ),
    Mutant(
        "classifiers do not ask whose rows the public ones are",
        "a check written into one of two front doors",
        '        check_not_private(getattr(self.method, "features", None), X)\n'
        "        if (spread := self._spread(X, y)) is not None:\n            code",
        "        if (spread := self._spread(X, y)) is not None:\n            code",
        (_PUBLIC + "test_private_rows_are_refused_as_public_features",),
    ),
    Mutant(
        "answers of a fit without privacy published",
        "synthetic data are called private for being synthetic, whatever made them",
        "if math.isinf(self.privacy_.epsilon):",
        "if math.isnan(self.privacy_.epsilon):",
        (
            _SYNTHETIC + "test_a_fit_without_privacy_has_nothing_to_publish",
            _SYNTHETIC + "test_the_published_variant_has_nothing_to_publish",
        ),
    ),
    Mutant(
        "a data set's report says that its features are protected",
        "the report of the fit copied as it is: it does not know of rows that are handed on as they were given",
        "        return SyntheticData(X, self._answer()(margins), margins, report)\n",
        "        return SyntheticData(X, self._answer()(margins), margins, self.privacy_)\n",
        (_SYNTHETIC + "test_the_report_is_the_fits_and_says_what_was_public",),
    ),
    Mutant(
        "a saved report forgets its assumptions",
        "epsilon travels with the data, what it counts on does not",
        'for name in ("assumptions", "who_saw_what", "billed"):\n            plain[name] = tuple',
        'plain["assumptions"] = ()\n'
        '        for name in ("assumptions", "who_saw_what", "billed"):\n            plain[name] = tuple',
        (_SYNTHETIC + "test_a_report_with_nothing_asked_and_infinite_parts_survives",),
    ),
    Mutant(
        "published files may hold pickles",
        "np.load(allow_pickle=True): whoever reads a data set runs its author's code",
        "np.lib.format.read_array(member, allow_pickle=False)",
        "np.lib.format.read_array(member, allow_pickle=True)",
        ("tests/files/test_archive.py::test_no_pickle_is_ever_opened",),
    ),
    Mutant(
        "Python objects saved beside the numbers",
        "a pickle of labels can hold what they were taken from: the rows themselves",
        "if np.asarray(array).dtype.kind not in _KINDS:",
        "if False:",
        (_SYNTHETIC + "test_what_only_a_pickle_could_keep_is_refused",),
    ),
    *EXACT_NOISE_MUTANTS,
    *LOCAL_MUTANTS,
    *FED_MUTANTS,
    *MASKED_MUTANTS,
    *FRONT_MUTANTS,
    *INFERENCE_MUTANTS,
    *INTAKE_MUTANTS,
    *SIGNING_MUTANTS,
    *SPREAD_MUTANTS,
    *STEP_MUTANTS,
    *MONITORING_MUTANTS,
    *ZCDP_MUTANTS,
    *OBJECTIVE_MUTANTS,
    *LOSSES_MUTANTS,
    *EXTENSION_MUTANTS,
    *ROWS_MUTANTS,
    *FEDERATED_MUTANTS,
    *REPLAY_MUTANTS,
    *LEDGER_MUTANTS,
    *AUDIT_MUTANTS,
    *PUBLIC_MUTANTS,
    *REPORT_MUTANTS,
    *PREPROCESSING_MUTANTS,
    *SURVIVAL_MUTANTS,
    *TRANSPORT_MUTANTS,
    *FEATURE_MUTANTS,
    *SCHEMA_MUTANTS,
    *CONVERSION_MUTANTS,
)


def patched_copy(mutant: Mutant | None, folder: Path) -> Path:
    """A copy of the package in `folder`, with the bug planted (None: as it is)."""
    copy = folder / "tulle"
    _compile_source()
    # What is compiled comes along; Python and numba compile anew what is patched.
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("*.pyc.*", "*.tmp.*"))
    if mutant is not None:
        patched = mutant.plant(copy)
        Path(cache_from_source(patched)).unlink(missing_ok=True)
    return copy


@cache
def _compile_source() -> None:
    """Once, also where Python is told to write no byte code: else every copy would be compiled again."""
    compileall.compile_dir(SOURCE, quiet=2)


# Loaded by the pytest of a copy, before anything else: the tests must not speak of the installed package.
_GUARD = """
from pathlib import Path
import tulle
if Path(tulle.__file__).resolve().parent != Path(__file__).resolve().parent / "tulle":
    raise RuntimeError(f"the tests would run on {tulle.__file__}")
"""

# A false statement, or an error or warning that did not come. A crash of the patched code is no catch.
# The last: the warning that is expected did not come, and another one did.
_FAILED = re.compile(
    r"^FAILED (?P<test>\S+::.*?) - "
    r"(?P<why>assert |AssertionError|Failed: DID NOT |Failed: Regex pattern did not match)",
    re.MULTILINE,
)


def run_tests(tests: Sequence[str], mutant: Mutant | None, folder: Path, runs: ForkedRuns) -> Outcome:
    """Run tests against a copy of the package in `folder`, in a process of its own."""
    patched_copy(mutant, folder)
    (folder / "tulle_of_this_folder.py").write_text(_GUARD, encoding="utf-8")
    options = ["-q", "-x", "-rf", "--tb=short", "--color=no"]
    options += ["-p", "tulle_of_this_folder", "-p", "no:cacheprovider", "-p", "no:xdist"]
    start = time.perf_counter()
    code, output = runs.run(folder, [*options, *tests])
    seconds = time.perf_counter() - start
    found = _FAILED.search(output)
    named = found is not None and any(is_within(found["test"], test) for test in tests)
    caught_by = found["test"] if found is not None and named and code == 1 else None
    return Outcome(caught_by, code, seconds, output)


def is_within(test: str, named: str) -> bool:
    """Whether a test is the named one, one of its parameters, or in the named file or class."""
    return test == named or test.startswith((named + "[", named + "::"))


def try_mutants(mutants: Sequence[Mutant]) -> Iterator[Outcome]:
    """Plant each bug in a temporary copy and run its tests, two bugs at a time."""
    with ForkedRuns() as one, ForkedRuns() as two, ThreadPoolExecutor(2) as pool:
        free = SimpleQueue[ForkedRuns]()
        free.put(one)
        free.put(two)

        def try_mutant(mutant: Mutant) -> Outcome:
            runs = free.get()
            try:
                with tempfile.TemporaryDirectory() as folder:
                    outcome = run_tests(mutant.tests, mutant, Path(folder), runs)
                if outcome.caught_by is None and outcome.code != 0:
                    # The run itself broke, such as a process that crashes when it ends: that says nothing of the bug.
                    # Where all tests passed, the bug was not caught, and no second run changes that.
                    with tempfile.TemporaryDirectory() as folder:
                        outcome = run_tests(mutant.tests, mutant, Path(folder), runs)
                return outcome
            finally:
                free.put(runs)

        yield from pool.map(try_mutant, mutants)


# What needs an extra is planted by `make mutants`, and its tests pass on sound code in `make test-extras`.
WITHOUT_EXTRAS = [mutant for mutant in MUTANTS if not mutant.needs]
# One in forty with the other tests, for the sake of time; `make mutants` plants them all.
WITH_THE_TESTS = WITHOUT_EXTRAS[::40]


def main() -> int:
    """Plant all bugs, two at a time, and print which test caught each.

    With --rest, those that `make test` does not plant; with --only TEXT, those with the text in their name, their patch
    or their tests.
    """
    if {"-h", "--help"} & set(sys.argv):
        print(
            "usage: python tests/mutants.py [--rest] [--only TEXT]\n\n--rest: without those that the tests plant; "
            "--only TEXT: those with this text in their names, lines or tests"
        )
        return 0
    wanted = [mutant for mutant in MUTANTS if "--rest" not in sys.argv or mutant not in WITH_THE_TESTS]
    if "--only" in sys.argv:
        text = sys.argv[sys.argv.index("--only") + 1]
        wanted = [mutant for mutant in wanted if any(text in part for part in (mutant.name, mutant.old, *mutant.tests))]
        if not wanted:
            print(f"no planted bug has {text!r} in it", file=sys.stderr)
            return 1
    missing = {mutant.needs for mutant in wanted if mutant.needs and find_spec(mutant.needs) is None}
    if missing:
        print(
            f"install {', '.join(sorted(missing))} first: some bugs are caught by tests that need it", file=sys.stderr
        )
        return 1
    width = max(len(mutant.name) for mutant in wanted)
    missed: list[tuple[Mutant, Outcome]] = []
    print(f"{'bug':<{width}}  {'seconds':>7}  caught by")
    for mutant, outcome in zip(wanted, try_mutants(wanted)):
        by = outcome.caught_by or f"NOT CAUGHT (pytest's exit status {outcome.code})"
        print(f"{mutant.name:<{width}}  {outcome.seconds:7.1f}  {by.removeprefix('tests/')}", flush=True)
        if outcome.caught_by is None:
            missed.append((mutant, outcome))
    for mutant, outcome in missed:  # at the end, where a long output is read first
        print(f"\nNOT CAUGHT: {mutant.name} (pytest's exit status {outcome.code})\n{outcome.output[-2000:]}")
    print(f"{len(wanted) - len(missed)} of {len(wanted)} planted bugs caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
