"""What a result depends on in the code: exactly the modules that its cell names, and all that those import."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest
from copied_sources import copied, edited, move

from tulle import datasets
from tulle.experiments import catalogue, reproduction
from tulle.experiments.cells import Cell
from tulle.experiments.dependencies import Sources, sources
from tulle.experiments.fits import Fits
from tulle.methods import METHODS

# Every method on drawn data and on files.
STATE = replace(catalogue.published("state"), trials=1)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package that can be edited."""
    return copied(tmp_path_factory.mktemp("source"))


def digests(of: Sources) -> Mapping[Cell, str]:
    """Of the code that each cell of the state of the field depends on."""
    task = reproduction.experiment(STATE)
    return {cell: of.digest(task.sources(cell)) for cell in task.cells()}


def changed(root: Path, file: str, how: str = "code") -> set[Cell]:
    """The cells that have to be run again after an edit."""
    with edited(root, file, how) as after:
        new, old = digests(after), digests(sources())
    return {cell for cell in old if old[cell] != new[cell]}


def cells_with(*methods: str) -> set[Cell]:
    lines = {line.name for line in STATE.lines if line.method in methods}
    return {cell for cell in reproduction.experiment(STATE).cells() if cell.method in lines}


def cells_of(module: str) -> set[Cell]:
    """The cells whose data comes from a module, or from one that needs it."""
    panels = {
        panel.name for panel in STATE.data if module in sources().needed([getattr(datasets, panel.source).__module__])
    }
    assert panels
    return {cell for cell in reproduction.experiment(STATE).cells() if cell.data in panels}


ALL = set(reproduction.experiment(STATE).cells())


# --- which cells are run again ---------------------------------------------------------------------------------------


def test_a_copy_depends_on_what_the_package_does(root: Path) -> None:
    """Where the source lies does not matter."""
    assert digests(Sources(root)) == digests(sources())
    assert Sources(root).digest() == sources().digest()


@pytest.mark.parametrize("how", ["code", "number"])
def test_an_edited_method_is_measured_again_with_all_that_import_it(root: Path, how: str) -> None:
    """Frank-Wolfe itself, and the two methods that use it; no other line of the table."""
    again = changed(root, "methods/frank_wolfe.py", how)
    assert again == cells_with("frank_wolfe", "coordinate_descent", "auto")
    assert again.isdisjoint(cells_with("hard_thresholding", "two_stage", "scikit-learn", "null model"))


@pytest.mark.parametrize(
    ("file", "methods"),
    [
        ("methods/two_stage.py", ["two_stage"]),
        ("methods/transfer_settings.py", ["knowledge_transfer"]),
        ("methods/stochastic_hard_thresholding.py", ["stochastic_hard_thresholding"]),
    ],
)
def test_an_edited_module_is_measured_again_by_whom_it_serves(root: Path, file: str, methods: list[str]) -> None:
    assert changed(root, file) == cells_with(*methods)


@pytest.mark.parametrize("how", ["comment", "docstrings", "layout"])
def test_words_and_layout_cost_no_measurement(root: Path, how: str) -> None:
    for file in ("methods/frank_wolfe.py", "estimators/sparse.py", "experiments/trial.py"):
        assert changed(root, file, how) == set()


@pytest.mark.parametrize(
    "file",
    [
        "reports/pages/panels.py",
        "reports/pages/page.py",
        "cli/reproduce.py",
        "cli/__init__.py",
        "cli/command_runner.py",
        "__init__.py",
        "experiments/catalogue.py",
        "experiments/reproduction.py",
        "reports/series.py",
        "experiments/cell_runner.py",
        "experiments/stored_cells.py",
        "experiments/reproduction_check.py",
        "experiments/machine.py",
        "experiments/data_files.py",
        "experiments/run_progress.py",
        "experiments/dependencies.py",
        "datasets/__init__.py",
        "datasets/locations.py",
        "local/user_side/label_randomisers.py",
    ],
)
def test_what_shows_results_or_serves_others_costs_no_measurement(root: Path, file: str) -> None:
    assert changed(root, file) == set()


@pytest.mark.parametrize(
    "file",
    [
        "methods/hard_thresholding.py",  # the estimators fit students with it
        "transfer/students.py",
        "estimators/sparse.py",
        "trusted/mechanisms.py",
        "trusted/plan.py",
        "fast/kernels.py",
        "experiments/trial.py",
        "experiments/problems.py",
        "experiments/examples.py",
        "experiments/cells.py",
        "methods/__init__.py",
    ],
)
def test_what_every_fit_runs_through_is_measured_again(root: Path, file: str) -> None:
    """The list of methods too: which class a name means is said there. And the seeds."""
    assert changed(root, file) == ALL


