"""Planted bugs where rows lie elsewhere: in blocks, on disk, on the workers of a cluster. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_BACKENDS, _DASK, _PARQUET, _ROWS = (
    "tests/backends/test_rows_elsewhere.py::",
    "tests/cluster/test_dask.py::",
    "tests/cluster/test_parquet.py::",
    "tests/trusted/test_rows.py::",
)

SPREAD_MUTANTS: tuple[Mutant, ...] = (
    # --- blocks ---
    Mutant(
        "every block answers for the same row numbers",
        "shards that draw their batches from one seed: the chosen rows' numbers count in each of them",
        "        return [part - end + size for part, end, size in zip(parts, ends, sizes)]\n",
        "        return [numbers[numbers < size] for part, size in zip(parts, sizes)]\n",
        (_BACKENDS + "test_a_batch_holds_the_rows_of_its_numbers",),
    ),
    Mutant(
        "a solver that is believed",
        "a status of success instead of a gradient: the certificate is whatever the solver says",
        "        if length + self._hidden(theta, _ERROR) <= enough:\n            return theta\n",
        "        if length < math.inf:\n            return theta\n",
        ("tests/trusted/test_objectives.py::TestASolverThatIsWrong",),
    ),
    Mutant(
        "a solver that changes what it is checked against",
        "work arrays shared with the solver: the certificate is for the objective that the solver left behind",
        "given = replace(self, centre=self.centre.copy()), linear_term.copy()",
        "given = self, linear_term",
        ("tests/trusted/test_objectives.py::TestASolverThatIsWrong",),
    ),
    Mutant(
        "an objective of targets beyond their bound",
        "the curvature of counts is bounded by the label bound, and nothing holds the labels to it",
        "targets = np.clip(targets, -bound, bound)",
        "targets = np.asarray(targets)",
        ("tests/trusted/test_objectives.py::test_targets_are_within_what_the_curvature_is_for",),
    ),
    Mutant(
        "errors of the solver that leave",
        "a LinAlgError on one data set and an answer on its neighbour",
        "            if not private:\n                raise\n",
        "            raise\n",
        ("tests/trusted/test_objectives.py::TestASolverThatIsWrong",),
    ),
    Mutant(
        "a half summed batch travels with its rows",
        "a worker that runs out of memory writes its blocks to disk in the middle of a task, scratch space and all",
        "    def __reduce__(self) -> tuple[Any, ...]:\n        return Scratch, (len(self.sums),)\n",
        "",
        (_ROWS + "test_a_copy_of_a_block_has_nothing_of_a_batch_in_it",),
    ),
    Mutant(
        "a batch that failed is added to the next",
        "buffers that are cleared after use, and after an error are not",
        "            self.sums[:] = 0.0\n            for name in",
        "            for name in",
        (_ROWS + "test_a_batch_that_fails_leaves_nothing_for_the_next",),
    ),
    # --- long answers ---
    Mutant(
        "less noise where it is drawn lazily",
        "a short cut for long vectors that nobody compared with the long way",
        "kept = dense_noisy_largest(listed.values, scale, grid, *border)",
        "kept = dense_noisy_largest(listed.values, scale / 1.5, grid, *border)",
        ("tests/trusted/test_mechanisms.py::TestLongAnswers::test_have_the_same_law[all lines]",),
    ),
    Mutant(
        "values that were drawn lazily leave as floats",
        "the grid is where the long way ends, and the short cut comes out beside it",
        "    noisy = listed + round_noise(",
        "    noisy = exact.values / grid + round_noise(",
        ("tests/trusted/test_mechanisms.py::TestLongAnswers::test_lie_on_the_grid",),
    ),
    # --- on disk ---
    Mutant(
        "two copies of the rows, one of them damaged",
        "rows clipped by the norms of one file and summed from another that nobody compared with it",
        "                _check_bytes(self.path, name, self._files[name])\n",
        "                pass\n",
        ("tests/backends/test_block_folder.py::test_changed_values_are_found_before_they_are_used",),
    ),
    Mutant(
        "entries clipped until they are read again",
        "bounds imposed on a copy in memory, and the next pass over the file takes the rows as they were",
        "        if self._entry_bound < np.inf:\n            entries = np.clip(columns.data",
        "        if self._entry_bound < 0:\n            entries = np.clip(columns.data",
        (_BACKENDS + "test_rows_on_disk_obey_the_same_bounds",),
    ),
    Mutant(
        "surplus rows come back from disk",
        "contribution bounding on the rows in memory, and a reader of files that does not know of it",
        "targets[at], active[at])",
        "targets[at], active[at] | True)",
        (_BACKENDS + "test_surplus_rows_of_a_person_count_as_nothing",),
    ),
    Mutant(
        "what is held is read again as well",
        "a cache in front of a reader that is asked all the same: a row counts twice, its noise is for once",
        "                yield self._held[k]\n                continue\n",
        "                yield self._held[k]\n",
        (_BACKENDS + "test_what_is_derived_counts_each_row_once",),
    ),
    Mutant(
        "the report of another back end",
        "'nothing left this process', printed for rows that lay in files or on other machines",
        "    seen_by = rows.seen_by\n",
        "    seen_by = Rows.seen_by\n",
        (_BACKENDS + "test_the_report_says_who_read_the_folder",),
    ),
    # --- on a cluster ---
    Mutant(
        "batches drawn by workers",
        "each worker draws its part of a batch: a task that is run again draws another one, and one answer is of both",
        "    return (group[k].take(numbers) for k, numbers in chosen)\n",
        "    drawn = np.random.permutation\n"
        "    return (group[k].take(np.sort(drawn(group[k].n_rows)[: len(some)])) for k, some in chosen)\n",
        (_DASK + "test_every_row_is_in_a_sum_once",),
        needs="distributed",
    ),
    Mutant(
        "a group at a seam counted twice",
        "sums added up in groups that share their ends: some rows pull twice as hard as the noise is for",
        "for k in range(0, len(sums), _TOGETHER)]",
        "for k in range(0, len(sums), _TOGETHER - 1)]",
        (_DASK + "test_every_row_is_in_a_sum_once",),
        needs="distributed",
    ),
    Mutant(
        "rows at the end of a partition in two blocks",
        "blocks that are cut from partitions with the end included: some rows pull twice as hard as the noise is for",
        "slice(int(max(0, skip - start)), int(min(skip + size, end) - start))",
        "slice(int(max(0, skip - start - 1)), int(min(skip + size, end) - start))",
        (_DASK + "test_every_row_is_in_a_sum_once",),
        needs="distributed",
    ),
    Mutant(
        "sums whose order depends on the cluster",
        "partial sums combined where they happen to be next to each other: another cluster size is another model",
        "        while waiting and waiting[-1].size == one.size and waiting[-1].start % (2 * one.size) == 0:\n",
        "        while waiting and waiting[-1].size == one.size:\n",
        ("tests/backends/test_sums_in_order.py::test_groups_do_not_change_a_bit",),
    ),
    Mutant(
        "surplus rows come back on workers",
        "who counts is decided here, and never told to the machines that count",
        "yield make_block(features, *mask_unlabelled(made, counted))",
        "yield make_block(features, *mask_unlabelled(made, None))",
        (_DASK + "test_surplus_rows_of_a_person_count_as_nothing",),
        needs="distributed",
    ),
    Mutant(
        "rows without a target or a person count on workers",
        "a mask that is lost when cells become an array: rows of nobody are learnt from",
        "            made = np.where(held.masked, np.nan, made)\n",
        "            made = np.where(held.masked, 0.0, made)\n",
        ("tests/cluster/test_schema_on_dask.py::test_the_fit_of_the_same_table_in_memory",),
        needs="distributed",
    ),
    Mutant(
        "targets and people of another read",
        "columns of one table that are read one by one: of a source without an order, rows get the people of others",
        "    if _is_frame(X) and all(map(_is_frame, given)) and _have_one_source(X, *given):\n",
        "    if False:\n",
        (_PARQUET + "test_the_cells_of_a_row_come_from_one_read",),
        needs="distributed",
    ),
    Mutant(
        "people of other rows",
        "ids matched by position with a table in another order: the guarantee is for the wrong people",
        '        for name, cells in (("y", y), ("groups", people)):\n            if hasattr(x, "columns")',
        '        for name, cells in (("y", y),):\n            if hasattr(x, "columns")',
        (_PARQUET + "test_what_is_wrong_is_said_before_anything_is_billed[people in another order]",),
        needs="distributed",
    ),
    Mutant(
        "a reader of files that quotes a cell",
        "the message of a library, passed on from a worker to a log",
        "found.append(_refuse(UNREADABLE.format(describe_error(error))))",
        "found.append(_refuse(UNREADABLE.format(error)))",
        (_PARQUET + "test_a_source_that_fails_is_not_quoted",),
        needs="distributed",
    ),
    Mutant(
        "a person with two ids",
        "partitions whose integers became floats: the last digits of an id depend on its neighbours' empty cells",
        "else join_ids(found)\n        plan",
        "else join_cells(found)\n        plan",
        (_PARQUET + "test_an_id_is_one_person_whatever_type_a_partition_has",),
        needs="distributed",
    ),
    Mutant(
        "rows that come to be summed",
        "a reduction that fetches the blocks: rows leave their machines on the way to a private answer",
        "        return _total(self._client, sums, order)\n",
        "        groups = zip(self._client.gather(self._groups), self._chosen)\n"
        "        terms = (contribution(block) for group, chosen in groups for block in _choose(group, chosen))\n"
        "        return take_total(order.join(number_terms(terms, 0)), combine)\n",
        (_DASK + "test_no_row_comes_to_the_process_that_fits[hard thresholding, gaussian]",),
        needs="distributed",
    ),
)
