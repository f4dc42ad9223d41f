"""The parts of the documentation that the two estimators share."""

from __future__ import annotations

_PARAMETERS = """
    Parameters
    ----------
    epsilon : float or None, default=1.0
        The privacy loss that the fit may cost, in (0, inf). None fits without privacy. Above 20 a warning says that
        this is hardly a guarantee.
    delta : float or None, default=None
        In [0, 1). None is min(1e-5, 1 / (10 n)). At 1 / n or more a warning says that such a delta allows publishing a
        person's row.
    rho : float or None, default=None
        In (0, inf): a budget in zero-concentrated differential privacy instead of epsilon, which then must be omitted;
        `delta` is where the epsilon of the report is proved. For methods whose every release has a rho:
        "hard_thresholding", "coordinate_descent" and "frank_wolfe"; "auto" chooses one that has.
    n_nonzero : int or None, default=None
        Non-zero weights (per class where there are more than two), at least 1. None: chosen for accuracy, by the
        method's rule on public quantities. For "auto" all features where it fits, keeps and fits again; else
        n / (2 log d), or n mu / 60 on dense features of equal size, with mu the budget's Gaussian parameter.
    method : str or object, default="auto"
        The algorithm: "auto" chooses from public quantities alone, "fit_again", "screen_refine", "hard_thresholding",
        "stochastic_hard_thresholding", "frank_wolfe", "coordinate_descent", "knowledge_transfer" or "two_stage"; an
        object of `tulle.methods` carries its own parameters.
    loss : str or `tulle.methods.loss_functions.Loss`, default="{loss}"
        {losses}
    bounds : Bounds or None, default=None
        Bounds on rows and labels. What a method needs and is not declared is estimated privately, for the share of
        epsilon that `Bounds.estimate_share` says.
{classes}    always : sequence of int or of str, or None, default=None
        Features that are never dropped, by their places or by the names of the table's columns. They count among
        `n_nonzero`. For "auto", "fit_again", "screen_refine" and "hard_thresholding". See docs/model_features.md.
    feature_groups : sequence or mapping, or None, default=None
        Columns that are kept or dropped together: a label (whole number or string) for each feature, or a dict from the
        name of a group to its features, as in `always`; features in no group are groups of one. `n_nonzero` then counts
        groups. For the same methods.
    calibration : {{"rigorous", "published"}}, default="rigorous"
        "published" runs the paper's own noise and reports the epsilon that it really has.
    fit_intercept : bool, default=True
        Whether to add a constant column; it counts in every sensitivity and is never thresholded.
    inference : bool, default=False
        Whether to fit so that weights have standard errors and intervals (`summary`, `predict_interval`): logistic
        loss of two classes, squared or Poisson loss, one row per person, at most 200 weights. Without `n_nonzero` all
        features are kept. It is a method of its own, with method="auto". See docs/intervals.md.
    random_state : int, RandomState, Generator or None, default=None
        None draws noise from a cryptographic stream keyed by the operating system. An integer makes the fit
        reproducible, without a guarantee against anyone who knows it, can guess it, or sees another fit with the same
        seed. Only an integer repeats noise: a RandomState or a Generator counts as None. Inside a `Ledger`, fits that
        share a seed still get different noise; inside a `FileLedger` no seed repeats noise.
    verbose : int, default=0
        1 shows progress on standard error (step counts only, nothing private). scikit-learn's callbacks
        (``set_callbacks``, since its version 1.9) are supported too.

    Attributes
    ----------
    coef_ : array of shape {coef_shape}
        Weights; `sparsify` turns them into a sparse array.
    intercept_ : {intercept_shape}
    support_ : array of int
        The features with a non-zero weight.
    teacher_coef_, teacher_intercept_ : as coef_ and intercept_
        After "knowledge_transfer" alone: the private teacher behind the model, which may have more weights than it.
        `release_synthetic` answers with it.
    n_iter_ : int
        Iterations of the method.
    n_passes_ : float
        How often all rows were read.
    n_thresholds_ : int
        How often a hard threshold was applied to weights; 0 for methods that have none.
    inference_ : tulle.inference.Evidence
        With `inference=True`: estimates of the errors of the weights.
    privacy_ : PrivacyReport
        The requested budget, the proved guarantee, the bill, the assumptions. Print it.
"""


CLASSES = """    classes : sequence of str or of numbers, or None, default=None
        The class labels that there are, at least two, declared without looking at the rows. They decide all shapes,
        whichever of them the rows have; rows with another label contribute nothing. None takes them from the rows: the
        fit then publishes the set of labels, and reveals a person who is the only one of a class.
    class_weight : dict, "balanced" or None, default=None
        What the rows of a class count: public numbers >= 0 by class label, 1 for a class that is not named, scaled so
        that the largest is 1. "balanced": the reciprocals of noisy counts of the classes, which are on the bill; with a
        budget in epsilon and delta > 0.
"""


def document(cls: type, **words: str) -> None:
    cls.__doc__ = (cls.__doc__ or "").replace("{parameters}", _PARAMETERS.format(**words).strip("\n").lstrip())
