"""Planted privacy bugs in what goes beyond the papers: pure thresholding and transfer, local and federated variants."""

from __future__ import annotations

from planted import Mutant

_PURE = "tests/methods/test_pure_thresholding.py::"
_GROUPS = "tests/methods/test_groups_of_features.py::"
_CLIPPED_SUM = "tests/trusted/test_clipped_sum.py::"

EXTENSION_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "the l2 bound taken for an l1 bound",
        "Laplace noise scaled by the ℓ2 sensitivity, as Gaussian noise is: too small by the root of the dimension",
        "return Sensitivity(l1=math.sqrt(math.prod(moving)) * l2, l2=l2)",
        "return Sensitivity(l1=l2, l2=l2)",
        (_CLIPPED_SUM + "test_equal_entries_move_an_l2_clip_so_far_in_l1[all]",),
    ),
    Mutant(
        "an intercept left out of the l1 bound",
        "the intercept is answered whatever the support, and only the chosen features are counted",
        "(np.count_nonzero(self.support[:-1]) + self.shape[1],)",
        "(np.count_nonzero(self.support),)",
        (_CLIPPED_SUM + "test_equal_entries_move_an_l2_clip_so_far_in_l1[support, intercept]",),
    ),
    Mutant(
        "the minimiser's l2 bound taken for its l1 bound",
        "output perturbation with Laplace noise per coordinate, scaled by how far the minimiser moves in ℓ2",
        "Sensitivity(l1=root * l2, l2=l2)",
        "Sensitivity(l1=l2, l2=l2)",
        (_PURE + "test_a_teacher_on_rows_in_a_row_bound_moves_so_far_in_l1",),
    ),
    Mutant(
        "noise left undrawn inside of groups",
        "lazy noise for the largest magnitudes, where a small weight passes the threshold with its group",
        "one_border: ClassVar[bool] = False  # small weights",
        "one_border: ClassVar[bool] = True  # small weights",
        (_GROUPS + "test_whole_groups_are_kept_and_all_their_weights_get_noise[sgd]",),
    ),
)
