"""Planted privacy bugs: each a patch of a line or two on a copy of tulle, which the named tests must catch.

Every patch breaks a promise and raises nothing by itself: the tests have to notice. `python tests/mutants.py` plants
them all and prints which test caught each, and how fast.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tulle"


@dataclass(frozen=True)
class Mutant:
    """One planted bug.

    Attributes
    ----------
    name : str
    history : str
        Where this bug was met: a paper, a library, a class of code.
    file : str
        The patched file, relative to the package.
    old, new : str
        The patch; `old` occurs exactly once in the file.
    tests : tuple of str
        The tests that must catch it (pytest node ids).
    """

    name: str
    history: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


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


_PRIVACY, _QUERIES, _MECHANISMS = "tests/test_privacy.py::", "tests/test_queries.py::", "tests/test_mechanisms.py::"
_LEDGER, _CURATOR, _EVENTS = "tests/test_ledger.py::", "tests/test_curator.py::", "tests/test_events.py::"
_ESTIMATORS, _NEW = "tests/test_estimators.py::", "tests/test_caught_by_mutants.py::"

MUTANTS: tuple[Mutant, ...] = (
    # --- sensitivities of queries ---
    Mutant(
        "gradient sensitivity C/n, not 2 C/n",
        "the hard-thresholding papers take sqrt(2) C/n or C/n; replacing a row moves the mean by 2 C/n",
        "queries.py",
        "moved = 2.0 * self.level(public) * public.rows_per_unit / public.n_rows",
        "moved = self.level(public) * public.rows_per_unit / public.n_rows",
        (_QUERIES + "TestWorstCases::test_clipped_gradient[l2-logistic-0.0-True-1]",),
    ),
    Mutant(
        "a person's rows counted as one in the gradient",
        "example-level noise sold as user-level privacy, the usual slip with several records per person",
        "queries.py",
        "moved = 2.0 * self.level(public) * public.rows_per_unit / public.n_rows",
        "moved = 2.0 * self.level(public) / public.n_rows",
        (_QUERIES + "TestWorstCases::test_clipped_gradient[l2-logistic-0.0-True-3]",),
    ),
    Mutant(
        "mean over the realised number of rows",
        "DP-SGD code that divides by the drawn batch's size, with the noise of the expected one",
        "queries.py",
        "total /= public.n_rows",
        "total /= max(sum(int(block.active.sum()) for block in rows.blocks), 1)",
        (_NEW + "test_a_row_among_many_surplus_rows_pulls_no_harder",),
    ),
    Mutant(
        "the mean gradient clipped, not each row's",
        "batch clipping: torch's clip_grad_norm_ on the mean gradient in code that calls itself DP-SGD",
        "queries.py",
        "factor = np.where(norms <= level, 1.0, np.where(norms < np.inf, level / norms, 0.0))",
        "factor = np.full(len(norms), min(1.0, level * len(norms) / max(float(norms.sum()), 1e-300)))",
        (_QUERIES + "TestNoNeighbourMovesFurther::test_clipped_gradient[l2-False-squared-dense]",),
    ),
    Mutant(
        "a norm that overflows goes unclipped",
        "min(1, C / norm) guarded by isfinite: the record that is too large to measure is the one that is let through",
        "queries.py",
        "factor = np.where(norms <= level, 1.0, np.where(norms < np.inf, level / norms, 0.0))",
        "factor = np.where(norms < np.inf, np.minimum(1.0, level / np.maximum(norms, 1e-300)), 1.0)",
        (_NEW + "test_a_slope_whose_square_overflows_is_clipped",),
    ),
    Mutant(
        "one record that is not finite wipes out the answer",
        "NaN * 0 is NaN: a sum turns to NaN, and to zero, for one person's sake",
        "queries.py",
        "np.where(np.isfinite(slopes) & block.active[:, None], slopes, 0.0)",
        "np.where(block.active[:, None], slopes, 0.0)",
        (_QUERIES + "test_a_label_that_is_not_finite_moves_an_answer_no_further_than_another",),
    ),
    Mutant(
        "the intercept outside the row bound",
        "row norms taken before the constant column is appended; its entry moves the gradient too",
        "queries.py",
        'np.hypot(block.norms("l2"), a)',
        'block.norms("l2")',
        (_QUERIES + "TestWorstCases::test_clipped_gradient[l2-squared-4.0-True-1]",),
    ),
    Mutant(
        "the intercept outside the bound of chosen features",
        "two-stage selection: the refit's bound counts the s features and forgets the constant column",
        "queries.py",
        "(block.norms_on(chosen) ** 2 + a**2)",
        "block.norms_on(chosen) ** 2",
        (_QUERIES + "TestWorstCases::test_clipped_gradient_on_a_support[squared-4.0-True-1]",),
    ),
    Mutant(
        "each class clipped apart, one record's noise",
        "one-vs-rest fits treated as if a record touched one class; it touches them all",
        "queries.py",
        "norms = np.sqrt((slopes**2).sum(axis=1)) * np.hypot",
        "norms = np.abs(slopes).max(axis=1) * np.hypot",
        (_QUERIES + "TestWorstCases::test_clipped_gradient[l2-one vs rest-0.0-False-1]",),
    ),
    Mutant(
        "clipped in l-inf, claimed in l2",
        "entries scaled to [-1, 1] and the row norm taken as 1: min-max scaling before DP logistic regression",
        "queries.py",
        'if self.norm == "linf":\n            norms',
        "if self.support is None:\n            norms",
        (_QUERIES + "TestNoNeighbourMovesFurther::test_clipped_gradient[l2-False-squared-dense]",),
    ),
    Mutant(
        "tightened bound in the sensitivity alone",
        "a Lipschitz constant believed, not enforced: DP-IGHT Corollary 5.6 needs a G that no clip imposes",
        "queries.py",
        "        level = self.level(public)\n        total",
        "        from dataclasses import replace\n\n"
        "        level = self.level(replace(public, as_published=True))\n        total",
        (_QUERIES + "TestTightening::test_the_bound_is_enforced_on_a_loss_that_lies",),
    ),
    Mutant(
        "surplus rows of a person counted",
        "contribution bounding that drops rows from the count and leaves them in the sum",
        "queries.py",
        "np.isfinite(slopes) & block.active[:, None]",
        "np.isfinite(slopes)",
        (_QUERIES + "test_surplus_rows_count_as_nothing",),
    ),
    Mutant(
        "noise for the gradient on the step",
        "noise moved from the gradient to the weights, and the step size left behind",
        "queries.py",
        "return self.gradient.sensitivity(public).times(self.step_size)",
        "return self.gradient.sensitivity(public)",
        (_QUERIES + "TestWorstCases::test_clipped_gradient_on_a_support[squared-0.0-True-1]",),
    ),
    Mutant(
        "quantile score sensitivity halved",
        "exponential mechanisms with the 1/2 of the exponent applied twice, once as sensitivity",
        "queries.py",
        "Sensitivity(linf=float(public.rows_per_unit))",
        "Sensitivity(linf=public.rows_per_unit / 2)",
        (_QUERIES + "test_worst_case_of_quantile_scores",),
    ),
    Mutant(
        "a person's rows counted as one in the quantile",
        "bounds estimated per row for a model that promises privacy per person",
        "queries.py",
        "Sensitivity(linf=float(public.rows_per_unit))",
        "Sensitivity(linf=1.0)",
        (_QUERIES + "test_worst_case_of_quantile_scores",),
    ),
    Mutant(
        "curvature's sensitivity without the square",
        "second moments noised like first ones: X'X moves by the squared row bound",
        "queries.py",
        "moved = self.size(public) * public.rows_per_unit / public.n_rows",
        "moved = math.sqrt(self.size(public)) * public.rows_per_unit / public.n_rows",
        (_QUERIES + "test_worst_case_of_curvature",),
    ),
    Mutant(
        "curvature not clipped to the bound it claims",
        "a bound on the chosen features used for the noise and never imposed on the rows",
        "queries.py",
        "np.minimum(squares, bound)",
        "squares",
        (_QUERIES + "TestNoNeighbourMovesFurther::test_curvature[squared-dense]",),
    ),
    # --- mechanisms ---
    Mutant(
        "sigma squared where sigma belongs",
        "the papers print σ²; numpy's normal takes σ: a variance below 1 squared away",
        "mechanisms.py",
        "noisy *= scale\n",
        "noisy *= scale**2\n",
        (_MECHANISMS + "TestAdditiveNoise::test_law[gaussian-1.0-True-0]",),
    ),
    Mutant(
        "noise scale passed as location",
        "np.random.laplace(b, size=n): the first argument is the location, the scale stays 1",
        "mechanisms.py",
        "noisy *= scale\n",
        "noisy += scale\n",
        (_MECHANISMS + "TestAdditiveNoise::test_law[laplace-1.0-True-0]",),
    ),
    Mutant(
        "Laplace noise for the l2 sensitivity",
        "noisy gradients with Laplace noise scaled to the Euclidean clip, short by up to sqrt(d)",
        "mechanisms.py",
        "return sensitivity.l1",
        "return sensitivity.l2",
        (_MECHANISMS + "TestAdditiveNoise::test_law[laplace-1.0-True-0]",),
    ),
    Mutant(
        "support chosen before the noise",
        "Stoddard et al. 2014 (Lyu, Su, Li 2017, algorithm 5): noise on what is released, none on what is compared",
        "mechanisms.py",
        "kept = noisy if then is None else then(noisy)",
        "kept = noisy if then is None else np.where(then(exact) != 0, noisy, 0.0)",
        (_MECHANISMS + "TestAdditiveNoise::test_law_after_a_threshold[gaussian-1.0-True-0]",),
    ),
    Mutant(
        "values of the selection leave without noise",
        "Roth's lecture notes 2011 (Lyu, Su, Li 2017, algorithm 3): a selection's answers without noise of their own",
        "curator.py",
        "answer = release.mechanism.release(exact, sensitivity, self._generator, then)",
        "answer = release.mechanism.release(exact, sensitivity, self._generator, then)\n"
        '        answer = exact if name == "values" else answer',
        (_ESTIMATORS + "test_noise_scales_with_the_rows_of_a_person[selection]",),
    ),
    Mutant(
        "low-order bits of the noisy values",
        "Mironov 2012: textbook floating-point Laplace noise tells neighbours apart by its last bits",
        "mechanisms.py",
        "np.round(kept, out=kept)",
        "kept += 0.0",
        (_MECHANISMS + "TestFinitePrecision::test_what_leaves_lies_on_the_grid",),
    ),
    Mutant(
        "rounded before the threshold",
        "snapping first: all d roundings then count in the slack, which is stated for the s that leave",
        "mechanisms.py",
        "kept = noisy if then is None else then(noisy)",
        "noisy = np.round(noisy / rounding_grid(scale)) * rounding_grid(scale)\n"
        "        kept = noisy if then is None else then(noisy)",
        (_MECHANISMS + "TestFinitePrecision::test_the_support_is_decided_on_unrounded_values",),
    ),
    Mutant(
        "float sums trusted to be exact",
        "Casacuberta et al. 2022: DP libraries widely understate the sensitivity of a float sum",
        "curator.py",
        "query.sensitivity(self._public).times(slack)",
        "query.sensitivity(self._public)",
        (_CURATOR + "test_the_noise_covers_what_float_sums_can_move_beyond_exact_ones",),
    ),
    Mutant(
        "arg-min of score plus Gumbel",
        "Gumbel noise is not symmetric: Frank-Wolfe minimises, and score + Gumbel is then another law",
        "mechanisms.py",
        "noisy = exact - scale * np.log(",
        "noisy = exact + scale * np.log(",
        (_MECHANISMS + "TestTopK::test_noisy_max_is_the_exponential_mechanism[1.0-True-0]",),
    ),
    Mutant(
        "selection noise under the root",
        "peeling with sqrt(s log(1/δ) / ε) for the scale sqrt(s log(1/δ)) / ε",
        "mechanisms.py",
        "        # The mechanism *maximises*",
        "        scale = math.sqrt(scale)\n        # The mechanism *maximises*",
        (_MECHANISMS + "TestTopK::test_noisy_max_is_the_exponential_mechanism[1.0-True-0]",),
    ),
    # --- the bill ---
    Mutant(
        "range of a choice 1 / noise, not 2 / noise",
        "Talwar, Thakurta, Zhang 2015: noisy min billed at Δ/scale; all other scores can move the other way",
        "mechanisms.py",
        "2.0 / self.noise.value",
        "1.0 / self.noise.value",
        (_MECHANISMS + "test_the_bill_of_one_release",),
    ),
    Mutant(
        "top k billed as one choice",
        "Lee and Clifton 2014 (Lyu, Su, Li 2017, algorithm 4): noise that does not grow with the number of choices",
        "mechanisms.py",
        "BoundedRangeEvent(span), self.k * self.columns",
        "BoundedRangeEvent(span), self.columns",
        (_MECHANISMS + "TestTopK::test_every_choice_is_on_the_bill",),
    ),
    Mutant(
        "classes billed as if they had different rows",
        "one-vs-rest taken for parallel composition; every class reads every row",
        "mechanisms.py",
        "BoundedRangeEvent(span), self.k * self.columns",
        "BoundedRangeEvent(span), self.k",
        (_MECHANISMS + "TestTopK::test_every_choice_is_on_the_bill",),
    ),
    Mutant(
        "composition forgotten",
        "the noise of one step in each of T steps",
        "privacy.py",
        "total[event] += uses * release.count",
        "total[event] += uses",
        (_PRIVACY + "TestVectors::test_noise_of_fifty_steps",),
    ),
    Mutant(
        "equal events counted once",
        "a dict keyed by the event: two releases with the same noise overwrite each other",
        "privacy.py",
        "total[event] += uses * release.count",
        "total[event] = uses * release.count",
        ("tests/test_bounds.py::TestPrivateQuantile::test_the_releases_cost_what_they_say",),
    ),
    Mutant(
        "more answers than the plan holds",
        "Chen et al. 2015 (Lyu, Su, Li 2017, algorithm 6): no limit on answers; methods that run until they converge",
        "privacy.py",
        "if self._used[name] >= release.count:",
        "if release.count == 0:",
        (_PRIVACY + "TestBill::test_more_than_planned_raises",),
    ),
    Mutant(
        "bounds found from the data, not added",
        "pre-processing and tuning on the private rows at no charge, as in all five papers",
        "privacy.py",
        "return first + rest, name",
        "return max(first, rest), name",
        (_PRIVACY + "TestPureSums::test_preliminary_releases_are_added_and_never_composed",),
    ),
    # --- accountants ---
    Mutant(
        "replace-one noise read as add/remove noise",
        "dp-accounting 0.6: its Rényi and PLD accountants read one number in two conventions, a factor of 2 apart",
        "events.py",
        'self.noise.value if library == "rdp" else self.noise.per_record_bound',
        "self.noise.per_record_bound",
        (_PRIVACY + "TestNoiseConvention::test_both_libraries_speak_of_the_same_noise[2.0-1]",),
    ),
    Mutant(
        "order for moment in the Renyi conversion",
        "the moments accountant's λ is α - 1: dividing by α instead proves too little",
        "privacy.py",
        "return (math.log(1 / delta) - np.log(orders)) / (orders - 1)",
        "return (math.log(1 / delta) - np.log(orders)) / orders",
        (_PRIVACY + "TestVectors::test_concentrated_conversion",),
    ),
    Mutant(
        "sqrt(2 log(1.25/delta)) at large epsilon",
        "Dwork and Roth's formula holds for ε < 1; DPSL-KT Lemma 2.6 states it for any ε, and is false at ε = 8",
        "privacy.py",
        "return root * (1 + 1e-7)",
        "return min(root * (1 + 1e-7), mu * math.sqrt(2 * math.log(1.25 / delta)))",
        (_PRIVACY + "TestGaussianFunctions::test_the_stated_epsilon_is_enough",),
    ),
    Mutant(
        "exponential mechanism taken for a Gaussian",
        "ε²/8-zCDP does not make a trade-off curve that lies above that of a Gaussian",
        "events.py",
        "return self.epsilon * math.sqrt(2 * math.pi) / 4",
        "return self.epsilon / 2",
        (_EVENTS + "TestBoundedRange::test_the_gaussian_dominates_the_envelope",),
    ),
    # --- fits, reports, ledgers ---
    Mutant(
        "undeclared bounds read off the rows",
        "diffprivlib's default where no bounds are given: read them off the data (it warns of the leak)",
        "fitting.py",
        "    public, plan = clip_and_plan(request, rows, X.shape, found)",
        "    found = {of: float(abs(X).max()) for of in found}\n"
        "    public, plan = clip_and_plan(request, rows, X.shape, found)",
        (_NEW + "test_one_extreme_row_does_not_set_the_bounds",),
    ),
    Mutant(
        "noise seeded by the data",
        "Diffix's sticky noise, a function of the rows, broken by Gadotti et al. 2019",
        "fitting.py",
        "keyed_generator(request.seed, stream_of(entries))",
        "keyed_generator(hash(targets.tobytes()) & 0xFFFF if request.seed is None else request.seed)",
        (_ESTIMATORS + "test_without_a_seed_every_fit_has_its_own_noise[SparseClassifier]",),
    ),
    Mutant(
        "numpy's default generator",
        "Garfinkel and Leclerc 2020: noise from a generator whose past tells its future",
        "randomness.py",
        "np.random.Generator(AESCounter(key=key))",
        "np.random.default_rng(key)",
        ("tests/test_randomness.py::test_the_stream_is_aes_128_in_counter_mode",),
    ),
    Mutant(
        "a key of 32 bits",
        "np.random.seed takes 32 bits: all noise that a release can have is tried out in minutes",
        "randomness.py",
        "secrets.randbits(128)",
        "secrets.randbits(32)",
        ("tests/test_randomness.py::test_fresh_keys_have_128_bits",),
    ),
    Mutant(
        "one row too many of each person",
        "contribution bounding off by one",
        "bounds.py",
        "position < limit",
        "position <= limit",
        ("tests/test_bounds.py::TestPeople",),
    ),
    Mutant(
        "asked epsilon reported for published noise",
        "the five papers' figures carry the ε that was put into the formula, not the one that the noise proves",
        "fitting.py",
        "epsilon=proved,",
        "epsilon=proved if budget is None else budget.epsilon,",
        ("tests/test_hard_thresholding.py::test_the_report_of_a_published_fit_says_that_it_proves_more",),
    ),
    Mutant(
        "epsilon cut off in print",
        "1.0049 printed as 1.00: a printed promise below the proved one",
        "report.py",
        "if float(text) >= value:",
        "if steps:",
        ("tests/test_report.py::test_rounding_up_never_rounds_down_nor_far",),
    ),
    Mutant(
        "fits of a ledger share one seed's noise",
        "random_state=0 in every fold: the difference of two models is free of noise",
        "privacy.py",
        "return tuple(number for _, number in entries)",
        "return ()",
        (_LEDGER + "test_a_seed_gives_each_fit_in_a_ledger_its_own_noise",),
    ),
    Mutant(
        "each fit below the cap, not their sum",
        "hyper-parameters chosen on the training rows: every run is private, the search over them is not",
        "privacy.py",
        "if self.share + share > 1 + 1e-9:",
        "if share > 1 + 1e-9:",
        ("tests/test_bounds.py::TestEstimate::test_is_within_its_bill",),
    ),
    Mutant(
        "only the innermost ledger bills",
        "budget scopes as a stack of which the top alone is charged",
        "privacy.py",
        "ledgers = list(_open_ledgers)",
        "ledgers = list(_open_ledgers)[-1:]",
        (_LEDGER + "test_nested_ledgers_both_bill",),
    ),
    Mutant(
        "the ledger forgets what bounds cost",
        "clipping bounds tuned on the private rows outside of the account",
        "privacy.py",
        "return compose(self)",
        "return compose(self.releases)",
        (_LEDGER + "test_estimating_bounds_is_billed",),
    ),
    Mutant(
        "the best currency anew for each fit",
        "the least of several accountants after each release: filters hold for one order, chosen beforehand",
        "privacy.py",
        "currency = self._currency or _cheapest_currency(self.cap, plans, promise)",
        "currency = _cheapest_currency(self.cap, plans, promise)",
        (_NEW + "test_a_ledger_proves_no_less_than_the_best_accountant_of_everything",),
    ),
)


def patched_copy(mutant: Mutant | None, folder: Path) -> Path:
    """A copy of the package in `folder`, with the bug planted (None: as it is)."""
    copy = folder / "tulle"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    if mutant is not None:
        path = copy / mutant.file
        text = path.read_text(encoding="utf-8")
        if mutant.old == mutant.new or text.count(mutant.old) != 1:
            raise ValueError(f"{mutant.name!r}: {mutant.old!r} occurs {text.count(mutant.old)} times in {mutant.file}")
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    return copy


# Loaded by the pytest of a copy, before anything else: the tests must not speak of the installed package.
_GUARD = """
from pathlib import Path
import tulle
if Path(tulle.__file__).resolve().parent != Path(__file__).resolve().parent / "tulle":
    raise RuntimeError(f"the tests would run on {tulle.__file__}")
