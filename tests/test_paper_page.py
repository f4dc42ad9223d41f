"""Each figure in docs/paper.md is that of the file, the page or the code that it comes from."""

from __future__ import annotations

import json
import math
import re

import pytest
from mutants import MUTANTS
from pages import ROOT, cells
from test_architecture import FILES, MOST_TRUSTED_LINES, lines_of
from test_docs import STATE_LINES, figures, means, said

from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.accounting.row_limit import MOST_ROWS
from tulle.methods import HardThresholding
from tulle.methods.loss_functions import Logistic
from tulle.trusted.accountants import epsilon
from tulle.trusted.events import objective_factor
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import ObjectivePerturbation
from tulle.trusted.plan import Budget

PAGE = "paper.md"
TEXT = " ".join((ROOT / "docs" / PAGE).read_text(encoding="utf-8").split())


def audited() -> dict[tuple[str, ...], dict[str, float]]:
    """The cells of the audits, by the part of the file and their names."""
    lines = (ROOT / "docs/pictures/audit_bounds.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return {(one["part"], *map(str, one["cell"])): one for one in found}


def test_the_size_of_the_trusted_package() -> None:
    stated = {int(found.replace(",", "")) for found in re.findall(r"at most ([\d,]+) lines", TEXT)}
    assert stated == {MOST_TRUSTED_LINES}
    assert sum(lines_of(path) for path in FILES if "trusted" in path.parts) <= MOST_TRUSTED_LINES


def test_the_printed_noise_of_a_corollary() -> None:
    """What the accountant proves for it, as docs/hard_thresholding.md has it."""
    first, delta, proved, steps, *second = said(
        PAGE,
        r"At \$\\varepsilon = (\d+)\$ and \$\\delta = ([\d.]+)\$, Corollary 5\.8 .* proves \$\\varepsilon = ([\d.]+)\$ "
        r"for (\d+) steps; at \$\((\d+), 10\^\{-(\d)\}\)\$ it proves ([\d.]+\d)",
    )
    for asked, at, figure in ((first, delta, proved), (second[0], 10 ** -second[1], second[2])):
        budget = Budget(asked, at)
        public = PublicFacts(1000, 50, 5, Logistic(), budget, 1.0, 1.0, 1.0, True, as_published=True)
        method = HardThresholding(n_iter=int(steps), noise="gaussian", published_rule="corollary_5.8")
        assert epsilon(method.published(public, budget), at) == pytest.approx(figure, abs=0.051)


def test_constants_of_the_theorem() -> None:
    (factor, power) = said(PAGE, r"\$n \\le (\d) \\cdot 10\^(\d)\$")
    assert factor * 10**power == MOST_ROWS
    one_sided, any_loss = said(
        PAGE, r"\$F\(1/2\) = ([\d.]+)\$ for logistic and hinge losses and ([\d.]+) for every other"
    )
    assert (one_sided, any_loss) == pytest.approx(
        (objective_factor(0.5, True), objective_factor(0.5, False)), abs=5.1e-4
    )
    (certificate,) = said(PAGE, r"\\left\(\\frac\{\\mu_t\}\{(\d+)\}\\right\)\^2")
    assert certificate == ObjectivePerturbation.CERTIFICATE
    (mu,) = said(PAGE, r"\$\\mu = ([\d.]+)\$ for \$\(1, 10\^\{-5\}\)\$")
    assert mu == pytest.approx(gaussian_mu(1.0, 1e-5), abs=5.1e-4)


def test_counts_of_bugs_and_advisories() -> None:
    (planted,) = said(PAGE, r"more than ([\d,]+) planted bugs must each")
    assert planted < len(MUTANTS)
    (false,) = said(PAGE, r"(\d+) false statements of earlier states")
    advisories = (ROOT / "docs/advisories.md").read_text(encoding="utf-8")
    assert false == len(re.findall(r"^## \d+\. ", advisories, re.M))


def test_audits_are_the_measured_ones() -> None:
    measured = audited()
    (head,) = re.findall(r"\| claimed ε ((?:\| [\d.]+ )+)\|", TEXT)
    ratios, runs = cells(PAGE, "claimed ε | 0.5")
    for asked, ratio, counted in zip(head.split("|")[1:], ratios[1:], runs[1:], strict=True):
        one = measured["bounds", "the default: fit, keep, fit again", str(float(asked))]
        assert (one["judge"], one["delta"]) == ("gaussian", 1e-5)
        assert float(ratio) == pytest.approx(one["ratio"], abs=5.1e-3)
        assert counted == f"{one['counted']:,}"
    (first,) = said(PAGE, r"changed after a first look, which showed ([\d.]+\d)\.")
    assert [first] == said("audit.md", r"and the default \(([\d.]+)\)")
    claimed, fixed, shown, betting = said(
        PAGE,
        r"DPSL-KT at a claim of \$\\varepsilon = (\d)\$ is refuted: (\d+) runs prove \$\\varepsilon \\ge ([\d.]+)\$, "
        r"and a sequential test by betting needs (\d+)\.",
    )
    one, other = (measured["published", "DPSL-KT, theorem 4.3", way] for way in ("fixed", "betting"))
    assert (one["claimed"], one["runs"], other["decided_after"]) == (claimed, fixed, betting)
    assert one["refuted"]
    assert math.floor(100 * one["epsilon"]) / 100 == shown


def test_planted_bugs_of_audits_are_the_measured_ones() -> None:
    file = json.loads((ROOT / "docs/pictures/audit_planted_bugs.json").read_text(encoding="utf-8"))
    bugs, most = said(PAGE, r"Of (\d+) planted bugs, the .* some were not within (\d+)\.")
    assert bugs == len(file["bugs"])
    assert {bug["most"] for bug in file["bugs"] if bug["median"] is None} == {most}
    audits, refuted, allowed = said(
        PAGE,
        r"Of (\d+) audits of the same models without a bug, (\d+) was refuted at confidence 0\.95, where (\d+) are",
    )
    sound = file["sound"]
    assert (audits, refuted, allowed) == (sound["audits"], sound["refuted"], sound["audits"] / 20)


def test_errors_are_the_measured_ones() -> None:
    """The table of weights, and the prices of privacy from docs/results/state."""
    names = {"RCV1 subset": "rcv1", "Reuters acquisitions": "reuters_acq", "MNIST, even or odd": "mnist_even"}
    measured = {
        (row["set"], float(row["epsilon"]), row["weights"]): float(row["mean test error"])
        for row in figures("weights_error")
    }
    rows = cells(PAGE, "set")
    assert len(rows) == 6
    for name, features, asked, *printed in rows:
        sizes = ("100", "default", features.replace(",", ""))
        found = [measured[names[name], float(asked), size] for size in sizes]
        assert [float(figure) for figure in printed] == pytest.approx(found, abs=5.1e-4), (name, asked)
    seeds = said(PAGE, r"\(means of (\d+), (\d+) and (\d+) seeds\)")
    script = (ROOT / "docs/pictures/weights.py").read_text(encoding="utf-8")
    assert seeds == [float(found) for found in re.findall(r"^    \"\w+\": \(\".*\), (\d+)\),$", script, re.M)]
    *prices, patients, ahead = said(
        PAGE,
        r"error on RCV1 is ([\d.]+) at \$\\varepsilon = 1\$ and ([\d.]+) without privacy; on a9a, ([\d.]+) and "
        r"([\d.]+); on golub, with (\d+) patients, no method is ahead of guessing by more than ([\d.]+\d)\.",
    )
    state = means("state")
    auto, plain = STATE_LINES["auto"], "tulle (auto), no privacy"
    found = [state[data, line, 1.0] for data in ("RCV1 subset", "a9a") for line in (auto, plain)]
    assert prices == pytest.approx(found, abs=5.1e-4)
    assert [patients, ahead] == said(
        "choosing.md", r"On golub, with (\d+) training rows of .* null model by more than ([\d.]+\d) at any"
    )


def test_comparisons_are_those_of_their_pages() -> None:
    """These pages are compared with measured files by tests of their own, or state how to measure."""
    sets, within, learnt, behind, synthetic = said(
        PAGE,
        r"Over (\d+) development sets .* in (\d+) of the (\d+) cells on real data .* standard errors behind in (\d+); "
        r"on synthetic rows .* in (\d+) cells",
    )
    assert [sets] == said("choosing.md", r"every method with its defaults to (\d+) sets")
    assert [learnt] == said("choosing.md", r"cells in which some method beats the constant model \| (\d+) \|")
    assert [within] == said(
        "choosing.md", r"default within 5 % of the best method, or within two .* difference \| (\d+) "
    )
    assert [behind, synthetic] == said(
        "choosing.md", r"default more than 15 % and two standard errors behind \| (\d+) \| (\d+) "
    )
    descent = said(PAGE, r"it wins (\d+) comparisons of error, ties (\d+) and loses (\d+)")
    assert descent == said("choosing.md", r"default wins (\d+), ties (\d+) and loses (\d+) in error")
    version, ahead, of, near = said(
        PAGE, r"DP-SGD in Opacus (1\.6)\.0, .* in (\d+) of (\d+) cells .* is within ([\d.]+) everywhere but in one"
    )
    page = (ROOT / "docs/other_libraries.md").read_text(encoding="utf-8")
    assert f"| {version}.0, with torch" in page
    assert f"in {ahead:.0f} of the {of:.0f} cells" in page
    assert f"within {near} of Opacus everywhere, except" in page
    (replaced,) = said(PAGE, r"under addition and removal proves about ([\d.]+) under replacement")
    assert f"draws for ε = 1 proves ε = {replaced}" in page
    renyi = said(PAGE, r"Of (\d+) default fits, .* of none where .* and of (\d+) where only a bound on entries")
    assert renyi == said("architecture.md", r"Of (\d+) default fits .* and of (\d+) where only `row_linf` is")


def test_the_citation_is_that_of_the_repository() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    entry = dict(re.findall(r"^  (\w+) += \{+(.+?)\}+,?$", (ROOT / "docs" / PAGE).read_text(encoding="utf-8"), re.M))
    stated = dict(re.findall(r'^(title|version|license): "?(.+?)"?$', citation, re.M))
    assert {**stated, "author": re.findall(r"^  - name: (.+)$", citation, re.M)[0]} == entry
