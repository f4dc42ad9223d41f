"""Two stage, the baseline of the papers: Kifer, Smith and Thakurta (COLT 2012), as Wang and Gu compare with it.

A preset of screen and refine: a private support, then plain objective perturbation on it. Proof:
docs/proofs/screen_refine.md.
"""

from __future__ import annotations

import math

from tulle.methods.column_rules import ColumnRules
from tulle.methods.loss_functions import of_one_output
from tulle.methods.noise_scales import kept_row_norm
from tulle.methods.penalised_fit import Refinement, refinement
from tulle.methods.screen_refine import ScreenRefine
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import ObjectivePerturbation, TopK
from tulle.trusted.plan import Budget, Release, is_number


class TwoStage(ScreenRefine):
    """The baseline "two stage" of the papers: a private support, then plain objective perturbation on it.

    Kifer, Smith and Thakurta (COLT 2012), as Wang and Gu compare with it. Their choice among all supports of size s
    cannot be computed; it is replaced by s noisy maxima of |X'y|. Half of the budget chooses; the other half fits, with
    the whole loss (for squared loss, residuals up to the label bound) and unscaled rows.

    Parameters
    ----------
    constant : float, default=1.0
        c3 > 0: the penalty is c3 s / epsilon, and at least what the paper's theorem needs for its half of the budget,
        4 / epsilon, both in units of the largest curvature that one row can add.
    """

    def __init__(self, constant: float = 1.0) -> None:
        super().__init__(
            rounds=1,
            noise="selection",
            screening_share=0.5,
            start_share=0.0,
            rescale_share=0.0,
            centre=0.0,
        )
        self.constant = constant

    def with_columns(self, rules: ColumnRules) -> TwoStage:
        """The paper's noise is for a choice among all features."""
        raise ValueError("TwoStage takes no always= and no feature_groups=; use method='screen_refine', or omit them")

    def _default_clip(self, public: PublicFacts) -> float:
        return public.loss.slope_bound(0.0, public.label)  # nothing is cut: the scores are |X'y|

    def _refinement(self, public: PublicFacts, selection: bool, square: float) -> Refinement:
        if not (is_number(self.constant) and 0 < self.constant < math.inf):
            raise ValueError(f"TwoStage(constant=...) must be a finite number > 0, got {self.constant!r}")
        tau = of_one_output(public.loss).slope_bound(math.inf, public.label)
        if math.isinf(tau) and public.budget is not None:
            tau = (
                public.label
                if public.loss.kind == "regression"
                else 2 * of_one_output(public.loss).default_clip(public.label)
            )
        bound = kept_row_norm(public, False)
        a = (bound / 4 if bound < math.inf else 1.0) if public.fit_intercept else 0.0
        # A penalty of `factor` × curvature × bound² / epsilon.
        factor = max(self.constant * public.n_nonzero, 4.0 * public.loss.n_outputs * public.rows_per_unit)
        curvature = 0.0 if public.budget is None else public.budget.epsilon / factor
        return refinement(public, tau, math.hypot(bound, a), a, curvature)

    def published(self, public: PublicFacts, budget: Budget) -> tuple[Release, ...]:
        """Pure composition of the s choices, and the Gaussian linear term of the paper's theorem 2, for half each."""
        if budget.delta == 0:
            raise ValueError("the published noise needs delta > 0")
        settings, outputs = self.settings(public), public.loss.n_outputs
        half = budget.epsilon / 2
        choose = TopK(NoisePerSensitivity(2 * public.n_nonzero * outputs / half), public.n_nonzero, outputs)
        each = half / outputs
        # They print the deviation in units of one row's gradient bound; a replaced row moves the gradient by two.
        deviation = math.sqrt(8 * math.log(2 * outputs / budget.delta) + 4 * each) / each
        refine = ObjectivePerturbation(
            NoisePerSensitivity(deviation / (2 * public.rows_per_unit)),
            settings.refine.log_determinant,
            of_one_output(public.loss).one_sided,
            public.rows_per_unit,
        )
        return (Release("select", choose, 1), Release("refine", refine, outputs))