@pytest.mark.parametrize("module", ["simulated", "readers", "standard"])
def test_edited_data_code_is_measured_again_on_that_data_alone(root: Path, module: str) -> None:
    again = changed(root, f"datasets/{module}.py")
    assert again == cells_of(f"tulle.datasets.{module}")
    assert again < ALL


def test_standard_files_depend_on_their_readers(root: Path) -> None:
    """RCV1 itself, in place of the subset. Where the files lie decides nothing: their bytes count, not their code."""
    real = replace(STATE.data[0], source="load_rcv1")
    task = Fits(replace(STATE, data=(real,)))
    cell = task.cells()[0]
    before = sources().digest(task.sources(cell))
    for file, counts in (("standard", True), ("readers", True), ("locations", False), ("simulated", False)):
        with edited(root, f"datasets/{file}.py") as after:
            assert (after.digest(task.sources(cell)) != before) == counts


def test_the_whole_package_has_a_checksum_without_what_shows_results(root: Path) -> None:
    """machine.json names it: a method, a new file change it; a page or another name do not."""
    before = sources().digest()
    for file, counts in (("methods/two_stage.py", True), ("reports/pages/page.py", False)):
        with edited(root, file) as after:
            assert (after.digest() != before) == counts
    (root / "added.py").write_text("")
    added = Sources(root).digest()
    (root / "added.py").rename(root / "renamed.py")
    renamed = Sources(root).digest()
    (root / "renamed.py").unlink()
    assert before != added == renamed
    assert Sources(root).digest() == before


# --- the graph of imports --------------------------------------------------------------------------------------------


def small(folder: Path, **files: str) -> Sources:
    """A package of a few modules, `a__b` for a/b.py."""
    for name, text in {"__init__": "_RESULTS_DEPEND_ON = 'names'\n", **files}.items():
        path = folder / "tulle" / f"{name.replace('__in', '/__in') if name != '__init__' else name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Sources(folder / "tulle")


def test_imports_count_wherever_they_stand(tmp_path: Path) -> None:
    """At the top, inside functions and classes, in branches, as a module and as a name."""
    found = small(
        tmp_path,
        a="import tulle.b as b\nfrom tulle import c\nimport numpy\n",
        b="def run():\n    from tulle.d import x\n",
        c="class C:\n    def run(self):\n        if self:\n            import tulle.e as other\n",
        d="x = 1\n",
        e="try:\n    from tulle.f import y\nexcept ImportError:\n    pass\n",
        f="",
        g="from tulle.a import z\n",
    )
    assert found.needed(["tulle.a"]) == {f"tulle.{name}" for name in "abcdef"}
    assert found.needed(["tulle.d"]) == {"tulle.d"}
    assert found.needed([]) == set()


def test_imports_for_type_checkers_do_not_count(tmp_path: Path) -> None:
    """What stands beside them does."""
    found = small(
        tmp_path,
        a="if TYPE_CHECKING:\n    from tulle.b import B\nelse:\n    from tulle.c import C\n"
        "if C:\n    import tulle.d as d\n",
        b="",
        c="",
        d="",
    )
    assert found.needed(["tulle.a"]) == {"tulle.a", "tulle.c", "tulle.d"}


def test_circles_of_imports_come_to_an_end(tmp_path: Path) -> None:
    found = small(tmp_path, a="import tulle.b as b\n", b="import tulle.a as a\n")
    assert found.needed(["tulle.b"]) == {"tulle.a", "tulle.b"}


def test_a_list_of_methods_leads_to_the_one_that_is_named(tmp_path: Path) -> None:
    """`from tulle.methods import One` is the list and one.py, not all that the list imports."""
    found = small(
        tmp_path,
        a="from tulle.methods import One\n",
        b="from tulle.methods import METHODS\n",
        methods__init__="from tulle.methods.one import One\nfrom tulle.methods.two import Two\nMETHODS = {}\n"
        "_RESULTS_DEPEND_ON = 'code and names'\n",
    )
    for name in ("one", "two"):
        (tmp_path / "tulle" / "methods" / f"{name}.py").write_text(f"{name.title()} = 1\n")
    assert found.needed(["tulle.a"]) == {"tulle.a", "tulle.methods", "tulle.methods.one"}
    assert found.needed(["tulle.b"]) == {"tulle.b", "tulle.methods"}


