"""The report: all that a privacy officer needs is printed, and no figure is printed smaller than it is proved."""

from __future__ import annotations

import json
import math
import re
from dataclasses import FrozenInstanceError, asdict, fields, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tulle
from tulle import Budget
from tulle.files.error_messages import PrivacyWarning
from tulle.files.number_text import rounded_down, rounded_up
from tulle.reports.report import About, BillLine, PrivacyReport
from tulle.reports.words import warn_of_published_noise

# Fields that no report of an earlier version has.
ADDED_LATER = ("rho", "asked_rho", "renyi", "billed", "version", "n_rows", "mu", "zero_out", "bounds")

REPORT = PrivacyReport(
    epsilon=0.99999,
    delta=1e-6,
    asked=(1.0, 1e-6),
    method="hard thresholding, 12 steps",
    calibration="rigorous",
    accountant="Gaussian differential privacy",
    unit="one row (replace-one: the number of rows, 1,000, is public)",
    bill=(
        BillLine("bound", "noisy max (Gumbel)", 1, 20.0, 0.1),
        BillLine("step", "Gaussian on a vector", 12, 15.3, 0.9),
    ),
    assumptions=("Rows were clipped to Euclidean norm 1 (declared).", "The noise came from a seed."),
    who_saw_what=("The method saw the answers on the bill.",),
    seeded=True,
    floating_point_slack=1e-12,
)


def unwrapped(text: str) -> str:
    return re.sub(r"\s+", " ", text)


class TestText:
    @pytest.mark.parametrize(
        "words",
        [
            "ε = 1, δ = 1e-06 was requested",
            "ε = 0.99999, δ = 1e-06 (of which 1e-12 is for finite precision) is proved",
            REPORT.unit,
            REPORT.method,
            REPORT.accountant,
            "calibration: rigorous",
            *(line.release for line in REPORT.bill),
            *(line.mechanism for line in REPORT.bill),
            *REPORT.assumptions,
            *REPORT.who_saw_what,
        ],
    )
    def test_holds_promise_bill_and_assumptions(self, words: str) -> None:
        assert words in unwrapped(str(REPORT))

    def test_every_line_of_the_bill_has_its_figures(self) -> None:
        (step,) = [line for line in str(REPORT).splitlines() if line.strip().startswith("step")]
        assert step.split()[-3:] == ["12", "15.3", "0.9"]

    def test_lines_are_short_enough_to_read(self) -> None:
        long = replace(REPORT, assumptions=("word " * 100,))
        assert max(len(line) for line in str(long).splitlines()) <= 110

    def test_published_noise_that_proves_too_little_is_said_loudly(self) -> None:
        worse = str(replace(REPORT, epsilon=1.08, calibration="published"))
        assert "MORE than requested" in unwrapped(worse)
        assert "ε = 1.08, δ = 1e-06 (of which 1e-12 is for finite precision) is proved" in unwrapped(worse)
        assert "MORE" not in str(REPORT)

    @pytest.mark.parametrize("rho", [None, 1 / 3])
    def test_what_was_requested_is_rounded_as_what_is_proved(self, rho: float | None) -> None:
        """Otherwise a third that is proved, 0.33334, looks like more than a third that was requested, 0.333333."""
        third = replace(REPORT, epsilon=1 / 3, rho=rho, asked=(1 / 3, 1e-6), asked_rho=rho)
        name = "ε" if rho is None else "ρ"
        assert f"{name} = 0.33334, δ = 1e-06 was requested" in unwrapped(str(third))
        assert f"{name} = 0.33334" in unwrapped(str(third)).partition("was requested")[2]
        assert "MORE" not in str(third)

    @pytest.mark.parametrize(("slack", "said"), [(0.0, False), (1e-20, True), (1e-6, True), (1.1e-6, False)])
    def test_the_part_of_delta_for_finite_precision_is_said_where_there_is_one(self, slack: float, said: bool) -> None:
        """What is larger than delta is no part of it: a report of an earlier version."""
        text = unwrapped(str(replace(REPORT, floating_point_slack=slack)))
        part = "for finite precision" if slack == 1e-6 else f"of which {rounded_up(slack, 2)} is for finite precision"
        assert (f"δ = 1e-06 ({part}) is proved" in text) is said
        assert ("δ = 1e-06 is proved" in text) is not said

    def test_noise_that_proves_nothing_is_said(self) -> None:
        assert "nothing is proved" in str(replace(REPORT, epsilon=math.inf, calibration="published"))

    def test_a_fit_without_privacy_promises_nothing(self) -> None:
        text = unwrapped(str(replace(REPORT, epsilon=math.inf, delta=0.0, asked=None, calibration="none")))
        assert "Guarantee none. This fit used no noise" in text
        assert "is proved" not in text

    @given(st.floats(1e-6, 600))
    @example(1 + 1e-13)
    @example(0.1)
    @settings(max_examples=300)
    def test_the_printed_epsilon_is_never_below_the_proved_one(self, epsilon: float) -> None:
        text = unwrapped(str(replace(REPORT, epsilon=epsilon, asked=(1000.0, 1e-6))))
        printed = re.search(r"ε = (\S+), δ = 1e-06 \(of which 1e-12 is for finite precision\) is proved", text)
        assert printed is not None
        assert epsilon <= float(printed[1]) <= epsilon * (1 + 1.01e-4)

    @given(st.floats(1e-6, 600))
    def test_the_printed_odds_are_never_below_the_proved_ones(self, epsilon: float) -> None:
        text = unwrapped(str(replace(REPORT, epsilon=epsilon, asked=(1000.0, 1e-6))))
        printed = re.search(r"by a factor of at most (\S+),", text)
        assert printed is not None
        assert math.exp(epsilon) <= float(printed[1]) <= math.exp(epsilon) * (1 + 1.01e-3)

    @given(st.floats(1e-6, 600))
    def test_the_printed_cost_of_a_line_is_never_below_the_proved_one(self, epsilon: float) -> None:
        text = str(replace(REPORT, bill=(replace(REPORT.bill[0], epsilon_alone=epsilon),)))
        (line,) = [line for line in text.splitlines() if line.strip().startswith("bound")]
        assert float(line.split()[-1]) >= epsilon


