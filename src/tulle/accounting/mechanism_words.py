"""Words for mechanisms, as bills, ledgers and audits print them."""

from __future__ import annotations

from functools import singledispatch

from tulle.trusted.mechanisms import (
    Exact,
    Gaussian,
    GumbelMax,
    Laplace,
    LaplaceMax,
    Mechanism,
    ObjectivePerturbation,
    PermuteAndFlip,
    SampledGaussian,
    TopK,
)

# A part of delta is for keys that one person alone holds, which a threshold may let pass.
THRESHOLDED = "Gaussian on masses, threshold"

_WORDS: dict[type[Mechanism], str] = {
    Exact: "exact answer, no privacy",
    Gaussian: "Gaussian on a vector",
    Laplace: "Laplace on a vector",
    GumbelMax: "noisy max (Gumbel)",
    LaplaceMax: "noisy max (Laplace)",
    PermuteAndFlip: "permute and flip",
    ObjectivePerturbation: "objective perturbation",
}


@singledispatch
def describe_mechanism(mechanism: Mechanism) -> str:
    """What a mechanism is called on a bill. Packages with mechanisms of their own register words for them."""
    words = (_WORDS[kind] for kind in type(mechanism).__mro__ if kind in _WORDS)
    return next(words, type(mechanism).__name__)


@describe_mechanism.register
def _(mechanism: TopK) -> str:
    return "noisy max (Gumbel)" if mechanism.k == 1 else f"one-shot top {mechanism.k} (Gumbel)"


@describe_mechanism.register
def _(mechanism: SampledGaussian) -> str:
    batches = mechanism.batches
    words = {
        "poisson": f"Poisson batches of about {batches.batch:,}",
        "without_replacement": f"batches of {batches.batch:,}",
        "shuffled": f"shuffled epochs of {batches.answers_per_release:,} batches",
    }
    return f"Gaussian, {words[batches.scheme]}"
