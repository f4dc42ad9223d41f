"""Planted bugs in what a person touches: ledgers on disk, saved models, pipelines, reports. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_FILE, _SAVING, _ARCHIVE = "tests/test_ledger_file.py::", "tests/test_saving.py::", "tests/test_archive.py::"
_PIPELINES, _PAGES, _RUNS = "tests/test_pipelines.py::", "tests/test_pages.py::", "tests/test_experiments.py::"
_COMMANDS, _REPRODUCED = "tests/test_cli.py::", "tests/test_reproduce.py::"
_CODE, _TABLES = "tests/test_dependencies.py::", "tests/test_published_fits.py::"

FRONT_MUTANTS: tuple[Mutant, ...] = (
    # --- ledgers on disk ---
    Mutant(
        "a ledger that is written when it is closed",
        "spends kept in memory and saved at the end: whoever is killed before has released for free",
        "ledger_file.py",
        "            _write(self.path, values)\n            self._take(account)\n",
        "            self._take(account)\n",
        (_FILE + "test_the_bill_is_on_the_disk_before_noise_is_drawn",),
    ),
    Mutant(
        "a ledger without a lock",
        "read, add, write: two processes read the same sum, and one spend is lost",
        "ledger_file.py",
        "with self._lock, _locked(self.path):",
        "with self._lock:",
        (_FILE + "test_several_processes_spend_one_after_the_other",),
    ),
    Mutant(
        "a ledger that looks once",
        "the budget read when the file was opened, and spent again by everybody who has it open",
        "ledger_file.py",
        "            self._take(_account(values, self.dataset, self.path))\n            currency",
        "            currency",
        (_FILE + "test_two_openings_see_each_other",),
    ),
    Mutant(
        "a ledger that trusts the system's buffers",
        "written, renamed, never synchronised: after a power cut the file is empty or old",
        "durable.py",
        "            os.fsync(file.fileno())\n        os.replace",
        "        os.replace",
        (_FILE + "test_the_bill_is_on_the_disk_before_noise_is_drawn",),
    ),
    Mutant(
        "a ledger that is written in place",
        "a kill in the middle of a write leaves half a file, and the other half of the spends is gone",
        "durable.py",
        "        os.replace(partial, target)\n",
        "        target.write_bytes(content)\n",
        (_FILE + "test_a_failing_disk_stops_the_fit[replace]",),
    ),
    Mutant(
        "a renaming that does not last",
        "the file is on the disk and its name is not: after a power cut the folder shows the old ledger",
        "durable.py",
        "    sync_folder(target.parent)\n",
        "",
        (_FILE + "test_the_bill_is_on_the_disk_before_noise_is_drawn",),
    ),
    Mutant(
        "a budget for every version of the rows",
        "a data set known by its hash: one corrected row, and all that was spent on the others is forgotten",
        "ledger_file.py",
        'entries = tuple(account["entries"])',
        'entries = tuple(entry for entry in account["entries"] if entry.hint == self._hint)',
        (_FILE + "test_a_changed_row_does_not_reset_the_budget[False]",),
    ),
    Mutant(
        "a ledger that believes what it reads",
        "a flipped digit in a share, and there is budget again",
        "ledger_file.py",
        'if values.pop("check", None) != _checksum(values):',
        'if values.pop("check", None) is None:',
        (_FILE + "test_damage_is_noticed_and_nothing_is_released",),
    ),
    Mutant(
        "two names for one ledger",
        "a rename cuts a hard link: from then on each name has a budget of its own",
        "ledger_file.py",
        "if about.st_nlink > 1:",
        "if about.st_nlink > 1000:",
        (_FILE + "test_links_lead_to_one_budget",),
    ),
    Mutant(
        "an old copy is as good",
        "a backup put back in the middle of a session brings the budget of last week back",
        "ledger_file.py",
        "if entries[: len(self.entries)] != self.entries:",
        "if False:",
        (_FILE + "test_an_old_copy_put_back_is_noticed",),
    ),
    Mutant(
        "a lock that can be deleted",
        "somebody clears away a stale lock file while it is held: two processes write at a time, and one spend is lost",
        "ledger_file.py",
        ", locked_in_place(path, _PATIENCE):",
        ":",
        (_FILE + "test_deleting_the_lock_file_frees_nobody",),
    ),
    Mutant(
        "two names, one noise",
        "fits numbered by their place alone: under one seed the first fit of every data set has the same noise",
        "ledger_file.py",
        "return (number, *(int.from_bytes",
        "return (number,) or (number, *(int.from_bytes",
        (_FILE + "test_a_seed_gives_each_data_set_its_own_noise",),
    ),
    Mutant(
        "a worker with a ledger of its own goes free",
        "the parent's budget looked for only where the child has none",
        "privacy.py",
        "if prepaid is None and _marker(process).exists():",
        "if prepaid is None and not ledgers and _marker(process).exists():",
        (_FILE + "test_a_worker_with_a_ledger_of_its_own_is_refused",),
    ),
    Mutant(
        "a typing error opens an account",
        "an unknown name taken for a new data set, with a budget that nobody gave",
        "ledger_file.py",
        "    if dataset not in accounts:\n",
        "    if dataset not in accounts and accounts:\n"
        '        accounts[dataset] = {**next(iter(accounts.values())), "entries": [], "currency": None}\n'
        "    if dataset not in accounts:\n",
        (_FILE + "test_several_data_sets_share_a_file_and_nothing_else",),
    ),
    Mutant(
        "a ledger that everybody may read",
        "hints about rows in a file of mode 644",
        "ledger_file.py",
        "mode = 0o600",
        "mode = 0o644",
        (_FILE + "test_the_file_is_for_its_owner_unless_its_owner_says_otherwise",),
    ),
    # --- saved models ---
    Mutant(
        "the seed travels with the model",
        "all settings written to the file, random_state among them: whoever gets it can take the noise off again",
        "saving.py",
        '    if name == "random_state":\n        return None',
        '    if name == "random_state" and not isinstance(value, int):\n        return None',
        (_SAVING + "test_the_seed_is_never_in_the_file[int]",),
    ),
    Mutant(
        "a model file that is believed",
        "checksums written and never compared: a changed weight, or a changed report, is read as it stands",
        "archive.py",
        "    if sums != {member: _digest(array) for member, array in arrays.items()}:\n",
        "    if sums is None:\n",
        (_ARCHIVE + "test_a_changed_member_is_refused",),
    ),
    Mutant(
        "what the ledger says goes out with the model",
        "internal notes kept in the file that is published",
        "cli/fit.py",
        "save(model, folder / MODEL, about)",
        "save(model, folder / MODEL, replace(about, ledger=ledger.summary() if ledger else ''))",
        (_COMMANDS + "test_a_fit_is_billed",),
    ),
    # --- pipelines ---
    Mutant(
        "weights of words taken for a setting",
        "TF-IDF before a private model: how many documents hold a word is a release that no bill shows",
        "pipelines.py",
        'return "IDF weights" if getattr(step, "use_idf", True) else ""',
        'return ""',
        (_PIPELINES + "test_the_verdict_on_every_transformer_of_scikit_learn_is_what_fitting_it_shows",),
    ),
    Mutant(
        "columns that nobody filled are dropped for free",
        "an imputer that fills by a constant, and leaves out the columns in which it found nothing",
        "pipelines.py",
        'return "" if getattr(step, "keep_empty_features", False) else "which features are empty"',
        'return ""',
        (_PIPELINES + "test_what_a_step_learns_is_said_for_the_settings_that_it_has",),
    ),
    Mutant(
        "a warning after the budget is gone",
        "told when the model is there: the release was made, and cannot be taken back",
        "estimators.py",
        "        warn_of_peeks(self)\n        request = self._request(loss, X.shape[0])\n        plans",
        "        run_fit(self._request(loss, X.shape[0]), X, targets, groups)\n"
        "        warn_of_peeks(self)\n        request = self._request(loss, X.shape[0])\n        plans",
        (_PIPELINES + "test_the_warning_comes_before_anything_is_spent",),
    ),
    # --- reports ---
    Mutant(
        "accuracy on a public page",
        "test errors beside the promise: exact figures of private rows, published with it",
        "pages/fit_page.py",
        "if comparison is not None and not internal:",
        "if False:",
        (_PAGES + "TestForms::test_a_public_page_refuses_a_comparison",),
    ),
    Mutant(
        "beliefs that rise too little",
        "the example of a page computed by adding epsilon to a chance",
        "pages/figures.py",
        "return 1 / (1 + math.exp(-epsilon) * (1 - prior) / prior)",
        "return min(1.0, prior * (1 + epsilon))",
        (_PAGES + "TestFigures::test_the_belief_is_the_one_that_randomised_response_reaches",),
    ),
    # --- comparisons ---
    Mutant(
        "one noise for all cells of a trial",
        "seeds by trial alone: methods and budgets share their luck, and errors are no longer independent",
        "experiments/cells.py",
        'return seed_from(root, "noise", cell.data, cell.method, epsilon, cell.trial)',
        'return seed_from(root, "noise", cell.data, cell.trial)',
        (_RUNS + "test_every_cell_has_noise_of_its_own",),
    ),
    # --- published tables ---
    Mutant(
        "a checksum of one file",
        "code that a result depends on taken for the module that is named: what that imports may change unseen",
        "experiments/dependencies.py",
        "            if name not in _REGISTRIES:\n",
        "            if False:\n",
        (_CODE + "test_an_edited_method_is_measured_again_with_all_that_import_it[code]",),
    ),
    Mutant(
        "figures of last year",
        "results kept by their names: code and data change, and the table shows what the old ones found",
        "experiments/runner.py",
        'return finished if finished.cell == cell and depends == self.wanted.get(cell, "") else None',
        "return finished if finished.cell == cell else None",
        (_RUNS + "test_changed_data_is_measured_again_and_nothing_else",),
    ),
    Mutant(
        "settings chosen on test rows",
        "the best of many settings by the error that is then reported for it",
        "experiments/fits.py",
        "self.fits.problem(panel, first).held_out(cell.trial)",
        "self.fits.problem(panel, first)",
        (_TABLES + "test_tuning_sees_the_training_rows_of_the_first_trial",),
    ),
    Mutant(
        "luck is chosen with the settings",
        "the noise of the search is that of the trials: the setting with the luckiest draw wins, and keeps it",
        "experiments/fits.py",
        "other = replace(place, trial=-1 - cell.trial)",
        "other = replace(place, trial=cell.trial)",
        (_TABLES + "test_tuning_draws_noise_of_its_own",),
    ),
    Mutant(
        "free tuning passes for a private result",
        "hyper-parameters chosen on the private rows, and the figure shown among those that paid for all they know",
        "experiments/catalogue.py",
        'return "oracle" if self.tune or self.oracle else "honest"',
        'return "honest"',
        (_REPRODUCED + "test_the_role_of_a_line_follows_from_what_it_does",),
    ),
    Mutant(
        "a table under a ledger",
        "fits with known seeds and scores without noise, run while a ledger promises that everything is billed",
        "experiments/reproduction.py",
        '    refuse_open_ledgers("an experiment")\n',
        "",
        (_REPRODUCED + "test_no_table_inside_a_ledger",),
    ),
)