def test_what_shows_results_says_so_itself(tmp_path: Path) -> None:
    """In a package it says so for all that the package holds."""
    of = small(
        tmp_path,
        a="from tulle.pages.b import x\nfrom tulle import c\n",
        c="_RESULTS_DEPEND_ON = 'nothing'\n",
        pages__init__="_RESULTS_DEPEND_ON = 'nothing'\n",
    )
    (tmp_path / "tulle" / "pages" / "b.py").write_text("x = 1\n")
    assert of.needed(["tulle.a"]) == {"tulle.a"}
    assert of.needed(["tulle.pages.b", "tulle.c"]) == set()


# --- contents, not names ---------------------------------------------------------------------------------------------

MOVES = {
    "tulle.fast.kernels": "tulle.fast.loops",
    "tulle.fast.threads": "tulle.threads",
    "tulle.trusted.losses": "tulle.reviewed.losses",
    "tulle.trusted.plan": "tulle.reviewed.what_is_planned",
    "tulle.methods.feasible_sets": "tulle.trusted.feasible_sets",
    "tulle.methods": "tulle.algorithms",
    "tulle.datasets": "tulle.data.sets",
    "tulle.experiments.trial": "tulle.experiments.one.zz_trial",
    "tulle.experiments.cell_runner": "tulle.running",
}


def moved(name: str) -> str:
    for old, new in MOVES.items():
        if f"{name}.".startswith(f"{old}."):
            name = new + name.removeprefix(old)
    return name


def test_moved_and_renamed_modules_cost_no_measurement(tmp_path: Path) -> None:
    """Into folders and out of them, with their imports and messages changed: each module has the checksum it had."""
    root = copied(tmp_path)
    before = Sources(root)
    old = {name: before.digest([name]) for name in before._paths}
    move(root, MOVES)
    after = Sources(root)
    assert after.needed(["tulle.estimators.sparse"]) == {
        moved(name) for name in before.needed(["tulle.estimators.sparse"])
    }
    assert {name: after.digest([moved(name)]) for name in old} == old
    assert after.digest() == before.digest()
    assert "tulle.reviewed.losses" in after._paths
    assert "tulle.trusted.losses" not in after._paths
    task = reproduction.experiment(STATE)
    cells = task.cells()[:: len(ALL) // 7]
    assert [after.digest([moved(name) for name in task.sources(cell)]) for cell in cells] == [
        before.digest(task.sources(cell)) for cell in cells
    ]


@pytest.mark.parametrize("file", ["trusted/losses.py", "methods/frank_wolfe.py", "experiments/trial.py"])
def test_one_edited_number_changes_exactly_what_depends_on_it(root: Path, file: str) -> None:
    name = f"tulle.{file.removesuffix('.py').replace('/', '.')}"
    before = sources()
    with edited(root, file, "number") as after:
        changed_modules = {one for one in before._paths if after.digest([one]) != before.digest([one])}
    assert changed_modules == {one for one in before._paths if name in before.needed([one])}
    assert {name} < changed_modules < set(before._paths)


def test_two_modules_in_each_others_place_are_noticed(tmp_path: Path) -> None:
    """As modules, as names of modules, and where the same names come from either."""
    one, other = "x = 1\n", "x = 2\n"
    texts = {
        "a": "from tulle import b, c\n",
        "d": "import tulle.b as first\nimport tulle.c as second\n",
        "e": "from tulle.b import x\nfrom tulle.c import x as y\n",
        "f": "from tulle.b import x as y\nfrom tulle.c import x\n",
    }
    before = small(tmp_path / "before", b=one, c=other, **texts)
    after = small(tmp_path / "after", b=other, c=one, **texts)
    for name in texts:
        assert before.digest([f"tulle.{name}"]) != after.digest([f"tulle.{name}"])
    assert before.digest(["tulle.b"]) == after.digest(["tulle.c"])
    assert before.digest(["tulle.b", "tulle.c"]) != after.digest(["tulle.b", "tulle.c"])
    assert before.digest(["tulle.e"]) == after.digest(["tulle.f"])


def test_modules_that_import_each_other_are_known_by_their_contents(tmp_path: Path) -> None:
    """Neither their names nor the order of their names count; who imports whom and every number in them do."""

    def circle(folder: str, first: str, second: str, third: str, number: int = 3, other: str = "") -> dict[str, str]:
        found = small(
            tmp_path / folder,
            **{
                first: f"from tulle import {second} as following\nx = 1\n",
                second: f"def f():\n    from tulle.{third} import x\n",
                third: f"from tulle.{other or first} import x as y\nx = {number}\n",
                "user": f"from tulle import {second} as used\n",
            },
        )
        named = {"first": first, "second": second, "third": third, "user": "user"}
        return {role: found.digest([f"tulle.{name}"]) for role, name in named.items()}

    plain = circle("plain", "b", "c", "d")
    assert len(set(plain.values())) == 4
    assert circle("renamed", "z", "y", "k") == plain
    for changed_circle in (circle("number", "b", "c", "d", number=4), circle("order", "b", "c", "d", other="c")):
        assert set(changed_circle.values()).isdisjoint(plain.values())


def test_modules_in_messages_have_no_names(tmp_path: Path) -> None:
    """A message may say where to look; other words in it count."""

    def digest(folder: str, text: str) -> str:
        return small(tmp_path / folder, a=f"raise ValueError('{text}')\n", b="", c="").digest(["tulle.a"])

    assert digest("1", "see tulle.b.X") == digest("2", "see tulle.c.X")
    assert digest("3", "see tulle.b.Y") != digest("1", "see tulle.b.X")
    assert digest("4", "see tulle.d.X") != digest("1", "see tulle.b.X")


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nfrom .b import x\n", "tulle.a, line 2: x cannot be followed; import it from its own module"),
        ("from . import b\n", "tulle.a, line 1: b cannot be followed"),
        ("from tulle import Bounds\n", "tulle.a, line 1: Bounds cannot be followed"),
        ("def run():\n    from tulle import Bounds\n", "tulle.a, line 2: Bounds cannot be followed"),
        ("import tulle\n", "tulle.a, line 1: import the modules of tulle that are needed"),
        ("import tulle.b\n", "tulle.a, line 1: import .* each under a name of its own"),
        ("import tulle.c as c\n", "tulle.a, line 1: there is no module tulle.c"),
        ("import_module('tulle.b')\n", "tulle.a, line 1: the string 'tulle.b' cannot be followed"),
        ("x = f'tulle.{2}'\n", "tulle.a, line 1: the string 'tulle.' cannot be followed"),
        ("_RESULTS_DEPEND_ON = 'luck'\n", "tulle.a, line 1: _RESULTS_DEPEND_ON must be one of"),
        ("from tulle.b import *\n", "tulle.a, line 1: \\* cannot be followed"),
    ],
)
def test_imports_that_cannot_be_followed_are_refused(tmp_path: Path, text: str, message: str) -> None:
    """Nothing that a result may depend on is lost in silence."""
    with pytest.raises(ValueError, match=message):
        small(tmp_path, a=text, b="x = 1\n").digest(["tulle.a"])