@given(st.floats(1e-300, 1e300), st.integers(2, 8))
@settings(max_examples=300)
@example(9.9999999, 5)
@example(0.1, 5)
@example(1.0, 5)
def test_rounding_up_never_rounds_down_nor_far(value: float, digits: int) -> None:
    printed = float(rounded_up(value, digits))
    assert value <= printed <= value * (1 + 1.01 * 10.0 ** (1 - digits))


@pytest.mark.parametrize(("value", "printed"), [(0.0, "0"), (math.inf, "inf"), (1.0, "1"), (0.1, "0.1"), (0.3, "0.3")])
def test_round_figures_stay_round(value: float, printed: str) -> None:
    assert rounded_up(value) == printed


class TestJson:
    def test_round_trips(self) -> None:
        read = json.loads(REPORT.to_json())
        bill = tuple(BillLine(**line) for line in read.pop("bill"))
        tuples = {
            name: tuple(read.pop(name))
            for name in ("asked", "assumptions", "who_saw_what", "renyi", "billed", "bounds")
        }
        assert PrivacyReport(bill=bill, **tuples, **read) == REPORT

    def test_infinity_is_a_string(self) -> None:
        lines = (replace(REPORT.bill[0], epsilon_alone=math.inf),)
        read = json.loads(replace(REPORT, epsilon=math.inf, bill=lines).to_json(), parse_constant=pytest.fail)
        assert read["epsilon"] == "inf"
        assert read["bill"][0]["epsilon_alone"] == "inf"

    def test_no_promise_is_null(self) -> None:
        assert json.loads(replace(REPORT, asked=None).to_json())["asked"] is None

    def test_figures_are_not_rounded(self) -> None:
        epsilon = 0.1 + 0.2
        assert json.loads(replace(REPORT, epsilon=epsilon).to_json())["epsilon"] == epsilon

    def test_a_dict_holds_plain_values(self) -> None:
        assert REPORT.to_dict()["bill"][1]["count"] == 12


ODD = replace(
    REPORT,
    epsilon=math.inf,
    delta=0.0,
    asked=None,
    bill=(replace(REPORT.bill[0], epsilon_alone=math.inf),),
    seeded=False,
)
BILLED = replace(REPORT, rho=0.1, renyi=((1.5, 0.15), (2.0, 0.2)), billed=("entry 17, head 3fa9", "entry 2, head 77c0"))


