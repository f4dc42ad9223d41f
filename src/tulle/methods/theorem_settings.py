"""Settings that the papers' theorems prescribe: the value "theorem" of a method's parameter.

A theorem names quantities that no fit knows (β, μ, s*, ...) and leaves constants C open. They are parameters, public
like all settings; a setting that cannot be evaluated raises before anything is released and says what to give.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NoReturn

from tulle.methods.parameter_checks import check_whole
from tulle.trusted.facts import PublicFacts

Theorem = Literal["theorem"]


def missing_of(method: Any, needed: dict[str, str]) -> list[str]:
    """Of the parameters that a theorem needs, those that are None, in words that say what they are."""
    return [f"{name}=... ({words})" for name, words in needed.items() if getattr(method, name) is None]


def refuse(method: Any, parameter: str, missing: Sequence[str]) -> NoReturn:
    """Say that a theorem's value of a parameter cannot be evaluated, and name the missing settings."""
    raise ValueError(
        f"{type(method).__name__}({parameter}='theorem') cannot be evaluated without {' and '.join(missing)}; give "
        f"these, or give {parameter} a number"
    )


def refuse_unknown(method: Any, parameter: str, words: str) -> None:
    """Raise where "theorem" is asked of a parameter whose printed value is not at hand."""
    if getattr(method, parameter) == "theorem":
        raise ValueError(f"{type(method).__name__}({parameter}='theorem') is not offered: {words}; give a number")


# --- DP-IGHT (Wang and Gu, IJCAI 2019) -------------------------------------------------------------------------------

_CURVATURES = {
    "smoothness": "β, the largest curvature of the mean loss along sparse vectors",
    "strong_convexity": "μ, the smallest",
}


def ight_step(method: Any) -> float:
    """η = C / (β + μ), C being `step_constant`."""
    missing = missing_of(method, _CURVATURES)
    if missing:
        refuse(method, "step", missing)
    return float(method.step_constant / (method.smoothness + method.strong_convexity))


def ight_nonzero(method: Any) -> int | None:
    """The least s of s >= C κ² s*, κ = β / μ, C being `nonzero_constant`; None where s* is not given."""
    if method.true_nonzero is None:
        return None
    check_whole(method, {"true_nonzero": 1})
    missing = missing_of(method, _CURVATURES)
    if missing:
        raise ValueError(
            f"{type(method).__name__}(true_nonzero=...) keeps C κ² s* weights, κ = β / μ, which cannot be evaluated "
            f"without {' and '.join(missing)}; give these, or leave true_nonzero=None"
        )
    kappa = method.smoothness / method.strong_convexity
    if kappa < 1:
        raise ValueError(
            f"{type(method).__name__}: smoothness={method.smoothness:g} must be at least strong_convexity="
            f"{method.strong_convexity:g}"
        )
    return math.ceil(method.nonzero_constant * kappa**2 * method.true_nonzero * (1 - 1e-12))


def check_ight_nonzero(method: Any, public: PublicFacts) -> None:
    """Raise where fewer weights are kept than the theorem asks for."""
    least = ight_nonzero(method)
    if least is not None and public.n_nonzero < min(least, public.n_features):
        raise ValueError(
            f"n_nonzero={public.n_nonzero} is below the theorem's C κ² s* = {least}; give n_nonzero=None or at least "
            f"{min(least, public.n_features)}, or leave {type(method).__name__}(true_nonzero=None)"
        )


# --- DP-SGD-HT and DP-SCSG-HT (Liang, Tong, Ding, Pan and Bi, 2023) --------------------------------------------------


def sgd_steps(method: Any, public: PublicFacts) -> int:
    """T = C log(n² ε² / log(1/δ)) of corollary 4.4.1, rounded up, at least 1; C is `iteration_constant`."""
    budget, missing = public.budget, []
    if method.variant != "sgd":
        missing.append("variant='sgd' (the number of epochs of DP-SCSG-HT was not at hand)")
    if budget is None:
        missing.append("a privacy budget (epsilon)")
    elif budget.delta == 0:
        missing.append("a delta > 0")
    if missing or budget is None:
        refuse(method, "passes", missing)
    steps = math.log(max((public.n_rows * budget.epsilon) ** 2 / math.log(1 / budget.delta), 1.0))
    return max(math.ceil(method.iteration_constant * steps), 1)


# --- private Frank-Wolfe (Talwar, Thakurta and Zhang, 2015) ----------------------------------------------------------


def theorem_n_iter(n_rows: int, epsilon: float, gamma: float, lipschitz: float) -> int:
    """T = (Gamma n epsilon / (L1 |C|_1))^(2/3) of the theorem on Frank-Wolfe's excess risk, rounded up, at least 2.

    Talwar, Thakurta and Zhang, Algorithm 2; its constant is taken as 1.

    Parameters
    ----------
    n_rows : int
    epsilon : float
    gamma : float
        Gamma, an upper bound of the loss's curvature constant over the set: at most 4 max |<x, w>|² for the squared
        loss with its 1/2, and max |<x, w>|² for the logistic one.
    lipschitz : float
        L1 |C|_1: how steep one row's loss is in ℓ∞, times the largest ℓ1 norm of a point of the set.
    """
    return max(math.ceil((gamma * n_rows * epsilon / lipschitz) ** (2 / 3)), 2)
