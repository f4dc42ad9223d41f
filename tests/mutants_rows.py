"""Planted bugs where numbers of rows could be read that do not count, and in the loops that see rows. See
tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_ROWS, _QUERIES, _BACKENDS = (
    "tests/trusted/test_rows.py::",
    "tests/trusted/test_queries.py::",
    "tests/backends/test_rows_elsewhere.py::",
)
_FOLLOWING, _KERNELS, _SOLVER = (
    "tests/fast/test_scores_on_demand.py::",
    "tests/fast/test_kernels.py::",
    "tests/trusted/test_objectives.py::",
)
_SCORES_LAW = "tests/fast/test_scores_law.py::"
_PLAIN, _RUNS = "tests/trusted/test_plain_rows.py::", "tests/fast/test_rows_in_memory.py::"
_SAMPLING, _TRIALS, _REPLAY = (
    "tests/trusted/test_sampling.py::",
    "tests/tuning/test_best_of_trials.py::",
    "tests/trusted/test_sensitivity_replay.py::",
)

_SUMS, _PRICES = "tests/trusted/test_clipped_sum.py::", "tests/trusted/test_accountants.py::"

ROWS_MUTANTS: tuple[Mutant, ...] = (
    # --- units of a sum ---
    Mutant(
        "units of a sum may be whole numbers",
        "2^32 squared is 0 in 64 bits: noise for nothing, and entries of 4 billion",
        "units.shape == self.shape[:1] and units.dtype == np.float64)",
        "units.shape == self.shape[:1])",
        (_SUMS + "test_a_combination_without_a_proof_is_refused",),
    ),
    Mutant(
        "units of a sum may be so small that their squares vanish",
        "a sensitivity of 0 for sums that move",
        "bool(np.all((units >= 1e-100) & (units <= 1e100)))",
        "bool(np.all((units > 0) & (units <= 1e100)))",
        (_SUMS + "test_a_combination_without_a_proof_is_refused",),
    ),
    Mutant(
        "numbers of few bits in a query",
        "a clip level in float16 or int8: products with it are 0 or infinite, and the sensitivity is nothing",
        "type(query) in _ANSWERED and has_plain_fields(query) and",
        "type(query) in _ANSWERED and",
        (_SUMS + "test_numbers_of_few_bits_and_arrays_of_other_kinds_are_not_answered_with_noise",),
    ),
    Mutant(
        "an array without dimensions for a clip level",
        "checks of numpy's numbers that arrays of one number pass, float16 among them",
        'if declared in ("int", "float", "bool", int, float, bool) or str(declared).startswith("tuple"):',
        'if str(declared).startswith("tuple"):',
        (_SUMS + "test_numbers_of_few_bits_and_arrays_of_other_kinds_are_not_answered_with_noise",),
    ),
    Mutant(
        "arrays in floats of any width",
        "squares of a start in float16 vanish, and with them what its rounding moves",
        '(value.dtype == np.float64 or value.dtype.kind in "biu")',
        'value.dtype.kind in "biuf"',
        (_SUMS + "test_starts_in_other_floats_are_not_answered_with_noise",),
    ),
    Mutant(
        "a shape that is a list",
        "numbers in containers that no check looks into: 16 × 16 is 0 in int8",
        "type(self.shape) is tuple and len(self.shape) == 2",
        "len(self.shape) == 2",
        (_SUMS + "test_a_combination_without_a_proof_is_refused",),
    ),
    Mutant(
        "scores that are broadcast against an array of another shape",
        "numpy makes copies of an answer, each with noise of its own, for the sensitivity of one",
        "np.copyto(scores, _PASSED_OVER, where=False if self.passed_over is None else self.passed_over)",
        "scores = np.where(False if self.passed_over is None else self.passed_over, _PASSED_OVER, scores)",
        (_SUMS + "test_features_that_are_passed_over_make_no_copies_of_scores",),
    ),
    Mutant(
        "the radius of vertices in their own integers",
        "|-128| is -128 in a byte: the largest vertex looks shortest",
        "abs(self.vertices.astype(np.float64)).sum(axis=-1)",
        "abs(self.vertices).sum(axis=-1)",
        (_SUMS + "test_the_radius_of_vertices_in_a_byte_is_that_of_their_values",),
    ),
    Mutant(
        "the radius of a stack of vertices along another axis",
        "an axis counted from the front, where products count from the back",
        "abs(self.vertices.astype(np.float64)).sum(axis=-1)",
        "abs(self.vertices.astype(np.float64)).sum(axis=1)",
        (_SUMS + "test_the_radius_of_vertices_in_a_stack_is_along_their_entries",),
    ),
    Mutant(
        "the least level without its units",
        "a slope times the factor of a row has no digits left, and is rounded to twice the level",
        "if self.level * (1.0 if self.units is None else self.units.min()) < LEAST_LEVEL:",
        "if self.level < LEAST_LEVEL:",
        (_SUMS + "test_a_cut_holds_for_rows_that_were_scaled_down_far",),
    ),
    Mutant(
        "a price in numbers of few bits",
        "64 choices in each of 4 columns wrap around to none in int8",
        "PRICES.get(type(mechanism) if has_plain_fields(mechanism) else Exact, PRICES[Exact])",
        "PRICES.get(type(mechanism), PRICES[Exact])",
        (_PRICES + "test_a_mechanism_with_numbers_of_few_bits_has_the_price_of_an_exact_answer",),
    ),
    Mutant(
        "noise in float16",
        "squares of 1 / noise with four digits, or none",
        'object.__setattr__(self, "value", float(self.value))',
        'object.__setattr__(self, "value", self.value)',
        (_PRICES + "test_noise_is_a_float_of_64_bits",),
    ),
    Mutant(
        "choices below none are paid back",
        "a composition in which one release of a plan cancels another",
        "return event, max(uses, 0)",
        "return event, uses",
        (_PRICES + "test_choices_below_none_pay_for_no_others",),
    ),
    Mutant(
        "a release is planned less than never",
        "counts of a plan are added up: -5 and 5 are nothing",
        "if not (type(release.count) is int and release.count >= 0):",
        "if not type(release.count) is int:",
        (_PRICES + "test_a_release_is_planned_a_whole_number_of_times",),
    ),
    Mutant(
        "rows of a batch in integers of few bits",
        "a rate that is a quotient of int8 is a float16",
        "if not (whole and 1 <= self.batch <= self.n_rows):",
        "if not 1 <= self.batch <= self.n_rows:",
        ("tests/trusted/test_sampling.py::test_rows_are_counted_in_integers_of_python",),
    ),
    Mutant(
        "a quantile of more than all rows",
        "a public parameter so large that the rounding of a score is more than its sensitivity",
        '        if not 0 < self.quantile < 1:\n            raise ValueError(f"a quantile lies',
        '        if not 0 < self.quantile:\n            raise ValueError(f"a quantile lies',
        ("tests/trusted/test_queries.py::test_a_quantile_is_between_none_and_all_rows",),
    ),
    Mutant(
        "a row whose size vanishes is not cut",
        "entry / unit underflows to 0, which is taken for a row of zeros",
        "np.nan_to_num(self.level / np.maximum(sizes, LEAST_FACTOR))",
        "np.where(sizes == 0, 1e308, np.nan_to_num(self.level / np.maximum(sizes, 5e-324)))",
        (_SUMS + "test_a_cut_holds_where_sizes_and_caps_are_below_all_normal_numbers",),
    ),
    Mutant(
        "a cut of few digits",
        "a cap below all normal numbers is rounded to twice of it",
        "cap = np.where(cap < LEAST_FACTOR, 0.0, cap)",
        "cap = np.where(cap < 0, 0.0, cap)",
        (_SUMS + "test_a_cut_holds_for_a_constant_so_large_that_its_cap_has_few_digits",),
    ),
    Mutant(
        "an answer of no columns",
        "a product of lengths that is 0",
        "len(self.shape) == 2 and min(self.shape) >= 1)",
        "len(self.shape) >= 0)",
        (_SUMS + "test_a_combination_without_a_proof_is_refused",),
    ),
    Mutant(
        "true and false as coordinates of a sum",
        "an index by a mask states the units of other lines than those that are answered",
        'not (at.dtype.kind == "i" and np.all(',
        "not (True and np.all(",
        (_SUMS + "test_a_combination_without_a_proof_is_refused",),
    ),
    Mutant(
        "weights with fewer lines than the rows and their constant have",
        "batches and all rows read other lines: a row's slope depends on how many others are asked",
        "if point.n_lines != block._n_features() + bool(intercept_value):",
        "if False:",
        ("tests/fast/test_compiled_batches.py::test_weights_of_other_lines_than_the_rows_have_are_refused",),
    ),
    # --- rows that do not count ---
    Mutant(
        "raw entries of rows that do not count, in the columns",
        "a row is switched off by a factor of 0, and 0 times infinity is not a number: a draw that never ends",
        "            np.copyto(entries[part], 0.0, where=left_out[self._csc.indices[part]])\n",
        "            pass\n",
        (_ROWS + "test_rows_that_do_not_count_are_zeros[one block-too long-csr]",),
    ),
    Mutant(
        "raw entries of dense rows that do not count",
        "a mask beside the rows, and sums that multiply before they look at it",
        "        self._rows[~self.active] = 0.0\n",
        "        pass\n",
        (_ROWS + "test_rows_that_do_not_count_are_zeros[one block-surplus-float64]",),
    ),
    Mutant(
        "raw entries of rows that do not count, in batches",
        "a second copy in another order, made before the rows were looked at",
        "        self._entries[np.repeat(~self.active, self._counts)] = 0.0\n",
        "        pass\n",
        (_ROWS + "test_rows_that_do_not_count_are_zeros[one block-surplus-csr]",),
    ),
    Mutant(
        "raw entries of rows that do not count, on disk",
        "cleared in memory, and read again from the file for the next question",
        "        self._hold(columns, by_rows)\n        self._leave_out()\n",
        "        self._hold(columns, by_rows)\n",
        (_BACKENDS + "test_rows_that_do_not_count_are_zeros_every_time_they_are_read[surplus-sparse]",),
    ),
    Mutant(
        "raw entries of dense rows that do not count, on disk",
        "the same, in the back end's other kind of block",
        "self._folder.block(self._number), True\n        self._leave_out()\n",
        "self._folder.block(self._number), True\n",
        (_BACKENDS + "test_rows_that_do_not_count_are_zeros_every_time_they_are_read[surplus-dense]",),
    ),
    Mutant(
        "rows that do not count cleared in the user's own array",
        "in place, because it is faster: the next fit of the same array finds zeros",
        "        if self._borrowed:\n            columns = self._csc\n",
        "        if False:\n            columns = self._csc\n",
        (_ROWS + "test_the_users_arrays_are_never_modified[one block-csc]",),
    ),
    Mutant(
        "targets of surplus rows in second moments",
        "features of a person's surplus rows are masked, and the sum of squared targets is over all rows",
        "            self.targets = np.where(self.active, self.targets, 0.0)\n",
        "",
        (
            "tests/trusted/test_clipped_sum.py::"
            "test_a_row_function_sees_no_target_of_a_row_that_does_not_count[csr_array]",
        ),
    ),
    Mutant(
        "lengths of rows from before they were clipped",
        "a fit that estimates its bounds has asked for lengths already, and they are remembered",
        "        super().clip_rows(bound, entry_bound, normalise)\n        self._forget()\n",
        "        super().clip_rows(bound, entry_bound, normalise)\n",
        (_ROWS + "test_lengths_are_not_those_of_rows_before_a_clip[one block-l2-csr]",),
    ),
    Mutant(
        "lengths on a support from squares that vanish",
        "entries below 1e-162 squared are 0, and the factor that stretches the row comes too late",
        "            entries = self._times_factor(columns.data, columns.indices)\n"
        "            squares += np.bincount(columns.indices, entries**2, minlength=self.n_rows)\n"
        "        return np.sqrt(squares)\n",
        "            squares += np.bincount(columns.indices, columns.data**2, minlength=self.n_rows)\n"
        "        return np.sqrt(squares if self._scale is None else squares * self._scale**2)\n",
        (_ROWS + "test_a_stretched_row_is_measured_as_it_now_is[one block-csr]",),
    ),
    Mutant(
        "surplus rows kept where persons have one",
        "contribution bounding for rows_per_person > 1 only: the default leaves all rows of everybody in",
        "    if groups is None:\n        return None\n",
        "    if groups is None or bounds.rows_per_person == 1:\n        return None\n",
        (_REPLAY + "test_surplus_rows_of_a_person_count_as_nothing_by_default",),
    ),
    Mutant(
        "a sum that is not a number is asked for",
        "x > limit is false for what is not a number",
        "if not (exposed or largest <= limit):",
        "if not exposed and limit < largest < math.inf:",
        ("tests/trusted/test_curator.py::test_sums_that_could_overflow_are_not_asked_for[nan]",),
    ),
    Mutant(
        "a clip below all digits",
        "slope × factor underflows and is rounded up; an entry of 1e139 then lifts it to 1.8 times the clip",
        "    if level < LEAST_LEVEL:\n        return np.zeros_like(slopes)\n    with",
        "    with",
        (_QUERIES + "test_a_clip_so_small_that_products_lose_their_digits",),
    ),
    # --- plain blocks ---
    Mutant(
        "a row that does not count left in, in plain blocks",
        "the row is marked as out, and its entries stay in every sum",
        "        entries = np.where(_per_entry(self._held, self.active), _entries(self._held), 0.0)\n",
        "        entries = _entries(self._held)\n",
        (_PLAIN + "test_plain_blocks_answer_as_dense_numpy[csr]",),
    ),
    Mutant(
        "entries of plain blocks clipped from above alone",
        "min without max: one large negative entry passes the bound",
        "np.clip(_entries(self._held), -bound, bound)",
        "np.minimum(_entries(self._held), bound)",
        (_PLAIN + "test_plain_blocks_answer_as_dense_numpy[float64]",),
    ),
    Mutant(
        "a row's factor applied twice",
        "the columns are scaled, and the slopes too: gradients of rows that are stretched pass the clip",
        "np.asarray(self._columns(features).T @ self._scaled(slopes))",
        "np.asarray(self.columns(features).T @ self._scaled(slopes))",
        (_PLAIN + "test_plain_blocks_answer_as_dense_numpy[csr]",),
    ),
    Mutant(
        "rows of a plain batch as long as they came",
        "per-row factors left behind with the rows that they were computed for",
        "batch._scale = None if self._scale is None else self._scale[numbers]",
        "batch._scale = None",
        (_PLAIN + "test_plain_blocks_answer_as_the_faster_ones[csr]",),
        at="Block.take",
    ),
    # --- following a walk ---
    Mutant(
        "a draw that goes on until a candidate is taken",
        "rejection sampling without a last resort: one person's row decides whether the fit ends",
        "        for k in range(_MOST_ROUNDS):\n",
        "        for k in range(sys.maxsize):\n",
        (_SCORES_LAW + "test_a_draw_ends_whatever_the_state_is",),
    ),
    Mutant(
        "the last resort draws without noise",
        "a fallback for a rare case that nobody ran: the best coordinate itself",
        "        best = int(np.argmax(choose_largest(scores[:, None], 1.0, 1, GUMBEL, generator)))\n",
        "        best = int(np.argmax(scores))\n",
        (_SCORES_LAW + "test_a_draw_from_all_sums_has_the_same_law",),
    ),
    Mutant(
        "the last resort draws twice as sharply",
        "noise of half the scale in the branch that is hardly ever taken",
        "        scores = sharpness * compute_scores(sums, kind)\n",
        "        scores = 2 * sharpness * compute_scores(sums, kind)\n",
        (_SCORES_LAW + "test_a_draw_from_all_sums_has_the_same_law",),
    ),
    Mutant(
        "a move is followed twice",
        "an index that lags by one: margins of rows run away from the public weights",
        "        self._point = point\n",
        "        self._point = point.before\n",
        (_FOLLOWING + "test_sums_are_those_of_a_dense_recomputation",),
    ),
    Mutant(
        "bounds of a blunter draw used for a sharper one",
        "weights that grow with the sharpness under bounds that do not: the best coordinates are proposed too seldom",
        "            self._kernels.sharpen(self._weights, factor)\n",
        "",
        (_FOLLOWING + "test_upper_bounds_hold_at_every_step",),
    ),
    # --- compiled loops ---
    Mutant(
        "raw entries times the amount of a move",
        "(amount × entry) × factor: the first product is beyond all floats, and infinity times 0 is not a number",
        "moved = amount * (data.constant if whole else data.entries[p] * data.row_scale[i])",
        "moved = amount * data.constant if whole else amount * data.entries[p] * data.row_scale[i]",
        (_SCORES_LAW + "test_a_row_that_must_be_scaled_far_down_moves_by_its_scaled_entries",),
    ),
    Mutant(
        "slopes of followed rows not clipped",
        "one engine clips, the other one remembers slopes as the loss gives them",
        "    return min(max(slope, -data.cap[i]), data.cap[i])\n",
        "    return slope\n",
        (_FOLLOWING + "test_sums_are_those_of_a_dense_recomputation",),
    ),
    Mutant(
        "followed rows as long as they came",
        "clip levels from the sizes of rows before they were scaled",
        "size[i] = max(size[i], abs(data.entries[p]) * data.row_scale[i] / _unit(data, j))",
        "size[i] = max(size[i], abs(data.entries[p]) / _unit(data, j))",
        (_FOLLOWING + "test_sums_are_those_of_a_dense_recomputation",),
    ),
    Mutant(
        "a move that shrinks all weights is free",
        "only rows that hold the moved feature are charged; the slopes of all others have changed too",
        "            path.drift[0] += most\n            path.since[0] += most\n",
        "            path.since[0] += most\n",
        (_FOLLOWING + "test_upper_bounds_hold_at_every_step",),
    ),
    Mutant(
        "compiled batches take entries as they came",
        "a fast path that forgets to clip",
        "            taken_entries[at] = min(max(entries[p], -bound), bound)\n",
        "            taken_entries[at] = entries[p]\n",
        (_KERNELS + "test_rows_are_taken_and_multiplied_as_scipy_does",),
    ),
    # --- the solver ---
    Mutant(
        "the slow road ends early",
        "ten times the tolerance is near enough, and the noise that hides the rest is for one",
        "self._hidden(ahead, _WIDE_ERROR) <= enough:",
        "self._hidden(ahead, _WIDE_ERROR) <= 10 * enough:",
        (_SOLVER + "TestTheSlowRoad",),
    ),
    Mutant(
        "a certificate for another point",
        "the gradient is measured ahead, and the point behind is returned",
        "                    return ahead\n",
        "                    return theta\n",
        (_SOLVER + "TestTheSlowRoad",),
    ),
    Mutant(
        "a fixed number of steps on the slow road",
        "max_iter=100: enough for most, and the certificate is for everybody",
        "for _ in range(math.ceil(steps)):",
        "for _ in range(10):",
        (_SOLVER + "TestTheSlowRoad",),
    ),
    Mutant(
        "a penalty around zero, not around its centre",
        "the minimiser of another objective than the one whose sensitivity was proved",
        "start = linear_term + self.penalty * (theta - self.centre)\n",
        "start = linear_term + self.penalty * theta\n",
        (_SOLVER + "TestAnswers",),
    ),
    # --- batches ---
    Mutant(
        "batches with replacement",
        "numpy's default: a row that is drawn twice counts twice",
        "generator.choice(n, b, replace=False, shuffle=False)",
        "generator.choice(n, b)",
        (_SAMPLING + "test_numbers_are_distinct_rising_and_integers",),
    ),
    Mutant(
        "a row twice in a Poisson batch",
        "gaps between members that may be nothing",
        "places = last + np.cumsum(1 + np.minimum(gaps, n).astype(np.intp))",
        "places = last + 1 + np.cumsum(np.minimum(gaps, n).astype(np.intp))",
        (_SAMPLING + "test_numbers_are_distinct_rising_and_integers",),
    ),
    Mutant(
        "Poisson batches at another rate",
        "gaps by the rate, not by its logarithm: the chance of a row is 1 - exp(-rate)",
        "/ -math.log1p(-rate)",
        "/ rate",
        (_SAMPLING + "test_poisson_subsets_have_the_chances_of_independent_coins",),
    ),
    Mutant(
        "the last rows of a shuffled epoch for free",
        "a pass of n // b batches is billed, and the rows that are left over are asked all the same",
        'return math.ceil(self.n_rows / self.batch) if self.scheme == "shuffled" else 1',
        'return self.n_rows // self.batch + 2 if self.scheme == "shuffled" else 1',
        (_SAMPLING + "test_one_use_is_one_answer_or_the_answers_of_an_epoch",),
    ),
    # --- trials ---
    Mutant(
        "a number of trials cut at its mean",
        "a limit on the work: the law without its tail is another law, with another price",
        "not (k > self.mean and chance < 2.0**-60)",
        "not (k > self.mean)",
        (_TRIALS + "TestLaw",),
    ),
    Mutant(
        "no price for choosing the best",
        "the term of theorem 2 that grows with the logarithm of the mean, left out of the search for the noise",
        "+ several + math.log(trials.mean) / (ORDERS - 1) + renyi_conversion(ORDERS, delta)",
        "+ several + renyi_conversion(ORDERS, delta)",
        (_TRIALS + "TestAffordableSearch::test_spends_the_budget_and_no_more",),
    ),
    Mutant(
        "searches converted without delta",
        "a Rényi divergence read as an epsilon",
        " / (ORDERS - 1) + renyi_conversion(ORDERS, delta)",
        " / (ORDERS - 1)",
        (_TRIALS + "TestAffordableSearch::test_spends_the_budget_and_no_more",),
    ),
    Mutant(
        "the price of a search that lowers itself",
        "log gamma is negative: with the wrong sign more trials cost less",
        "- math.log(trials.gamma) / other_order)",
        "+ math.log(trials.gamma) / other_order)",
        (_TRIALS + "TestTheorem",),
    ),
    # --- runs of rows ---
    Mutant(
        "rows that do not count, in a run of rows",
        "a person's surplus rows, read from the user's own array",
        "entries = np.where(np.repeat(active, np.diff(starts)), entries, 0.0)",
        "entries = entries",
        (_RUNS + "test_parts_of_runs_are_the_parts_of_all_rows",),
    ),
    Mutant(
        "entries of a run of rows as they were given",
        "the bound on entries holds for the columns alone",
        "entries = np.clip(entries, -self._entry_bound, self._entry_bound)",
        "entries = entries",
        (_RUNS + "test_parts_of_runs_are_the_parts_of_all_rows",),
    ),
    Mutant(
        "the factors of rows, lost in a run of rows",
        "the bound on the length of rows holds for the columns alone",
        "run._scale = None if self._scale is None else self._scale[place]",
        "run._scale = None",
        (_RUNS + "test_parts_of_runs_are_the_parts_of_all_rows",),
    ),
)
