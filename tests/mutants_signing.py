"""Planted bugs in signatures, journals and what files say of themselves. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_SIGNATURES, _KEYS, _COMMAND = (
    "tests/files/test_signatures.py::",
    "tests/files/test_signing_keys.py::",
    "tests/cli/test_sign_command.py::",
)
_JOURNAL, _CSV, _SAVING = (
    "tests/files/test_journal.py::",
    "tests/files/test_csv_cells.py::",
    "tests/estimators/test_saving.py::",
)

SIGNING_MUTANTS: tuple[Mutant, ...] = (
    # --- signatures ---
    Mutant(
        "one file of a folder is not compared",
        "a manifest that is checked for its main file: the report with the epsilon can be exchanged",
        "if name in here and here[name] != signed[name]]",
        'if name in here and here[name] != signed[name] and not name.endswith(".html")]',
        (_SIGNATURES + "test_a_changed_folder_is_refused[emptied]",),
    ),
    Mutant(
        "files that were added are passed over",
        "sha256sum -c looks at the files of its list alone",
        '"was not signed": [name for name in here if name not in signed]',
        '"was not signed": []',
        (_SIGNATURES + "test_a_changed_folder_is_refused[added]",),
    ),
    Mutant(
        "files that are missing are passed over",
        "a comparison over the files that are there",
        '"is missing": [name for name in signed if name not in here]',
        '"is missing": []',
        (_SIGNATURES + "test_a_changed_folder_is_refused[removed]",),
    ),
    Mutant(
        "any key is trusted",
        "a file that names the key which it is to be verified with: everyone can sign",
        "    if statement.key not in trusted:\n",
        "    if statement.key not in trusted and _check_files(Path(path), statement) is None:\n"
        "        return statement\n"
        "    if statement.key not in trusted:\n",
        (_SIGNATURES + "test_a_signature_by_an_unknown_key_is_refused_with_its_fingerprint",),
    ),
    Mutant(
        "the fingerprint is compared and the signature is not",
        "InvalidSignature is caught, and nothing is raised in its place",
        '        raise SignatureError(f"{source} was changed, or was not made by the key that it names") from None\n',
        "        return\n",
        (_SIGNATURES + "test_a_strangers_signature_in_the_name_of_a_trusted_key_is_refused",),
    ),
    Mutant(
        "no domain separator",
        "bytes that the key signed for another protocol are a signature of a model",
        "return _SEPARATOR + _encode(asdict(statement))",
        "return _encode(asdict(statement))",
        (_SIGNATURES + "test_a_signature_for_another_protocol_is_refused[]",),
    ),
    Mutant(
        "the kind is not compared",
        "a signature of a report is shown for a model",
        "    if statement.kind != here:\n",
        "    if not here:\n",
        (_SIGNATURES + "test_a_signature_of_another_kind_is_refused",),
    ),
    Mutant(
        "a signature in any layout",
        "what was changed outside of the signed bytes goes unnoticed: spaces, order, escapes",
        ' or _encode(values) != raw:\n            raise ValueError("it is not in the form',
        ':\n            raise ValueError("it is not in the form',
        (_SIGNATURES + "test_a_damaged_signature_file_is_refused",),
    ),
    Mutant(
        "links inside a folder are followed",
        "a link can point elsewhere after it was verified",
        "            if place.is_symlink():\n",
        "            if not place.name:\n",
        (_SIGNATURES + "test_a_changed_folder_is_refused[link to a folder]",),
    ),
    Mutant(
        "a private key for everybody",
        "open(path, 'wb'): what the umask leaves",
        "(private, secret, 0o600)",
        "(private, secret, 0o644)",
        (_KEYS + "test_a_private_key_is_for_its_owner_alone",),
    ),
    Mutant(
        "a key is overwritten",
        "tulle keygen twice, and nothing can be signed any more that others trust",
        "        if os.path.lexists(place):\n",
        "        if place.is_dir():\n",
        (_KEYS + "test_no_key_is_overwritten",),
    ),
    Mutant(
        "a refused signature ends with exit code 0",
        "the message says that it does not hold, and the script goes on",
        '"verified": False, "why": str(error)}, BAD_NEWS',
        '"verified": False, "why": str(error)}, 0',
        (_COMMAND + "test_an_unknown_key_is_refused_with_its_fingerprint",),
    ),
    # --- journals ---
    Mutant(
        "the checksum of a record is not compared",
        "checksums that are written and never read",
        " or int(found[2]) != len(found[3]) or found[1] != _chain(checksum, found[3]):",
        " or int(found[2]) != len(found[3]):",
        (_JOURNAL + "test_changed_lines_are_refused[another checksum]",),
    ),
    Mutant(
        "checksums are not chained",
        "each line is good by itself: lines can be removed, doubled and swapped",
        "hashlib.sha256(before + b",
        "hashlib.sha256(b",
        (_JOURNAL + "test_changed_lines_are_refused[a line removed]",),
    ),
    Mutant(
        "a record is confirmed before the disk has it",
        "write without fsync: after a power cut a user who was told that its answer counts is lost",
        "                os.fsync(self._file.fileno())\n",
        "                self._file.flush()\n",
        (_JOURNAL + "test_the_disk_confirms_each_record_and_the_name",),
        at="Journal._write",
    ),
    Mutant(
        "a last record with another end is taken for one that was cut off",
        "whatever comes after the last line break is dropped, though it was confirmed",
        "if found is not None and len(found[3]) > int(found[2]):",
        "if found is not None and len(found[3]) > 10 + int(found[2]):",
        (_JOURNAL + "test_every_changed_bit_is_refused",),
    ),
    Mutant(
        "after a failed fsync the journal goes on",
        "the kernel reports a lost page once; the next fsync succeeds, and the page is gone",
        "                self._file.truncate(self._size)\n                self.close()\n",
        "                self._file.truncate(self._size)\n",
        ("tests/local/test_study_server.py::test_an_answer_that_the_disk_does_not_confirm_does_not_count",),
    ),
    Mutant(
        "two processes append to one journal",
        "no check of who else writes: the chain of checksums is broken, and the study cannot go on",
        "if self._file is not None and os.fstat(self._file.fileno()).st_size != expected:",
        "if self._file is not None and expected < 0:",
        ("tests/local/test_study_server.py::test_a_journal_is_opened_by_one_process_at_a_time",),
    ),
    Mutant(
        "a journal is written without a lock",
        "two servers look at the size at the same moment: both confirm an answer, and the journal is unreadable",
        "with lock_open_file(self._file, self._path), name_file(self._path):",
        "with name_file(self._path):",
        (_JOURNAL + "test_two_processes_never_write_at_the_same_time",),
    ),
    # --- tables and models ---
    Mutant(
        "a character that begins formulas is not in the list",
        "a list of characters without the one that is used most",
        '_BEGINS_FORMULA = ("=", "+",',
        '_BEGINS_FORMULA = ("+",',
        (_CSV + "test_a_table_has_defused_headers_and_cells",),
    ),
    Mutant(
        "negative numbers become text",
        "every cell that begins with a minus sign is quoted, and sums in a spreadsheet are wrong",
        "if not isinstance(cell, str) or _NUMBER.fullmatch(cell):",
        "if not isinstance(cell, str):",
        (_CSV + "test_numbers_and_plain_text_stay_as_they_are[-1.5_1]",),
    ),
    Mutant(
        "unknown settings of a file are left out",
        "a newer model is loaded without what it does not know: it predicts something else",
        "    if unknown := sorted(set(settings) - set(inspect.signature(make).parameters)):\n",
        "    settings = {name: settings[name] for name in settings if name in inspect.signature(make).parameters}\n"
        "    if unknown := ():\n",
        (_SAVING + "test_an_unknown_part_names_the_version_that_wrote_it_and_says_upgrade[a setting]",),
        at="make_from_file",
    ),
)
