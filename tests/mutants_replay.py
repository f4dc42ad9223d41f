"""Planted bugs that front replay and the tests of messages must catch: rows that pass the curator by, and cells that
are quoted. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_REPLAY, _CELLS = "tests/estimators/test_front_replay.py::", "tests/estimators/test_no_cell_leaves.py::"
_COMMAND = _REPLAY + "test_the_command_line_tells_nothing_but_its_answers"
_SECRET = _CELLS + "test_a_secret_in_a_file_stays_there"
_FAILURES, _COMMANDS, _TABLES = (
    "tests/files/test_error_messages.py::",
    "tests/cli/test_cli.py::",
    "tests/files/test_tables.py::",
)
_FIT_COMMAND = "tests/cli/test_fit_command.py::"

REPLAY_MUTANTS: tuple[Mutant, ...] = (
    # --- past the curator ---
    Mutant(
        "a query of any package is answered",
        "a plug-in that brings its own sensitivity: whatever it states is believed, and the noise with it",
        "            if not (exposed or is_answered(query)):\n",
        "            if not (exposed or isinstance(query, Query)):\n",
        ("tests/trusted/test_curator.py::test_a_query_of_another_package_gets_no_noisy_answer",),
    ),
    Mutant(
        "a query inside another is not looked at",
        "a wrapper that is known vouches for what it wraps",
        "and has_plain_fields(query) and (inner is None or is_answered(inner))\n",
        "and has_plain_fields(query)\n",
        ("tests/trusted/test_curator.py::test_a_query_of_another_package_gets_no_noisy_answer",),
    ),
    Mutant(
        "the report tells how many rows were clipped",
        "DP-SGD libraries log the share of clipped gradients as a diagnostic: an exact count of private rows",
        "    known.clip(rows, request.loss)\n",
        '    long = sum(int((block.norms("l2") > known.row_l2).sum()) for block in rows.blocks)\n'
        "    known.clip(rows, request.loss)\n"
        '    rows.seen_by = (*rows.seen_by, f"{long:,} rows were clipped.")\n',
        (_COMMAND + "[longer-csv]",),
    ),
    Mutant(
        "a warning where most rows are too long",
        "diffprivlib's PrivacyLeakWarning and friends: advice on bounds that is worked out from the rows",
        "    known.clip(rows, request.loss)\n",
        '    long = sum(int((block.norms("l2") > known.row_l2).sum()) for block in rows.blocks)\n'
        "    if long > shape[0] / 2:\n"
        '        warnings.warn("most rows are longer than the bound; declare more", UserWarning, stacklevel=2)\n'
        "    known.clip(rows, request.loss)\n",
        (_COMMAND + "[all equal-csv]",),
    ),
    Mutant(
        "the command line prints a training score",
        "every tutorial ends with model.score(X, y): exact accuracy on the private rows",
        "    return fit_outcome(folder, model, about, table.X.shape, schema)\n",
        "    outcome = fit_outcome(folder, model, about, table.X.shape, schema)\n"
        '    return replace(outcome, text=f"{outcome.text}\\nTraining score: {model.score(table.X, table.y):.4f}")\n',
        (_COMMAND + "[longer-csv]",),
    ),
    Mutant(
        "the command line drops constant columns",
        "a usual step of preparation, done by looking: whether one row differs decides the shape of the model",
        "    table = read_data(arguments, blocks=True, private=True)\n",
        "    table = read_data(arguments, blocks=True, private=True)\n"
        "    keep = table.X.max(axis=0) > table.X.min(axis=0)\n"
        "    names = [name for name, kept in zip(table.feature_names or (), keep) if kept]\n"
        "    table = replace(table, X=table.X[:, keep], feature_names=tuple(names))\n",
        (_COMMAND + "[constant columns-csv]",),
    ),
    # --- cells in messages ---
    Mutant(
        "a refusal quotes the cell",
        "the best message for whoever mends the file, and one that ends up in tickets and logs with somebody's address",
        "            self.add(column, fault_of(str(cells[place])), row=first_row + place)\n",
        "            self.add(column, Fault(f'{cells[place]!r} cannot be read', 'mend it'), row=first_row + place)\n",
        (_SECRET + "[fit-csv feature]",),
    ),
    Mutant(
        "a parser's words behind a refusal",
        "raise ... inside except: Python keeps what numpy said of the cell, and shows it in every traceback",
        "        except ValueError:\n            pass\n    return np.array([float(cell)",
        "        except ValueError as error:\n"
        "            from tulle.files.tables import TableError\n\n"
        "            raise TableError(f'{error}') from error\n    return np.array([float(cell)",
        (_SECRET + "[fit-csv feature in quotes]",),
    ),
    Mutant(
        "pyarrow's words behind a refusal",
        "pyarrow's errors quote the row that it could not read; what is chained to a refusal is in every traceback",
        "        except Exception:\n            return None\n        columns = [",
        "        except Exception as error:\n"
        "            raise input_files.TableError('a row cannot be read') from error\n        columns = [",
        ("tests/files/test_numeric_rows.py::test_no_word_of_a_cell_is_said",),
    ),
    # --- cells without a value ---
    Mutant(
        "words that pass for missing numbers",
        "a column of words read as NaN alone, and filled: nobody learns that it was not used",
        "wrong[wrong] = [fault_of_feature(text, missing) is not None for text in texts[wrong]]",
        "wrong[wrong] = False",
        ("tests/files/test_missing_cells.py::test_what_is_no_number_is_refused_as_before",),
    ),
    Mutant(
        "a quotation mark that is never closed",
        "the last cells of a truncated file read as one cell, by a parser that does not mind",
        "        if not ends_outside_quotes(rest, self._delimiter):\n            return\n",
        "",
        ("tests/files/test_numeric_rows.py::test_rows_do_not_depend_on_the_parser",),
    ),
    Mutant(
        "svmlight refusals quote the entry",
        "index:value in the message: a word of a note and how often somebody has it",
        'return "an entry is not of the form index:value; check',
        'return f"{entry!r} is not of the form index:value; check',
        (_SECRET + "[fit-svmlight entry]",),
    ),
    Mutant(
        "a library's words about damage",
        "pyarrow and zlib say what they could not convert or unpack",
        "is truncated or damaged ({type(error).__name__}); copy",
        "is truncated or damaged ({type(error).__name__}: {error}); copy",
        (_TABLES + "test_what_a_library_says_of_damage_is_not_repeated",),
    ),
    Mutant(
        "a row that was taken for a header is quoted",
        "did you mean one of these columns? They are the cells of the first person",
        "instead = DOUBTFUL if doubtful else _instead(name, names)",
        "instead = _instead(name, names)",
        (_SECRET + "[fit-csv without a header]",),
    ),
    Mutant(
        "row numbers in JSON",
        "machine-readable errors are stored for ever: this row of this file has no value",
        'kept = getattr(error, "without_rows", message)',
        "kept = message",
        (_SECRET + "[fit-csv feature]",),
    ),
    Mutant(
        "whatever an error says is told",
        "str(error) on the screen: could not convert string to float: and then the cell",
        "return str(error) if ours else None",
        "return str(error)",
        (_FAILURES + "test_what_others_say_is_not_repeated",),
    ),
    Mutant(
        "compiled code passes for one's own",
        "the last Python frame is not what raised where C code was called",
        'module.partition(".")[0] == "tulle" and code[last.tb_lasti] == _RAISE',
        'module.partition(".")[0] == "tulle" and len(code) > 0',
        (_FAILURES + "test_compiled_code_that_tulle_calls_is_not_tulle",),
    ),
    Mutant(
        "tracebacks with libraries' words",
        "--debug prints what every other path withholds",
        "traceback.format_tb(behind.__traceback__), describe_error(behind)",
        "traceback.format_tb(behind.__traceback__), repr(behind)",
        (_FAILURES + "test_what_others_say_is_not_repeated",),
    ),
    Mutant(
        "a comparison keeps libraries' words",
        "failed cells are stored with the error's text, which can be scikit-learn's about a label",
        'failed = " ".join(describe_error(error).split())',
        'failed = " ".join(str(error).split())',
        (_CELLS + "test_a_secret_in_a_failed_cell_of_a_comparison_stays_there",),
    ),
    Mutant(
        "a client's log with libraries' words",
        "what fails at a client is logged as it comes, rows and all",
        "told=describe_error(error))",
        'told=f"{error}")',
        (_CELLS + "test_a_secret_at_a_federated_client_stays_there",),
    ),
    Mutant(
        "the largest index taken for known",
        "LIBSVM files: the number of columns is read off the rows, and no report says so",
        "    if not table.width_from_rows:\n",
        "    if table.X.shape[1]:\n",
        (_FIT_COMMAND + "test_a_number_of_features_that_rows_decided_was_published",),
    ),
)
