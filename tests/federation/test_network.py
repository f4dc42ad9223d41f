"""Networks: clipped gradients of single rows, their sensitivity, steps, and what is refused.

Whatever the rows and the network, replacing a row moves an answer by no more than the declared sensitivity. That a row
adds the same numbers in any company is tested to the last bit.
"""

from __future__ import annotations

import copy
import itertools
import math
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.datasets import load_digits
from torch import nn

from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side import network_study as network
from tulle.federated.client_side.network_registry import (
    NETWORKS,
    NLL,
    SQUARED_ERROR,
    make_network,
    mnist_cnn,
    register_network,
)
from tulle.federated.client_side.network_study import (
    NetworkGradient,
    NetworkTask,
    NetworkTerms,
    accuracy,
    network_of,
    network_rows,
    predictions,
)
from tulle.federated.encoding import decode, encode
from tulle.federated.server_side.simulation import simulate
from tulle.federated.terms import Terms
from tulle.methods.loss_functions import facts_without_model
from tulle.methods.thresholds import HardThreshold, ThresholdByLayer
from tulle.trusted.curator import Curator, summation_slack
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import SampledGaussian
from tulle.trusted.plan import Plan, Release
from tulle.trusted.rows import Rows
from tulle.trusted.sampling import Sampler, Sampling

FEATURES, CLASSES = 6, 3


def kinked() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 5), nn.ReLU(), nn.Linear(5, CLASSES), nn.LogSoftmax(1))


def with_dropout() -> nn.Module:
    layers = (nn.Linear(FEATURES, 5), nn.Dropout(0.5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, CLASSES))
    return nn.Sequential(*layers, nn.LogSoftmax(1))


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, CLASSES), nn.LogSoftmax(1))


def regression() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 4), nn.Tanh(), nn.Linear(4, 1))


