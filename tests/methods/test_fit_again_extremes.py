"""Fit, keep, fit again where answers or public rows are extreme: nothing fails after the bill."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tulle import Bounds, Budget, Ledger, PrivateSearch, SparseClassifier
from tulle.methods.fit_again import FitAgain
from tulle.methods.loss_functions import resolve_loss
from tulle.transfer.public_features import check_not_private
from tulle.transfer.public_knowledge import PublicFrequencies, read_public
from tulle.trusted.facts import PublicFacts
from tulle.trusted.plan import Bill, Plan

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 5))
Y = X[:, 0] > 0


def facts(n_nonzero: int, n_features: int = 5) -> PublicFacts:
    loss = resolve_loss("logistic", "classification", 2)
    return PublicFacts(300, n_features, n_nonzero, loss, Budget(1.0, 1e-5), 1.0, 1.0, math.inf, True)


@pytest.mark.parametrize("value", [0.0, 1e-300, 1e300])
@pytest.mark.parametrize("public", [None, "rows", "frequencies"])
@pytest.mark.parametrize("n_nonzero", [2, 5])
def test_answers_of_one_size(value: float, public: str | None, n_nonzero: int) -> None:
    """Whatever the answers are, exactly the plan is asked for, and the weights are finite."""
    method: Any = FitAgain()
    if public is not None:
        known = PublicFrequencies([1.0, 1.0, 1.0, 1.0, 0.0]) if public == "frequencies" else X[:40] + 1.0
        method = method.with_public(read_public(known, 5))
    known_facts = facts(n_nonzero)
    bill = Bill(Plan(method.releases(known_facts)))

    def ask(name: str, query: Any, then: Any = None) -> Any:
        bill.charge(name)
        return np.full((1, 1) if name in ("check", "spread") else query.centre.shape, value)

    weights = method.run(ask, known_facts)
    bill.settle()
    assert weights.shape == (6, 1)
    assert value > 1 or np.isfinite(weights).all()


def test_public_rows_of_extreme_sizes_are_refused_before_the_bill() -> None:
    with Ledger(Budget(100.0, 0.5)) as ledger:
        for factor in (1e60, 1e160, 1e-60):
            with pytest.raises(ValueError, match="largest entry of public"):
                SparseClassifier(1.0, bounds=Bounds(row_l2=1.0)).fit(X, Y, public=X[:40] * factor + factor)
    assert ledger.fits == []


def test_a_tiny_public_row_among_others() -> None:
    rows = RNG.standard_normal((200, 1100))
    rows[7] *= 1e-200
    private = RNG.standard_normal((300, 1100))
    model = SparseClassifier(1.0, bounds=Bounds(row_l2=40.0), random_state=0).fit(
        private, private[:, 0] > 0, public=rows
    )
    assert np.isfinite(model.coef_).all()


def test_shares_that_leave_nothing_are_no_accident() -> None:
    method = FitAgain(rescale_share=0.99).with_public(read_public(X[:40] + 1.0, 5))
    assert min(method.settings(facts(2)).first_share, method.settings(facts(2)).again_share) > 0


def test_wide_frames_are_compared_in_a_moment() -> None:
    frame = pd.DataFrame(RNG.standard_normal((30, 5000)))
    check_not_private(frame.copy(), frame)
    with pytest.raises(ValueError, match="are the private rows"):
        check_not_private(frame.iloc[:20], frame)


def test_a_search_compares_names() -> None:
    frame, public = pd.DataFrame(X, columns=list("abcde")), pd.DataFrame(X[:40] + 1, columns=list("edcba"))
    search = PrivateSearch(SparseClassifier(bounds=Bounds(row_l2=1.0)), {}, Budget(4.0, 1e-5))
    with pytest.raises(ValueError, match="names of the private columns"):
        search.fit(frame, Y, public=public)
