"""What the README and the pages say is what the code does."""

from __future__ import annotations

import csv
import importlib
import inspect
import json
import math
import re
from collections.abc import Sequence
from dataclasses import make_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import PAGES, ROOT, cells, loaded

from tulle.audit import epsilon_lower_bound
from tulle.experiments.catalogue import published
from tulle.experiments.cells import Cell, Finished
from tulle.experiments.gaps import AUTO, DP_IHT, PRINTED
from tulle.experiments.label_error import CHOSEN, GAUSSIAN
from tulle.experiments.reproduction import experiment
from tulle.local.user_side.label_randomisers import (
    GaussianLabel,
    Hybrid,
    LaplaceLabel,
    Piecewise,
    TwoPoint,
    best_label_channel,
)
from tulle.methods import METHODS, FrankWolfe, HardThresholding
from tulle.methods.loss_functions import Logistic, Squared
from tulle.reports.series import Panel
from tulle.trusted.accountants import epsilon
from tulle.trusted.facts import PublicFacts
from tulle.trusted.plan import Budget


def test_table_of_published_noise_is_true() -> None:
    """Each row of the table in docs/hard_thresholding.md is what the accountant proves, to the digits printed."""
    rows = re.findall(
        r"^\| ([\d.]+), ([\d.e-]+) \| ([\d.]+) \| ([\d.]+) \|$", (ROOT / "docs/hard_thresholding.md").read_text(), re.M
    )
    assert len(rows) >= 5
    for claimed, delta, *printed in rows:
        budget = Budget(float(claimed), float(delta))
        public = PublicFacts(1000, 50, 5, Logistic(), budget, 1.0, 1.0, 1.0, True, as_published=True)
        for rule, figure in zip(("remark_5.3", "corollary_5.8"), printed):
            method = HardThresholding(n_iter=50, noise="gaussian", published_rule=rule)
            proved = epsilon(method.published(public, budget), budget.delta)
            digits = 3 if float(figure) < 100 else 4
            assert math.isclose(float(figure), proved, rel_tol=0.6 * 10 ** (1 - digits)), (claimed, delta, rule)


def test_table_of_the_published_lasso_noise_is_true() -> None:
    """Each row of the table in docs/frank_wolfe.md: the scale that is printed, and what it proves, never less."""
    rows = re.findall(
        r"^\| ([\d.]+), ([\d.e-]+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \|$",
        (ROOT / "docs/frank_wolfe.md").read_text(),
        re.M,
    )
    assert len(rows) == 11
    for claimed, delta, steps, scale, proves in rows:
        budget = Budget(float(claimed), float(delta))
        public = PublicFacts(1000, 50, 5, Squared(), budget, 1.0, 1.0, 1.0, False, as_published=True)
        plan = FrankWolfe(radius=1.0, n_iter=int(steps), noise="selection").published(public, budget)
        assert 2 * plan[0].mechanism.noise.value == pytest.approx(float(scale), abs=0.051)
        proved = epsilon(plan, budget.delta)
        assert proved <= float(proves) <= 1.01 * proved


