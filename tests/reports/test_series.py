"""Results as tables, pictures and pages: every figure is there and right, every series drawn, no text becomes code."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from results_samples import EPSILONS, EVERY, curves, figure1, hostile, one_place, table3

from tulle.reports.pages import figure_svg, results_page
from tulle.reports.pages.page import SERIES
from tulle.reports.series import (
    ROLES,
    Panel,
    Point,
    Results,
    Role,
    Series,
    as_dict,
    csv_table,
    from_dict,
    mean_words,
    one_panel_a_value,
    table,
)

every = pytest.mark.parametrize("results", [make() for make in EVERY.values()], ids=list(EVERY))
SVG = "{http://www.w3.org/2000/svg}"


def one_panel(*series: Series, **options: bool) -> Results:
    return Results("name", "Title", "Paper", "command", 5, "", (Panel("data", "ε", "test error", series, **options),))


def tables_of(markdown: str) -> list[list[dict[str, str]]]:
    """Tables, row by row, by heading."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", markdown, flags=re.M):
        rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in block.splitlines()]
        assert len({len(row) for row in rows}) == 1
        found.append([dict(zip(rows[0], row)) for row in rows[2:]])
    return found


# --- JSON and CSV ----------------------------------------------------------------------------------------------------


@every
def test_results_survive_json(results: Results) -> None:
    text = json.dumps({"format": "of somebody", **as_dict(results)}, allow_nan=False)
    again = from_dict(json.loads(text))
    assert repr(again) == repr(results)  # not ==: a nan is not equal to itself


@every
def test_the_csv_file_has_every_point(results: Results) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_table(results))))
    points = [(panel, one, point) for panel in results.panels for one in panel.series for point in one.points]
    assert len(rows) == len(points)
    for row, (panel, one, point) in zip(rows, points):
        assert (row["panel"], row["series"], row["role"], row["note"]) == (panel.name, one.name, one.role, point.note)
        assert float(row["mean"]) == point.mean or math.isnan(point.mean)
        assert row["standard error"] == ("" if point.error is None else str(point.error))


# --- Markdown --------------------------------------------------------------------------------------------------------


class TestTable:
    def test_every_figure_is_in_its_cell(self) -> None:
        results = table3()
        (rows,) = tables_of(table(results))
        assert [row["test error"] for row in rows] == [one.name for one in results.panels[0].series]
        for row, one in zip(rows, results.panels[0].series):
            assert row["role"] == ROLES[one.role]
            points = {point.x: point for point in one.points}
            for epsilon in EPSILONS:
                cell = row[f"ε = {epsilon:g}"]
                if epsilon not in points:
                    assert cell == ""
                    continue
                point = points[epsilon]
                mean, _, error = cell.partition(" (")[0].partition(" ± ")
                assert float(mean) == pytest.approx(point.mean, abs=5.1e-5)
                assert (float(error) if error else None) == (point.error and pytest.approx(point.error, abs=5.1e-5))
                assert cell.endswith(f" ({point.note})") == bool(point.note)

    def test_curves_have_a_line_a_point(self) -> None:
        results = curves()
        for rows, panel in zip(tables_of(table(results)), results.panels, strict=True):
            points = [(one, point) for one in panel.series for point in one.points]
            for row, (one, point) in zip(rows, points, strict=True):
                assert (row["series"], row["role"], float(row[panel.x])) == (one.name, ROLES[one.role], point.x)
                mean = float(row[panel.y].partition(" ± ")[0])
                assert mean == pytest.approx(point.mean, rel=5e-3, abs=5.1e-5)

    @pytest.mark.parametrize(
        ("mean", "error", "role", "words"),
        [
            (0.09561, 0.00112, "honest", "0.0956 ± 0.0011"),
            (1.0, None, "reference", "1.0000"),
            (0.5, 0.0, "honest", "0.5000 ± 0.0000"),
            (0.5, 0.00001, "honest", "0.5000 ± 1e-05"),
            (31.456, 2.0, "honest", "31.46 ± 2.00"),
            (1234.5, 20.0, "honest", "1234 ± 20"),
            (2.5e7, None, "honest", "2.5e+07"),
            (0.001234, 0.0001, "honest", "0.00123 ± 0.0001"),
            (0.00003, 0.05, "honest", "0.0000 ± 0.0500"),
            (-0.00003, 0.05, "honest", "0.0000 ± 0.0500"),
            (0.11, 0.013, "paper", "0.11 ± 0.013"),  # no digits that the paper has not
            (math.inf, math.inf, "honest", "∞ ± ∞"),
            (math.nan, math.nan, "honest", "not a number ± not a number"),
        ],
    )
    def test_figures_have_sensible_digits(self, mean: float, error: float | None, role: Role, words: str) -> None:
        text = table(one_panel(Series("method", role, (Point(1.0, mean, error),))))
        assert tables_of(text)[0][0]["ε = 1"] == words

    def test_all_that_must_be_said_is_said(self) -> None:
        results = replace(table3(), warnings=("rows were clipped",))
        text = table(results)
        assert text.startswith(f"# {results.title}\n")
        for words in (results.paper, "10 trials", "## RCV1 subset, s = 500", "Python 3".lower(), *results.notes):
            assert words in text
        assert f"\n**{results.substitute}**\n" in text
        assert f"\n```text\n{results.command}\n```\n" in text
        assert all(f"\n- {line}\n" in text for line in (*results.notes, *results.warnings, *results.failed))
        assert "**" not in table(replace(results, substitute=""))

    def test_names_are_no_markup(self) -> None:
        text = table(hostile()).replace(f"```text\n{hostile().command}\n```", "")
        assert "<" not in text
        assert "\\*a\\*" in text
        assert len(tables_of(text)) == 2

    def test_an_empty_panel_says_so(self) -> None:
        assert "No results." in table(one_panel())


