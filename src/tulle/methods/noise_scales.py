"""What the shape of the rows says about noise, before anything is spent: functions of public quantities alone."""

from __future__ import annotations

import math
from dataclasses import replace

from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.accounting.zcdp import rho_of
from tulle.fast.gumbel_on_demand import GumbelOnDemand
from tulle.fast.install import is_plain
from tulle.methods.gradient_queries import Engine
from tulle.trusted.accountants import MOST_ARITHMETIC
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Mechanism, NoisyMax, TopK
from tulle.trusted.plan import Budget


def choosing_over_noise(public: PublicFacts) -> float:
    """The error scale of choosing s features by noisy maxima over that of Gaussian noise on all d, at equal privacy.

    The largest of d Gaussians is row_l2 sqrt(2 log d), and that of d Gumbel draws row_linf sqrt(s) log d, in the same
    units. Text (few large entries) calls for the one, dense features of equal size for the other. With delta = 0 the
    noise is Laplace's, scaled by an ℓ1 norm of up to row_l2 sqrt(d), and each of s choices takes its part of epsilon:
    row_linf 2 s log d against row_l2 sqrt(d) log d.
    """
    if public.budget is not None and public.budget.delta == 0:
        choices = 2 * public.row_linf * public.n_nonzero * public.loss.n_outputs
        return choices / (public.row_l2 * math.sqrt(public.n_features * public.loss.n_outputs))
    log_d = math.log(max(public.n_features, 2))
    choosing = public.row_linf * math.sqrt(public.n_nonzero * public.loss.n_outputs) * log_d
    return choosing / (public.row_l2 * math.sqrt(2 * log_d))


def selection_pays(public: PublicFacts) -> bool:
    """Whether choosing s features by noisy maxima has a smaller error scale than Gaussian noise on all d of them."""
    return public.budget is not None and not math.isinf(public.row_linf) and choosing_over_noise(public) < 1


def budget_mu(budget: Budget | None) -> float:
    """The budget's Gaussian parameter, to size defaults by; for delta = 0, which has none, that of delta = 1e-6."""
    if (rho := rho_of(budget)) is not None:
        return math.sqrt(2 * rho)
    return math.inf if budget is None else gaussian_mu(budget.epsilon, budget.delta or 1e-6)


def tellable_weights(public: PublicFacts, mu: float = math.inf, power: float = 1.0) -> int:
    """n min(mu, 1) / (2 log d), to a power: about as many weights as the rows can tell apart, at a budget of mu."""
    few = (public.n_rows * min(mu, 1.0) / (2 * math.log(max(public.n_features, 2)))) ** power
    return int(min(max(few, 1), public.n_features))


def tellable_directions(public: PublicFacts, most: float = 500) -> int:
    """In how many directions the rows can tell a model from noise, in [1, most]; 500 without privacy."""
    if public.budget is None:
        return 500
    count = public.n_rows * budget_mu(public.budget) / 14
    if public.budget.delta == 0:  # the noise on each direction grows with the root of their number
        count = math.sqrt(public.n_rows * public.budget.epsilon / 14)
    return int(min(max(round(count), 1), most))


def averaging_pays(public: PublicFacts) -> bool:
    """Whether noisy gradients, averaged over the steps and read in many coordinates, beat a private choice a step.

    As `selection_pays`, with twice the room: averaging takes a part of the noise away. Gaussian noise needs a delta.
    """
    return public.budget is not None and public.budget.delta > 0 and choosing_over_noise(public) >= 0.5


def stepwise_nonzero(public: PublicFacts) -> int:
    """How many weights methods of many steps keep by default: fewer at small budgets where each is chosen privately."""
    many = tellable_weights(public)
    if averaging_pays(replace(public, n_nonzero=many)):
        return many
    return tellable_weights(public, budget_mu(public.budget))


# Entries that reading all rows for every question would read, at 75 a row: below, compiling the loops that follow a
# path, or loading them, takes about as long.
_WORTH_FOLLOWING = 2e9


def choose_engine(engine: Engine, n_iter: int, candidates: int, public: PublicFacts) -> Engine:
    """ "incremental" where following a path of `n_iter` steps pays, and what finite precision then takes of delta is
    allowed; "plain" otherwise; what the user says, if anything. Always "plain" where faster code is switched off."""
    if is_plain() or public.exact_only or public.loss.n_outputs > 1:
        return "plain"
    if engine != "auto":
        return engine
    # By public figures: whether kernels are compiled can be seen, and the number of entries in the rows is private.
    if n_iter * public.n_rows * min(public.n_features, 75) < _WORTH_FOLLOWING:
        return "plain"
    if public.budget is None:
        return "incremental"
    # Less noise than any accountant proves enough: 0.85 of the smaller of these two is the least that was found.
    epsilon = public.budget.epsilon
    noise = NoisePerSensitivity(0.8 * min(math.sqrt(n_iter) / budget_mu(public.budget), 2 * n_iter / epsilon))
    inexact = n_iter * GumbelOnDemand(noise, 1, candidates, public.n_rows).inexact
    needed = (1 + math.exp(min(epsilon + public.spent, 700))) * inexact
    return "incremental" if needed <= MOST_ARITHMETIC * public.budget.delta else "plain"


def margin_unit(public: PublicFacts) -> float:
    """The scale on which margins of a good model live: the label bound for regression, 1 for classification."""
    scale = public.loss.margin_scale(public.label)
    return scale if scale < math.inf else 1.0


def intercept_entry(public: PublicFacts, step: float | None) -> float:
    """The constant column's entry: large enough that the intercept is learnt in about one step of unit curvature,
    never above a quarter of the row bound, where it would add more than 3 % to all noise."""
    if not public.fit_intercept:
        return 0.0
    largest = public.row_l2 / 4 if public.row_l2 < math.inf else 1.0
    if step is None:
        # Without privacy the entry costs nothing; but a column far larger than all others would shorten every step.
        return min(largest, public.row_linf)
    return min(largest, 1.0 / math.sqrt(step * public.loss.typical_curvature(public.label)))


def kept_row_norm(public: PublicFacts, spread_out: bool) -> float:
    """How long a row can be (or, where features are of equal size, commonly is) on the s features that are kept."""
    longest = min(math.sqrt(public.n_nonzero) * public.row_linf, public.row_l2)
    if not spread_out:
        return longest
    # Of equal features a row keeps about sqrt(s/d) of its norm; a quarter more leaves most rows unclipped.
    return min(longest, 1.25 * math.sqrt(public.n_nonzero / public.n_features) * public.row_l2)


def signal_to_noise(public: PublicFacts, mechanism: Mechanism) -> float:
    """The score of a common feature that explains every label, divided by the largest of all noises.

    A mean gradient at the zero model is at most clip × |entry| in each coordinate. An average entry is
    row_l2 / sqrt(d); where Gaussian noise suits, rows have few large entries, and an informative one is taken to be
    four times as large. Real features explain far less than every label: below 1 nothing is left but noise.
    """
    log_d = math.log(max(public.n_features, 2))
    entry = public.row_l2 / math.sqrt(public.n_features)
    unit = 2.0 * mechanism.noise.value * public.rows_per_unit / public.n_rows
    if isinstance(mechanism, (TopK, NoisyMax)):
        return entry / max(unit * public.row_linf * log_d, 1e-300)
    return 4 * entry / max(unit * public.row_l2 * math.sqrt(2 * log_d), 1e-300)
