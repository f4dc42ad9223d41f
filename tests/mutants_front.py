"""Planted bugs in what a person touches: ledgers on disk, saved models, pipelines, reports. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_FILE = "tests/test_ledger_file.py::"

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
)
