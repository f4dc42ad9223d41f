"""Planted bugs in reports: internal fields in the public form, figures that are not proved. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_ZERO_OUT, _OFFICER = "tests/accounting/test_zero_out.py::", "tests/reports/test_officer_sections.py::"
_REGISTRY, _CARD = "tests/reports/test_registry_entry.py::", "tests/reports/test_model_card.py::"
_FORMS = _OFFICER + "TestForms::test_names_of_analysts_and_ledgers_are_internal"
_ONNX = "tests/estimators/test_onnx_export.py::"

REPORT_MUTANTS: tuple[Mutant, ...] = (
    # --- zero-out adjacency ---
    Mutant(
        "zero-out for the releases that are covered",
        "an epsilon of a part of the bill, printed as that of the whole",
        "    if any(release is None for release in covered):\n        return None\n",
        "",
        (_ZERO_OUT + "TestEpsilon::test_of_a_release_that_nobody_vouches_for_there_is_none",),
    ),
    Mutant(
        "zero-out halves every sum",
        "a mean of numbers >= 0 moves as far when one is left out as when it is replaced",
        '        if not (query.non_negative or query.times == "itself"):\n',
        "        if query is not None:\n",
        (_ZERO_OUT + "TestShares::test_no_zero_out_neighbour_exceeds_them",),
    ),
    Mutant(
        "zero-out halves the curvature",
        "the share of one release of a method, taken for that of all",
        '"values": HALF, "curvature": 1.0}',
        '"values": HALF, "curvature": HALF}',
        (_ZERO_OUT + "TestMethods::test_what_is_asked_has_the_share_that_is_vouched_for[step-2]",),
    ),
    Mutant(
        "zero-out halves the rounding, too",
        "the grid takes answers apart by the same length whatever the adjacency",
        "return release.scaled(1 / min(share * (1 + _ROUNDED), 1.0))",
        "return release.scaled(1 / share)",
        (_ZERO_OUT + "TestEpsilon::test_is_that_of_half_the_mu",),
    ),
    Mutant(
        "zero-out for everything that is like Gaussian noise",
        "random batches, and mechanisms of others, have proofs of their own",
        "    if type(mechanism) is Gaussian:\n        if mechanism.noise.value",
        "    if isinstance(mechanism, Gaussian):\n        if mechanism.noise.value",
        (_ZERO_OUT + "TestEpsilon::test_of_other_releases_there_is_none",),
    ),
    Mutant(
        "zero-out without the estimated bounds",
        "the quantile's score moves by one rank however a row goes: it is on the bill in full",
        "    if plan.preliminary or plan.inexact or not plan.releases:\n        return None\n",
        "    if plan.inexact or not plan.releases:\n        return None\n",
        (_ZERO_OUT + "TestReports::test_nothing_is_claimed",),
    ),
    Mutant(
        "zero-out for subclasses of a method",
        "what a method of somebody else asks is not known",
        "return _SHARES.get((module, type(method).__qualname__), {}) if package == __package__ else {}",
        "return next((_SHARES[key] for kind in type(method).__mro__ "
        'if (key := (kind.__module__.rpartition(".")[2], kind.__qualname__)) in _SHARES), {})',
        (_ZERO_OUT + "TestMethods::test_a_subclass_has_none",),
    ),
    Mutant(
        "a search with the figures of its best trial",
        "mu, rho and the epsilon of zero-out of one trial of many",
        "            **NOTHING_ELSE_PROVED,  # a proof for one trial is no proof for the search\n",
        "",
        (_ZERO_OUT + "TestReports::test_what_is_proved_of_a_trial_is_not_claimed_of_a_search",),
    ),
    Mutant(
        "a file that claims more for zero-out",
        "figures of a file that nobody computed",
        "        if self.zero_out is not None and self.zero_out > self.epsilon:\n",
        "        if self.zero_out is not None and self.zero_out < 0:\n",
        (_OFFICER + "TestAdjacency::test_a_file_cannot_claim_more_for_zero_out_than_replace_one",),
    ),
    # --- what is internal ---
    Mutant(
        "the name of the analyst in the public report",
        "all that the user typed in, with the model",
        '    return replace(About(**public), ledger="", asked_by="")\n',
        '    return replace(About(**public), ledger="")\n',
        (_OFFICER + "TestForms::test_what_is_kept_for_the_public_has_no_analyst_and_no_ledger",),
    ),
    Mutant(
        "the ledger's words in the public report",
        "the state of a ledger tells of other releases",
        '    return replace(About(**public), ledger="", asked_by="")\n',
        '    return replace(About(**public), asked_by="")\n',
        ("tests/reports/test_pages.py::TestForms::test_a_public_page_names_no_ledger_and_no_hash",),
    ),
    Mutant(
        "entries of a ledger in the public report",
        "an option that is checked on the command line alone",
        "    if ledger is not None and not internal:\n",
        "    if ledger is not None and internal is None:\n",
        (_FORMS,),
    ),
    Mutant(
        "a registry entry of the internal form",
        "an entry that is made of the saved model, and not of the public report",
        "    about = keep_public(about)\n",
        "",
        (_REGISTRY + "test_nothing_internal_and_nothing_beyond_the_public_report_is_in_it",),
        at="entry_fields",
    ),
    Mutant(
        "a model card of the internal form",
        "a hash of the file of private rows, on a public card",
        "    about = keep_public(about)\n",
        "",
        (_CARD + "test_names_nothing_internal",),
        at="model_card",
    ),
    Mutant(
        "accuracy that was not paid for",
        "a score with noise that can be drawn again, on a public card",
        " or not math.isfinite(report.epsilon) or report.seeded:\n",
        " or not math.isfinite(report.epsilon):\n",
        (_CARD + "TestAccuracy::test_is_refused_where_it_was_not",),
        at="_accuracy",
    ),
    # --- words and figures ---
    Mutant(
        "an epsilon that is rounded to the nearest",
        "a registry that states less than is proved",
        "    return None if value is None else float(rounded_up(value))\n",
        '    return None if value is None else float(f"{value:.3g}")\n',
        (_REGISTRY + "test_no_epsilon_is_smaller_than_the_proved_one",),
    ),
    Mutant(
        "a request that is rounded to the nearest",
        "a third is proved as 0.33334 and was requested as 0.333333: a fit looks as if it had spent too much",
        '        return f"{name} = {rounded_up(value)}, δ = {rounded_up(self.asked[1])}"\n',
        '        return f"{name} = {value:g}, δ = {rounded_up(self.asked[1])}"\n',
        ("tests/reports/test_report.py::TestText::test_what_was_requested_is_rounded_as_what_is_proved",),
    ),
    Mutant(
        "steps that peeked are passed over",
        "the assumptions mention them, and the page says that there was none",
        "    return tuple(line for line in report.assumptions if line.startswith(NOT_COVERED))\n",
        "    return ()\n",
        (_OFFICER + "TestInputs::test_steps_that_peeked_have_a_box",),
    ),
    Mutant(
        "a title that leaves its string",
        "user text in a style sheet is code",
        'plain = (one if one.isascii() and (one.isalnum() or one == " ")',
        'plain = (one if one.isascii() and one != "%"',
        (_OFFICER + "TestTitles::test_the_running_head_of_paper_cannot_leave_its_string",),
    ),
    Mutant(
        "an exported file rounds epsilon to the nearest",
        "five digits as Python prints them: the file promises more than is proved",
        '        "tulle.epsilon": rounded_up(report.epsilon, 5),\n',
        '        "tulle.epsilon": f"{report.epsilon:.5g}",\n',
        (_ONNX + "test_epsilon_is_rounded_up",),
        needs="onnx",
    ),
    Mutant(
        "an exported file with all assumptions of the report",
        "every line of it in the metadata: names of ledgers, files and people go where the model goes",
        "    notes += [line for line in report.assumptions if line.startswith(limits)]\n",
        "    notes += report.assumptions\n",
        (_ONNX + "test_limits_of_the_guarantee_are_in_the_file",),
        needs="onnx",
    ),
    Mutant(
        "an exported file of a loss of the user's",
        "the link of the loss that it is derived from: probabilities of another model",
        "    if not is_built_in(_loss_of(model)):\n",
        "    if False:\n",
        (_ONNX + "test_what_cannot_be_exported_is_refused[a loss of one's own]",),
        needs="onnx",
    ),
)