class TestFromDict:
    """A report that was written down is read again, or refused."""

    @pytest.mark.parametrize("report", [REPORT, ODD, BILLED], ids=["ordinary", "nothing promised", "billed"])
    def test_gives_back_what_to_dict_and_to_json_gave(self, report: PrivacyReport) -> None:
        """Equal in every field and in type, so that it prints the same; infinities of the JSON are numbers again."""
        for values in (report.to_dict(), json.loads(report.to_json())):
            again = PrivacyReport.from_dict(values)
            assert again == report
            assert str(again) == str(report)
            assert repr(again) == repr(report)
            assert again.to_json() == report.to_json()

    def test_leaves_the_values_as_they_were(self) -> None:
        """The caller's dictionary is read, not changed."""
        values = json.loads(REPORT.to_json())
        before = json.dumps(values)
        PrivacyReport.from_dict(values)
        assert json.dumps(values) == before

    def test_a_report_of_before_names_no_version(self) -> None:
        """It was not made by this one."""
        values = REPORT.to_dict()
        assert values.pop("version") == tulle.__version__
        assert PrivacyReport.from_dict(values) == replace(REPORT, version="")

    def test_reads_a_report_of_an_earlier_version(self) -> None:
        """What was added later is then empty: such a report claims none of it."""
        values = {name: value for name, value in json.loads(BILLED.to_json()).items() if name not in ADDED_LATER}
        assert PrivacyReport.from_dict(values) == replace(
            BILLED, rho=None, asked_rho=None, renyi=(), billed=(), version=""
        )

    @pytest.mark.parametrize("name", [field.name for field in fields(PrivacyReport) if field.name not in ADDED_LATER])
    def test_refuses_a_report_with_a_part_missing(self, name: str) -> None:
        """Nothing of a promise has a default, but for what was added later, which then promises nothing."""
        values = REPORT.to_dict()
        del values[name]
        with pytest.raises((KeyError, TypeError), match=name):
            PrivacyReport.from_dict(values)

    @pytest.mark.parametrize("name", [field.name for field in fields(BillLine)])
    def test_refuses_a_bill_with_a_part_missing(self, name: str) -> None:
        """Nor has a line of the bill."""
        values = REPORT.to_dict()
        del values["bill"][0][name]
        with pytest.raises(KeyError, match=name):
            PrivacyReport.from_dict(values)

    @pytest.mark.parametrize(
        "changes",
        [
            {"rows": []},
            {"epsilon": "small"},
            {"epsilon": None},
            {"asked": 1.0},
            {"asked": ["a", "b"]},
            {"bill": 3},
            {"bill": ["line"]},
            {"assumptions": None},
        ],
        ids=str,
    )
    def test_refuses_what_is_no_report(self, changes: dict[str, Any]) -> None:
        """Unknown parts, words for figures, figures for lists."""
        with pytest.raises((TypeError, ValueError)):
            PrivacyReport.from_dict(REPORT.to_dict() | changes)


class TestAbout:
    """Who asked: words of people, kept apart from what was proved."""

    def test_nothing_need_be_said(self) -> None:
        """All parts are empty words unless they are given."""
        assert set(asdict(About()).values()) == {""}

    def test_cannot_be_changed_afterwards(self) -> None:
        """A report is signed with what it says."""
        with pytest.raises(FrozenInstanceError):
            About().title = "another"  # type: ignore[misc]

    def test_holds_words_alone(self) -> None:
        """What it keeps can be written into any JSON and read again."""
        about = About("a", "b", "c", "2026-11-16T04:35:00+00:00", "d", "e")
        assert About(**json.loads(json.dumps(asdict(about)))) == about


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": "nan"},
        {"epsilon": -1.0},
        {"delta": 1.0},
        {"delta": "nan"},
        {"floating_point_slack": -1e-9},
        {"asked": [1.0]},
        {"asked": [-1.0, 1e-6]},
        {"seeded": "no"},
        {"method": 3},
        {"bill": [{**REPORT.to_dict()["bill"][0], "count": -1}]},
        {"bill": [{**REPORT.to_dict()["bill"][0], "epsilon_alone": "nan"}]},
    ],
    ids=str,
)
def test_a_report_that_no_fit_can_have_made_is_refused(wrong: dict[str, Any]) -> None:
    """A forged file could else say "ε = nan", or a promise below zero."""
    assert PrivacyReport.from_dict(REPORT.to_dict()) == REPORT
    with pytest.raises((ValueError, TypeError)):
        PrivacyReport.from_dict({**REPORT.to_dict(), **wrong})


def test_a_promise_beyond_all_odds_is_not_cut_off() -> None:
    """e^1000 is no float; the factor must not be printed as that of 700."""
    assert "by a factor of at most e^1000," in unwrapped(str(replace(REPORT, epsilon=1000.0, asked=(1000.0, 1e-6))))


def test_a_warning_of_published_noise_prints_no_less_than_is_proved() -> None:
    with pytest.warns(PrivacyWarning, match=r"proves only epsilon = 1\.235 at delta = 1e-06"):
        warn_of_published_noise(Budget(1.0, 1e-6), 1.23401, (), only_published=False, rho=None)


@given(st.floats(5e-324, 1e300), st.integers(2, 8))
def test_rounding_down_never_rounds_up_nor_far(value: float, digits: int) -> None:
    """What was shown is printed as no more; within the last digit, or the smallest number there is."""
    assert value * (1 - 10.0 ** (1 - digits)) - 5e-324 <= float(rounded_down(value, digits)) <= value