class Tied(nn.Module):
    """One matrix in two places, and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, FEATURES, bias=False)
        self.second = nn.Linear(FEATURES, FEATURES, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("constant", torch.randn(FEATURES))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax((self.second(torch.tanh(self.first(rows))) + self.constant)[:, :CLASSES], dim=1)


NAMES = ("kinked", "with_dropout", "linear", "tied")
for name, make in zip(NAMES, (kinked, with_dropout, linear, Tied)):
    register_network(f"test {name}", make)
register_network("test regression", regression, SQUARED_ERROR)

every_network = pytest.mark.parametrize("name", NAMES)


def terms_of(name: str, **more: Any) -> NetworkTerms:
    return NetworkTerms(f"test {name}", CLASSES, **more)


def data(seed: int, n: int = 40, features: int = FEATURES) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, features)), rng.integers(0, CLASSES, n)


def weights_of(terms: NetworkTerms) -> SparseWeights:
    return terms.start(terms.shape[0])


def slow_mean(terms: NetworkTerms, weights: SparseWeights, X: Any, y: Any, clip: float, n: int) -> np.ndarray:
    """The mean of clipped gradients, by autograd, one row at a time."""
    module = network_of(terms, weights).requires_grad_(True)
    total = torch.zeros(terms.shape[0], dtype=torch.float64)
    for row, target in zip(torch.as_tensor(np.asarray(X, dtype=np.float64)), y):
        outputs = module(row[None])
        if terms.network.loss is NLL:
            loss = nn.functional.nll_loss(outputs, torch.tensor([int(target)]))
        else:
            loss = nn.functional.mse_loss(outputs, torch.tensor([[float(target)]], dtype=torch.float64)) / 2
        parts = torch.autograd.grad(loss, list(module.parameters()))
        gradient = torch.cat([part.flatten() for part in parts])
        total += gradient * min(1.0, clip / float(gradient.norm()))
    return np.asarray(total.numpy()[:, None] / n)


def public_of(n: int, features: int = FEATURES, rows_per_unit: int = 1) -> PublicFacts:
    return facts_without_model(n, features, rows_per_unit)


def test_snapshots_are_refused() -> None:
    """Before any client hears of the study."""
    with pytest.raises(ValueError, match="snapshot_batch is for linear models; leave it out for a network"):
        Terms("s", terms_of("linear"), 2, 2, 5, 1.0, 1.0, 10, 1.0, 1e-5, snapshot_batch="all")


class TestGradients:
    @every_network
    @pytest.mark.parametrize("clip", [0.05, 0.7, 1e6])
    def test_they_are_those_of_a_slow_loop(self, name: str, clip: float) -> None:
        terms, (X, y) = terms_of(name), data(0)
        task = terms.task(X, y, None, 1)
        found = NetworkGradient(terms, weights_of(terms), clip).evaluate(task.rows, task.public)
        np.testing.assert_allclose(found, slow_mean(terms, weights_of(terms), X, y, clip, 40), rtol=0, atol=1e-13)

    def test_of_the_papers_network_on_a_batch(self) -> None:
        rng = np.random.default_rng(0)
        X, y = rng.random((50, 784)).astype(np.float32), rng.integers(0, 10, 50)
        terms = NetworkTerms("mnist_cnn", 10)
        assert terms.shape == (44_426, 1)
        task = terms.task(X, y, None, 1)
        numbers = np.array([0, 3, 16, 17, 32, 48])
        weights = terms.start(20_000)
        # Gradients are about 2 long: some are clipped and some are not.
        query = NetworkGradient(terms, weights, 2.0)
        found = query.evaluate(task.rows.batch(numbers), replace(task.public, n_rows=5))
        expected = slow_mean(terms, weights, X[numbers], y[numbers], 2.0, 5)
        assert np.abs(expected).max() > 1e-3
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)

    def test_of_a_regression(self) -> None:
        terms = NetworkTerms("test regression", 1)
        X, _ = data(1)
        y = X[:, 0] * 3
        task = terms.task(X, y, None, 1)
        found = NetworkGradient(terms, weights_of(terms), 1.5).evaluate(task.rows, task.public)
        np.testing.assert_allclose(found, slow_mean(terms, weights_of(terms), X, y, 1.5, 40), rtol=0, atol=1e-13)

    def test_many_blocks_are_summed(self) -> None:
        terms, (X, y) = terms_of("kinked"), data(2)
        query = NetworkGradient(terms, weights_of(terms), 0.5)
        whole = network_rows(X, y.astype(float))
        parts = [whole.batch(np.arange(start, start + 10)).blocks[0] for start in range(0, 40, 10)]
        found = query.evaluate(Rows.of_blocks(parts), public_of(40))
        np.testing.assert_allclose(found, query.evaluate(whole, public_of(40)), rtol=0, atol=1e-14)

    def test_an_empty_batch_is_zero(self) -> None:
        terms, (X, y) = terms_of("kinked"), data(3)
        task = terms.task(X, y, None, 1)
        empty = task.rows.batch(np.zeros(0, dtype=np.intp))
        assert not NetworkGradient(terms, weights_of(terms), 1.0).evaluate(empty, task.public).any()

    def test_rows_that_do_not_count_add_nothing(self) -> None:
        terms, (X, y) = terms_of("kinked"), data(4)
        labels = y.astype(float)
        labels[[0, 5, 6, 7]] = [-1, CLASSES, 0.5, np.nan]
        groups = np.arange(40)
        groups[[10, 11, 12]] = 10
        task = terms.task(X, labels, groups, 2)
        left = np.setdiff1d(np.arange(40), [0, 5, 6, 7, 12])
        assert task.public.rows_per_unit == 2
        found = NetworkGradient(terms, weights_of(terms), 0.5).evaluate(task.rows, task.public)
        expected = slow_mean(terms, weights_of(terms), X[left], y[left], 0.5, 40)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)

    def test_labels_that_got_behind_the_checks_add_nothing(self) -> None:
        terms, (X, y) = terms_of("kinked"), data(4)
        labels = y.astype(float)
        labels[[1, 2, 3]] = [-1, CLASSES, np.nan]
        query = NetworkGradient(terms, weights_of(terms), 0.5)
        left = np.setdiff1d(np.arange(40), [1, 2, 3])
        expected = slow_mean(terms, weights_of(terms), X[left], y[left], 0.5, 40)
        found = query.evaluate(network_rows(X, labels), public_of(40))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)

    def test_gradients_that_are_no_numbers_count_as_nothing(self) -> None:
        terms, (X, y) = terms_of("linear"), data(5)
        at = weights_of(terms).scaled(10.0)
        X[3] = 1e308 * np.sign(at.to_dense()[:FEATURES, 0])  # the first output is infinite
        task = terms.task(X, y, None, 1)
        row, label = torch.from_numpy(X[3:4]), torch.from_numpy(y[3:4])
        assert not torch.isfinite(terms._gradients(torch.device("cpu"), at)(row, label)).all()
        found = NetworkGradient(terms, at, 0.5).evaluate(task.rows, task.public)
        left = np.setdiff1d(np.arange(40), [3])
        expected = slow_mean(terms, at, X[left], y[left], 0.5, 40)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)

    def test_tiny_gradients_are_not_mistaken_for_short_ones(self) -> None:
        # Squares of 1e-200 vanish; 50 of them are longer than the clip level all the same.
        gradients = torch.full((1, 50), 1e-200, dtype=torch.float64)
        total = network._clipped_sum(gradients, torch.tensor([True]), 1e-200)
        assert float((total / 1e-200).norm()) == pytest.approx(1.0)


class TestSensitivity:
    @every_network
    @settings(max_examples=40)
    @given(st.data())
    def test_no_pair_of_neighbours_is_further_apart(self, name: str, data: st.DataObject) -> None:
        terms = terms_of(name)
        n = data.draw(st.integers(2, 6))
        entry = st.one_of(
            st.sampled_from([0.0, 1e30, -1e30, 1e-30, 1e300, -1e200, 1.0, -1.0]), st.floats(-10, 10, width=32)
        )
        row = st.lists(entry, min_size=FEATURES, max_size=FEATURES)
        X = np.array(data.draw(st.lists(row, min_size=n, max_size=n)))
        other = np.array([*X[:-1], data.draw(row)])
        label = st.sampled_from([0, 1, 2, -1, 7])
        y = np.array(data.draw(st.lists(label, min_size=n, max_size=n)))
        other_y = np.array([*y[:-1], data.draw(label)])
        clip = data.draw(st.sampled_from([1e-3, 0.3, 10.0, 1e20]))
        scale = data.draw(st.sampled_from([0.0, 1.0, 1e3, 1e100]))
        query = NetworkGradient(terms, weights_of(terms).scaled(scale), clip)
        with np.errstate(all="ignore"):
            task, neighbour = terms.task(X, y, None, 1), terms.task(other, other_y, None, 1)
            found = query.evaluate(task.rows, task.public)
            moved = np.linalg.norm(found - query.evaluate(neighbour.rows, task.public))
            alone = query.evaluate(task.rows.batch(np.arange(n - 1)), task.public)
        assert moved <= query.sensitivity(task.public).l2 * summation_slack(n)
        assert np.linalg.norm(found - alone) <= query.one_unit(task.public) * summation_slack(n)
        assert np.linalg.norm(found) <= query.size(task.public) * summation_slack(n)

    @pytest.mark.parametrize("rows_per_unit", [1, 3])
    def test_the_worst_pair_comes_within_a_per_cent(self, rows_per_unit: int) -> None:
        terms, n = terms_of("linear"), 20
        X, y = data(6, n)
        groups = np.maximum(np.arange(n), rows_per_unit - 1)  # the first of them are one person's
        X[:rows_per_unit], y[:rows_per_unit] = 1e4, 0
        other = X.copy()
        other[:rows_per_unit] *= -1
        query = NetworkGradient(terms, SparseWeights.zeros(*terms.shape), 0.7)
        task, neighbour = (terms.task(rows, y, groups, rows_per_unit) for rows in (X, other))
        with_unit, without = (query.evaluate(each.rows, each.public) for each in (task, neighbour))
        moved = np.linalg.norm(with_unit - without)
        declared = query.sensitivity(task.public).l2
        assert 0.99 * declared < moved <= declared
        gone = query.evaluate(task.rows.batch(np.arange(rows_per_unit, n)), task.public)
        assert 0.99 * query.one_unit(task.public) < np.linalg.norm(with_unit - gone) <= query.one_unit(task.public)

    def test_it_is_two_clips_of_a_mean(self) -> None:
        terms = terms_of("kinked")
        query, public = NetworkGradient(terms, weights_of(terms), 0.7), public_of(50, rows_per_unit=2)
        assert query.sensitivity(public).l2 == pytest.approx(2 * 0.7 * 2 / 50)
        assert query.one_unit(public) == pytest.approx(0.7 * 2 / 50)
        assert query.size(public) == 0.7


class TestCompany:
    """What a row adds depends on no other row."""

    @pytest.mark.parametrize("architecture", ["mnist_cnn", "test kinked"])
    def test_a_row_adds_the_same_numbers_in_any_batch(self, architecture: str) -> None:
        rng = np.random.default_rng(7)
        terms = NetworkTerms(architecture, 10 if architecture == "mnist_cnn" else CLASSES)
        features = 784 if architecture == "mnist_cnn" else FEATURES
        X, y = rng.standard_normal((300, features)), rng.integers(0, CLASSES, 300)
        task = terms.task(X, y, None, 1)
        public = replace(task.public, n_rows=30)
        query = NetworkGradient(terms, weights_of(terms), 1.0)
        gradients = terms._gradients(torch.device("cpu"), query.weights)
        row, seen = 77, []
        for batch in range(12):
            others = np.flatnonzero(rng.random(300) < (0.02, 0.1, 0.4)[batch % 3])
            block = task.rows.batch(np.union1d(others, [row])).blocks[0]
            chunks = query._chunks(block, public, torch.device("cpu"))
            held = (chunks.rows == torch.from_numpy(X[row])).all(dim=2) & chunks.filled
            assert int(held.sum()) == 1
            k, place = (int(index[0]) for index in torch.where(held))
            seen.append((chunks.rows.shape[1], place, gradients(chunks.rows[k], chunks.targets[k])[place]))
        for length, place, gradient in seen:
            assert (length, place) == seen[0][:2]
            assert torch.equal(gradient, seen[0][2])

    @every_network
    @pytest.mark.parametrize("extreme", [0.0, 1e30, 1e300])
    def test_the_others_do_not_notice_an_extreme_row(self, name: str, extreme: float) -> None:
        terms, (X, y) = terms_of(name), data(8, 16)
        at = weights_of(terms)
        gradients = terms._gradients(torch.device("cpu"), at)
        before = gradients(torch.from_numpy(X), torch.from_numpy(y))
        other = X.copy()
        other[5] = extreme
        after = gradients(torch.from_numpy(other), torch.from_numpy(y))
        others = np.setdiff1d(np.arange(16), 5)
        assert torch.equal(before[others], after[others])
        assert not torch.equal(before[5], after[5])

    @pytest.mark.parametrize("extreme", [0.0, 1e30, 1e300, math.nan])
    def test_nor_in_a_network_of_layers(self, extreme: float) -> None:
        """Its gradients come from a few products for all rows of a chunk."""
        rng, terms = np.random.default_rng(8), NetworkTerms("mnist_cnn", 10)
        X, y = rng.random((16, 784)), torch.from_numpy(rng.integers(0, 10, 16))
        gradients = terms._gradients(torch.device("cpu"), weights_of(terms))
        before = gradients(torch.from_numpy(X), y)
        X[5] = extreme
        after = gradients(torch.from_numpy(X), y)
        others = np.setdiff1d(np.arange(16), 5)
        assert torch.equal(before[others], after[others])
        assert not torch.equal(before[5], after[5])

    def test_layers_are_no_other_gradients_than_those_of_any_network(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rng, terms = np.random.default_rng(9), NetworkTerms("mnist_cnn", 10, seed=3)
        X, y = torch.from_numpy(rng.random((8, 784))), torch.from_numpy(rng.integers(0, 10, 8))
        in_layers = terms._gradients(torch.device("cpu"), weights_of(terms))(X, y)
        monkeypatch.setitem(NETWORKS, "mnist_cnn", replace(NETWORKS["mnist_cnn"], in_layers=False))
        of_any = terms._gradients(torch.device("cpu"), weights_of(terms))(X, y)
        torch.testing.assert_close(in_layers, of_any, rtol=0, atol=1e-14)

    def test_chunks_have_one_public_shape(self) -> None:
        cpu = torch.device("cpu")
        for rows in (1, 2, 15, 16, 100, 1000, 10**6):
            for parameters in (1, 50_000, 10**6, 10**9):
                length = network._chunk_length(rows, parameters, cpu)
                assert network._PLACES % length == 0
                assert length == 1 or 8 * length * parameters <= 2**27
                assert network._PLACES % network._chunk_length(rows, parameters, torch.device("cuda")) == 0

    def test_rows_on_a_device_are_not_taken_for_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terms, (X, y) = terms_of("kinked"), data(9)
        query, meta = NetworkGradient(terms, weights_of(terms), 1.0), torch.device("meta")
        rows = network_rows(X, y.astype(float))
        block, public = rows.blocks[0], public_of(40)
        first = query._chunks(block, public, meta)
        assert query._chunks(block, public, meta) is first
        other = NetworkGradient(replace(terms, seed=1), weights_of(terms), 1.0)
        assert other._chunks(block, public, meta) is not first
        again = query._chunks(block, public, meta)
        with monkeypatch.context() as patch:
            patch.setattr(network, "_chunk_length", lambda *_: 8)
            assert query._chunks(block, public, meta) is not again
        assert query._chunks(copy.copy(block), public, meta) is not first
        again = query._chunks(block, public, meta)
        rows.clip_entries(0.5)
        assert query._chunks(block, public, meta) is not again
        held = len(network._on_device)
        del block, rows
        assert len(network._on_device) < held


def steps_of(task: NetworkTask, noise: float, batch: int, seed: int, *, keep: int, step: float, clip: float) -> Any:
    """Weights after each of ever more steps with hard thresholding, gradients asked of a curator."""
    terms, n = task.terms, task.public.n_rows
    mechanism = SampledGaussian(NoisePerSensitivity(noise), Sampling("poisson", n, batch))
    curator = Curator(task.rows, task.public, Plan((Release("step", mechanism, 10**4),)), np.random.default_rng(seed))
    weights = terms.start(keep)
    while True:
        gradient = curator.ask("step", task.gradient(weights, clip))
        weights = SparseWeights.from_dense(terms.threshold(keep)(weights.to_dense() - step * gradient))
        yield weights


def sgd_of(
    terms: NetworkTerms, X: Any, y: Any, sampling: Sampling, seed: int, keep: int, step: float, steps: int
) -> Any:
    """The same without noise in plain PyTorch: an optimiser's steps, and all but the largest weights set to zero."""
    module = network_of(terms, terms.start(keep)).requires_grad_(True)
    optimiser = torch.optim.SGD(module.parameters(), lr=step)
    sampler, generator = Sampler(sampling), np.random.default_rng(seed)
    for _ in range(steps):
        numbers = sampler.draw(generator)
        optimiser.zero_grad()
        loss = nn.functional.nll_loss(module(torch.from_numpy(X[numbers])), torch.from_numpy(y[numbers]))
        (loss * len(numbers) / sampling.batch).backward()
        optimiser.step()
        with torch.no_grad():
            everything = torch.cat([p.flatten() for p in module.parameters()])
            parts = list(torch.split(everything, terms.layers)) if terms.by_layer else [everything]
            shares = terms.threshold(keep).shares if terms.by_layer else [keep]
            for part, share in zip(parts, shares):
                part[part.abs() < part.abs().topk(share).values[-1]] = 0.0
            for p, new in zip(module.parameters(), torch.split(torch.cat(parts), terms.layers)):
                p.copy_(new.reshape(p.shape))
    return torch.cat([p.detach().flatten() for p in module.parameters()]).numpy()


