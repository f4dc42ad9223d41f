"""Planted bugs in schemas: raw cells that decide how others are read. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_CELLS, _KINDS, _SCHEMA = (
    "tests/schema/test_cell_rules.py::",
    "tests/schema/test_column_kinds.py::",
    "tests/schema/test_declared_schema.py::",
)

SCHEMA_MUTANTS: tuple[Mutant, ...] = (
    # --- learnt from the rows, for free ---
    Mutant(
        "a range from the smallest and largest cell",
        "MinMaxScaler before a private fit; diffprivlib's fit that overwrites declared bounds with the data's",
        "middle, half = self.unit()",
        "low, high = np.nanmin(numbers, initial=self.high), np.nanmax(numbers, initial=self.low)\n"
        "        middle, half = (low + high) / 2, max(abs(high - low) / 2, 1e-9)",
        (_KINDS + "test_a_cell_changes_no_other[range]",),
        at="Range.scale",
    ),
    Mutant(
        "categories that few rows hold counted as others",
        "OneHotEncoder(min_frequency=...): whether a rare category has a feature tells how many hold it",
        "        return np.array(found, dtype=np.intp)",
        "        found = [place if found.count(place) > 1 else -1 for place in found]\n"
        "        return np.array(found, dtype=np.intp)",
        (_KINDS + "test_categories",),
    ),
    Mutant(
        "blanks filled with the mean of the column",
        "SimpleImputer, or fillna(df.mean()), before a private fit: every row moves all rows with a blank",
        "found = np.where(blank, 0.0, values)",
        "found = np.where(blank, values[~blank].mean() if (~blank).any() else 0.0, values)",
        (_KINDS + "test_a_cell_changes_no_other[number]",),
    ),
    Mutant(
        "words weighted by how many rows hold them",
        "TfidfVectorizer: the exact document frequencies of private texts",
        "lengths = np.sqrt(",
        "found = sp.csr_array(found.multiply(1 / np.maximum(np.bincount(found.indices, minlength=self.width), 1)))\n"
        "        lengths = np.sqrt(",
        (_KINDS + "test_no_cell_raises_warns_or_is_too_long[text]",),
        at="Text.encode",
    ),
    Mutant(
        "a blank target counts as the commonest class",
        "imputed labels: one row's label decides those of all rows without one",
        "return classes[np.where(places < 0, len(classes) - 1, places)]",
        "return classes[np.where(places < 0, np.bincount(places[places >= 0], minlength=1).argmax(), places)]",
        (_SCHEMA + "test_labels",),
    ),
    # --- one cell changes how all are read ---
    Mutant(
        "a column with one word in it holds no numbers",
        "the type inference of read_csv: one cell re-reads a column",
        "return np.fromiter((read_number(cell) for cell in cells), np.float64, len(cells))",
        "found = [read_number(cell) for cell in cells]\n"
        "    return np.array([math.nan] * len(found) if any(map(math.isnan, found)) else found)",
        (_CELLS + "test_a_column_of_objects",),
    ),
    Mutant(
        "the format of dates taken from the first row",
        "pandas.to_datetime infers one format from the first cell and reads the rest by it",
        "return np.array(map_distinct(column, lambda cell: read_days(cell, pattern)), dtype=np.float64)",
        "first = next(iter(cells_of(column)), None)\n"
        "    pattern = pattern if math.isnan(read_days(first)) else None\n"
        "    return np.array(map_distinct(column, lambda cell: read_days(cell, pattern)), dtype=np.float64)",
        (_KINDS + "test_dates",),
    ),
    Mutant(
        "a column with one cell that is no UTF-8 is blank",
        "errors='coerce' around the conversion of a whole column",
        "return [_arrow_cell(cell) for cell in column]",
        "return [None for cell in column]",
        (_CELLS + "test_bytes_that_are_no_text",),
        needs="pyarrow",
    ),
    Mutant(
        "whole numbers made floats where one is missing",
        "pandas' to_numpy: a blank in one row makes the ids of others equal",
        "return column.astype(object).to_numpy(dtype=object)",
        "return column.to_numpy(dtype=float if kind.kind in 'iuf' else object, na_value=np.nan)",
        (_SCHEMA + "test_a_blank_changes_no_id[pandas, nullable]",),
        needs="pandas",
    ),
    # --- people, and what is said ---
    Mutant(
        "ids compared after rounding to floats",
        "ids read as numbers: people beyond 2^53 are merged, and ids with letters are nobody's",
        "cells = [read_text(cell) for cell in cells_of(column)]",
        "cells = [read_text(float(cell)) for cell in numbers_of(column)]",
        (_SCHEMA + "test_a_blank_changes_no_id[list]",),
    ),
    Mutant(
        "a warning of unknown categories",
        'OneHotEncoder(handle_unknown="warn"): that a row holds another category is an answer about rows',
        "        return np.array(found, dtype=np.intp)",
        '        if -1 in found:\n            __import__("warnings").warn("unknown categories", stacklevel=2)\n'
        "        return np.array(found, dtype=np.intp)",
        (_KINDS + "test_no_cell_raises_warns_or_is_too_long[categories]",),
    ),
)
