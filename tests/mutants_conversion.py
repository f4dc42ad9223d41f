"""Planted bugs in conversions to folders of blocks: what may be continued, and what may be appended. See
tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_RESUMED, _CONVERTED, _BLOCKS = (
    "tests/backends/test_resumed_conversion.py::",
    "tests/backends/test_table_conversion.py::",
    "tests/backends/test_block_folder.py::",
)
_SCHEMA, _CUTS = "tests/cli/test_converted_schema.py::", "tests/files/test_row_cuts.py::"

CONVERSION_MUTANTS: tuple[Mutant, ...] = (
    # --- what is continued ---
    Mutant(
        "other input that is continued",
        "the journal believed without a look at the input: rows of two files in one folder, under one fingerprint",
        'if identity is None or left["identity"] != identity:',
        "if identity is None:",
        (_RESUMED + "test_other_input_is_never_mixed_in[a cell]",),
    ),
    Mutant(
        "input that is known by its size and time",
        "a file edited in place with its time kept: the first half of one state, the second half of another",
        '        "input": [file.content for file in files],\n',
        '        "input": [file.stamp for file in files],\n',
        (_RESUMED + "test_other_input_is_never_mixed_in[a cell]",),
    ),
    Mutant(
        "options that are not part of the identity",
        "half of the blocks with one target, half with another",
        '"options": {"format": format, **(reading if schema is not None else asdict(wanted))},',
        '"options": {"format": format},',
        (_RESUMED + "test_other_input_is_never_mixed_in[how it is read]",),
    ),
    Mutant(
        "finished blocks that are believed",
        "a block whose file was cut off or changed after the kill is sealed with a checksum of its own",
        "            return all(check_file(self.blocks / name, stored) for name, stored in block.files.items())\n",
        "            return True\n",
        (_RESUMED + "test_a_damaged_block_is_converted_again[a bit]",),
    ),
    Mutant(
        "blocks checked by their size alone",
        "one bit of a person's row is another after a power cut, and the folder seals it",
        '            return hashlib.file_digest(file, "sha256").hexdigest() == stored.sha256\n',
        "            return True\n",
        (_RESUMED + "test_a_damaged_block_is_converted_again[a bit]",),
        at="check_file",
    ),
    Mutant(
        "a journal without checksums",
        "an edited or torn line says how many rows were read: rows are lost, or counted twice",
        '            if told.decode("ascii", "replace") != checksum:\n                return\n',
        "",
        (_RESUMED + "test_a_damaged_journal_is_followed_up_to_the_damage[a digit]",),
    ),
    Mutant(
        "lines of a journal that stand alone",
        "a line lost in the middle: a block is skipped, and nobody notices",
        "    return hashlib.sha256(checksum.encode() + text).hexdigest()\n",
        "    return hashlib.sha256(text).hexdigest()\n",
        (_RESUMED + "test_a_damaged_journal_is_followed_up_to_the_damage[a line lost]",),
    ),
    Mutant(
        "rows that are converted twice",
        "reading begins with the batch of the next row, whose first rows are in blocks: these people count twice",
        "        skip = at.taken - read\n",
        "        skip = 0\n",
        (_RESUMED + "test_a_killed_conversion_goes_on_to_the_same_bytes[csv-after the first block]",),
    ),
    Mutant(
        "two conversions to one folder",
        "the blocks of one among those of the other, each noted as its own",
        "                    stack.enter_context(locked(lock, seconds=0))\n",
        "",
        (_RESUMED + "test_two_conversions_to_one_folder_exclude_each_other",),
    ),
    Mutant(
        "a lock that is deleted first",
        "the next conversion begins while the last one tidies up, and its blocks are deleted with the others",
        "        for name in (_BLOCKS, _OLD):\n",
        "        (self._place / _LOCK).unlink(missing_ok=True)\n        for name in (_BLOCKS, _OLD):\n",
        (_RESUMED + "test_the_lock_is_deleted_last[discard]",),
    ),
    Mutant(
        "a hidden folder of another user",
        "someone who can write next to the folder makes the hidden one first, and swaps blocks of private rows",
        "            self._check_owner()\n",
        "",
        (_RESUMED + "test_rows_are_not_written_to_a_place_of_another_user[a link]",),
    ),
    Mutant(
        "a file that changes while it is converted",
        "looked at when it ends alone: a killed conversion leaves blocks of both states, and is continued",
        "            self.check_input()\n",
        "",
        (_RESUMED + "test_rows_of_a_file_that_changes_meanwhile_are_not_noted",),
    ),
    Mutant(
        "a suffix that is not part of the identity",
        "the same bytes under another name: half of the blocks divided by commas, half by tabs",
        '        "suffixes": [file.suffix for file in files],\n',
        "",
        (_RESUMED + "test_a_suffix_that_says_how_to_read_is_part_of_the_input",),
    ),
    Mutant(
        "an old folder lost between two renames",
        "killed while it was replaced: the hidden folder is tidied up, with the only copy in it",
        "        if old.exists() and not self._target.exists():\n            old.rename(self._target)\n        elif",
        "        if",
        (_RESUMED + "test_a_folder_that_was_being_replaced_is_not_lost[True-1]",),
        at="PartialFolder._recover",
    ),
    Mutant(
        "a hidden folder that everybody may read",
        "finished blocks of a killed conversion, open to every user of the machine for as long as they lie there",
        "self._place.mkdir(mode=0o700, exist_ok=True)",
        "self._place.mkdir(mode=0o755, exist_ok=True)",
        (_RESUMED + "test_the_hidden_folder_is_for_its_owner_alone",),
    ),
    Mutant(
        "blocks that wait without a limit",
        "the disk is slower than the parser, and the memory fills with rows",
        "        while len(self._writing) > (self._jobs if self._pool is not None else 0):\n",
        "        while len(self._writing) > (9 if self._pool is not None else 0):\n",
        (_CONVERTED + "test_converting_takes_no_more_memory_for_a_longer_file[parquet-2]",),
    ),
    # --- what is appended ---
    Mutant(
        "columns by their places",
        "the second file has its columns in another order, and a person's age is appended to the doses",
        "        if file.layout.features != self._features:",
        "        if False:",
        (_CONVERTED + "test_appended_files_are_one_table[1]",),
    ),
    Mutant(
        "a column that one file lacks",
        "files appended without a look at their headers",
        "                layout.check_same(source, found[0].path, found[0].layout)\n",
        "                pass\n",
        (_CONVERTED + "test_files_that_are_not_alike_are_refused_before_anything_is_written[a column missing]",),
    ),
    Mutant(
        "a message with a row in it",
        "a file without a header: its first row is told as names of columns",
        "    if extra and header:\n",
        "    if False:\n",
        (_CONVERTED + "test_files_that_are_not_alike_are_refused_before_anything_is_written[a column more]",),
    ),
    Mutant(
        "the same file twice",
        "a glob and a name: each of its people has twice as many rows as the guarantee counts with",
        "        if key in seen:\n",
        "        if False:\n",
        (_CONVERTED + "test_a_file_named_twice_is_refused",),
    ),
    Mutant(
        "a file that changes between its fingerprint and its rows",
        "the ledger knows the rows by the fingerprint of others",
        "        with unchanged(files[number]), closing(batches):\n",
        "        with closing(batches):\n",
        (_CONVERTED + "test_an_input_that_changes_leaves_nothing[before-a.svm]",),
    ),
    Mutant(
        "rows cut inside of a quoted cell",
        "a reader in pieces that takes every line end for the end of a row",
        "        if before % 2 == 0:\n",
        "        if True:\n",
        (_CUTS + "test_the_last_cut",),
    ),
    # --- what a folder may contain ---
    Mutant(
        "missing entries for any fit",
        "a folder with NaN, fitted without a step that takes it: refused for somebody's row, after the bill",
        "        if X.missing and not missing:\n",
        "        if False:\n",
        (_SCHEMA + "test_cells_without_a_value_are_for_steps_that_take_them",),
    ),
    Mutant(
        "rows without a target that count as the last class",
        "a place of -1 followed without the entry for no class",
        "classes = np.array([*schema.classes, None], dtype=object)",
        "classes = np.array([*schema.classes], dtype=object)",
        (_SCHEMA + "test_rows_of_no_target_or_person_count_as_nothing",),
    ),
    Mutant(
        "masked targets that count as zero",
        "a row without a target among blocks of a regression",
        "            made = np.where(self._masked, np.nan, made)\n",
        "            pass\n",
        (_SCHEMA + "test_a_converted_raw_table_is_fitted_like_the_table[one-regression]",),
    ),
    Mutant(
        "people without an id who are one person in each batch",
        "rows counted from 0 again in each batch: strangers share a name, and one of them is left out",
        "people_of(batch.ids, first_row).astype(str)",
        "people_of(batch.ids).astype(str)",
        (_SCHEMA + "test_rows_of_no_target_or_person_count_as_nothing",),
    ),
    Mutant(
        "words of other rows in the length of a block's",
        "the bytes of a block depend on the batches that it came in, so that a continued conversion differs",
        '    return array.astype(f"<U{max(1, longest)}", copy=False)\n',
        "    return array\n",
        (_BLOCKS + "test_the_bytes_of_a_block_depend_on_its_rows_alone",),
    ),
)
