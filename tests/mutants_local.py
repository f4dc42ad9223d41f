"""Planted bugs in `tulle.local`; planted with all others by tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_BALL, _LABELS, _UNIFORMS = (
    "tests/local/test_local_ball.py::",
    "tests/local/test_label_randomisers.py::",
    "tests/local/test_local_uniforms.py::",
)
_WIRE, _USER = "tests/local/test_answer_format.py::", "tests/local/test_local_user.py::"
_SERVER, _HTTP = "tests/local/test_study_server.py::", "tests/local/test_local_http.py::"
_REFUSED = _USER + "test_what_a_user_does_not_allow_is_refused_and_costs_nothing"
_COUNTED = _SERVER + "test_what_does_not_count_is_counted_and_the_study_goes_on"
_ESTIMATORS, _PROTOCOLS = "tests/local/test_local_estimators.py::", "tests/local/test_local_protocols.py::"
_PAPERS = "tests/local/test_local_papers.py::"
_BILLING, _NOISY = "tests/local/test_local_bill.py::", "tests/local/test_local_noisy_labels.py::"

LOCAL_MUTANTS: tuple[Mutant, ...] = (
    # --- local channels ---
    Mutant(
        "the cap's chance forgets the cap's share",
        "e^ε/(1 + e^ε) carried over from the hemisphere to a smaller cap: the densities differ by far more than e^ε",
        "expit(self.kept_epsilon + math.log(self.share) - math.log1p(-self.share))",
        "expit(self.kept_epsilon)",
        (_BALL + "test_densities_differ_by_e_to_the_epsilon_and_no_more[1.0-10]",),
    ),
    Mutant(
        "chances of twice the epsilon",
        "two conventions of ε: per direction of the ratio, or both ways together",
        "return self.epsilon * (1 - ROOM)",
        "return 2 * self.epsilon * (1 - ROOM)",
        (_BALL + "test_densities_differ_by_e_to_the_epsilon_and_no_more[1.0-10]",),
    ),
    Mutant(
        "room added to epsilon, not taken off",
        "the sign of a safety margin: odds pass the promise by a hair, and nothing else shows",
        "return self.epsilon * (1 - ROOM)",
        "return self.epsilon * (1 + ROOM)",
        (_LABELS + "test_the_two_points_have_odds_of_e_to_the_epsilon[1.0]",),
    ),
    Mutant(
        "a chance rounded up",
        "1 - 1e-7 in floats is off by a billionth of its complement: odds pass e^ε at large ε",
        "return math.floor(chance * 2.0**52) * 2.0**-52",
        "return math.ceil(chance * 2.0**52) * 2.0**-52",
        (_LABELS + "test_classes_have_odds_of_e_to_the_epsilon[2-15.94]",),
    ),
    Mutant(
        "the coin for the cap is the coin for the sign",
        "one uniform spent twice: where the value is known to point one way, so does the cap",
        "np.where(inside < self.chance, height",
        "np.where(coin < self.chance, height",
        (_BALL + "test_answers_are_drawn_with_the_stated_chance_share_and_sign[hemisphere-3]",),
    ),
    Mutant(
        "outside of the cap means everywhere",
        "the rest of the sphere drawn as the whole of it: the cap is hit twice over",
        "self.share + height * (1 - self.share))",
        "height)",
        (_BALL + "test_the_component_along_the_value[10-2.0-hemisphere]",),
    ),
    Mutant(
        "the sign's coin leans by |v|/r, not half of it",
        "Duchi's step 1 read as 1/2 + |v|/r: beyond half of the radius every value answers as the bound does",
        "coin < 0.5 + np.minimum(norms / self.bound, 1.0) / 2",
        "coin < 0.5 + np.minimum(norms / self.bound, 1.0)",
        (_BALL + "test_the_angle_of_an_answer_in_the_plane[0.3]",),
    ),
    Mutant(
        "vectors beyond the ball are dropped, not scaled down",
        "a long gradient counted as none: the bias is largest for those who have most to say",
        "coin < 0.5 + np.minimum(norms / self.bound, 1.0) / 2",
        "coin < 0.5 + np.where(norms <= self.bound, norms / self.bound, 0.0) / 2",
        (_BALL + "test_values_beyond_the_bound_answer_what_the_bound_answers[3.0]",),
    ),
    Mutant(
        "norms that overflow are not clipped",
        "|v| computed without scaling: a huge row is infinite, counts as not usable, and answers like 0",
        "usable = np.isfinite(greatest) & (greatest > 0)",
        "usable = np.isfinite(np.linalg.norm(values, axis=1, keepdims=True)) & (greatest > 0)",
        (_BALL + "test_values_beyond_the_bound_answer_what_the_bound_answers[1e+300]",),
    ),
    Mutant(
        "the rest of a direction is not made orthogonal",
        "a Gaussian vector in place of its part across: the component along the value leaves its cap",
        "across -= np.sum(across * direction, axis=1, keepdims=True) * direction",
        "across -= 0.0 * direction",
        (_BALL + "test_the_component_along_the_value[10-2.0-hemisphere]",),
    ),
    Mutant(
        "directions of answers are drawn from a cube",
        "uniforms in place of normals: diagonals are likelier than axes, and the answer is not uniform in its cap",
        "across = ndtri(uniforms[:, 3:])",
        "across = 2 * uniforms[:, 3:] - 1",
        (_BALL + "test_the_direction_across_the_value_is_uniform[hemisphere]",),
    ),
    Mutant(
        "answers on a grid of 2^-40",
        "Mironov 2012: rounding far below the noise leaves the value's own last bits in the answer",
        "_GRID_BITS, _FEWER_BITS, _MANY = 10, 6, 64",
        "_GRID_BITS, _FEWER_BITS, _MANY = 40, 40, 64",
        (_BALL + "test_no_answer_tells_a_value_by_its_last_digits",),
    ),
    Mutant(
        "a server takes vectors of any length",
        "poisoning: one stranger within the largest entry moves the mean as sqrt(d) users do",
        "return abs(length - self.largest) <=",
        "return length - self.largest <= 1e9 + 0 *",
        (_BALL + "test_impossible_answers_are_known",),
    ),
    Mutant(
        "the mean component without the rest of the sphere",
        "m = p0 E[t | cap]: what lies outside pulls the other way, and the estimate is short of the value",
        "return (chance / share - (1 - chance) / (1 - share)) * math.exp(log_moment) / (dimension - 1)",
        "return (chance / share) * math.exp(log_moment) / (dimension - 1)",
        (_BALL + "test_answers_are_unbiased[1.0-30-2.0-hemisphere]",),
    ),
    Mutant(
        "the two points' chance from e^ε, not from its odds",
        "1/2 + y (1 - e^-ε)/2: the odds at the bound are those of a larger ε",
        "return 2 * on_lattice(math.tanh(self.kept_epsilon / 2) / 2)",
        "return 2 * on_lattice(-math.expm1(-self.kept_epsilon) / 2)",
        (_LABELS + "test_the_two_points_have_odds_of_e_to_the_epsilon[1.0]",),
    ),
    Mutant(
        "labels are not clipped",
        "noise for 2B on labels that were never cut off at B",
        "shares = np.clip(np.nan_to_num(values[:, 0] / self.bound, nan=0.0), -1.0, 1.0)",
        "shares = np.clip(np.nan_to_num(values[:, 0] / self.bound, nan=0.0), -30.0, 30.0)",
        (_LABELS + "test_labels_beyond_the_bound_answer_what_the_bound_answers",),
    ),
    Mutant(
        "a label that is not a number shows",
        "NaN turned into the top of the range: its user's answer stands out from those of 0",
        "shares = np.clip(np.nan_to_num(values[:, 0] / self.bound, nan=0.0), -1.0, 1.0)",
        "shares = np.clip(np.nan_to_num(values[:, 0] / self.bound, nan=1.0), -1.0, 1.0)",
        (_LABELS + "test_labels_beyond_the_bound_answer_what_the_bound_answers",),
    ),
    Mutant(
        "the piecewise window half as wide",
        "l = (C + 1)/2 y - (C - 1)/2 and r = l + C - 1 of Wang et al., with the width halved: twice the density",
        "np.where(near < in_window, low + place * window, outside)",
        "np.where(near < in_window, low + (0.25 + place / 2) * window, outside)",
        (_LABELS + "test_no_two_labels_have_answers_further_apart_than_epsilon[1.0-piecewise]",),
    ),
    Mutant(
        "the piecewise window at e^ε, not e^(ε/2)",
        "the chance of the window taken for the ratio of the densities",
        "in_window = on_lattice(1 / (1 + math.exp(-self.kept_epsilon / 2)))",
        "in_window = on_lattice(1 / (1 + math.exp(-self.kept_epsilon)))",
        (_LABELS + "test_the_piecewise_density_has_two_heights[1.0]",),
    ),
    Mutant(
        "the hybrid chooses by the label",
        "piecewise for small labels, two points for large ones: which of the two answered is itself a disclosure",
        "return np.where(uniforms[:, 0] < self.mixing, points, ends)",
        "return np.where(uniforms[:, 0] < 2 * self.mixing * (1 - np.abs(shares)), points, ends)",
        (_LABELS + "test_which_part_of_the_hybrid_answers_does_not_depend_on_the_label",),
    ),
    Mutant(
        "the hybrid's coin is spent twice",
        "the uniform that chose the part decides inside of it too: the piecewise part always falls in its window",
        "rest = uniforms[:, 1:]\n        points",
        "rest = uniforms[:, :2]\n        points",
        (_LABELS + "test_no_two_labels_have_answers_further_apart_than_epsilon[2.0-hybrid]",),
    ),
    Mutant(
        "Laplace noise for B, not 2 B",
        "labels in [-B, B] are 2B apart; a scale of B/ε is the classic slip of sensitivity",
        "return 2 / self.kept_epsilon",
        "return 1 / self.kept_epsilon",
        (_LABELS + "test_no_two_labels_have_answers_further_apart_than_epsilon[1.0-laplace]",),
    ),
    Mutant(
        "Gaussian noise for B, not 2 B",
        "sigma = B/mu for labels that are 2B apart",
        "return 2 / gaussian_mu(",
        "return 1 / gaussian_mu(",
        (_LABELS + "test_the_gaussian_scale_is_the_exact_one[1.0-1e-05]",),
    ),
    Mutant(
        "labels rounded to 2^-44 of the noise",
        "Mironov 2012: the label's own digits beyond those of the noise's uniform stay readable",
        "_GRID = 2.0**-12",
        "_GRID = 2.0**-44",
        (_LABELS + "test_every_label_has_the_same_lattice_of_answers[piecewise]",),
    ),
    Mutant(
        "false classes include the true one",
        "k classes to choose from in place of k - 1, with the chance of the k - 1",
        "others += others >= codes",
        "others += (others >= codes) & (others > 0)",
        (_LABELS + "test_other_classes_are_equally_likely[3]",),
    ),
    Mutant(
        "randomised response of two classes for any number",
        "e^ε/(1 + e^ε) whatever k: with many classes each false one is far less than e^-ε as likely",
        "return on_lattice(1 / (1 + (self.n_classes - 1) * math.exp(-self.kept_epsilon)))",
        "return on_lattice(1 / (1 + math.exp(-self.kept_epsilon)))",
        (_LABELS + "test_classes_have_odds_of_e_to_the_epsilon[3-1.0]",),
    ),
    Mutant(
        "a server takes labels of any size",
        "poisoning: one stranger's answer outweighs all users'",
        "within = (-self.largest <= answer) & (answer <= self.largest)",
        "within = answer == answer",
        (_LABELS + "test_impossible_answers_are_known",),
    ),
    Mutant(
        "users of a seed share one stream",
        "a generator seeded alike in every process: the noise of two users is the same and cancels",
        "counter = np.array([0, number, 0, 0], dtype=np.uint64)",
        "counter = np.array([0, 0, 0, 0], dtype=np.uint64)",
        (_UNIFORMS + "test_seeds_and_users_differ",),
    ),
    Mutant(
        "users' streams overlap",
        "counters one block apart: what one user draws fifth its neighbour draws first",
        "counter = np.array([0, number, 0, 0], dtype=np.uint64)",
        "counter = np.array([number, 0, 0, 0], dtype=np.uint64)",
        (_UNIFORMS + "test_seeds_and_users_differ",),
    ),
    Mutant(
        "uniforms of 53 bits that can be 1",
        "k + 1/2 is no float for k from 2^52 on: the top one rounds to 1, whose quantile is infinite",
        "((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52",
        "((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53",
        (_UNIFORMS + "test_uniforms_lie_in_the_open_interval",),
    ),
    # --- the two sides of a local study ---
    Mutant(
        "the record is written after the draw",
        "telemetry clients that mark a report as sent once it is sent: a crash in between, and it is drawn anew",
        """        self._record.claim(asked)
        values = respond(asked, self._row, self._label, self._uniforms, self._responses)