def figures(name: str) -> list[dict[str, str]]:
    with (ROOT / "docs/pictures" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@cache
def shown(name: str) -> tuple[Panel, ...]:
    """What docs/results shows of a table or figure, made of its single fits."""
    with (ROOT / "docs/results" / name / "results.csv").open(newline="", encoding="utf-8") as file:
        finished = [
            Finished(
                Cell(row["data"], row["method"], float(row["epsilon"]) if row["epsilon"] else None, int(row["trial"])),
                {column: value for column, value in row.items() if value},
                0.0,
                row["failed"],
            )
            for row in csv.DictReader(file)
        ]
    return experiment(replace(published(name), times=False)).panels(finished)


def means(name: str) -> dict[tuple[str, str, float], float]:
    """The means of `shown`, by panel, series and place."""
    return {
        (panel.name, series.name, point.x): point.mean
        for panel in shown(name)
        for series in panel.series
        for point in series.points
    }


def said(page: str, words: str) -> list[float]:
    """The figures that a page has where a pattern has groups."""
    text = " ".join((ROOT / "docs" / page).read_text(encoding="utf-8").split())
    found = re.search(words, text)
    assert found is not None, f"docs/{page} does not say: {words}"
    return [float(figure.replace(",", "")) for figure in found.groups()]


RANGE = r"(\d[\d.]*) to (\d[\d.]*) times"


def is_range(stated: list[float], ratios: Sequence[float]) -> bool:
    """Whether the least and the most of some ratios are the two stated, to one decimal."""
    return stated == pytest.approx([min(ratios), max(ratios)], abs=0.051)


# The methods of tulle with their defaults, and nothing chosen for them.
STATE_LINES = {
    line.method: line.name
    for line in published("state").lines
    if line.private and not (line.tune or line.public_rows or line.parameters)
}


def test_table_of_all_methods_is_the_measured_one() -> None:
    """Each figure of the table in docs/choosing.md is the mean of docs/results/state."""
    measured = means("state")
    compared = [
        *("auto", "hard_thresholding", "stochastic_hard_thresholding"),
        *("two_stage", "frank_wolfe", "coordinate_descent"),
    ]
    columns = [*(STATE_LINES[method] for method in compared), "tulle (auto), no privacy", "null model"]
    rows = cells("choosing.md", "data set")
    assert len({row[0] for row in rows}) == 7
    assert len(rows) == 21
    for data, asked, *printed in rows:
        assert len(printed) == len(columns)
        for line, figure in zip(columns, printed):
            if figure == "–":
                assert (data, line, float(asked)) not in measured
            else:
                assert float(figure) == pytest.approx(measured[data, line, float(asked)], abs=5.1e-4), (data, line)


@pytest.mark.parametrize(
    ("page", "first", "name", "columns"),
    [
        ("choosing.md", "set", "oracle", ("defaults", "oracle_tuned")),
        ("tuning.md", "set", "private_search", ("defaults", "search", "defaults_median", "search_median")),
    ],
)
def test_other_tables_are_the_measured_ones(page: str, first: str, name: str, columns: tuple[str, ...]) -> None:
    """Likewise for the defaults beside oracle tuning, and for PrivateSearch beside the defaults."""
    measured = {(row["data"], float(row["epsilon"])): row for row in figures(name)}
    rows = cells(page, first)
    assert len(rows) == len(measured)
    for data, asked, *printed in rows:
        for column, figure in zip(columns, printed):
            assert float(figure) == pytest.approx(float(measured[data, float(asked)][column]), abs=5.1e-4), data


def test_tables_of_the_stochastic_family_are_the_measured_ones() -> None:
    """Validation losses beside the paper's, and what docs/stochastic_hard_thresholding.md says of them."""
    measured = {
        (data, row["method"], row["epsilon"]): float(row["loss"])
        for data in ("rcv1_subset", "pneumonia")
        for row in figures(f"stochastic_{data}")
        if row["passes_asked"] == "default"
    }
    names = {"RCV1 subset": "rcv1_subset", "PneumoniaMNIST": "pneumonia"}
    rows = cells("stochastic_hard_thresholding.md", "data")
    assert len(rows) == 10
    for data, asked, *printed in rows:
        for method, figure in zip(("DP-SGD-HT", "DP-SCSG-HT", "DP-SVRG-HT"), printed[:3]):
            assert float(figure) == pytest.approx(measured[names[data], method, str(float(asked))], abs=5.1e-5)
        # Sound noise, and ahead of the paper's best; on X-rays, where the paper learnt nothing, at most 0.30.
        assert all(float(figure) <= float(printed[4]) for figure in printed[:3])
        if data == "PneumoniaMNIST":
            assert max(map(float, printed[:3])) <= 0.30


def test_auto_is_close_to_the_best() -> None:
    """What docs/choosing.md says of all methods, from the means of docs/results/state."""
    found: dict[tuple[str, float], dict[str, float]] = {}
    measured = means("state")
    for (panel, line, asked), mean in measured.items():
        if line in STATE_LINES.values() and not panel.endswith((": AUC", ": log-loss")):
            found.setdefault((panel, asked), {})[line] = mean
    # Data, and budgets, at which only some of the methods are run compare nothing; one may miss where it takes long.
    found = {place: here for place, here in found.items() if len(here) >= len(STATE_LINES) - 1}
    # 48 rows: all methods are guessing.
    guesses = [found.pop(place) for place in list(found) if place[0] == "golub"]
    (ahead,) = said("choosing.md", r"no method is ahead of the null model by more than ([\d.]+)")
    assert 0.03 >= ahead >= measured["golub", "null model", 1.0] - min(min(here.values()) for here in guesses)

    within, many, points, most = said(
        "choosing.md", r"within (\d+) % of the best at (\d+) of (\d+) points, and at most (\d+) % behind"
    )
    auto = {place: here[STATE_LINES["auto"]] / min(here.values()) for place, here in found.items()}
    assert within <= 5
    assert (many, points) == (sum(one <= 1 + within / 100 for one in auto.values()), len(auto))
    assert math.ceil(100 * (max(auto.values()) - 1)) == most <= 25
    page = (ROOT / "docs/choosing.md").read_text(encoding="utf-8")
    further = {panel for (panel, _), ratio in auto.items() if ratio > 1 + within / 100}
    for panel in {panel for panel, _ in auto}:
        assert (f" {panel} at ε = " in page.partition("The other points are:")[2]) == (panel in further)
    text = [here for (panel, _), here in found.items() if panel.startswith(("RCV1", "IMDB"))]
    transfer = [here[STATE_LINES["knowledge_transfer"]] / here[STATE_LINES["auto"]] for here in text]
    stated = said("choosing.md", r"has ([\d.]+) to ([\d.]+) times the error of `auto` on text")
    assert stated == pytest.approx([min(transfer), max(transfer)], abs=0.0051)
    (worst,) = said("choosing.md", r"Every other method has, somewhere, at least ([\d.]+) times the error of the best")
    others = [line for method, line in STATE_LINES.items() if method != "auto"]
    ratios = [max(here[line] / min(here.values()) for here in found.values() if line in here) for line in others]
    assert 2 <= worst <= min(ratios) < worst + 0.1


def test_tables_of_knowledge_transfer_are_the_measured_ones() -> None:
    """The figures in docs/knowledge_transfer.md, and what it says of the sparse variant beside the published one."""
    errors = means("dpsl-kt-figure2")
    names: tuple[str, ...] = (
        "DPSL-KT, sound noise, sparse teacher",
        "DPSL-KT, sound noise, dense teacher",
        "DPSL-KT, paper's noise (oracle-tuned, not private)",
        "tulle (auto)",
    )
    rows = cells("knowledge_transfer.md", "figure 2")
    assert len(rows) == 8
    for setting, asked, *printed in rows:
        found = [errors[setting, name, float(asked)] for name in names]
        assert [float(figure) for figure in printed] == pytest.approx(found, abs=5.1e-4), (setting, asked)
    sparse, dense, as_published, auto = (
        {(panel, asked): error for (panel, line, asked), error in errors.items() if line == name} for name in names
    )
    assert len(sparse) == 20
    assert min(dense.values()) > 0.8
    page = "knowledge_transfer.md"
    (ahead,) = said(page, r"The sparse variant is ahead of the published one at (\d+) of the 20 points")
    assert 19 <= ahead == sum(error < as_published[place] for place, error in sparse.items())
    (within,) = said(page, r"with 800 rows at ε = 10, where the two are within (\d+) %")
    assert max(error / as_published[place] for place, error in sparse.items()) <= 1 + within / 100 <= 1.02
    (auto_ahead,) = said(page, r"`method=\"auto\"` is ahead of it at (\d+) of the 20")
    assert auto_ahead == sum(error < sparse[place] for place, error in auto.items())

    losses = {(row["data"], row["method"], row["epsilon"]): row["loss"] for row in figures("transfer_half_public")}
    names = (
        *("knowledge transfer, dense", "knowledge transfer, sparse", "auto, private half alone"),
        *("DPSL-KT as published", "paper: DPSL-KT"),
    )
    rows = cells("knowledge_transfer.md", "half public")
    assert len(rows) == 12
    for data, asked, *printed in rows:
        for figure, name in zip(printed, names):
            measured = losses.get((data, name, str(float(asked))))
            assert (figure == "") == (measured is None)
            assert measured is None or float(figure) == pytest.approx(float(measured), abs=5.1e-5), (data, name)
        # With public rows, and with a promise that holds, ahead of the paper's table.
        assert not printed[4] or float(printed[0]) < float(printed[4])


def test_table_of_label_randomisers_is_true() -> None:
    """Every variance in docs/local.md is the channel's own, to the digits printed, and so is the choice."""
    rows = cells("local.md", "ε")
    assert len(rows) == 4
    for asked, *printed, chosen in rows:
        epsilon = float(asked)
        channels = (
            GaussianLabel(epsilon, 1.0, 1e-3),
            GaussianLabel(epsilon, 1.0, 1e-5),
            *(cls(epsilon, 1.0) for cls in (LaplaceLabel, TwoPoint, Piecewise, Hybrid)),
        )
        for channel, figure in zip(channels, printed):
            assert float(figure) == pytest.approx(channel.worst_variance, rel=5.1e-3)
        assert best_label_channel(epsilon, 1.0).name == chosen.replace("-", "_")


def test_errors_of_label_privacy_are_as_the_page_says() -> None:
    """They fall with n, move little with p, and are less than half of those of the Gaussian at epsilon = 1."""
    errors = means("ldp-iht-figure1")
    chosen = {key: mean for key, mean in errors.items() if key[1].startswith(CHOSEN)}
    few, many = min(n for _, _, n in chosen), max(n for _, _, n in chosen)
    assert many == 16 * few
    falls = [mean / chosen[panel, series, many] for (panel, series, n), mean in chosen.items() if n == few]
    assert min(falls) > 2
    assert is_range(said("local.md", rf"Sixteen times the users have {RANGE} less error"), falls)

    wide = {key: mean for key, mean in chosen.items() if key[1].endswith(", p = 2,000")}
    grows = [mean / chosen[panel, f"{CHOSEN}, p = 250", n] for (panel, _, n), mean in wide.items()]
    assert len(grows) == 5
    assert max(grows) < 2
    assert is_range(said("local.md", rf"eight times the features {RANGE} as much"), grows)

    at_one = {key: mean for key, mean in chosen.items() if "ε = 1" in f"{key[0]}, {key[1]}".split(", ")}
    assert len({series for _, series, _ in at_one}) >= 7
    gains = [errors[panel, series.replace(CHOSEN, GAUSSIAN), n] / mean for (panel, series, n), mean in at_one.items()]
    assert min(gains) > 2
    assert is_range(said("local.md", rf"At ε = 1 the chosen randomiser has {RANGE} less error"), gains)

    central = said("local.md", r"which hides the documents too, has ([\d.]+), ([\d.]+) and ([\d.]+\d)\.")
    state = means("state")
    assert central == pytest.approx(
        [state["RCV1 subset", STATE_LINES["auto"], asked] for asked in (0.5, 1.0, 2.0)], abs=5.1e-4
    )


def test_gaps_on_covertype_are_as_the_page_says() -> None:
    """How far they fall with n, what the printed noise proves, and that `auto` is ahead in logistic loss."""
    falls: dict[str, list[float]] = {}
    true: dict[str, set[str]] = {}
    losses: dict[str, list[float]] = {}
    for panel in shown("ldp-iht-figure2"):
        for series in panel.series:
            method, special = series.name.rsplit(", ", 1)
            first, *_, last = series.points
            assert (first.x, last.x) == (5_000, 200_000)
            if panel.y == "excess logistic loss":
                losses.setdefault(method, []).extend(point.mean for point in series.points)
            elif method == DP_IHT:
                falls.setdefault(panel.name.split("; ")[0], []).append(first.mean / last.mean)
            if method == PRINTED and special.startswith("ε = "):
                true.setdefault(special, set()).update(point.note for point in series.points)
    page = "hard_thresholding.md"
    fall = said(page, rf"From 5,000 to 200,000 rows gaps of DP-IHT fall {RANGE} in the ball and {RANGE} without")
    assert is_range(fall[:2], falls["unit ball, not in the paper"])
    assert is_range(fall[2:], falls["no ball, as printed"])
    proved = said(page, r"proves ε = ([\d.]+), ([\d.]+) and ([\d.]+) where 0.25, 1 and 4 are claimed")
    for special, figure in zip(("ε = 0.25", "ε = 1", "ε = 4"), proved):
        assert true[special] == {f"true ε {figure:g}"}
    ahead, points = said(page, r"it is ahead of DP-IHT at (\d+) of (\d+) points")
    # The usual setting stands in every panel, and counts once.
    both = set(zip(losses[AUTO], losses[DP_IHT], strict=True))
    assert (ahead, points) == (sum(auto < other for auto, other in both), len(both))
    below, points = said(page, r"below 0 at (\d+) of (\d+) points")
    assert (below, points) == (sum(auto < 0 for auto, _ in both), len(both))


def test_whole_rows_meet_the_wall_and_priv_unit_has_less_variance() -> None:
    """Error grows with p at least as the bound does; the measured gain in variance at epsilon = 4 is 3.9."""
    rows = figures("whole_rows")
    errors = {
        (row["method"], float(row["epsilon"]), int(row["p"])): float(row["mean"])
        for row in rows
        if row["panel"] == "error"
    }
    for method, asked in {setting[:2] for setting in errors}:
        growth = errors[method, asked, 400] / errors[method, asked, 12]
        assert growth > math.sqrt(400 / 12)
    assert errors["LDP-IHT, PrivUnit", 1.0, 200] > 0.8
    (gain,) = (float(row["mean"]) for row in rows if row["panel"] == "variance gain" and row["epsilon"] == "4.0")
    assert gain == pytest.approx(3.88, abs=0.05)


def test_excess_risk_falls_as_the_theorem_says() -> None:
    """The slopes in the picture of docs/frank_wolfe.md are at least as steep as -2/3, and many features cost little."""
    rows = figures("excess_risk")
    risks = {(int(row["d"]), int(row["n"])): float(row["excess_risk"]) for row in rows if row["n"] != "slope"}
    assert len(risks) >= 12
    for d in (100, 10_000):
        sizes = sorted(n for many, n in risks if many == d)
        late = sizes[len(sizes) // 2 :]
        slope = np.polyfit(np.log(late), np.log([risks[d, n] for n in late]), 1)[0]
        (stated,) = (float(row["excess_risk"]) for row in rows if row["n"] == "slope" and int(row["d"]) == d)
        assert slope == pytest.approx(stated)
        assert slope <= -2 / 3
    ratios = [risks[10_000, n] / risks[100, n] for n in (8_000, 16_000, 32_000, 64_000)]
    least, most = re.search(
        r"factor of ([\d.]+) to ([\d.]+) from n", (ROOT / "docs/frank_wolfe.md").read_text()
    ).groups()  # type: ignore[union-attr]
    assert float(least) - 0.1 < min(ratios) <= max(ratios) < float(most) + 0.1


def test_table_of_the_federated_papers_noise_is_true() -> None:
    """Each row of the table in docs/federated.md is what the example computes, to the digits printed."""
    proved = loaded("examples/federated_noise.py").proved
    rows = cells("federated.md", "batch")
    assert len(rows) == 4
    for batch, steps, noise, asked, tight, poisson, fixed_size in rows:
        found = proved(int(batch), int(steps.replace(",", "")), float(asked))
        assert float(noise) == pytest.approx(found.noise, abs=5.1e-4)
        assert float(tight) == pytest.approx(found.tight, abs=5.1e-3)
        assert float(poisson) == pytest.approx(found.poisson, abs=5.1e-3)
        assert float(fixed_size) == pytest.approx(found.fixed_size, abs=0.051)


def test_tables_of_the_federated_figures_are_the_measured_ones() -> None:
    """Figures in docs/federated.md are those of docs/results/federated-rcv1 and of docs/pictures/federated_mnist.py."""
    errors = {(line, asked): mean for (_, line, asked), mean in means("federated-rcv1").items()}
    table = cells("federated.md", "test error, δ = 1e-5")
    assert len(table) * 5 == len(errors) == 35
    for line, *printed in table:
        found = [errors[line, asked] for asked in (0.5, 1.0, 2.0, 4.0, 8.0)]
        assert [float(figure) for figure in printed] == pytest.approx(found, abs=5.1e-4), line
    central, masked = (
        np.array([errors[line, asked] for asked in (0.5, 1.0, 2.0, 4.0, 8.0)])
        for line in ("central, default method", "masked sums, default method")
    )
    stated = said("federated.md", r"Masked sums cost ([\d.]+) to ([\d.]+) more")
    assert stated == pytest.approx([(masked - central).min(), (masked - central).max()], abs=5.1e-4)
    accuracies = {(row["method"], row["epsilon"], row["round"]): row["accuracy"] for row in figures("federated_mnist")}
    table = cells("federated.md", "test accuracy after round")
    assert len(table) == 5
    for method, budget, *printed in table:
        told = "" if budget == "none" else f"{float(budget):.1f}"
        found = [float(accuracies[method, told, number]) for number in ("10", "20", "30", "40", "50")]
        assert [float(figure) for figure in printed] == pytest.approx(found, abs=5.1e-4), (method, budget)


def test_table_of_trust_models_is_the_measured_one() -> None:
    """Accuracies in docs/federated.md are the means that docs/pictures/federated_trust.py wrote."""
    rows = figures("federated_trust")
    measured = {(float(row["epsilon"]), row["clients"], row["trust"]): float(row["accuracy"]) for row in rows}
    table = cells("federated.md", "ε | clients")
    lines = (
        "curious server, no memory",
        "curious server",
        "masked sums",
        "masked sums, a third colludes",
        "trusted aggregator",
    )
    assert len(table) * len(lines) == len(measured) == 30
    for asked, clients, *printed in table:
        found = [measured[float(asked), clients, line] for line in lines]
        assert [float(figure) for figure in printed] == pytest.approx(found, abs=5.1e-4), (asked, clients)
        assert found[0] < found[1]


def test_table_of_masked_studies_is_the_measured_one() -> None:
    """Accuracies in docs/masked_sums.md are the means over seeds that benchmarks/masked_federated.py wrote."""
    found: dict[tuple[Any, ...], list[float]] = {}
    for line in (ROOT / "docs" / "pictures" / "masked_federated.jsonl").read_text().splitlines():
        one = json.loads(line)
        name, column, asked, _, clients = one["cell"]
        count = "" if column.startswith("central") else str(clients)
        found.setdefault((name, column, float(asked), count), []).append(one["accuracy"])
    table = cells("masked_sums.md", "set | ε | clients")
    columns = (
        "curious server",
        "masked, t = 0",
        "masked, t = N/3",
        "masked, t = N/3, 2 retries",
        "central, same method",
        "trusted aggregator",
        "central default",
    )
    assert len(table) == 18
    for name, asked, clients, *printed in table:
        keys = [(name, one, float(asked), "" if one.startswith("central") else clients) for one in columns]
        assert [float(figure) for figure in printed] == pytest.approx([np.mean(found[key]) for key in keys], abs=5.1e-4)


def test_links_lead_somewhere() -> None:
    """Relative links and pictures of every page exist."""
    links = [
        (page, target)
        for page in PAGES
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not target.startswith(("http:", "https:"))
    ]
    assert len(links) > 100
    assert [f"{page.name}: {target}" for page, target in links if not (page.parent / target).exists()] == []


# --- deciding --------------------------------------------------------------------------------------------------------


def _rounded_up(value: float, digits: int) -> float:
    return math.ceil(value * 10**digits - 1e-9) / 10**digits


def test_table_of_odds_is_true() -> None:
    """Each belief in docs/deciding.md is the largest that epsilon allows, never less than it."""
    rows = cells("deciding.md", "ε")
    assert [row[0] for row in rows] == ["0.1", "0.5", "1", "2", "4", "8"]
    for asked, factor, *beliefs in rows:
        odds = math.exp(float(asked))
        assert odds <= float(factor) <= 1.006 * odds
        for before, printed in zip((0.01, 0.1, 0.5), beliefs):
            after = before * odds / (1 - before + before * odds)
            assert float(printed.removesuffix(" %")) == pytest.approx(_rounded_up(100 * after, 1)), (asked, before)


def test_table_of_rows_is_the_measured_one() -> None:
    """Errors against rows and epsilon in docs/deciding.md are the means that docs/pictures/rows_needed.py wrote."""
    measured: dict[tuple[str, int], list[float]] = {}
    for row in figures("rows_needed"):
        measured.setdefault((row["data"], int(row["n"])), []).append(float(row["error"]))
    rows = cells("deciding.md", "data")
    assert len(rows) == len(measured) == 8
    for data, n, *printed in rows:
        found = measured[data, int(n.replace(",", ""))]
        assert [float(figure) for figure in printed] == pytest.approx(found, abs=5.1e-4), (data, n)


def test_the_chart_is_what_its_script_draws() -> None:
    """The decision chart was drawn after the last change of its script, and names methods that there are."""
    drawn = loaded("docs/pictures/decision_chart.py").chart()
    assert (ROOT / "docs/pictures/decision_chart.svg").read_text(encoding="utf-8") == drawn
    named = re.findall(r"method=&quot;(\w+)&quot;", drawn)
    assert len(named) == 4
    assert set(named) <= set(METHODS)


# --- what pages take from the code -----------------------------------------------------------------------------------

HOOKS = loaded("docs/hooks.py")
INCLUDED = [
    pytest.param(file, symbol or None, id=f"{page.stem}: {file} {symbol}")
    for page in PAGES
    for file, symbol in HOOKS.CODE.findall(page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize(("file", "symbol"), INCLUDED)
def test_included_code_is_there(file: str, symbol: str | None) -> None:
    """Each file or symbol that a page includes exists, and comes out whole."""
    shown = HOOKS.folded_source(file, symbol)
    assert shown.count("<pre>") == 1
    text = re.sub(r"<[^>]+>", "", shown)
    assert f"class {symbol.split('.')[-1]}" in text if symbol else "from __future__ import annotations" in text


def test_every_method_is_included_with_paper_and_proof() -> None:
    """The page that includes a method's file says which paper it is of, with the year, and links to its proof."""
    pages = {
        file: page.read_text(encoding="utf-8")
        for page in PAGES
        for file, symbol in HOOKS.CODE.findall(page.read_text(encoding="utf-8"))
        if not symbol
    }
    for name, method in METHODS.items():
        file = Path(inspect.getfile(method)).relative_to(ROOT).as_posix()
        assert file in pages, name
        assert re.search(r"\]\(proofs/\w+\.md\)", pages[file]), name
        assert name == "auto" or re.search(r"^- .*?\b(19|20)\d\d\b", pages[file], re.M | re.DOTALL), name


@pytest.mark.parametrize(
    ("file", "symbol"),
    [
        ("src/tulle/no_such_file.py", None),
        ("src/tulle/methods/auto.py", "NoSuchClass"),
        ("src/tulle/methods/auto.py", "Auto.no_such_method"),
    ],
)
def test_what_is_not_there_cannot_be_included(file: str, symbol: str | None) -> None:
    """The build stops where a page includes something that was renamed."""
    with pytest.raises(HOOKS.DocumentationError):
        HOOKS.on_page_content(f"<!-- code: {file}{' :: ' + symbol if symbol else ''} -->")


def test_a_symbol_comes_with_its_decorators() -> None:
    """What is included is the whole of it and nothing else."""
    text = HOOKS.source_of("src/tulle/estimators/bounds.py", "Bounds.estimate")
    assert text.startswith("@classmethod\n@np.errstate(")
    assert "def reliable" not in text


def test_the_reference_has_every_public_name() -> None:
    """All of `tulle` and of the rooms on the page has a docstring; each name is a heading with a signature."""
    pages = [(ROOT / "docs/api" / f"{name}.md").read_text(encoding="utf-8") for name in HOOKS.reference_pages()]
    assert len(pages) == len(list((ROOT / "docs/api").glob("*.md")))
    text = "".join(map(HOOKS.on_page_markdown, pages))
    index = HOOKS.on_page_markdown((ROOT / "docs/api.md").read_text(encoding="utf-8"))
    assert "<!-- api" not in text + index
    for module in (
        "tulle",
        "tulle.methods",
        "tulle.methods.loss_functions",
        "tulle.audit",
        "tulle.local",
        "tulle.federated",
        "tulle.estimators.saving",
    ):
        names = HOOKS.public_names(importlib.import_module(module))
        assert len(names) >= 4
        for name in names:
            assert f"### {name}\n" in text, f"{module}.{name}"
            assert f"<b>{module}.{name}</b>(" in text
            assert f".md#{module}.{name}): " in index
    assert "<code>rows_per_person</code>" in text  # a parameter
    assert "<code>support_</code>" in text  # an attribute
    assert "&gt;&gt;&gt; from tulle import" in re.sub(r"</?span[^>]*>", "", text)  # an example


@pytest.mark.parametrize(
    ("module", "names"),
    [("tulle.no_such_room", None), ("tulle.estimators.bounds", "NoSuchName"), ("tulle.estimators.bounds", "GRID")],
)
def test_a_name_without_docstring_stops_the_build(module: str, names: str | None) -> None:
    """Missing modules, missing names and names that nobody has described."""
    with pytest.raises(HOOKS.DocumentationError):
        HOOKS.reference(module, names)


def test_a_dataclass_without_words_counts_as_undescribed() -> None:
    """dataclass writes a signature where a docstring is missing."""
    with pytest.raises(HOOKS.DocumentationError, match="no docstring"):
        HOOKS.entry("room.Plain", make_dataclass("Plain", ["x"]))


def test_the_command_line_page_has_every_option() -> None:
    """Commands, subcommands and options of the parser are on the page; its exit codes are those of the program."""
    from tulle.cli import outcome
    from tulle.cli.command_runner import COMMANDS

    text = HOOKS.on_page_markdown((ROOT / "docs/command_line.md").read_text(encoding="utf-8"))
    for name in (*COMMANDS, "ledger open", "account published"):
        assert re.search(rf"^###+ tulle {name}$", text, re.M), name
    for option in ("--epsilon", "--rows-per-person", "--no-intercept", "--json", "--replace", "--test-share"):
        assert f"<code>{option}</code>" in text, option
    codes = {value for name, value in vars(outcome).items() if name.isupper() and isinstance(value, int)}
    assert len(codes) == 9
    assert {int(row[0]) for row in cells("command_line.md", "exit code")} == codes


def test_every_page_is_in_the_navigation() -> None:
    """A page that mkdocs.yml does not name is found by nobody."""
    named = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M))
    # Tables of results stand on their pages.
    pages = {page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")}
    notebooks = {path.with_suffix(".md").relative_to(ROOT / "docs") for path in (ROOT / "docs/gallery").glob("*.ipynb")}
    assert named == {page.as_posix() for page in pages | notebooks if not page.match("results/*/table.md")}


# --- other libraries -------------------------------------------------------------------------------------------------


def test_tables_of_other_libraries_are_the_measured_ones() -> None:
    """Losses, times and memory in docs/other_libraries.md are those of the CSV file, empty where nothing was run."""
    libraries = ("tulle", "diffprivlib", "opacus", "tulle (at Opacus's promise)")
    found = {(row["data"], float(row["epsilon"]), row["library"]): row for row in figures("other_libraries")}
    rows = cells("other_libraries.md", "set")
    assert {(row[0], float(row[2])) for row in rows} == {setting[:2] for setting in found}
    for data, shape, asked, *printed in rows:
        at = re.fullmatch(r"([\d.]+) \(ε = ([\d.]+)\)", printed[3])
        assert at is not None
        assert float(at[2]) == pytest.approx(float(found[data, float(asked), libraries[3]]["promised"]), abs=5.1e-3)
        for library, figure in zip(libraries, (*printed[:3], at[1])):
            one = found[data, float(asked), library]
            assert shape == f"{int(one['n']):,} × {int(one['d']):,}"
            assert (figure == "") == (one["loss"] == "")
            # Where a model is worse than nothing by orders of magnitude, one digit says all there is to say.
            exact = "e" not in figure
            tolerance = {"abs": 5.1e-4} if exact else {"rel": 0.5}
            assert not figure or float(figure) == pytest.approx(float(one["loss"]), **tolerance), (data, asked, library)
    for data, *printed in cells("other_libraries.md", "set, ε = 1"):
        for library, figure in zip(libraries, printed):
            one = found[data, 1.0, library]
            cost = f"{float(one['seconds']):g} s, {int(one['megabytes']):,} MB" if one["loss"] else ""
            assert figure == cost, (data, library)


def test_what_is_said_of_other_libraries_follows_from_the_figures() -> None:
    """In how many cells DP-SGD is ahead, how close tulle is at the same promise, and what the noise really proves."""
    text = (ROOT / "docs/other_libraries.md").read_text(encoding="utf-8")
    found = {(row["data"], float(row["epsilon"]), row["library"]): row for row in figures("other_libraries")}
    cells_of = [setting[:2] for setting in found if setting[2] == "opacus"]
    losses = {setting: float(row["loss"] or "nan") for setting, row in found.items()}
    ahead = sum(losses[*cell, "opacus"] < losses[*cell, "tulle"] for cell in cells_of)
    assert f"in {ahead} of the {len(cells_of)} cells" in text
    same = "tulle (at Opacus's promise)"
    apart = {cell: losses[*cell, same] - losses[*cell, "opacus"] for cell in cells_of}
    far = [cell for cell, difference in apart.items() if abs(difference) > 0.003]
    assert "within 0.003 of Opacus everywhere" in text
    assert far == [("dense, 200 features, regression", 1.0)]
    promised = {
        epsilon: {float(found[data, e, same]["promised"]) for data, e in cells_of if e == epsilon}
        for epsilon in (1.0, 4.0)
    }
    assert all(1.95 < figure < 2.05 for figure in promised[1.0])
    assert all(6.6 < figure < 6.8 for figure in promised[4.0])
    steps = {float(row["setting"].strip("[]").split(",")[0]) for row in found.values() if row["library"] == "opacus"}
    assert (min(steps), max(steps)) == (8.0, 512.0)


def test_few_weights_do_as_well_as_the_page_says() -> None:
    """Asked for few weights where few matter, tulle is ahead of DP-SGD at the weaker promise."""
    found = {(row["data"], float(row["epsilon"])): float(row["loss"]) for row in figures("other_libraries_weights")}
    place = "dense, 200 features, regression", 1.0
    text = (ROOT / "docs/other_libraries.md").read_text(encoding="utf-8")
    said = re.search(r"`n_nonzero=20`\), tulle has 1 − R² = ([\d.]+) at\s+ε = 1, ahead of DP-SGD", text)
    assert said is not None
    assert float(said[1]) == pytest.approx(found[place], abs=5.1e-4)
    (opacus,) = (
        row
        for row in figures("other_libraries")
        if (row["data"], row["library"]) == (place[0], "opacus") and float(row["epsilon"]) == 1
    )
    assert found[place] < float(opacus["loss"])


def test_versions_of_other_libraries_are_those_that_ran() -> None:
    """Facts about a library are facts about a version."""
    text = (ROOT / "docs/other_libraries.md").read_text(encoding="utf-8")
    for library, version in {(row["library"], row["version"]) for row in figures("other_libraries")}:
        name = library.partition(" ")[0]
        assert re.search(rf"{name}\b[^\n]*\| {re.escape(version)}\b", text, re.I), (library, version)


def test_the_attack_on_a_printed_epsilon_is_the_measured_one() -> None:
    """Counts in docs/other_libraries.md are those of the CSV file, and the bound is what our auditor makes of them."""
    (row,) = figures("other_libraries_attack")
    text = (ROOT / "docs/other_libraries.md").read_text(encoding="utf-8")
    said = re.search(
        r"printed ε = ([\d.]+).*?above (\d+) in ([\d,]+) of ([\d,]+) fits.*?in (\d+) of.*?proves ε ≥ ([\d.]+)",
        text,
        re.DOTALL,
    )
    assert said is not None
    claimed, threshold, hits, runs, false_hits, proved = (float(figure.replace(",", "")) for figure in said.groups())
    assert (claimed, threshold, hits, runs, false_hits) == tuple(
        float(row[name]) for name in ("epsilon", "threshold", "hits", "runs", "false_hits")
    )
    bound = float(epsilon_lower_bound(int(hits), int(false_hits), int(runs), 0.0, float(row["confidence"])))
    assert claimed < proved <= bound < proved + 0.01


def test_the_audits_are_the_measured_ones() -> None:
    """The table of what audits find is docs/pictures/audits.csv, row by row."""
    rows = [row for row in cells("audit.md", "subject") if len(row) == 6]
    for (_, claimed, audited, possible, runs, violation), kept in zip(rows, figures("audits"), strict=True):
        assert float(claimed) == float(kept["claimed"])
        assert (float(audited), float(possible)) == (float(kept["audited"]), round(float(kept["possible"]), 1))
        assert runs == f"{int(kept['runs']):,}"
        assert violation == ("**false**" if float(audited) > float(claimed) else "none found")


def test_the_planted_bugs_are_the_measured_ones() -> None:
    """The table in docs/audit.md is what benchmarks/audit_planted_bugs.py wrote."""
    measured_file = json.loads((ROOT / "docs/pictures/audit_planted_bugs.json").read_text(encoding="utf-8"))
    bugs, sound = measured_file["bugs"], measured_file["sound"]
    assert len(bugs) == 30
    assert sum(bug["kind"] != "function" for bug in bugs) >= 12
    rows = cells("audit.md", "bug")
    assert len(rows) == len(bugs)
    for bug, (name, claim, *runs) in zip(bugs, rows):
        assert name == bug["name"] + ("" if bug["kind"] == "function" else f" ({bug['kind']})")
        assert claim == bug["claim"]
        *measured, default = runs
        figures = (bug["median"], bug["nine_of_ten"], bug["fixed"])
        assert measured == [f"over {bug['most']:,}" if value is None else f"{value:,.0f}" for value in figures]
        if bug["default_size"] == -1:  # patches of tulle: not measured
            assert default == ""
        else:
            limit = f"over {bug['default_most']:,}"
            assert default == (limit if bug["default_size"] is None else f"{bug['default_size']:,}")
    known = [bug["fixed"] / bug["median"] for bug in bugs if bug["fixed"] and bug["median"]]
    page = (ROOT / "docs/audit.md").read_text(encoding="utf-8")
    assert f"the median is {min(known):.1f} to {max(known):.1f} times smaller than a fixed size" in page
    functions = [bug for bug in bugs if bug["kind"] == "function" and bug["default_size"]]
    of_mu, of_epsilon = (
        [bug["default_size"] / bug["median"] for bug in functions if bug["claim"].startswith(kind)] for kind in "με"
    )
    assert len(of_mu) == 4
    assert f"defaults it is {min(of_mu):.0f} to {max(of_mu):,.0f} times smaller for four bugs" in page
    assert f"betting takes {min(of_epsilon):.1f} to {max(of_epsilon):.1f} times fewer runs" in page
    assert f"Of {sound['audits']} audits of the same ten models" in page
    assert f"at confidence 0.95, {sound['refuted']} was refuted, where {sound['audits'] // 20} are allowed" in page
