"""Planted bugs in noisy gradient steps and in the default of masked studies. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_STEPS = "tests/methods/test_step_refinement.py::"
_MOVES = _STEPS + "test_no_row_moves_a_restricted_answer_further_than_its_sensitivity"
_GAUSSIAN = _STEPS + "test_all_noise_of_the_masked_default_is_gaussian"

STEP_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "restricted gradients clipped by half of their length",
        "noise for the short rows that are left after screening, and contributions that are twice as long",
        "slopes[:, column] * bound_norms(block.norms_on(chosen), n_lines, a)",
        "slopes[:, column] * bound_norms(0.5 * block.norms_on(chosen), n_lines, a)",
        (_MOVES,),
    ),
    Mutant(
        "restricted sums that are not restricted",
        "rows clipped on the chosen features, and the sum taken over all of them",
        "            chosen = np.flatnonzero(self.support[:features, column])\n            total[chosen",
        "            chosen = np.arange(features)\n            total[chosen",
        (_MOVES,),
        at="ClippedSum._gather",
    ),
    Mutant(
        "steps on all features after screening",
        "the support forgotten: noise for short rows on long ones, which are clipped to nothing",
        "chosen = None if support.all() else",
        "chosen = None if support.any() else",
        (_STEPS + "test_restricted_steps_have_the_noise_of_short_rows",),
    ),
    Mutant(
        "a masked study that minimises",
        "the method that is best where one party sees all rows: hospitals would be asked what no sum can answer",
        'return ScreenRefine(noise="gaussian", refinement="steps")',
        'return ScreenRefine(noise="gaussian")',
        (_GAUSSIAN,),
    ),
)