# --- the picture -----------------------------------------------------------------------------------------------------


def drawn(results: Results) -> ET.Element:
    return ET.fromstring(figure_svg(results))


def classes(root: ET.Element, *wanted: str) -> list[ET.Element]:
    """The elements that have all of some classes."""
    return [found for found in root.iter() if {*wanted} <= set(found.get("class", "").split())]


def words_of(root: ET.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def numbers(root: ET.Element) -> Iterator[float]:
    for found in root.iter():
        for name in ("x", "y", "x1", "x2", "y1", "y2", "d"):
            yield from map(float, re.findall(r"-?[\d.]+|nan|inf", found.get(name, "").replace("100%", "")))


def look(key: ET.Element) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """What a key of the legend shows: classes, and shapes wherever they are."""
    found = []
    for part in key:
        if part.tag != f"{SVG}text":
            shape = [float(number) for number in re.findall(r"-?[\d.]+", part.get("d", ""))]
            middle = [sum(shape[k::2]) / max(1, len(shape[k::2])) for k in (0, 1)]
            around = tuple(round(value - middle[k % 2]) for k, value in enumerate(shape))
            found.append((part.get("class", ""), around))
    return tuple(found)


class TestPicture:
    @every
    def test_it_is_one_sound_file(self, results: Results) -> None:
        """Well-formed, named, with its own ground and style, inside its frame, and asking for nothing."""
        text = figure_svg(results)
        root = ET.fromstring(text)
        assert root.get("role") == "img"
        named = [root.find(f"{SVG}{tag}[@id='{tag}']") for tag in root.get("aria-labelledby", "").split()]
        assert all(found is not None and found.text for found in named)
        assert root.find(f"{SVG}rect[@class='ground']") is not None
        style = root.findtext(f"{SVG}style", "")
        assert "prefers-color-scheme:dark" in style
        assert "url(" not in text
        assert "href" not in text
        assert not list(root.iter(f"{SVG}script"))
        width, height = map(float, root.get("viewBox", "").split()[2:])
        assert (float(root.get("width", 0)), float(root.get("height", 0))) == (width, height)
        assert all(-1 <= number <= max(width, height) for number in numbers(root))

    @pytest.mark.parametrize("results", [figure1(), table3(), one_place()], ids=["figure1", "table3", "one place"])
    def test_each_series_is_drawn_in_each_panel_as_its_role_says(self, results: Results) -> None:
        """A point is a marker or an arrow; a line is of its role's kind, the same in every panel and the legend."""
        root = drawn(results)
        legend = {key.findtext(f"{SVG}text"): look(key) for key in classes(root, "key")}
        strokes = {"unsound": "dashed", "oracle": "dotted", "honest": "bold", "reference": "reference"}
        for group, panel in zip(classes(root, "panel"), results.panels, strict=True):
            arrows = [found.findtext(f"{SVG}title", "") for found in classes(group, "beyond")]
            lines = {found.findtext(f"{SVG}title"): found for found in classes(group, "line")}
            assert set(lines) == {one.name for one in panel.series}
            for one in panel.series:
                if one.role == "reference":
                    assert len(classes(lines[one.name], "reference")) == 1
                    continue
                away = [words for words in arrows if words.startswith(f"{one.name}, ε = ")]
                strokes_a_marker = len([class_ for class_, _ in legend[one.name] if "cross" in class_]) or 1
                markers = classes(lines[one.name], "cross" if one.role == "paper" else "marker")
                assert len(markers) / strokes_a_marker + len(away) == len(one.points)
                # Lines that are all beyond the edge, and those of one point, have only markers.
                curves_here = {found.get("class") for found in classes(lines[one.name], "curve")}
                assert all(strokes[one.role] in str(class_) for class_ in curves_here)
                assert bool(curves_here) == (one.role != "paper" and 1 < len(one.points) > len(away))
                assert curves_here <= {class_ for class_, _ in legend[one.name]}
        assert set(legend) == {one.name for panel in results.panels for one in panel.series}
        assert len(set(legend.values())) == len(legend)

    def test_many_settings_of_one_method_differ(self) -> None:
        many = [Series(f"method, setting {k}", "honest", (Point(1.0, 0.5), Point(2.0, 0.4))) for k in range(40)]
        root = drawn(one_panel(*many, *(Series(f"other, {k}", "honest", many[0].points) for k in range(20))))
        assert len({look(key) for key in classes(root, "key")}) == 60

    def test_a_method_has_one_colour(self) -> None:
        root = drawn(table3())
        dashed, bold, dotted = (
            classes(root, "curve", kind)[0].get("class", "") for kind in ("dashed", "bold", "dotted")
        )
        assert dashed.split()[-1] == bold.split()[-1] == dotted.split()[-1]
        assert len({found.get("class") for found in classes(root, "cross")}) == 4

    def test_places_are_right(self) -> None:
        """Two points at the ends of a linear axis from 0 to 1, a third half-way; whiskers reach one error far."""
        points = (Point(0.0, 0.0), Point(5.0, 0.5, 0.25), Point(10.0, 1.0))
        root = drawn(one_panel(Series("method", "honest", points)))
        (line,) = [found for found in classes(root, "curve") if found.tag == f"{SVG}path"]
        (x1, y1), (x2, y2), (x3, y3) = [
            tuple(map(float, part.split())) for part in line.get("d", "").lstrip("M").split("L")
        ]
        assert x2 == pytest.approx((x1 + x3) / 2, abs=0.2)
        assert y2 == pytest.approx((y1 + y3) / 2, abs=0.2)
        assert y1 > y3
        assert x1 < x3
        upright = next(found for found in classes(root, "whisker") if found.get("x1") == found.get("x2"))
        reach = abs(float(upright.get("y1", 0)) - float(upright.get("y2", 0)))
        assert reach == pytest.approx((y1 - y3) / 2, abs=0.3)
        ticks = [found for found in root.iter(f"{SVG}text") if found.get("text-anchor") == "end"]
        heights = {found.text: float(found.get("y", 0)) - 4 for found in ticks}
        assert (heights["0"], heights["1"]) == (pytest.approx(y1, abs=0.2), pytest.approx(y3, abs=0.2))

    def test_a_logarithmic_axis_is_one(self) -> None:
        points = tuple(Point(10.0**k, 10.0**-k) for k in range(5))
        root = drawn(one_panel(Series("method", "honest", points), log_x=True, log_y=True))
        (line,) = [found for found in classes(root, "curve") if found.tag == f"{SVG}path"]
        places = [tuple(map(float, part.split())) for part in line.get("d", "").lstrip("M").split("L")]
        for k in (0, 1):
            steps = [after[k] - before[k] for before, after in pairwise(places)]
            assert max(steps) - min(steps) < 0.3
        assert "ε (log)" in words_of(root)

    def test_what_would_flatten_all_else_becomes_arrows(self) -> None:
        """The axis stays where the others are; each point beyond has an arrow that says its value."""
        near = [Series(f"near {k}", "honest", tuple(Point(x, 0.5) for x in EPSILONS)) for k in range(3)]
        far = Series("far", "honest", tuple(Point(x, 300.0 + x) for x in EPSILONS))
        root = drawn(one_panel(*near, far))
        told = [group.findtext(f"{SVG}title", "") for group in classes(root, "beyond")]
        assert told == [f"far, ε = {x:g}: {300 + x:g}" for x in EPSILONS]
        assert "0.5" in words_of(root)
        assert "300" not in words_of(root)
        assert any("arrows" in words.lower() for words in words_of(root))

    def test_nothing_is_cut_off_where_all_can_be_read(self) -> None:
        root = drawn(table3())
        assert classes(root, "beyond") == []
        assert not any("arrows" in words.lower() for words in words_of(root))

    def test_a_logarithm_of_nothing_is_an_arrow_downwards(self) -> None:
        points = (Point(1.0, 1.0), Point(2.0, 0.001), Point(3.0, 0.0))
        root = drawn(one_panel(Series("method", "honest", points), log_y=True))
        assert [group.findtext(f"{SVG}title") for group in classes(root, "beyond")] == ["method, ε = 3: 0"]

    def test_an_infinite_mean_is_an_arrow_and_a_missing_one_is_nothing(self) -> None:
        points = (Point(1.0, math.nan), Point(2.0, math.inf), Point(3.0, 1.0), Point(4.0, 1.1))
        root = drawn(one_panel(Series("method", "honest", points)))
        assert [group.findtext(f"{SVG}title") for group in classes(root, "beyond")] == ["method, ε = 2: inf"]
        assert len(classes(root, "marker")) == 2 + 1 + 1  # two points, the arrow, the legend

    def test_the_substitute_is_in_the_picture(self) -> None:
        def said(results: Results) -> str:
            return " ".join(found.text or "" for found in classes(drawn(results), "alarm"))

        assert said(table3()) == table3().substitute
        assert said(figure1()) == ""

    def test_references_are_levels_with_their_names_beside_them(self) -> None:
        root = drawn(one_panel(Series("null model", "reference", tuple(Point(x, 0.5) for x in EPSILONS))))
        (level, _) = [found for found in classes(root, "reference") if found.tag == f"{SVG}line"]
        (label,) = [found for found in classes(root, "halo") if found.text == "null model"]
        assert level.get("y1") == level.get("y2")
        assert abs(float(label.get("y", 0)) - float(level.get("y1", 0))) < 20

    def test_there_are_as_many_shapes_as_colours(self) -> None:
        from tulle.reports.pages import series_styles

        assert len(series_styles._SHAPES) == len(series_styles._CROSSES) == len(SERIES["light"])


# --- the page --------------------------------------------------------------------------------------------------------


class TestPage:
    @every
    def test_text_stays_text(self, results: Results) -> None:
        page = results_page(results)
        assert "<script" not in page
        assert "<b>" not in page
        assert "<u>" not in page
        assert page.count("<table>") == sum(1 for panel in results.panels if panel.series)

    def test_every_figure_is_there(self) -> None:
        for results in (figure1(), table3()):
            page = results_page(results)
            for panel in results.panels:
                for one in panel.series:
                    for point in one.points:
                        assert (
                            f">{mean_words(point, one.role)}</span>" in page
                            or f"</span>{mean_words(point, one.role)}<" in page
                        )
            assert results.substitute in page.replace("&#x27;", "'")
            assert page.count('class="notice loud"') == bool(results.substitute)
            assert results.command in page

    def test_the_best_sound_mean_is_marked_and_no_other(self) -> None:
        """Better unsound, oracle-tuned and reference figures are not what one can have."""
        series = [
            Series(role, role, (Point(1.0, mean), Point(2.0, mean)))
            for role, mean in (("paper", 0.01), ("unsound", 0.02), ("oracle", 0.03), ("reference", 0.001))
        ]
        sound = [
            Series("good", "honest", (Point(1.0, 0.2), Point(2.0, 0.4))),
            Series("bad", "honest", (Point(1.0, 0.3),)),
        ]
        results = one_panel(*series, *sound)
        assert re.findall(r"best: </span>([\d.]+)<", results_page(results)) == ["0.2000"]
        (panel,) = results.panels
        accuracy = replace(results, panels=(replace(panel, y="accuracy"),))
        assert re.findall(r"best: </span>([\d.]+)<", results_page(accuracy)) == ["0.3000"]
        unknown = replace(results, panels=(replace(panel, y="steps"),))
        assert "best: " not in results_page(unknown)


def test_values_that_vary_get_panels_of_their_own() -> None:
    """Nothing is lost, and what varied is in the name of the panel instead of the series'."""
    series = tuple(
        Series(f"{method}, k = {k:,}", "honest", (Point(float(k), 1.0),)) for k in (5, 1000) for method in ("a, b", "c")
    )
    split = one_panel_a_value([Panel("ball; k varies; p = 54", "rows n", "gap", series, log_x=True)])
    assert [panel.name for panel in split] == ["ball; k = 5; p = 54", "ball; k = 1,000; p = 54"]
    assert [[one.name for one in panel.series] for panel in split] == [["a, b", "c"]] * 2
    assert [panel.series[0].points[0].x for panel in split] == [5.0, 1000.0]
    assert all(panel.log_x for panel in split)


def test_no_epsilon_stands_without_its_delta() -> None:
    """What every ε is for is said above the tables, on the page and in the picture."""
    one = replace(table3(), promise="δ = 0.25, for replacing one <row>")
    assert "Every ε is at δ = 0.25, for replacing one &lt;row>." in table(one)
    for text in (figure_svg(one), results_page(one)):
        assert "δ = 0.25, for replacing one &lt;row&gt;" in " ".join(text.split())
    assert "Every ε" not in table(table3())
