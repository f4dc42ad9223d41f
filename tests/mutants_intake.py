"""Planted bugs in the intake: one person's cell decides how the cells of others are read. See mutants.py."""

from __future__ import annotations

from planted import Mutant

_INTAKE = "tests/trusted/test_intake.py::"

INTAKE_MUTANTS: tuple[Mutant, ...] = (
    # --- cells ---
    Mutant(
        "a list of cells is handed to numpy",
        "np.asarray(y): one row's word turns all labels into words, one fraction rounds all large ids",
        "    elif isinstance(given, Sequence) and not isinstance(given, (str, bytes)):\n",
        "    elif isinstance(given, Sequence) and not len(given):\n",
        (_INTAKE + "test_an_odd_id_changes_nothing_for_others", _INTAKE + "test_an_odd_label_moves_a_score_by_one_row"),
    ),
    Mutant(
        "cells are compared by their text",
        "astype(str) to make mixed columns comparable: 7 and 7.0 are two people, and 7 and '7' are one",
        "        return _make_key(unwrap(cell))\n",
        "        return str(cell)\n",
        (_INTAKE + "test_labels_and_ids_are_compared_by_type_and_value",),
    ),
    Mutant(
        "whole numbers are compared as floats",
        "ids of 64 bits that went through a double: neighbours of 10^17 become one person",
        "    if kind is str or kind is int:  # nearly all\n        return cell\n",
        "    if kind is str or kind is int:\n        return float(cell) if kind is int else cell\n",
        (_INTAKE + "test_an_odd_id_changes_nothing_for_others",),
    ),
    Mutant(
        "missing ids are a person",
        "np.unique takes NaN for one value: all rows without an id are one person's, or each its own",
        '    if missing.any():\n        raise ValueError(\n            f"groups holds no person id',
        '    if not len(missing):\n        raise ValueError(\n            f"groups holds no person id',
        (_INTAKE + "test_missing_ids_are_refused_before_the_bill",),
    ),
    Mutant(
        "groups of a file and of a list are joined by numpy",
        "np.concatenate of a part with numbers and a part with words: all are words after it",
        "        parts = [part.astype(object) for part in parts]\n",
        "        pass\n",
        (_INTAKE + "test_labels_at_workers_are_read_one_by_one",),
        needs="dask",
    ),
    # --- labels ---
    Mutant(
        "a label that was not declared counts as some class",
        "searchsorted finds a place for every label; a row that should count as nothing pulls at the model",
        "return np.array([number_of_class.get(key, -1) for key in keys], dtype=np.intp)[places]",
        "return np.array([number_of_class.get(key, 0) for key in keys], dtype=np.intp)[places]",
        (_INTAKE + "test_one_cell_changes_its_own_code_alone", _INTAKE + "test_declared_classes_of_a_score"),
    ),
    Mutant(
        "declared classes are those that occur",
        "np.unique(y) after all: a class with one member shows in the shape of the model",
        "        return class_labels.check_classes(estimator.classes)\n",
        "        declared = class_labels.check_classes(estimator.classes)\n"
        "        seen = set(intake.encode_labels(labels(), declared).tolist()) - {-1}\n"
        "        return declared[sorted(seen)] if len(seen) > 1 else declared\n",
        (_INTAKE + "test_declared_classes_decide_all_shapes",),
    ),
    Mutant(
        "declared classes must occur",
        "LabelBinarizer's check that more than one class is present: whether somebody has the other one is told",
        "    if estimator.classes is not None:\n        return",
        "    if estimator.classes is not None:\n"
        "        if len(class_labels.find_different(labels())) < 2:\n"
        "            raise ValueError('one class')\n"
        "        return",
        (_INTAKE + "test_declared_classes_decide_all_shapes",),
    ),
    Mutant(
        "rows without a class keep their part",
        "targets of 0 for rows that should count as nothing, which are rows of their own class to a loss",
        "    return np.where(known, targets, 0.0), known if active is None else active & known\n",
        "    return np.where(known, targets, 0.0), np.ones(len(known), dtype=bool) if active is None else active\n",
        (_INTAKE + "test_rows_with_another_label_count_as_nothing",),
    ),
    Mutant(
        "rows on disk without a class keep their part",
        "a mask that one of several back ends does not know of",
        "targets, active = mask_unlabelled(made, active)",
        "targets, active = np.nan_to_num(made, nan=1.0), np.ones(len(made), dtype=bool) if active is None else active",
        (_INTAKE + "test_declared_classes_of_rows_on_disk",),
    ),
    Mutant(
        "the report says that labels were declared when they were not",
        "the set of labels is called public, and the fit made it so",
        'classes_declared=getattr(self, "classes", None) is not None,',
        "classes_declared=True,",
        (_INTAKE + "test_the_set_of_labels_is_said_to_be_published",),
    ),
    Mutant(
        "a warning counts the labels",
        "scikit-learn's type_of_target: 'the number of unique classes is greater than 50% of the number of samples'",
        '    keys = check_values(labels, "y")\n',
        '    keys = check_values(labels, "y")\n'
        "    import warnings\n"
        "    if 2 * len(keys) > len(labels):\n"
        '        warnings.warn("the number of unique classes is greater than 50%", stacklevel=2)\n',
        (_INTAKE + "test_how_many_labels_there_are_is_not_warned_of",),
    ),
    Mutant(
        "scores compare labels as their list was read",
        "y_pred == np.asarray(y): one row's word, and every prediction is wrong",
        "        y = intake.encode_labels(labels, model.classes_)\n",
        "        y = intake.encode_labels(np.asarray(labels.tolist()), model.classes_)\n",
        (_INTAKE + "test_an_odd_label_moves_a_score_by_one_row",),
    ),
    Mutant(
        "a file's column of labels is read as its first row is",
        "the first row says whether labels are numbers; a word in another refuses the fit that declared its classes",
        '"labels": getattr(arguments, "classes", None) is not None,',
        '"labels": False,',
        (_INTAKE + "test_classes_on_the_command_line",),
    ),
    # --- entries ---
    Mutant(
        "a finite check by a sum",
        "scikit-learn sums the entries first: 1.7e308 twice is infinite, and a warning tells of the row",
        "        if not np.isfinite(part).all():\n",
        "        with np.errstate(over='warn', invalid='warn'):\n"
        "            total = np.sum(part)\n"
        "        if not np.isfinite(total):\n",
        (_INTAKE + "test_an_extreme_row_is_not_warned_of",),
    ),
    Mutant(
        "numpy's error is passed on",
        "could not convert string to float: 'Jane Doe'",
        "    except Exception:  # what numpy says quotes the cell\n",
        "    except KeyError:\n",
        (_INTAKE + "test_messages_never_quote_a_cell",),
    ),
    Mutant(
        "a refusal quotes the array",
        "Expected 2D array, got 1D array instead: array=[...], with the first and last rows",
        'f"Expected 2D array, got {got} array instead. Reshape',
        'f"Expected 2D array, got {got} array instead: {array}. Reshape',
        (_INTAKE + "test_messages_never_quote_a_cell",),
    ),
    Mutant(
        "only the first column that cannot be read is named",
        "an error for each run: whoever mends one column after the other learns where words are",
        '(words if text else others).append(f"column {name!r} ({name_rows(bad)})")\n',
        '(words if text else others).append(f"column {name!r} ({name_rows(bad)})")\n            break\n',
        (_INTAKE + "test_all_columns_that_cannot_be_read_are_named",),
    ),
    Mutant(
        "lists of rows go through text",
        "np.asarray of numbers and one word is an array of words; float32 cells come back as other numbers",
        "            array = np.asarray(X, dtype=object)\n",
        "            pass\n",
        (_INTAKE + "test_entries_of_many_types_are_numbers",),
    ),
    Mutant(
        "a user's np.seterr reaches the rows",
        "overflow of one person's row raises in the middle of a fit, after the bill",
        'with np.errstate(all="ignore"):  # a warning, or an error',
        "if True:  # a warning, or an error",
        (_INTAKE + "test_an_extreme_row_is_not_warned_of", _INTAKE + "test_extreme_targets_are_not_warned_of"),
    ),
)
