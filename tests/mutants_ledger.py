"""Planted bugs in who is billed, what noise repeats, and what is said afterwards. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_MARKERS, _FILE, _LEDGER = (
    "tests/ledgers/test_open_markers.py::",
    "tests/ledgers/test_on_disk.py::",
    "tests/ledgers/test_ledger.py::",
)
_ESTIMATORS, _PIPELINES, _SAVING = (
    "tests/estimators/test_sparse.py::",
    "tests/estimators/test_pipeline_checks.py::",
    "tests/estimators/test_saving.py::",
)
_COMMANDS, _CONVERT, _LOSSES = (
    "tests/cli/test_cli.py::",
    "tests/cli/test_convert.py::",
    "tests/accounting/test_privacy_loss.py::",
)
_FIT_UNDER_LEDGERS = "tests/cli/test_fit_under_ledgers.py::"
_EXIT_CODES = "tests/cli/test_exit_codes.py::"

LEDGER_MUTANTS: tuple[Mutant, ...] = (
    # --- workers ---
    Mutant(
        "the parent and nobody above it",
        "a worker of a forkserver is no child of the process that has the ledger: it fitted and was billed to nobody",
        "        found.add((parent.number, parent.start))\n        child = parent\n",
        "        found.add((parent.number, parent.start))\n        return found, latest\n",
        (_MARKERS + "test_workers_of_every_kind_are_refused[forkserver]",),
    ),
    Mutant(
        "markers where TMPDIR says",
        "a worker with another folder for temporary files looked in vain for its parent's marker",
        'for place in ("/tmp", "/var/tmp", "/dev/shm"))',
        'for place in (os.environ.get("TMPDIR", "/tmp"),))',
        (_MARKERS + "test_a_worker_with_another_folder_for_temporary_files_is_refused",),
    ),
    Mutant(
        "a process is its number",
        "numbers are given again: a stranger's marker stands for a process that is long gone",
        "seen is not None and seen.start == self.start and seen.state",
        "seen is not None and seen.state",
        (_MARKERS + "test_a_reused_number_is_no_ancestor_and_its_marker_is_removed",),
    ),
    Mutant(
        "orphans go free",
        "a worker whose parent has ended has no ancestors that anybody could look at",
        "return parent.number == 1 or parent.name in _REAPERS or foreign",
        "return False",
        (_MARKERS + "test_a_process_whose_parent_has_died_is_refused_while_a_ledger_is_open",),
    ),
    Mutant(
        "what a worker inherited is forgotten with its parent",
        "killed with its ledger open: the worker goes on, unbilled",
        "        if not process.is_alive:\n            # Closed",
        "        if False:\n            # Closed",
        (_MARKERS + "test_a_worker_that_outlives_its_parent_goes_by_what_it_inherited",),
    ),
    Mutant(
        "a marker that is left once",
        "the system clears away old files while a ledger is open, and workers fit unbilled from then on",
        "        leave_marker()  # in case it was deleted\n",
        "        pass\n",
        (_MARKERS + "test_a_marker_that_was_cleared_away_is_left_again_by_the_next_fit",),
    ),
    Mutant(
        "a folder of markers that others can write",
        "another user takes the marker away, and workers fit unbilled",
        "(about.st_uid == os.geteuid() and not about.st_mode & 0o077)",
        "about.st_uid == os.geteuid()",
        (_MARKERS + "test_folders_that_others_could_write_are_not_used[open]",),
    ),
    # --- noise that comes again ---
    Mutant(
        "a generator is a seed",
        "clones of an estimator hold copies of it in one state: all draw the same noise",
        "    if random_state is None or isinstance",
        "    if isinstance(random_state, np.random.Generator):\n        return int(random_state.integers(2**63))\n"
        "    if random_state is None or isinstance",
        (_ESTIMATORS + "test_clones_that_were_given_a_generator_draw_noise_of_their_own",),
    ),
    Mutant(
        "a ledger without a nonce",
        "an older copy of the file is put back, and the seed brings the old noise back: two models can be subtracted",
        "for k in range(0, 16, 4)), *self._nonce)",
        "for k in range(0, 16, 4)))",
        (_FILE + "test_an_older_copy_of_the_ledger_and_the_same_seed_do_not_repeat_noise",),
    ),
    Mutant(
        "a test hook that no report names",
        "a variable of a test set-up left in a service: repeatable noise, sold as private",
        "        lines += describe_fixed_nonce()\n",
        "",
        (_FILE + "test_a_test_hook_repeats_noise_and_every_report_names_it",),
    ),
    Mutant(
        "bounds from an ordinary generator",
        "PCG64: who works out some of its past noise knows the rest",
        "open_logged_account(order, __name__, about, holders=spread)",
        "open_logged_account(order, __name__, about, holders=spread, generator=np.random.default_rng(seed))",
        (_LEDGER + "test_all_noise_comes_from_the_keyed_stream",),
        at="Bounds.estimate",
    ),
    Mutant(
        "scores from an ordinary generator",
        "PCG64: who works out some of its past noise knows the rest",
        "open_logged_account(order, __name__, ",
        "open_logged_account(order, __name__, generator=np.random.default_rng(seed), about=",
        (_LEDGER + "test_all_noise_comes_from_the_keyed_stream",),
        at="private_score",
    ),
    # --- bills ---
    Mutant(
        "a ledger that confirms any plan",
        "a method that turns to a dearer plan, once its bounds are estimated, pays for the cheap one",
        "if self._currency is None or self._currency.share(plan, promise) > self._share_of(number) * (1 + 1e-8):",
        "if self._currency is None:",
        (_LEDGER + "test_a_plan_that_was_not_billed_is_refused",),
    ),
    Mutant(
        "locks are taken at their word",
        "file systems that grant every lock: two processes read the same sum, and one spend is lost",
        "return not same or not _try_lock(second)",
        "return True",
        ("tests/files/test_durable_writes.py::test_a_lock_that_keeps_nobody_out_is_refused",),
    ),
    Mutant(
        "a write that nobody looks at",
        "the file system says yes and keeps the old content: the noise is drawn and the bill is gone",
        "if held != content:",
        "if False:",
        ("tests/ledgers/test_unreliable_disks.py::test_a_disk_that_loses_writes_stops_the_fit",),
    ),
    # --- what is said afterwards ---
    Mutant(
        "a pipeline that only the console knows of",
        "the warning scrolls away, and what is signed does not mention the scaler",
        "return [*lines, *request.preparation]",
        "return lines",
        (_PIPELINES + "test_what_a_pipeline_did_stands_in_the_report",),
    ),
    Mutant(
        "a search that no report mentions",
        "settings chosen by exact scores on private rows, under the promise of the last fit",
        "                outside += [peek for peek in own if peek.step == type(owner).__name__]\n",
        "                del own\n",
        (_PIPELINES + "test_searches_and_ensembles_stand_in_the_reports_of_their_models",),
    ),
    Mutant(
        "nothing was spent, says the exit code",
        "a full disk after the bill: a script runs the fit again, and again",
        'return ("spent", message, SPENT) if code in (WRONG_INPUT, REFUSED) else (kind, message, code)',
        "return kind, message, code",
        (_FIT_UNDER_LEDGERS + "test_a_full_disk_after_the_bill_has_an_exit_code_of_its_own",),
    ),
    Mutant(
        "a release that nobody counted",
        "what fails after the bill of a fit without a ledger ends with the code for wrong input",
        "        if request.budget is not None:\n            note_release()\n",
        "",
        (_EXIT_CODES + "test_what_fails_after_the_bill_of_a_fit_is_no_wrong_input[no-ledger-MemoryError]",),
    ),
    Mutant(
        "room that is looked for when the budget is gone",
        "a full disk after the bill",
        "        with ReservedRoom(folder, n_bytes) as reserved:\n",
        "        with ReservedRoom(folder, 0) as reserved:\n",
        (_EXIT_CODES + "test_a_full_disk_is_noticed_before_the_bill",),
    ),
    Mutant(
        "a mistyped index is billed, and the memory runs out",
        "the number of columns is looked at by nobody",
        "            check_memory(X, planned, len(steps))\n            if",
        "            if",
        ("tests/estimators/test_memory_check.py::test_too_many_columns_are_refused_before_the_bill[a classification]",),
    ),
    Mutant(
        "every unit is a person",
        "rows of one person are many units where no ids are given: their guarantee is one row's",
        'ONE_ROW_OF_A_PERSON if request.grouped else "one row"',
        "ONE_ROW_OF_A_PERSON",
        ("tests/estimators/test_warnings_beforehand.py::test_one_row_of_each_person_is_said",),
    ),
    Mutant(
        "a scheduler's signal ends it on the spot",
        "SIGTERM leaves half a folder of private rows behind",
        "        signal.signal(signal.SIGTERM, stop)\n",
        "        pass\n",
        (_CONVERT + "test_a_stopped_conversion_goes_on[terminated]",),
    ),
    Mutant(
        "old entries pass for new ones",
        "a ledger of before finite precision was counted, read as if it had been",
        'values["format"] != _WITHOUT_FINITE_PRECISION)',
        "True)",
        (_FILE + "test_entries_of_before_say_that_their_delta_leaves_finite_precision_out",),
    ),
    Mutant(
        "old reports pass for new ones",
        "a model of before finite precision was counted, read as if it had been",
        ">= _COUNTS_FINITE_PRECISION:",
        ">= 1:",
        (_SAVING + "test_a_report_of_before_says_that_its_delta_leaves_finite_precision_out",),
    ),
    # --- sums of losses ---
    Mutant(
        "infinite losses for free",
        "the mass beyond the grid left out of delta, as where a loss distribution is cut off",
        "room = delta - beyond + math.expm1(log_finite)",
        "room = delta - beyond",
        (_LOSSES + "test_an_infinite_loss_is_paid_out_of_delta",),
    ),
    Mutant(
        "nothing left of delta, and a number all the same",
        "where delta is used up the end of the window was taken for an answer",
        "    if room <= 0:\n        return math.inf\n",
        "    if room <= 0:\n        return float(losses[-1])\n",
        (_LOSSES + "test_an_infinite_loss_is_paid_out_of_delta",),
    ),
    Mutant(
        "errors of the transform at one place only",
        "rounding counted in the last interpolation and not where epsilon is searched for",
        "return float(np.sum(left * chances[j + 1 :])) + hidden",
        "return float(np.sum(left * chances[j + 1 :]))",
        (_LOSSES + "test_what_rounding_can_hide_counts_as_a_loss",),
    ),
    Mutant(
        "a total variation of half the distance",
        "erf(mu / 4) for erf(mu / sqrt 8): plans that cost something pass for free",
        "erf(self.distance / math.sqrt(8))",
        "erf(self.distance / 4)",
        (_LOSSES + "test_the_total_variation_of_a_sampled_gaussian",),
    ),
)
