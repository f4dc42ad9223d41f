"""Planted bugs in logs, metrics and their files; planted with all others by tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_ROWS, _EVENTS = "tests/monitoring/test_log_has_no_rows.py::", "tests/monitoring/test_log_events.py::"
_CLI, _SERVICE = "tests/cli/test_logs.py::", "tests/federation/test_ledger_service.py::"
_REPLAY = _ROWS + "test_the_log_follows_from_public_facts_and_answers[classifier]"
_SEARCHED = _ROWS + "test_no_cell_of_any_row_is_in_the_log"

MONITORING_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "the log counts rows with a label",
        "n of the rows that are used, not of the table: how many people have no label is a fact about them",
        "    about = _describe_request(request, X.shape, planned)\n",
        "    about = _describe_request(request, (int(np.isfinite(targets).sum()), X.shape[1]), planned)\n",
        (_REPLAY,),
    ),
    Mutant(
        "an exact sum in the log",
        "a line for debugging that stayed: column sums, written when the fit begins",
        "    warn_beforehand(request, planned)\n    with",
        '    __import__("logging").getLogger(__name__).debug("sums %s", X.sum(axis=0))\n'
        "    warn_beforehand(request, planned)\n    with",
        (_REPLAY,),
    ),
    Mutant(
        "a row in the log",
        "the same, with the first rows: whoever reads logs reads patients",
        "    warn_beforehand(request, planned)\n    with",
        '    __import__("logging").getLogger(__name__).debug("rows %s", [list(map(float, row)) for row in X[:8]])\n'
        "    warn_beforehand(request, planned)\n    with",
        (_SEARCHED + "[fits, a score and an estimate]",),
    ),
    Mutant(
        "labels in the log of a client",
        "the classes that a client found, not those that the terms declare",
        '        log_event(__name__, "federated.client.answered", study=asked.study, round=asked.number)\n',
        '        log_event(__name__, "federated.client.answered", reason=str(self._y[-1]), round=asked.number)\n',
        (_SEARCHED + "[federated study]",),
        at="Client._round",
    ),
    Mutant(
        "a client logs how many of its rows count",
        "the number that its own people are told on their screen, in a file that is shipped to others",
        '            about = {"n_rows": n, "n_features": int(self._X.shape[1])}\n',
        '            about = {"n_rows": n - left_out, "n_features": int(self._X.shape[1])}\n',
        (_ROWS + "test_how_many_rows_have_no_label_is_not_in_the_log[federated study]",),
    ),
    Mutant(
        "the number of trials can be counted",
        "each fit of a search logs its begin and its end: the proof of a search needs their number to be secret",
        'np.errstate(all="ignore"), muted():',
        'np.errstate(all="ignore"):',
        (_ROWS + "test_the_number_of_trials_of_a_search_is_not_in_the_log",),
    ),
    Mutant(
        "groups that tell the seed",
        "sizes of groups follow from the seed of a simulation: a few rounds of them, and it is found by trying seeds",
        "        with muted():\n            server.close_round()\n",
        "        server.close_round()\n",
        (_ROWS + "test_the_groups_of_a_simulated_study_are_not_in_the_log",),
    ),
    Mutant(
        "clients of a simulation are named",
        "their ledgers have their names, and where each person is a client these are people's",
        "    with muted():\n        return client.answer(raw)\n",
        "    return client.answer(raw)\n",
        (_SEARCHED + "[simulated federation]",),
    ),
    Mutant(
        "a conversion logs the largest index",
        "the width of sparse rows, which one row decides where it is not declared",
        'width = {} if self.width_from_rows else {"n_features": int(d)}',
        'width = {"n_features": int(d)}',
        (_ROWS + "test_a_conversion_logs_nothing_that_was_found_in_the_rows",),
    ),
    Mutant(
        "fields take numpy's numbers",
        "isinstance: a float64 is a float, and an exact mean passes for an epsilon",
        "return value is None or type(value) in (int, float)",
        "return value is None or isinstance(value, (int, float))",
        (_EVENTS + "test_a_field_takes_nothing_but_what_it_is_for",),
    ),
    Mutant(
        "fields take what they are given",
        "names of fields on a list, values not looked at",
        "if name not in FIELDS or not FIELDS[name][0](value)]",
        "if name not in FIELDS]",
        (_EVENTS + "test_a_field_takes_nothing_but_what_it_is_for",),
    ),
    Mutant(
        "a line for every answer",
        "progress that shows how long each single answer took, which depends on the rows",
        "        if steps.advance():\n            log_event(logger",
        "        if steps.advance() or True:\n            log_event(logger",
        (_ROWS + "test_a_long_fit_has_ten_lines_of_progress",),
    ),
    Mutant(
        "times to the microsecond",
        "the clock of each record as it is: running times of parts of a fit",
        "datetime.fromtimestamp(int(record.created), UTC)",
        "datetime.fromtimestamp(record.created, UTC)",
        (_CLI + "test_the_log_of_a_fit",),
    ),
    Mutant(
        "messages of others in the log",
        "every record that arrives at the handler: a message is free text, and may quote a row",
        'self.addFilter(lambda record: hasattr(record, "tulle_event"))',
        "self.addFilter(lambda record: True)",
        (_CLI + "test_records_of_other_code_are_not_written",),
    ),
    Mutant(
        "a log that everybody may read",
        "the rights that the umask leaves",
        "os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)",
        "os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)",
        (_CLI + "test_the_log_of_a_fit",),
    ),
    Mutant(
        "a log in the middle of the rows",
        "an option without its value takes the next word, the table, and lines are appended to that",
        "os.pread(number, len(_FIRST_BYTES), 0) != _FIRST_BYTES:",
        "not os.pread(number, len(_FIRST_BYTES), 0):",
        (_CLI + "test_a_file_that_is_no_log_is_left_alone",),
    ),
    Mutant(
        "who answers when",
        "counters that move with each answer: polled often enough, they tell when each user answered",
        "    answered, rejected = server.closed_counts\n    return (",
        "    answered, rejected = server.accepted, server.rejected\n    return (",
        ("tests/local/test_local_http.py::test_metrics_and_health_tell_nothing_of_the_open_round",),
    ),
    Mutant(
        "budgets for everybody",
        "names of data sets and what was spent on them, at a port that asks for no certificate",
        "StatusPages(self._metrics, lambda: check_store(self.root))",
        "StatusPages(lambda: (*self._metrics(), *self.spending()), lambda: check_store(self.root))",
        (_SERVICE + "test_a_port_without_certificates_names_no_data_set",),
    ),
)
