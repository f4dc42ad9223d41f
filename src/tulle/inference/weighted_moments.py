"""What intervals ask besides the weights: the curvature, and the spread of gradients, at released weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tulle.methods.recipe import Recipe
from tulle.methods.row_functions import RootsOfMoments
from tulle.trusted.clipped_sum import ClippedSum
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts

Factor = Literal["curvature", "slope"]


@dataclass(frozen=True, eq=False)
class WeightedMoments(Recipe):
    """The mean over rows of v v', v = factor × row: the curvature, or the spread of gradients, at public weights.

    By Cauchy-Schwarz a row contributes a matrix of Frobenius norm |v|². With factors cut at `most` that is at most
    most × row_bound² for the curvature and most² × row_bound² for the spread; the trusted sum clips it there in any
    case, and replacing a row moves the mean by at most sqrt(2) times that over n. It is released as `SecondMoments` is.

    Parameters
    ----------
    features : int array
        Columns of the rows; already public.
    weights : array of shape (p,)
        One for each feature, then that of the constant column; already public.
    factor : {"curvature", "slope"}
        The root of the loss's second derivative at the weights, or its slope there.
    most : float
        In (0, inf]: where second derivatives, or slopes, are cut; inf only without privacy.
    row_bound : float
        What rows (constant column included) are scaled down to, > 0.
    intercept_value : float, default=0.0
        Entry of the constant column; 0 for no intercept.
    """

    features: npt.NDArray[np.intp]
    weights: FloatArray
    factor: Factor
    most: float
    row_bound: float
    intercept_value: float = 0.0

    def resolve(self, public: PublicFacts) -> ClippedSum:
        p = len(self.weights)
        largest = self.most if self.factor == "curvature" else self.most**2
        return ClippedSum(
            RootsOfMoments(self.features, self.row_bound, self.weights, self.factor, self.most),
            (p * (p + 1) // 2, 1),
            largest * self.row_bound**2,
            times="itself",
            intercept_value=self.intercept_value,
        )
