"""Which method a study of masked sums runs where the user says nothing: one whose every release is Gaussian.

Hospitals that send masked sums can add Gaussian noise to a sum over rows, and nothing else: no noisy maximum, no
minimiser. The evidence: docs/screen_refine.md.
"""

from __future__ import annotations

from tulle.methods.base import Method
from tulle.methods.hard_thresholding import HardThresholding
from tulle.methods.noise_scales import budget_mu
from tulle.methods.screen_refine import ScreenRefine
from tulle.trusted.facts import PublicFacts


def masked_default(public: PublicFacts) -> Method:
    """The method for these public facts: noisy gradient steps on centred rows, or hard thresholding.

    Hard thresholding it is for several classes with more features than n mu, such as text: there many short steps do
    better than few long ones. Second moments were better than steps on none of our data sets, for squared loss either.

    Parameters
    ----------
    public : PublicFacts
        `n_nonzero` is not looked at: the method that is returned has its own default.

    Returns
    -------
    Method
        All of its releases are `Gaussian`, for any facts with these rows, features, outputs and budget.

    Raises
    ------
    ValueError
        Where the budget has delta = 0, which Gaussian noise cannot give.
    """
    if public.budget is not None and public.budget.delta == 0:
        raise ValueError("masked sums have Gaussian noise, which cannot give delta = 0; use a delta > 0")
    told = public.n_rows * budget_mu(public.budget)
    if public.loss.n_outputs > 1 and public.n_features > told:
        return HardThresholding(noise="gaussian")
    return ScreenRefine(noise="gaussian", refinement="steps")