class TestSteps:
    @pytest.mark.parametrize("by_layer", [False, True])
    @pytest.mark.parametrize("batch", [15, 40])
    def test_without_noise_they_are_sgd_with_hard_thresholding(self, by_layer: bool, batch: int) -> None:
        keep, step, steps = 20, 0.3, 8
        terms, (X, y) = terms_of("with_dropout", by_layer=by_layer, seed=5), data(10)
        task = terms.task(X, y, None, 1)
        taken = steps_of(task, 0.0, batch, 3, keep=keep, step=step, clip=math.inf)
        found = next(itertools.islice(taken, steps - 1, None))
        expected = sgd_of(terms, X, y, Sampling("poisson", 40, batch), 3, keep, step, steps)
        assert np.count_nonzero(expected) == keep
        np.testing.assert_array_equal(found.lines, np.flatnonzero(expected))
        np.testing.assert_allclose(found.to_dense()[:, 0], expected, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("by_layer", [False, True])
    def test_a_study_of_one_client_without_noise_is_gradient_descent(self, by_layer: bool) -> None:
        terms, (X, y) = terms_of("with_dropout", by_layer=by_layer, seed=5), data(10)
        study = Terms("one", terms, 4, 2, 20, 0.3, math.inf, None, None, None)
        found = simulate(study, {"only": (X, y)}, seed=0).weights
        expected = sgd_of(terms, X, y, Sampling("poisson", 40, 40), 0, 20, 0.3, 8)
        np.testing.assert_allclose(found.to_dense()[:, 0], expected, rtol=0, atol=1e-12)

    def test_a_private_study_of_three_clients_runs(self) -> None:
        terms = terms_of("with_dropout", by_layer=True)
        parts = {f"client {k}": data(k) for k in range(3)}
        study = Terms("three", terms, 3, 2, 20, 0.3, 1.0, 10, 2.0, 1e-4)
        fit = simulate(study, parts, seed=0)
        assert len(fit.weights.lines) == 20
        assert fit.weights.shape == terms.shape

    @pytest.mark.parametrize(("batch", "rows_per_unit"), [(200, 1), (50, 1), (50, 2)])
    @pytest.mark.parametrize(("wrong", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
    def test_the_noise_has_the_declared_scale(
        self, batch: int, rows_per_unit: int, wrong: float, accepted: bool
    ) -> None:
        """The right scale is rejected with probability 1e-6 a case; the grid adds half a per cent of variance."""
        terms = NetworkTerms("mnist_cnn", 10)
        X, y = np.zeros((200, 784)), np.zeros(200)
        task = terms.task(X, y, None, rows_per_unit)
        noise, clip = 1.7, 0.9
        mechanism = SampledGaussian(NoisePerSensitivity(noise * wrong), Sampling("poisson", 200, batch, rows_per_unit))
        curator = Curator(task.rows, task.public, Plan((Release("step", mechanism, 1),)), np.random.default_rng(11))
        at = SparseWeights.zeros(*terms.shape)
        answer = curator.ask("step", task.gradient(at, clip))
        # With weights of zero only the last biases have gradients; the rest is noise.
        answer = answer[:-10, 0]
        scale = noise * 2 * clip * rows_per_unit / batch
        statistic, count = float(np.sum((answer / scale) ** 2)), len(answer)
        low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], count)
        assert (low <= statistic <= 1.006 * high) == accepted

    def test_threads_do_not_disturb_each_other(self) -> None:
        terms, (X, y) = terms_of("kinked"), data(12)
        task = terms.task(X, y, None, 1)
        points = [weights_of(terms).scaled(factor) for factor in (0.5, 1.0, 2.0, 4.0)]
        queries = [NetworkGradient(terms, point, 1.0) for point in points]
        alone = [query.evaluate(task.rows, task.public) for query in queries]
        found: list[list[np.ndarray]] = [[] for _ in queries]

        def ask(k: int) -> None:
            found[k].extend(queries[k].evaluate(task.rows, task.public) for _ in range(10))

        threads = [threading.Thread(target=ask, args=(k,)) for k in range(len(queries))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for answers, expected in zip(found, alone):
            assert len(answers) == 10
            assert all(np.array_equal(answer, expected) for answer in answers)


class TestTerms:
    def test_they_travel(self) -> None:
        terms = NetworkTerms("mnist_cnn", 10, seed=3, by_layer=True)
        assert decode(encode(terms), (NetworkTerms,)) == terms

    def test_the_start_is_the_seeds_and_leaves_torchs_generator_alone(self) -> None:
        make_network.cache_clear()
        torch.manual_seed(123)
        expected = torch.rand(3)
        torch.manual_seed(123)
        one, same, other = (NetworkTerms("mnist_cnn", 10, seed=seed).start(500) for seed in (7, 7, 8))
        assert torch.equal(torch.rand(3), expected)
        np.testing.assert_array_equal(one.to_dense(), same.to_dense())
        assert not np.array_equal(one.to_dense(), other.to_dense())
        torch.manual_seed(7)
        fresh = torch.cat([p.detach().flatten() for p in mnist_cnn().parameters()]).double().numpy()
        np.testing.assert_array_equal(one.to_dense(), HardThreshold(500, len(fresh))(fresh[:, None]))

    def test_the_threshold_is_over_all_weights_or_by_layer(self) -> None:
        assert NetworkTerms("mnist_cnn", 10).threshold(10**6) == HardThreshold(44_426, 44_426)
        by_layer = NetworkTerms("mnist_cnn", 10, by_layer=True)
        layers = (150, 6, 2400, 16, 30_720, 120, 10_080, 84, 840, 10)
        assert by_layer.threshold(4443) == ThresholdByLayer(4443, 44_426, layers)
        kept = by_layer.start(4443)
        counts = np.histogram(kept.lines, np.cumsum([0, *layers]))[0]
        assert tuple(counts) == by_layer.threshold(4443).shares
        assert counts.sum() == 4443
        np.testing.assert_allclose(counts, np.array(layers) / 10, atol=1)

    @pytest.mark.parametrize(
        "fields",
        [
            {"architecture": "no such network"},
            {"n_classes": 1},
            {"n_classes": 2.0},
            {"seed": -1},
            {"seed": 2**63},
            {"seed": True},
            {"by_layer": 1},
        ],
    )
    def test_nonsense_is_refused(self, fields: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=next(iter(fields)).replace("architecture", "register_network")):
            NetworkTerms(**{"architecture": "mnist_cnn", "n_classes": 10, **fields})

    @pytest.mark.parametrize(
        ("X", "y", "message"),
        [
            (np.zeros((4, FEATURES + 1)), np.zeros(4), "does not take rows of 7 numbers"),
            (np.zeros((4, FEATURES)), np.zeros(3), "as many targets"),
            (np.zeros(4), np.zeros(4), "of shape"),
            (np.zeros((1, FEATURES)), np.zeros(1), "at least two rows"),
            (np.full((4, FEATURES), np.nan), np.zeros(4), "finite"),
            (np.full((4, FEATURES), np.inf), np.zeros(4), "finite"),
        ],
    )
    def test_rows_that_are_none_are_refused(self, X: Any, y: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            terms_of("kinked").task(X, y, None, 1)

    def test_a_network_of_other_outputs_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"not \(2, 4\)"):
            NetworkTerms("test kinked", 4).task(*data(0), None, 1)

    def test_weights_of_another_shape_are_refused(self) -> None:
        terms = terms_of("kinked")
        with pytest.raises(ValueError, match="weights of the shape"):
            NetworkGradient(terms, SparseWeights.zeros(3, 1), 1.0)
        with pytest.raises(ValueError, match="weights of the shape"):
            network_of(terms, SparseWeights.zeros(3, 1))

    @pytest.mark.parametrize("clip", [0.0, -1.0, math.nan])
    def test_a_clip_level_that_is_none_is_refused(self, clip: float) -> None:
        with pytest.raises(ValueError, match="clip"):
            NetworkGradient(terms_of("kinked"), weights_of(terms_of("kinked")), clip)


class TestRegistry:
    @pytest.mark.parametrize("norm", [nn.BatchNorm1d, nn.SyncBatchNorm])
    def test_batch_normalisation_is_refused(self, norm: type[nn.Module]) -> None:
        with pytest.raises(ValueError, match="mixes the rows of a batch"):
            register_network("test normalised", lambda: nn.Sequential(nn.Linear(FEATURES, CLASSES), norm(CLASSES)))
        assert "test normalised" not in NETWORKS

    def test_a_network_without_parameters_is_refused(self) -> None:
        with pytest.raises(ValueError, match="no parameters"):
            register_network("test empty", lambda: nn.LogSoftmax(1))

    def test_a_name_is_given_once(self) -> None:
        register_network("test kinked", kinked)  # the same again
        with pytest.raises(ValueError, match="another network already"):
            register_network("test kinked", linear)

    def test_registering_leaves_torchs_generator_alone(self) -> None:
        torch.manual_seed(5)
        expected = torch.rand(2)
        torch.manual_seed(5)
        register_network("test kinked", kinked)
        assert torch.equal(torch.rand(2), expected)

    def test_networks_that_draw_random_numbers_are_refused_when_rows_come(self) -> None:
        class Noisy(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = nn.Linear(FEATURES, CLASSES)

            def forward(self, rows: torch.Tensor) -> torch.Tensor:
                return torch.log_softmax(self.inner(rows + torch.randn_like(rows)), dim=1)

        register_network("test noisy", Noisy)
        try:
            with pytest.raises(ValueError, match="random"):
                NetworkTerms("test noisy", CLASSES).task(*data(0), None, 1)
        finally:
            del NETWORKS["test noisy"]


class TestModels:
    def test_weights_become_a_network_and_back(self) -> None:
        terms = terms_of("tied", seed=2)
        weights = terms.start(12)
        module = network_of(terms, weights)
        flat = torch.cat([p.detach().flatten() for p in module.parameters()]).numpy()
        np.testing.assert_array_equal(flat, weights.to_dense()[:, 0])
        assert module.second.weight is module.first.weight
        assert torch.equal(module.constant, terms.module.constant)
        # A copy: changing it does not change the start.
        before = copy.deepcopy(terms.module)
        with torch.no_grad():
            module.first.weight.add_(1.0)
        assert torch.equal(before.first.weight, terms.module.first.weight)

    def test_predictions_are_the_modules(self) -> None:
        terms, (X, y) = terms_of("kinked"), data(13, 2500)
        weights = weights_of(terms)
        outputs = network_of(terms, weights)(torch.from_numpy(X)).detach().numpy()
        np.testing.assert_allclose(predictions(terms, weights, X), outputs, atol=1e-12)
        assert accuracy(terms, weights, X, y) == np.mean(outputs.argmax(axis=1) == y)

    def test_the_papers_network_learns_with_and_without_noise(self) -> None:
        digits = load_digits()
        images = np.kron(digits.images[:1000], np.ones((1, 3, 3)))
        X = np.pad(images, ((0, 0), (2, 2), (2, 2))).reshape(1000, 784)
        X, y = ((X - X.mean()) / X.std()).astype(np.float32), digits.target[:1000]
        terms, keep, steps = NetworkTerms("mnist_cnn", 10), 30_000, 60
        task = terms.task(X, y, None, 1)
        assert accuracy(terms, terms.start(keep), X, y) < 0.2
        for noise in (0.0, 0.1):
            taken = steps_of(task, noise, 64, 0, keep=keep, step=0.2, clip=3.0)
            weights = next(itertools.islice(taken, steps - 1, None))
            assert accuracy(terms, weights, X, y) > 0.3
            assert len(weights.lines) == keep