""",
        """        values = respond(asked, self._row, self._label, self._uniforms, self._responses)
        self._record.claim(asked)
""",
        (_USER + "test_the_record_is_written_before_anything_is_drawn",),
    ),
    Mutant(
        "no record that a user has answered",
        "Tang et al. 2017 on Apple's deployment: fresh noise every day, and no limit over all days",
        "        self._record.claim(asked)\n",
        "",
        (_USER + "test_a_user_answers_once",),
    ),
    Mutant(
        "a record on disk that a second process may overwrite",
        "open(path, 'w') as a lock",
        "os.O_CREAT | os.O_EXCL | os.O_WRONLY",
        "os.O_CREAT | os.O_WRONLY",
        (_USER + "test_a_record_on_disk_outlives_the_user",),
        at="FileRecord.claim",
    ),
    Mutant(
        "a record that is looked for, then made",
        "check, then act: two processes of one user both find nothing",
        "handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)",
        "only = os.O_EXCL if os.path.exists(self.path) else 0\n"
        "            handle = os.open(self.path, os.O_CREAT | only | os.O_WRONLY, 0o600)",
        (_USER + "test_a_record_that_another_process_makes_at_the_last_moment_is_found",),
    ),
    Mutant(
        "the user pays whatever epsilon it is asked for",
        "the server's configuration sets the client's epsilon",
        "if channel.epsilon > max_epsilon or channel.delta > max_delta:",
        "if channel.delta > max_delta:",
        (_REFUSED + "[epsilon too large]",),
    ),
    Mutant(
        "the user pays whatever delta it is asked for",
        "a limit on epsilon alone, and a Gaussian channel with a delta near 1",
        "if channel.epsilon > max_epsilon or channel.delta > max_delta:",
        "if channel.epsilon > max_epsilon:",
        (_REFUSED + "[a delta]",),
    ),
    Mutant(
        "a user answers for groups that are not its own",
        "the server decides who is asked, by what it has heard so far",
        "if not asked.is_for(self.name):",
        "if not asked.study:",
        (_REFUSED + "[another group, before]",),
    ),
    Mutant(
        "a question that is refused costs the answer",
        "claim first, check later: one hostile question silences a user",
        """        check_question(asked, self._row.shape[1], self._max_epsilon, self._max_delta, self._responses)
        self._record.claim(asked)
