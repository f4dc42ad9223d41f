"""Planted bugs in what a person touches: ledgers on disk, saved models, pipelines, reports. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_FILE, _SAVING, _ARCHIVE = (
    "tests/ledgers/test_on_disk.py::",
    "tests/estimators/test_saving.py::",
    "tests/files/test_archive.py::",
)
_PIPELINES, _PAGES, _RUNS = (
    "tests/estimators/test_pipeline_checks.py::",
    "tests/reports/test_pages.py::",
    "tests/experiments/test_experiments.py::",
)
_DISKS, _CHECKED, _DURABLE = (
    "tests/ledgers/test_unreliable_disks.py::",
    "tests/ledgers/test_verification.py::",
    "tests/files/test_durable_writes.py::",
)
_COMMANDS, _REPRODUCED = "tests/cli/test_cli.py::", "tests/experiments/test_reproduce.py::"
_FIT_UNDER_LEDGERS = "tests/cli/test_fit_under_ledgers.py::"
_DAMAGED = "tests/backends/test_damaged_blocks.py::"
_BLOCKS, _CONVERT = "tests/backends/test_block_folder.py::", "tests/cli/test_convert.py::"
_CONVERTED = "tests/backends/test_table_conversion.py::"
_CODE, _TABLES = "tests/experiments/test_dependencies.py::", "tests/methods/test_published_fits.py::"

FRONT_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "the first row of a file without a header is listed as its columns",
        "a message that helps to choose a target, and quotes a person's cells",
        'instead = DOUBTFUL if doubtful else f"the columns are {some(names)}"',
        'instead = f"the columns are {some(names)}"',
        ("tests/cli/test_first_commands.py::test_a_header_that_may_be_a_row_is_not_quoted",),
    ),
    # --- ledgers on disk ---
    Mutant(
        "a ledger that is written when it is closed",
        "spends kept in memory and saved at the end: a process that is killed before has released for free",
        "            if claim_name(self.folder, entry_name(entry.number), to_json(entry), _file_mode(self.root)):\n",
        "            if True:\n",
        (_FILE + "test_the_bill_is_on_the_disk_before_noise_is_drawn",),
    ),
    Mutant(
        "the name of an entry is taken by force",
        "a rename in place of a link: two processes read the same sum, and one spend replaces the other",
        "        os.link(partial, target)\n",
        "        os.replace(partial, target)\n        os.link(target, partial)\n",
        (_DISKS + "test_the_loser_of_a_race_checks_the_cap_again",),
    ),
    Mutant(
        "the loser of a race goes on",
        "the entry of another process is taken for its own: noise is drawn for a charge that nobody wrote down",
        "            if isinstance(refused, FileExistsError):\n                return False\n",
        "            if isinstance(refused, FileExistsError):\n                return True\n",
        (_DISKS + "test_the_loser_of_a_race_checks_the_cap_again",),
    ),
    Mutant(
        "every failure of a link is believed",
        "the network repeats a request, and the charge that is there is charged again",
        "return error if links == 1 else None",
        "return error",
        (_DISKS + "test_a_disk_that_fails_at_any_step[17-done and reported as failed]",),
    ),
    Mutant(
        "sums that begin anew with every entry",
        "each charge is within the cap, and all of them together are not",
        "        _add(last.totals.share, charge.share),\n",
        "        charge.share,\n",
        (_FILE + "test_the_cap_holds_over_many_openings",),
    ),
    Mutant(
        "an entry beyond the cap",
        "the sum is checked where the fit is quoted and nowhere else",
        "    if not totals.share <= 1 + ROUNDING:",
        "    if False:",
        (_CHECKED + "test_no_entry_passes_the_cap_or_changes_the_currency",),
    ),
    Mutant(
        "shares of one currency added to those of another",
        "a sum that means nothing",
        "    if last.currency not in (None, charge.currency) or",
        "    if",
        (_CHECKED + "test_no_entry_passes_the_cap_or_changes_the_currency",),
    ),
    Mutant(
        "a ledger that trusts the system's buffers",
        "named and never synchronised: after a power cut the entry is empty",
        "        file.flush()\n        os.fsync(file.fileno())\n",
        "        file.flush()\n",
        (_DISKS + "test_an_entry_is_on_the_disk_before_it_has_its_name",),
        at="_write",
    ),
    Mutant(
        "a name that does not last",
        "the entry is on the disk and its name is not: after a power cut the folder shows the old ledger",
        "            sync_folder(folder)\n",
        "",
        (_FILE + "test_the_bill_is_on_the_disk_before_noise_is_drawn",),
        at="claim_name",
    ),
    Mutant(
        "a model that trusts the system's buffers",
        "written, renamed, never synchronised: after a power cut the file is empty or old",
        "                os.fsync(file.fileno())\n            os.replace",
        "            os.replace",
        (_DURABLE + "test_a_file_reaches_the_disk_before_it_has_its_name",),
    ),
    Mutant(
        "a state that is written in place",
        "a kill in the middle of a write leaves half a file",
        "            os.replace(partial, target)\n",
        "            target.write_bytes(content)\n",
        (_DURABLE + "test_a_failing_disk_leaves_the_old_file[replace]",),
    ),
    Mutant(
        "a renaming that does not last",
        "the file is on the disk and its name is not: after a power cut the folder shows the old one",
        "    sync_folder(target.parent)\n",
        "",
        (_DURABLE + "test_a_file_reaches_the_disk_before_it_has_its_name",),
        at="write_durably",
    ),
    Mutant(
        "a ledger that believes what it reads",
        "a flipped digit in a share, and there is budget again",
        "    if _seal(record).head != record.head:",
        "    if False:",
        (_FILE + "test_damage_is_noticed_and_nothing_is_released",),
    ),
    Mutant(
        "an old copy is as good",
        "a backup put back in the middle of a session brings the budget of last week back",
        "            if self.read(number).head != head:\n",
        "            if False:\n",
        (_CHECKED + "test_each_fault_is_noticed[sums lowered]",),
    ),
    Mutant(
        "the last entries may go",
        "deleted from the end: the sum is that of last week",
        "        start = max(known.number, 0 if pointer is None else pointer[0])\n",
        "        pointer = None\n        start = known.number\n",
        (_CHECKED + "test_each_fault_is_noticed[last entry deleted]",),
    ),
    Mutant(
        "a chain whose links nobody compares",
        "an entry in the middle was edited, and its own hash computed again",
        "    if entry.previous != before.head:",
        "    if False:",
        (_CHECKED + "test_each_fault_is_noticed[edited with a new hash]",),
    ),
    Mutant(
        "sums that nobody adds up",
        "the last entry says a smaller sum than those before it",
        "    if (again.totals, again.epsilon_so_far) != (entry.totals, entry.epsilon_so_far):",
        "    if False:",
        (_CHECKED + "test_each_fault_is_noticed[sums lowered, no pointer]",),
    ),
    Mutant(
        "a head that is not looked for",
        "the ledger was written anew; the head in last year's report is nowhere in it",
        "    if head and found_at is None:",
        "    if False:",
        (_CHECKED + "test_each_fault_is_noticed[written anew]",),
    ),
    Mutant(
        "a witness that is not asked",
        "an older copy was restored, and the charge goes on from there",
        "        if number > last.number or read(number).head != head:",
        "        if False:",
        (_CHECKED + "test_each_fault_is_noticed[rolled back]",),
    ),
    Mutant(
        "a witness that takes any ledger",
        "the ledger was written anew, and its witness learns the new one by heart",
        "            if any(words[1] != identity for words in lines):",
        "            lines = [words for words in lines if words[1] == identity]\n            if False:",
        (_CHECKED + "test_each_fault_is_noticed[written anew]",),
    ),
    Mutant(
        "a witness that can be left at home",
        "opened with a witness, billed without",
        "    if opening.witness:\n        raise",
        "    if False:\n        raise",
        (_CHECKED + "test_a_ledger_that_was_opened_with_a_witness_needs_it",),
    ),
    Mutant(
        "a head that confirms guesses",
        "without random bytes an entry can be guessed and its hash computed",
        '            random=random_id("entry", last.number + 1),\n',
        '            random="0" * 32,\n',
        (_CHECKED + "test_two_equal_charges_have_different_heads",),
    ),
    Mutant(
        "sums that are rounded to the nearest",
        "a hundred thousand charges, each lost to rounding",
        "return math.nextafter(total + more, math.inf) if more else total",
        "return total + more",
        (_CHECKED + "test_sums_are_rounded_up",),
    ),
    Mutant(
        "two names, one noise",
        "fits numbered by their place alone: under one seed the first fit of every data set has the same noise",
        "return (number, *(int.from_bytes",
        "return (number,) or (number, *(int.from_bytes",
        (_FILE + "test_a_seed_gives_each_data_set_its_own_noise",),
    ),
    Mutant(
        "a worker with a ledger of its own goes free",
        "the parent's budget looked for only where the child has none",
        "if not prepaid and (why := why_not_to_fit()):",
        "if not prepaid and not open_ledgers and (why := why_not_to_fit()):",
        (_FILE + "test_a_worker_with_a_ledger_of_its_own_is_refused",),
    ),
    Mutant(
        "a typing error opens an account",
        "an unknown name taken for a new data set, with a budget that nobody gave",
        "            raise ValueError(_no_account(self.root, dataset)) from None\n",
        "            Chain.create(root, dataset, Chain(root, datasets(root)[0]).opening.cap)\n"
        "            content = (self.folder / entry_name(0)).read_bytes()\n",
        (_FILE + "test_several_data_sets_share_a_folder_and_nothing_else",),
    ),
    Mutant(
        "a ledger that everybody may read",
        "hints about rows in a file of mode 644",
        "        found.mkdir(mode=0o700)\n",
        "        found.mkdir(mode=0o755)\n",
        (_FILE + "test_the_folder_is_for_its_owner_unless_its_owner_says_otherwise",),
    ),
    # --- saved models ---
    Mutant(
        "the seed travels with the model",
        "all settings written to the file, random_state among them: whoever gets it can take the noise off again",
        '    if name == "random_state":\n        return None',
        '    if name == "random_state" and not isinstance(value, int):\n        return None',
        (_SAVING + "test_the_seed_is_never_in_the_file[int]",),
    ),
    Mutant(
        "a model file that is believed",
        "checksums written and never compared: a changed weight, or a changed report, is read as it stands",
        "    if sums != {member: _digest(array) for member, array in arrays.items()}:\n",
        "    if sums is None:\n",
        (_ARCHIVE + "test_a_changed_member_is_refused",),
    ),
    Mutant(
        "what the ledger says goes out with the model",
        "internal notes kept in the file that is published",
        "save_model(whole, folder, about, reserved)",
        "save_model(whole, folder, replace(about, ledger=ledger.summary() if ledger else ''), reserved)",
        (_FIT_UNDER_LEDGERS + "test_a_fit_is_billed",),
        at="run",
    ),
    # --- pipelines ---
    Mutant(
        "weights of words taken for a setting",
        "TF-IDF before a private model: how many documents hold a word is a release that no bill shows",
        'return "IDF weights" if getattr(step, "use_idf", True) else ""',
        'return ""',
        (_PIPELINES + "test_the_verdict_on_every_transformer_of_scikit_learn_is_what_fitting_it_shows",),
    ),
    Mutant(
        "columns that nobody filled are dropped for free",
        "an imputer that fills by a constant, and leaves out the columns in which it found nothing",
        'return "" if getattr(step, "keep_empty_features", False) else "which features are empty"',
        'return ""',
        (_PIPELINES + "test_what_a_step_learns_is_said_for_the_settings_that_it_has",),
    ),
    Mutant(
        "a warning after the budget is gone",
        "told when the model is there: the release was made, and cannot be taken back",
        "        preparation = (*warn_of_peeks(self)",
        "        run_fit(self._request(loss, X.shape[0]), X, targets, groups)\n"
        "        preparation = (*warn_of_peeks(self)",
        (_PIPELINES + "test_the_warning_comes_before_anything_is_spent",),
        at="_SparseLinearModel._fit",
    ),
    # --- reports ---
    Mutant(
        "accuracy on a public page",
        "test errors beside the promise: exact figures of private rows, published with it",
        "if comparison is not None and not internal:",
        "if False:",
        (_PAGES + "TestForms::test_a_public_page_refuses_a_comparison",),
    ),
    Mutant(
        "beliefs that rise too little",
        "the example of a page computed by adding epsilon to a chance",
        "return 1 / (1 + math.exp(-epsilon) * (1 - prior) / prior)",
        "return min(1.0, prior * (1 + epsilon))",
        (_PAGES + "TestFigures::test_the_belief_is_the_one_that_randomised_response_reaches",),
    ),
    # --- comparisons ---
    Mutant(
        "one noise for all cells of a trial",
        "seeds by trial alone: methods and budgets share their luck, and errors are no longer independent",
        'return seed_from(root, "noise", cell.data, cell.method, epsilon, cell.trial)',
        'return seed_from(root, "noise", cell.data, cell.trial)',
        (_RUNS + "test_every_cell_has_noise_of_its_own",),
    ),
    # --- published tables ---
    Mutant(
        "a checksum of one file",
        "code that a result depends on taken for the module that is named: what that imports may change unseen",
        "tuple(imports) if follows else ()",
        "()",
        (_CODE + "test_an_edited_method_is_measured_again_with_all_that_import_it[code]",),
    ),
    Mutant(
        "figures of last year",
        "results kept by their names: code and data change, and the table shows what the old ones found",
        'return finished if finished.cell == cell and depends == self.wanted.get(cell, "") else None',
        "return finished if finished.cell == cell else None",
        (_RUNS + "test_changed_data_is_measured_again_and_nothing_else",),
    ),
    Mutant(
        "settings chosen on test rows",
        "the best of many settings by the error that is then reported for it",
        "self.fits.problem(panel, first).held_out(cell.trial)",
        "self.fits.problem(panel, first)",
        (_TABLES + "test_tuning_sees_the_training_rows_of_the_first_trial",),
    ),
    Mutant(
        "luck is chosen with the settings",
        "the noise of the search is that of the trials: the setting with the luckiest draw wins, and keeps it",
        "other = replace(place, trial=-1 - cell.trial)",
        "other = replace(place, trial=cell.trial)",
        (_TABLES + "test_tuning_draws_noise_of_its_own",),
    ),
    Mutant(
        "free tuning passes for a private result",
        "hyper-parameters chosen on the private rows, and the figure shown among those that paid for all they know",
        'return "oracle" if self.tune or self.oracle else "honest"',
        'return "honest"',
        (_REPRODUCED + "test_the_role_of_a_line_follows_from_what_it_does",),
    ),
    Mutant(
        "a table under a ledger",
        "fits with known seeds and scores without noise, run while a ledger promises that everything is billed",
        '    refuse_open_ledgers("an experiment")\n',
        "",
        (_REPRODUCED + "test_no_table_inside_a_ledger",),
    ),
    # --- blocks on disk ---
    Mutant(
        "indices that are believed",
        "compiled code follows an index out of a damaged file and reads memory that is not the block's",
        "    if indices.min() < 0 or indices.max() >= size:\n        return False\n",
        "",
        (_DAMAGED + "test_no_index_is_followed_outside_of_its_block[unused-a column too large]",),
    ),
    Mutant(
        "blocks that are checked once for ever",
        "the file is replaced after its first use, and its indices are followed unseen",
        "        good = self._checked.get(k) == seen\n",
        "        good = k in self._checked\n",
        (_DAMAGED + "test_no_index_is_followed_outside_of_its_block[used-a row too large]",),
    ),
    Mutant(
        "entries in two parts",
        "duplicates stored as they come: each half passes the bound on entries, and their sum breaks it",
        "                X.sum_duplicates()\n",
        "                X.sort_indices()\n",
        (_BLOCKS + "test_entries_in_two_parts_are_added_and_the_callers_are_left_alone",),
    ),
    Mutant(
        "blocks that everybody may read",
        "files with the rights that the umask leaves: private rows open to every user of the machine",
        "os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)",
        "os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o666)",
        (_BLOCKS + "test_the_folder_is_for_its_owner_alone",),
    ),
    Mutant(
        "a failed conversion that leaves its rows",
        "an error in the file's last line, and a hidden folder of private rows stays for good",
        "    except BaseException:\n        writer.discard()\n        raise\n",
        "    except BaseException:\n        writer.leave()\n        raise\n",
        (_CONVERTED + "test_what_cannot_be_read_cannot_be_converted[a late index]",),
    ),
    Mutant(
        "a conversion that replaces whatever is there",
        "--replace and a slip of the hand: a folder of something else is deleted",
        "(target.exists() and not is_block_folder(target))",
        "(target.exists() and not target.is_dir())",
        (_BLOCKS + "test_only_blocks_are_replaced_and_only_when_asked",),
    ),
    Mutant(
        "early blocks without the late columns",
        "the width known at the last row, and column starts of earlier blocks too short for it",
        "                self._widen(d)\n",
        "                pass\n",
        (_BLOCKS + "test_the_width_may_grow_to_the_last_batch",),
    ),
    Mutant(
        "a folder with a fingerprint of its own",
        "the rows of a file, converted and billed under another name, are not recognised: twice the budget in silence",
        "packed, join_contents(files)\n",
        "packed, None\n",
        (_CONVERT + "test_a_ledger_knows_the_rows_of_a_folder",),
    ),
    Mutant(
        "a conversion that remembers everybody",
        "the ids of all people kept while the file is read: memory grows with the file",
        "            row += len(batch.X)\n",
        "            row += len(batch.X)\n            vars(self).setdefault('_everybody', []).append(batch.people)\n",
        (_CONVERTED + "test_converting_takes_no_more_memory_for_a_longer_file[csv-1]",),
    ),
    Mutant(
        "a bill for a folder that cannot be read",
        "blocks looked at when the fit begins: the ledger is billed, and then the fit is refused",
        "        spread.check()\n",
        "",
        (_CONVERT + "test_a_damaged_block_costs_nothing",),
        at="LinearModel._spread",
    ),
    Mutant(
        "a reader that holds all it has read",
        "pyarrow's default: the whole file in memory by the last batch, outside of its own count",
        "pre_buffer=False, buffer_size=_BUFFER_BYTES",
        "pre_buffer=True",
        (_CONVERTED + "test_converting_takes_no_more_memory_for_a_longer_file[parquet-1]",),
    ),
)
