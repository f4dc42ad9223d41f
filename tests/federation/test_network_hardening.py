"""What a hostile reading found about networks: gradients beyond all floats, people with many rows, terms too late."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

from tulle import Budget, FileLedger
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.client import Client
from tulle.federated.client_side.network_registry import SQUARED_ERROR, register_network
from tulle.federated.client_side.network_study import NetworkGradient, NetworkTerms, _clipped_sum
from tulle.federated.encoding import decode, encode
from tulle.federated.messages import AskWilling, Enrol, Enrolled, Refused, Willing
from tulle.federated.server_side.simulation import simulate
from tulle.federated.server_side.update_limits import UpdateLimits
from tulle.federated.terms import Terms


def slopes() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1))


register_network("slopes", slopes, SQUARED_ERROR)
MODEL = NetworkTerms("slopes", 1)
TERMS = Terms("s", MODEL, 2, 1, 5, 1.0, 0.5, 4, 2.0, 1e-3)
X = np.random.default_rng(0).normal(size=(20, 2))


@pytest.mark.parametrize("length", [1e308, 1e300])
@pytest.mark.parametrize("clip", [2.6e-16, 1.0])
def test_no_row_adds_more_than_the_clip_where_its_factor_is_below_all_normal_numbers(
    length: float, clip: float
) -> None:
    """2.6e-16 / 1e308 is rounded up to nearly twice what it is."""
    gradients = torch.tensor([[length, 0.0]], dtype=torch.float64)
    added = _clipped_sum(gradients, torch.tensor([True]), clip)
    assert float(added.norm()) <= clip * (1 + 1e-9)


def test_rows_beyond_a_persons_share_count_as_nothing() -> None:
    """Whatever is in them."""
    groups = np.arange(20) // 2
    other = X.copy()
    other[1::2] = 50.0
    found = []
    for rows, per_person in ((X, 1), (other, 1), (X, 2)):
        task = MODEL.task(rows, np.ones(20), groups, per_person)
        found.append(task.gradient(MODEL.start(5), 0.5).evaluate(task.rows, replace(task.public, rows_per_unit=1)))
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_chunks_are_as_long_as_public_figures_say_and_not_as_the_batch_is() -> None:
    """How a row is rounded depends on the shape of its chunk, which one row more or less must not change."""
    n = 2000
    task = MODEL.task(np.random.default_rng(0).normal(size=(n, 2)), np.ones(n), None, 1)
    query = NetworkGradient(MODEL, MODEL.start(5), 0.5)
    lengths = set()
    for size in (1, 600, n):
        for block in task.rows.batch(np.arange(size)).blocks:
            chunks = query._chunks(block, replace(task.public, n_rows=1000), torch.device("cpu"))
            lengths.add(chunks.rows.shape[1])
    assert len(lengths) == 1


def test_thresholds_that_cannot_be_are_refused_before_the_bill(tmp_path: Path) -> None:
    """Fewer weights than layers: nothing is paid for a study in which no round could be answered."""
    ledger = FileLedger.create(tmp_path / "budget", "rows", Budget(100.0, 0.5))
    client = Client("ada", X, np.ones(20), ledger=ledger, state=tmp_path / "state")
    for keep, allowed in ((1, False), (4, True)):
        terms = replace(TERMS, model=replace(MODEL, by_layer=True), n_nonzero=keep)
        said = decode(client.answer(encode(Enrol(terms))), (Enrolled, Refused))
        assert isinstance(said, Enrolled if allowed else Refused)
        assert len(ledger.refresh().entries) == allowed


def test_a_label_that_is_a_word_is_told_to_nobody() -> None:
    """One such row makes a file's column of numbers one of words: all others count as before, nothing raises."""
    X = np.random.default_rng(0).uniform(0, 1, (3, 784)).astype(np.float32)
    terms = NetworkTerms("mnist_cnn", 10)
    for y in ([7, 2, 3], ["7", "2", "3"], ["7", "2", "unknown"]):
        (block,) = terms.task(X, np.array(y), None, 1).rows.blocks
        counted = [label != "unknown" for label in y]
        assert block.active.tolist() == counted
        assert block.targets[:2].tolist() == [7.0, 2.0]


def test_a_dry_run_of_a_network_decides_as_an_enrolment(tmp_path: Path) -> None:
    """Rows of another length, sparse rows, thresholds that cannot be, and terms that can."""
    cases = (
        (X, TERMS, Willing),
        (np.ones((20, 3)), TERMS, Refused),
        (sp.csr_array(X), TERMS, Refused),
        (X, replace(TERMS, model=replace(MODEL, by_layer=True), n_nonzero=1), Refused),
    )
    for k, (rows, terms, kind) in enumerate(cases):
        ledger = FileLedger.create(tmp_path / f"budget{k}", "rows", Budget(100.0, 0.5))
        client = Client("ada", rows, np.ones(20), ledger=ledger, state=tmp_path / f"state{k}")
        willing, enrolled = (
            decode(client.answer(encode(one(terms))), (Willing, Enrolled, Refused)) for one in (AskWilling, Enrol)
        )
        assert isinstance(willing, kind)
        assert isinstance(enrolled, Enrolled if kind is Willing else Refused)


def test_a_networks_updates_stay_within_the_clip_and_the_noise() -> None:
    """The level of a row is the clip: an honest study is not touched, and ten times its reach is rejected."""
    fit = simulate(TERMS, {"ada": (X, np.ones(20)), "ben": (10 * X, np.ones(20))}, seed=1)
    assert all(record.answered == ("ada", "ben") and not record.rejected for record in fit.rounds)
    limits, start = UpdateLimits(TERMS), MODEL.start(TERMS.n_nonzero)
    reach = limits.reach(fit.clients[0])
    for factor, allowed in ((0.9, True), (10.0, False)):
        moved = start.to_dense()
        moved[0] = factor * reach
        assert limits.contain(SparseWeights.from_dense(moved), start, fit.clients[0]) == allowed