def test_the_version_is_not_code(tmp_path: Path) -> None:
    assert small(tmp_path, a="from tulle import __version__\n").needed(["tulle.a"]) == {"tulle.a"}


def test_versions_of_python_agree_on_formats(tmp_path: Path) -> None:
    """3.12 has an empty string behind a format's last value, other versions have none; elsewhere one counts."""
    package = Sources(tmp_path)

    def joined(*more: ast.expr) -> str:
        return package._text("tulle.a", ast.JoinedStr(values=[ast.Constant("<"), *more]), [])

    assert joined() == joined(ast.Constant("")) != joined(ast.Constant("a"))
    listed = [package._text("tulle.a", ast.parse(text), []) for text in ("['<']", "['<', '']")]
    assert listed[0] != listed[1]


def test_a_module_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no module tulle\.methods\.magic to depend on"):
        sources().digest(["tulle.methods.magic"])
    with pytest.raises(ValueError, match=r"no module numpy"):
        sources().digest(["numpy"])


# --- every table and figure ------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _needed(modules: tuple[str, ...]) -> frozenset[str]:
    return frozenset(sources().needed(modules))


@pytest.mark.parametrize("name", catalogue.names())
def test_every_cell_of_the_catalogue_depends_on_its_method_and_its_data(name: str) -> None:
    """And on nothing that only shows results."""
    of = replace(catalogue.published(name), trials=1)
    task = reproduction.experiment(of)
    seen: dict[tuple[str, ...], Cell] = {}
    for cell in task.cells():
        seen.setdefault(tuple(task.sources(cell)), cell)
    assert seen
    for modules, cell in seen.items():
        needed = _needed(modules)
        assert set(modules) <= needed
        assert not [one for one in needed if one.startswith(("tulle.reports.pages", "tulle.cli"))]
        if isinstance(task, Fits):
            panel = next(panel for panel in of.data if panel.name == cell.data)
            line = next(line for line in of.lines if line.name == cell.method)
            assert getattr(datasets, panel.source).__module__ in needed
            assert {"tulle.experiments.trial", "tulle.experiments.problems"} <= needed
            assert line.method not in METHODS or METHODS[line.method].__module__ in needed