""",
        """        self._record.claim(asked)
        check_question(asked, self._row.shape[1], self._max_epsilon, self._max_delta, self._responses)
""",
        (_REFUSED + "[too few weights]",),
    ),
    Mutant(
        "users' noise that the server can repeat",
        "noise seeded by the round's number, for the sake of reproducible tests",
        "        values = respond(asked, self._row, self._label, self._uniforms, self._responses)\n",
        "        from tulle.local.user_side.uniforms import SeededUniforms\n\n"
        "        uniforms = SeededUniforms(asked.round, [0])\n"
        "        values = respond(asked, self._row, self._label, uniforms, self._responses)\n",
        (_USER + "test_noise_is_the_users_own",),
    ),
    Mutant(
        "an extreme row warns",
        "RuntimeWarning: overflow, in the log of the one device whose row is extreme",
        'with np.errstate(all="ignore"):  # a warning about',
        "with np.errstate():  # a warning about",
        (_USER + "test_extreme_rows_are_answered_without_a_word[1e+308-1e+308]",),
        at="respond",
    ),
    Mutant(
        "a user that is printed shows its row",
        "a dataclass's own repr, in a log",
        'return f"User({self.name!r})"  # never the row',
        'return f"User({self.name!r}, {self._row[0].tolist()}, {self._label[0]})"',
        (_USER + "test_a_user_that_is_printed_shows_no_row",),
    ),
    Mutant(
        "groups that hold all earlier groups",
        "cumulative shares taken as thresholds from below alone: early users are asked in every round",
        "if start <= at < end)",
        "if at < end)",
        (_SERVER + "test_groups_share_nobody_and_leave_nobody_out",),
    ),
    Mutant(
        "the same group in every study",
        "a hash of the user's name alone: the same users are the first ones always",
        "json.dumps([study, user]).encode()",
        "json.dumps([user]).encode()",
        (_WIRE + "test_places_differ_between_studies",),
    ),
    Mutant(
        "a second answer counts",
        "ballot stuffing: reports are summed as they come",
        "if answer.user in self._answered:",
        "if not answer.user:",
        (_SERVER + "test_a_second_answer_does_not_count",),
    ),
    Mutant(
        "answers of users who are not asked count",
        "the round's number is checked, and whose round it is not",
        "if answer.round > self.round or answer.user not in self.asked:",
        "if answer.round > self.round:",
        (_COUNTED + "[not asked yet]",),
    ),
    Mutant(
        "answers to the round before count",
        "stragglers of asynchronous federated learning: a gradient at old weights, in another unit",
        "if answer.round < self.round:",
        "if answer.round < 1:",
        (_COUNTED + "[for the round before]",),
    ),
    Mutant(
        "answers that no channel gives count",
        "poisoning of local reports (Cao, Jia and Gong 2021): one message outweighs all others",
        "if not self._question.channel.possible(answer.values):",
        "if answer.values.size == 0:",
        (_COUNTED + "[too long a vector]",),
    ),
    Mutant(
        "anybody speaks for anybody",
        "the sender that the transport knows is not compared with the one that the message names",
        "if answer.user not in self._places or sender not in (None, answer.user):",
        "if answer.user not in self._places:",
        (_COUNTED + "[in another's name]",),
    ),
    Mutant(
        "the handler does not say who sent an answer",
        "the name in the address is parsed, and dropped",
        "server.receive(self.rfile.read(int(length)), user)",
        "server.receive(self.rfile.read(int(length)), None)",
        (_HTTP + "test_an_answer_gets_the_reply_it_deserves[in another's name]",),
    ),
    Mutant(
        "strangers end a round",
        "everybody who sends something is counted as heard",
        "if sender in self.asked:",
        "if sender is not None:",
        (_SERVER + "test_a_round_waits_for_everyone_and_nonsense_is_something",),
    ),
    Mutant(
        "no limit on the length of a message",
        "json.loads of whatever comes",
        "if len(raw) > limit:",
        "if limit < 0:",
        (_WIRE + "test_too_long_an_answer_is_not_read",),
    ),
    Mutant(
        "a body is read however long it is",
        "rfile.read(int(headers['Content-Length'])), the line of every tutorial",
        "if len(length) > 12 or int(length) > max(server.most_bytes, 1):",
        "if len(length) > 12:",
        (_HTTP + "test_too_long_an_answer_is_refused_before_a_byte_of_it_is_read[1000000]",),
    ),
    Mutant(
        "weights that are no numbers are taken",
        "allow_nan is for JSON; base64 hides NaN, and every gradient is the same constant then",
        'if array.dtype.kind == "f" and not np.all(np.isfinite(array)):',
        "if array.size == 0:",
        (_WIRE + "test_weights_that_are_not_finite_are_told",),
    ),
    Mutant(
        "the last of two equal fields wins",
        "json.loads without object_pairs_hook: a proxy reads one epsilon, the user another",
        "if len({name for name, _ in pairs}) < len(pairs):",
        "if not pairs and dict(pairs):",
        (_WIRE + "test_fields_of_ask_and_channel_occur_once",),
        at="_distinct",
    ),
    Mutant(
        "answers count before they are in the journal",
        "who was told that its answer counts is lost in a crash, and will not answer again",
        "            self._append(encode_answer(answer))  # one line, however the message was laid out\n"
        "            self._count(answer)\n",
        "            self._count(answer)\n",
        (_SERVER + "test_a_journal_is_written_before_the_answer_is_confirmed",),
    ),
    Mutant(
        "messages go to the journal as they came",
        "log injection: a line break in a message, and nobody can read the journal again",
        "self._append(encode_answer(answer))",
        'self._append(raw.replace(b"\\n", b"\\r"))',
        (_SERVER + "test_an_answer_of_several_lines_does_not_break_the_journal",),
    ),
    Mutant(
        "who answered before a crash may answer again",
        "sums are restored, the list of those who gave them is not",
        "self._count(self._check(line, None))",
        "self._count(self._check(line, None))\n                self._answered.clear()",
        (_SERVER + "test_who_answered_before_the_crash_is_a_duplicate_after",),
    ),
    # --- estimators, protocols, bills and expectations ---
    Mutant(
        "a study of labels billed as one of whole rows",
        "label privacy entered into a ledger of records: the features, and a model of them, cost nothing there",
        "    if isinstance(protocol, LabelCollection) or protocol.budget is None:\n        plan, proved",
        "    if protocol.budget is None:\n        plan, proved",
        (_BILLING + "test_label_studies_are_refused_in_a_ledger[LabelPrivateSparseRegressor]",),
    ),
    Mutant(
        "a study promises its cheapest answer",
        "parallel composition read as a minimum: the best-protected group speaks for all",
        "return max(proof([release], protocol.delta)[0] for release in releases(protocol))",
        "return min(proof([release], protocol.delta)[0] for release in releases(protocol))",
        (_BILLING + "test_the_promise_is_the_dearest_answer",),
    ),
    Mutant(
        "Gaussian noise accounted for as purely private",
        "(epsilon, delta) noise reported without its delta, as label-LDP code does",
        "    if isinstance(answer.channel, GaussianLabel):\n"
        "        return GaussianEvent(NoisePerSensitivity(answer.channel.scale / 2)), 1\n",
        "",
        (_BILLING + "test_channels_are_accounted_for_as_what_they_are",),
    ),
    Mutant(
        "Gaussian labels with half the sensitivity",
        "two labels in [-B, B] taken to be B apart",
        "return 2 / gaussian_mu(self.epsilon * (1 - 2e-7), self.gaussian_delta)",
        "return 1 / gaussian_mu(self.epsilon * (1 - 2e-7), self.gaussian_delta)",
        (_BILLING + "test_gaussian_noise_proves_the_budget[declared bounds-1e-05-1.0]",),
    ),
    Mutant(
        "the budget's delta ignored by Gaussian noise",
        "a default of 1e-2 in the code, another delta in the report",
        "return GaussianLabel(budget.epsilon, bound, budget.delta)",
        "return GaussianLabel(budget.epsilon, bound, max(budget.delta, 1e-2))",
        (_PROTOCOLS + "test_with_a_budget_labels_are_randomised_at_it[gaussian]",),
    ),
    Mutant(
        "a large epsilon switches noise off",
        "a shortcut for debugging that stayed: from some epsilon on exact values are sent",
        "        if self.budget is None:\n            return Unrandomised(math.inf, bound, self.dimension)",
        "        if self.epsilon >= 8:\n            return Unrandomised(math.inf, bound, self.dimension)",
        (_PROTOCOLS + "test_with_a_budget_gradients_are_randomised_at_it[priv_unit-16.0]",),
    ),
    Mutant(
        "users who searched for bounds are asked again",
        "the main rounds ask all users, those of the search included: they would pay twice",
        "start, end = (float(border) for border in self._borders[number - 1 : number + 1])",
        "start, end = (float(border) for border in self._borders[number - 1 : number + 1])\n"
        "        start = 0.0 if number > self.protocol.n_searching else start",
        (_PROTOCOLS + "test_every_user_is_asked_in_one_round[labels, bound searched]",),
    ),
    Mutant(
        "the group of a search left out of the borders",
        "shares that add up to more than 1: the last group is cut short without a word",
        "*[(1 - searching) / self.n_main] * self.n_main",
        "*[1 / self.n_main] * self.n_main",
        (
            _PROTOCOLS
            + "test_searching_takes_its_share_and_the_main_rounds_the_rest_in_equal_parts[iht, bounds searched]",
        ),
    ),
    Mutant(
        "labels given to other users' rows",
        "answers in the order of names ('10' before '2'), rows in the order of numbers",
        "said = [self.answers[str(number)] for number in numbers]",
        "said = [self.answers[name] for name in sorted(self.answers)]",
        (_ESTIMATORS + "test_without_noise_labels_are_exact_but_clipped",),
    ),
    Mutant(
        "one class noticed after everybody was asked",
        "a check of labels that comes when users have spent their only answer",
        "        classes = classes_of(self, lambda: labels)\n",
        "        classes = np.unique(labels)\n"
        "        classes = np.append(classes, classes) if len(classes) == 1 else classes\n",
        (_ESTIMATORS + "test_one_class_is_refused",),
    ),
    Mutant(
        "a found bound that is not on the grid",
        "the geometric mean of the bracket, 'to be closer': a bound becomes a fine-grained function of answers",
        "        return float(GRID[self.high])",
        "        return float(math.sqrt(GRID[self.low] * GRID[self.high]) * 1.1)",
        (_PROTOCOLS + "test_whatever_is_answered_a_bound_is_a_value_of_the_grid[0]",),
    ),
    Mutant(
        "a share of yes not corrected for randomised response",
        "raw counts of randomised answers taken for counts of truths",
        "beyond = (yes - (1 - channel.chance)) / (2 * channel.chance - 1)",
        "beyond = yes",
        (_PROTOCOLS + "test_private_answers_find_it_within_two_steps[labels]",),
    ),
    Mutant(
        "an uphill step",
        "the paper's algorithm 2 adds the gradient: the sign of line 5 is wrong",
        "self.weights - self.step_size(number) * gradient",
        "self.weights + self.step_size(number) * gradient",
        (_PROTOCOLS + "test_a_round_moves_against_the_mean_of_its_answers",),
    ),
    Mutant(
        "answers summed, not averaged",
        "the sum of a group's answers taken for its mean",
        "gradient = self.channel(number).unit * tally.total / max(tally.count, 1)",
        "gradient = self.channel(number).unit * tally.total",
        (_PROTOCOLS + "test_a_round_moves_against_the_mean_of_its_answers",),
    ),
    Mutant(
        "billed after everybody was asked",
        "a ledger that learns of a study when it is over cannot stop it",
        '        entries = billing.bill(f"{type(self).__name__}.fit", protocol)\n',
        "        early = simulate(protocol, Population(X, y, responses, seed), verbose=0)\n"
        '        entries = billing.bill(f"{type(self).__name__}.fit", protocol)\n'
        "        del early\n",
        (_BILLING + "test_label_studies_are_refused_in_a_ledger[LabelPrivateSparseRegressor]",),
    ),
    Mutant(
        "studies of one seed share their answers within a ledger",
        "the same noise twice: the difference of two releases is exact",
        "inner = seed if seed is None or not stream else int(keyed_generator(seed, stream).integers(2**63))",
        "inner = seed",
        (_BILLING + "test_studies_that_share_a_seed_differ_within_a_ledger[LocalSparseRegressor]",),
    ),
    Mutant(
        "a report that does not mention its seed",
        "a simulation sold as a private study",
        "seeded=seed is not None,",
        "seeded=False,",
        (_BILLING + "test_the_report_tells_where_randomness_came_from[LocalSparseRegressor-3]",),
        at="LocalModel._study",
    ),
    Mutant(
        "a report of labels that does not say that features are open",
        "label privacy that reads like privacy of records",
        '        if protocol.budget is not None:\n            lines.append("Only labels',
        '        if protocol.budget is None:\n            lines.append("Only labels',
        (_BILLING + "test_the_report_names_unit_users_and_what_was_seen[LabelPrivateSparseClassifier]",),
    ),
    Mutant(
        "the number of weights checked after the study",
        "a wrong parameter noticed when users have spent their only answer",
        '        if self.n_nonzero is not None:\n            check_count("n_nonzero", self.n_nonzero, 1)\n',
        "",
        (
            _ESTIMATORS
            + "test_wrong_parameters_are_told_before_anybody_is_asked[LabelPrivateSparseRegressor-n_nonzero-0]",
        ),
    ),
    Mutant(
        "a ridge undone by the last step",
        "normalised IHT that returns its last gradient step, not the fit: shrinkage against noise is lost",
        "            if support is not None and np.array_equal(chosen, support):\n                break\n",
        "            if support is not None and np.array_equal(chosen, support):\n"
        "                weights = moved\n                break\n",
        (_NOISY + "test_kept_weights_are_the_ridge_fit_of_their_columns[20-30.0]",),
    ),
    Mutant(
        "label-LDP-IHT without its projection",
        "the last line of algorithm 2 left out: with noise and from a random start weights leave the unit ball",
        "weights = moved if ball is None else project_on_ball(moved, ball)",
        "weights = moved",
        (_PAPERS + "test_label_ldp_iht_with_the_same_noise_is_algorithm_2[0-0.2-normal]",),
    ),
    Mutant(
        "the theorem's steps shrink",
        "the default's 2/(t + 2) kept where algorithm 1 prints one step",
        "return first if self.constant_step else first * 2 / (number + 2)",
        "return first * 2 / (number + 2)",
        (_PAPERS + "test_ldp_iht_without_noise_is_algorithm_1[0]",),
    ),
    Mutant(
        "the theorem's result is cut to s*",
        "algorithm 1 returns what its last round keeps, 8 s* weights",
        "return self.n_nonzero * (1 if last and self.cut_at_end else self.working)",
        "return self.n_nonzero * (1 if last else self.working)",
        (_PAPERS + "test_ldp_iht_without_noise_is_algorithm_1[0]",),
    ),
    Mutant(
        "the theorem's radius forgets the fitted value",
        "row bound times label bound is the longest gradient at 0 alone: later ones are clipped",
        "return self.row_bound * (fitted + self.label_bound) * self.response.steepness",
        "return self.row_bound * self.label_bound * self.response.steepness",
        (_PAPERS + "test_the_theorems_settings_are_as_printed",),
    ),
    Mutant(
        "noise expected as if nobody searched for bounds",
        "a forecast for all users, where a share of them answers something else",
        "n_users * (1 - (protocol.bounds.estimate_share if protocol.n_searching else 0.0))",
        "n_users * 1.0",
        (_PROTOCOLS + "test_more_users_and_a_larger_epsilon_mean_less_noise",),
    ),
)