"""

# A false statement, or an error or warning that did not come. A crash of the patched code is no catch.
_FAILED = re.compile(r"^FAILED (?P<test>\S+::.*?) - (?P<why>assert |AssertionError|Failed: DID NOT )", re.MULTILINE)


def run_tests(tests: Sequence[str], mutant: Mutant | None, folder: Path) -> Outcome:
    """Run tests against a copy of the package in `folder`, in another process."""
    patched_copy(mutant, folder)
    (folder / "tulle_of_this_folder.py").write_text(_GUARD, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "COLUMNS": "400", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-rf", "--tb=short", "--color=no"]
    command += ["-p", "tulle_of_this_folder", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    start = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, encoding="utf-8")
    seconds = time.perf_counter() - start
    found = _FAILED.search(done.stdout)
    named = found is not None and any(is_within(found["test"], test) for test in tests)
    caught_by = found["test"] if found is not None and named and done.returncode == 1 else None
    return Outcome(caught_by, done.returncode, seconds, done.stdout + done.stderr)


def is_within(test: str, named: str) -> bool:
    """Whether a test is the named one, one of its parameters, or in the named file or class."""
    return test == named or test.startswith((named + "[", named + "::"))


def try_mutant(mutant: Mutant) -> Outcome:
    """Plant one bug in a temporary copy and run its tests."""
    with tempfile.TemporaryDirectory() as folder:
        return run_tests(mutant.tests, mutant, Path(folder))


def main() -> int:
    """Plant all bugs, two at a time, and print which test caught each."""
    width = max(len(mutant.name) for mutant in MUTANTS)
    caught = 0
    print(f"{'bug':<{width}}  {'seconds':>7}  caught by")
    with ThreadPoolExecutor(2) as pool:
        for mutant, outcome in zip(MUTANTS, pool.map(try_mutant, MUTANTS)):
            caught += outcome.caught_by is not None
            by = outcome.caught_by or f"NOT CAUGHT (pytest's exit status {outcome.code})"
            print(f"{mutant.name:<{width}}  {outcome.seconds:7.1f}  {by.removeprefix('tests/')}", flush=True)
            if outcome.caught_by is None:
                print(outcome.output[-2000:], file=sys.stderr)
    print(f"{caught} of {len(MUTANTS)} planted bugs caught")
    return 0 if caught == len(MUTANTS) else 1


if __name__ == "__main__":
    sys.exit(main())
