"""Planted bugs where rows lie elsewhere: in blocks, on disk, on the workers of a cluster. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_BACKENDS, _DASK, _ROWS = (
    "tests/backends/test_rows_elsewhere.py::",
    "tests/cluster/test_dask.py::",
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
        "            for array in (self.sums, *self.bits):\n                array[:] = 0\n",
        "            return\n",
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
        "        if self._entry_bound < np.inf:\n",
        "        if self._entry_bound < 0:\n",
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
        "found, receipt, rows.seen_by, rho)",
        "found, receipt, Rows.seen_by, rho)",
        (_BACKENDS + "test_the_report_says_who_read_the_folder",),
    ),
    # --- on a cluster ---
    Mutant(
        "batches drawn by workers",
        "each worker draws its part of a batch: a task that is run again draws another one, and one answer is of both",
        "block if numbers is None else block.take(numbers))",
        "block if numbers is None else block.take(np.sort(np.random.permutation(block.n_rows)[: len(numbers)])))",
        (_DASK + "test_every_partition_is_in_a_sum_once",),
        needs="distributed",
    ),
    Mutant(
        "a partition at a seam counted twice",
        "sums added up in groups that share their ends: some rows pull twice as hard as the noise is for",
        "for k in range(0, len(parts), _TOGETHER)]",
        "for k in range(0, len(parts), _TOGETHER - 1)]",
        (_DASK + "test_every_partition_is_in_a_sum_once",),
        needs="distributed",
    ),
    Mutant(
        "surplus rows come back on workers",
        "who counts is decided here, and never told to the machines that count",
        "return make_block(features, *mask_unlabelled(made, active))",
        "return make_block(features, *mask_unlabelled(made, None))",
        (_DASK + "test_surplus_rows_of_a_person_count_as_nothing",),
        needs="distributed",
    ),
    Mutant(
        "rows that come to be summed",
        "a reduction that fetches the blocks: rows leave their machines on the way to a private answer",
        "        return _total(self._client, self._make(contribution), combine)\n",
        "        blocks = self._client.gather(self._blocks)\n"
        "        blocks = [b if n is None else b.take(n) for b, n in zip(blocks, self._numbers)]\n"
        "        return reduce(combine, [contribution(block) for block in blocks])\n",
        (_DASK + "test_no_row_comes_to_the_process_that_fits[hard thresholding, gaussian]",),
        needs="distributed",
    ),
)
