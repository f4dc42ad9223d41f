"""Rule 1: a method holds no rows. It asks, and sees noisy answers only."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from pairwise import reduce_to_pairs

import tulle
import tulle.estimators.sparse
from tulle import PublicFrequencies
from tulle.accounting.calibration import calibrate
from tulle.fast.exact_answers import ExactFollowUp, Known
from tulle.fast.sparse_weights import SparseWeights
from tulle.methods import METHODS
from tulle.methods.feasible_sets import Box, CappedL1Ball, KSupportBall, L1Ball, L2Ball, LqBall, Polytope, Simplex
from tulle.methods.frank_wolfe import RadiusPath
from tulle.methods.gradient_queries import (
    BatchGradient,
    BatchStep,
    ClippedGradient,
    CoordinateGradient,
    CoordinateScores,
    Curvature,
    MeanRow,
    SecondMoments,
    Step,
)
from tulle.methods.loss_functions import Logistic, Loss, OneVsRest, Poisson, Softmax, Squared, SquaredHinge
from tulle.methods.thresholds import HardThreshold
from tulle.transfer.public_features import GaussianFeatures, UniformFeatures
from tulle.transfer.public_knowledge import read_public
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import NoisyMax, TopK
from tulle.trusted.objectives import Minimiser
from tulle.trusted.plan import Budget, Release
from tulle.trusted.queries import Query, VertexScores
from tulle.trusted.sampling import SCHEMES

SOURCE = Path(tulle.__file__).parent
# All but the base class of recipes, whose one call of `evaluate` hands on to the query that it resolves to.
METHOD_FILES = sorted(set((SOURCE / "methods").glob("*.py")) - {SOURCE / "methods" / "recipe.py"})

# Where exact answers may be evaluated: the trusted package, and what holds rows elsewhere or gets exact sums over them.
EVALUATING = ("trusted", "federated/client_side")


# --- a curator without rows ------------------------------------------------------------------------------------------


class EmptyCurator:
    """Answers every question of a plan with random numbers of the right shape. There is nothing behind it."""

    __slots__ = ("_generator", "_plan", "_public", "questions")

    def __init__(self, plan: tuple[Release, ...], public: PublicFacts) -> None:
        self._plan = {release.name: release for release in plan}
        self._public = public
        self._generator = np.random.default_rng(0)
        self.questions: list[tuple[str, type, Any]] = []

    def ask(self, name: str, query: Query, then: Any = None) -> Any:
        self.questions.append((name, type(query), then))
        assert isinstance(query, Query)
        mechanism = self._plan[name].mechanism
        outputs = self._public.loss.n_outputs
        if isinstance(mechanism, TopK):
            chosen = np.zeros((self._public.n_features, outputs), dtype=bool)
            for column in range(outputs):
                chosen[self._generator.choice(self._public.n_features, mechanism.k, replace=False), column] = True
            return chosen
        if isinstance(mechanism, NoisyMax):
            assert mechanism.columns == outputs
            return self._generator.integers(0, self._candidates(query), outputs)
        if isinstance(query, ExactFollowUp) and name == "step":
            threshold = HardThreshold(self._public.n_nonzero, self._public.n_features)
            return threshold.to_sparse(self._generator.standard_normal((self._public.n_parameters, outputs)))
        answer = self._generator.standard_normal(self._shape(query))
        if isinstance(query, BatchStep):
            return SparseWeights.from_dense(then(answer))
        return answer if then is None else then(answer)

    def _candidates(self, query: Query) -> int:
        if isinstance(query, VertexScores):
            return int(query.vertices.shape[0])
        assert isinstance(query, CoordinateScores), f"how many candidates has {query}?"
        return self._public.n_parameters * (2 if query.kind == "vertices" else 1)

    def _shape(self, query: Query) -> tuple[int, ...]:
        if isinstance(query, CoordinateGradient):
            return 1, len(query.coordinates)
        if isinstance(query, (Step, ClippedGradient, BatchGradient, BatchStep)):
            return self._public.n_parameters, self._public.loss.n_outputs
        if isinstance(query, Minimiser):
            return (len(query.centre), 1) if query.itself else query.centre.shape
        if isinstance(query, Known):
            return query.values.shape
        if isinstance(query, MeanRow):
            return self._public.n_features, 1
        if isinstance(query, SecondMoments):
            side = len(query.features) + bool(query.intercept_value) + 1
            return side * (side + 1) // 2, 1
        assert isinstance(query, (Curvature, ExactFollowUp)), f"what is the shape of {query}?"
        return 1, 1


def facts(loss: Loss, budget: Budget | None, fit_intercept: bool) -> PublicFacts:
    return PublicFacts(
        n_rows=500,
        n_features=30,
        n_nonzero=4,
        loss=loss,
        budget=budget,
        row_l2=3.0,
        row_linf=1.0,
        label=2.0,
        fit_intercept=fit_intercept,
    )


def parameters_of(name: str) -> list[dict[str, Any]]:
    """Each method as it comes, with each kind of noise that it has, in several rounds, and on each kind of set."""
    own = METHODS[name]().get_params()  # type: ignore[attr-defined]
    some = [{}, *({"noise": noise} for noise in ("gaussian", "selection") if "noise" in own)]
    if "again_share" in own:
        some += [{"rounds": rounds} for rounds in (1, 2, 4)]
    if name in ("auto", "fit_again"):
        some += [{"public": PUBLIC_ROWS}, {"public": sp.csr_array(PUBLIC_ROWS)}, {"public": PUBLIC_FREQUENCIES}]
    if name == "fit_again":
        some += [{"public": PUBLIC_ROWS, "rounds": rounds} for rounds in (1, 3)]
    if "refinement" in own:
        some += [{"noise": noise, "rounds": 2} for noise in ("gaussian", "selection")]
        some += [{"refinement": "statistics"}, {"refinement": "statistics", "rounds": 2}]
        some += [{"refinement": "steps"}, {"refinement": "steps", "noise": "gaussian", "steps": 2}]
    if "feasible" in own:
        some += [{"noise": "selection", "selection": choice} for choice in ("laplace", "permute_and_flip")]
        some += [{"noise": "selection", "feasible": one} for one in (L1Ball(2.0), Simplex(2.0))]
        some += [{"noise": "gaussian", "feasible": one} for one in SETS]
        some += [{"noise": "selection", "radius": 0.5}, {"noise": "gaussian", "radius": 0.5, "averaging": False}]
    if "feature_scale" in own:
        some += [{"noise": noise, "feature_scale": range(1, 31)} for noise in ("gaussian", "selection")]
        some += [{"noise": "gaussian", "block": 2}, {"noise": "selection", "selection_share": 0.3, "engine": "plain"}]
    if "sampling" in own:
        some += [{"variant": variant, "sampling": scheme} for variant in ("sgd", "scsg", "svrg") for scheme in SCHEMES]
        some += [{"variant": "scsg", "option": "I"}, {"variant": "svrg", "damping": 0.0, "average": 0.0}]
        some += [{"batch": 7, "memory": 4}]
    if "student" in own:
        some += [{"noise": noise, "features": UniformFeatures()} for noise in ("gaussian", "selection")]
        some += [{"perturbation": "output", "features": rows} for rows in (None, GaussianFeatures(0.3), PUBLIC_ROWS)]
        some += [{"features": sp.csr_array(PUBLIC_ROWS), "student": "ight", "unshrink": True}]
        some += [{"variant": "dense"}, {"variant": "dense", "perturbation": "output"}]
        some += [{"variant": "dense", "features": rows} for rows in (UniformFeatures(), PUBLIC_ROWS)]
        some += [{"variant": "dense", "features": sp.csr_array(PUBLIC_ROWS), "directions": 5, "unshrink": True}]
        some += [{"variant": "dense", "features": PUBLIC_ROWS, "directions": None, "student": None}]
        some += [{"variant": "published", "features": UniformFeatures(), "n_public": 40, "n_iter": 3, "penalty": 0.5}]
        some += [{"variant": "published", "features": sp.csr_array(PUBLIC_ROWS), "n_iter": 2}]
    return some


# Public rows of as many features as `facts` says, half of their entries empty.
PUBLIC_ROWS = np.random.default_rng(0).normal(size=(40, 30)) * (np.arange(1200).reshape(40, 30) % 7 < 4)
PUBLIC_FREQUENCIES = PublicFrequencies(np.arange(30) % 4)


SETS = (L1Ball(2.0), Simplex(2.0), CappedL1Ball(2.0, 3), L2Ball(2.0), LqBall(2.0), Box(2.0), KSupportBall(2.0, 3))


def method_of(name: str, parameters: dict[str, Any]) -> Any:
    """A method with its parameters; "public" is what `fit` is given under that name."""
    method: Any = METHODS[name](**{key: value for key, value in parameters.items() if key != "public"})
    return method.with_public(read_public(parameters["public"], 30)) if "public" in parameters else method


def label(parameters: dict[str, Any]) -> str:
    """What a case is called: arrays by their type."""
    values = (
        (name, f"{type(value).__name__} of rows" if hasattr(value, "shape") else value)
        if not isinstance(value, PublicFrequencies)
        else (name, "frequencies")
        for name, value in parameters.items()
    )
    return ", ".join(f"{name}={value}" for name, value in values)


CASES = [
    pytest.param(name, parameters, id=f"{name}({label(parameters)})")
    for name in METHODS
    for parameters in parameters_of(name)
]
LOSSES = [Squared(), Poisson(), Logistic(), Softmax(3), OneVsRest(SquaredHinge(), 3)]

NEEDS_CONVEXITY = ("fit_again", "screen_refine", "two_stage", "knowledge_transfer")


def refusal(name: str, parameters: dict[str, Any], loss: Loss) -> str | None:
    """Why a method does not take a loss: objective perturbation needs one output, second moments need squares."""
    if parameters.get("refinement") == "statistics" and not isinstance(loss, Squared):
        return r"refinement='statistics'\) needs loss='squared', not "
    if name == "auto" and "public" in parameters and isinstance(loss, Softmax):
        return r"public rows are used by objective perturbation.*for several classes loss='squared_hinge'"
    minimises = parameters.get("variant") != "published" and parameters.get("refinement") != "steps"
    if name in NEEDS_CONVEXITY and isinstance(loss, Softmax) and minimises:
        return r"rests on the convexity of the loss in one margin at a time.*use method='hard_thresholding'"
    return None


def planned(method: Any, public: PublicFacts) -> tuple[Release, ...]:
    """The plan with its noise: none, the paper's, or calibrated."""
    releases = method.releases(public)
    if public.budget is None:
        return tuple(release.scaled(0.0) for release in releases)
    published = getattr(method, "only_published", False)
    plan = method.published(public, public.budget) if published else calibrate(releases, public.budget)
    assert [(release.name, release.count) for release in plan] == [(one.name, one.count) for one in releases]
    return tuple(plan)


def model_of(method: Any, weights: Any, public: PublicFacts) -> Any:
    """What the front door makes of a method's weights."""
    return method.teach(weights, public)[1]


every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
with_and_without_privacy = pytest.mark.parametrize("budget", [Budget(1.0, 1e-5), None], ids=["private", "exact"])
with_and_without_intercept = pytest.mark.parametrize("fit_intercept", [True, False])


@reduce_to_pairs(where=lambda case: refusal(case["name"], case["parameters"], case["loss"]) is not None)
@pytest.mark.parametrize(("name", "parameters"), CASES)
@every_loss
@with_and_without_privacy
@with_and_without_intercept
def test_a_method_refuses_a_loss_before_it_asks(
    name: str, parameters: dict[str, Any], loss: Loss, budget: Budget | None, fit_intercept: bool
) -> None:
    """The plan and the run alike, with the reason."""
    method = method_of(name, parameters)
    public = facts(loss, budget, fit_intercept)
    for question in (method.releases, lambda public: method.run(None, public)):
        with pytest.raises(ValueError, match=str(refusal(name, parameters, loss))):
            question(public)


@reduce_to_pairs(where=lambda case: refusal(case["name"], case["parameters"], case["loss"]) is None)
@pytest.mark.parametrize(("name", "parameters"), CASES)
@every_loss
@with_and_without_privacy
@with_and_without_intercept
def test_a_method_runs_against_a_curator_without_rows(
    name: str, parameters: dict[str, Any], loss: Loss, budget: Budget | None, fit_intercept: bool
) -> None:
    """With random answers and no rows at all, every method runs to its end and asks exactly what its plan says."""
    method = method_of(name, parameters)
    public = facts(loss, budget, fit_intercept)
    releases = method.releases(public)
    curator = EmptyCurator(planned(method, public), public)
    weights = method.run(curator.ask, public)
    model = model_of(method, weights, public)
    for one in (weights, model):
        assert one.shape == (public.n_features + 1, loss.n_outputs)
        assert np.all(np.isfinite(one))
    assert np.count_nonzero(model[:-1], axis=0).max() <= public.n_nonzero
    asked = Counter(asked for asked, _, _ in curator.questions)
    uses = {release.name: math.ceil(asked[release.name] / release.answers_each) for release in releases}
    assert set(asked) == set(uses)
    assert uses == {release.name: release.count for release in releases}
    assert fit_intercept or np.all(weights[-1] == 0)


@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_vertices_of_a_polytope_are_chosen_without_rows(noise: Any, loss: Loss, fit_intercept: bool) -> None:
    """A polytope of the user's own, whose vertices have an entry for the constant column."""
    public = facts(loss, Budget(1.0, 1e-5), fit_intercept)
    vertices = np.random.default_rng(1).normal(size=(8, public.n_parameters))
    method: Any = METHODS["frank_wolfe"](feasible=Polytope(vertices=vertices), noise=noise)
    curator = EmptyCurator(method.releases(public), public)
    weights = method.run(curator.ask, public)
    assert weights.shape == (31, loss.n_outputs)
    assert np.all(np.isfinite(weights))
    assert {query for _, query, _ in curator.questions} == {VertexScores if noise == "selection" else ClippedGradient}
    assert len(curator.questions) == method.releases(public)[0].count


@pytest.mark.parametrize("noise", ["auto", "gaussian", "selection"])
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("budget", [Budget(1.0, 1e-5), None], ids=["private", "exact"])
def test_a_path_of_radii_asks_what_its_plan_says(noise: Any, loss: Loss, budget: Budget | None) -> None:
    """All radii under one name, one column of weights for each of them."""
    public = facts(loss, budget, True)
    method = RadiusPath((2.0, 0.5, 1.0), n_iter=6, noise=noise)
    (release,) = method.releases(public)
    curator = EmptyCurator((release,), public)
    weights = method.run(curator.ask, public)
    assert weights.shape == (31, 3)
    assert Counter(asked for asked, _, _ in curator.questions) == {release.name: 18} == {release.name: release.count}
    assert method.n_iterations(public) == method.n_passes(public) == 18
    assert np.all(np.abs(weights[:-1]).sum(axis=0) <= np.array([0.5, 1.0, 2.0]) * (1 + 1e-9))


@pytest.mark.parametrize(("name", "parameters"), CASES)
def test_a_method_knows_nothing_but_answers(name: str, parameters: dict[str, Any]) -> None:
    """The same answers give the same weights: a second run against the same random answers repeats the first."""
    loss: Loss = Squared() if "refinement" in parameters else Logistic()
    public = facts(loss, Budget(1.0, 1e-5), True)
    method = method_of(name, parameters)
    runs = [method.run(EmptyCurator(planned(method, public), public).ask, public) for _ in range(2)]
    models = [model_of(method, weights, public) for weights in runs]
    for one, other in (runs, models):
        np.testing.assert_array_equal(one, other)
        assert np.any(one != 0)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_answers_all_that_the_front_door_asks(name: str) -> None:
    """Nothing of the protocol is missing, and what is said of a fit comes from public facts alone."""
    public = facts(Logistic(), Budget(1.0, 1e-5), True)
    method: Any = METHODS[name]().resolve(public)
    releases = method.releases(public)
    assert set(method.bounds_wanted()) <= {"row_l2", "row_linf"}
    assert 1 <= method.default_nonzero(public) <= 30
    assert 1 <= method.n_iterations(public) <= method.n_passes(public) + sum(release.count for release in releases)
    assert 0 < method.signal_to_noise(public, calibrate(releases, public.budget)) < math.inf
    assert "4 of 30 weights kept" in method.describe(public)


# --- a static check --------------------------------------------------------------------------------------------------

FORBIDDEN_MODULES = {
    "tulle.trusted.rows",
    "tulle.estimators",
    "tulle.trusted.randomness",
    "tulle.datasets",
    "tulle.federated",
    "tulle.trusted.fit",
    "tulle.monitoring.logged_account",
    "tulle.trusted.objectives.Part",
    "tulle.trusted.objectives.PenalisedSum",
    "tulle.trusted.objectives.RowTerms",
    "tulle.fast.newton",
    "tulle.fast.scores_on_demand",
    "tulle.fast.kernels",
    "tulle.fast.batch_kernels",
    "tulle.fast.compiled_rows",
    "tulle.fast.fast_block",
    "tulle.fast.sparse_batch",
    "tulle.fast.lazy_noise.noisy_largest",
    "tulle.trusted.sampling.Sampler",
    "numba",
    "ctypes",
    "gc",
    "importlib",
    "inspect",
    "io",
    "os",
    "pathlib",
    "pickle",
    "sys",
}
FROM_THE_CURATOR = {"Ask"}  # a type, without rows
FORBIDDEN_NAMES = {"open", "eval", "exec", "compile", "__import__", "globals", "locals", "vars", "Rows", "Curator"}
FORBIDDEN_ATTRIBUTES = {
    # how rows are reached
    "evaluate",
    "reduce",
    "blocks",
    "targets",
    "_rows",
    "_public",
    "_bill",
    "_generator",
    "_contribution",
    "minimise",
    # how a bound method or a closure is opened
    "__self__",
    "__func__",
    "__closure__",
    "__globals__",
    "__dict__",
    "__wrapped__",
    # how numpy reads files
    "load",
    "loadtxt",
    "genfromtxt",
    "fromfile",
    "memmap",
    "frombuffer",
}


def is_forbidden(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in FORBIDDEN_MODULES)


def handed_on(tree: ast.AST) -> set[int]:
    """The places where ask is passed on to a function that is checked itself, under the same name.

    That is self._part(ask, ...) with a `_part` in this file whose first parameter is called ask, or another method's
    run(ask, public); `test_run_calls_it_ask` sees to it that every run does.
    """
    parts = {
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        and [argument.arg for argument in function.args.args if argument.arg != "self"][:1] == ["ask"]
    }
    places = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            own = isinstance(node.func.value, ast.Name) and node.func.value.id == "self" and node.func.attr in parts
            both = [argument.id for argument in node.args if isinstance(argument, ast.Name)] == ["ask", "public"]
            if own or (node.func.attr == "run" and both and len(node.args) == 2 and not node.keywords):
                places.add(id(node.args[0]))
    return places


def violations(source: str) -> list[str]:
    """What in the text of a method's file reaches beyond `ask` and the public facts."""
    tree = ast.parse(source)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)} | handed_on(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            found += [f"imports {name}" for name in names if is_forbidden(name) or name == "tulle.trusted.curator"]
            found += ["imports tulle as a whole" for name in names if name == "tulle"]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [alias.name for alias in node.names]
            if node.level:
                found.append("uses a relative import, which this check does not resolve")
            if is_forbidden(module) or any(is_forbidden(f"{module}.{name}") for name in names):
                found.append(f"imports from {module}")
            if module == "tulle.trusted.curator" and not set(names) <= FROM_THE_CURATOR:
                found.append("imports more than Ask from tulle.trusted.curator")
            if module == "tulle.trusted" and "curator" in names:
                found.append("imports tulle.trusted.curator")
        elif isinstance(node, ast.Attribute) and node.attr in FORBIDDEN_ATTRIBUTES:
            found.append(f"takes the attribute {node.attr}")
        elif isinstance(node, ast.Constant) and node.value in FORBIDDEN_ATTRIBUTES:
            found.append(f"spells out the attribute {node.value}")
        elif isinstance(node, ast.Name) and node.id in FORBIDDEN_NAMES:
            found.append(f"uses {node.id}")
        elif isinstance(node, ast.Name) and node.id == "ask" and id(node) not in called:
            found.append("does something else with ask than call it")
    return found


def test_there_are_method_files_to_check() -> None:
    """The check below has files to look at, one for each method of the table at least."""
    assert {METHODS[name].__module__ for name in METHODS} <= {f"tulle.methods.{path.stem}" for path in METHOD_FILES}


@pytest.mark.parametrize("path", METHOD_FILES, ids=lambda path: path.name)
def test_no_method_reaches_for_rows(path: Path) -> None:
    """Nothing under methods/ imports rows, opens the curator, or evaluates a query itself."""
    assert violations(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", METHOD_FILES, ids=lambda path: path.name)
def test_run_calls_it_ask(path: Path) -> None:
    """Every run takes self, ask and public under these names, so that what it does with ask is seen."""
    runs = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)]
    names = [[argument.arg for argument in node.args.args] for node in runs if node.name == "run"]
    assert all(arguments == ["self", "ask", "public"] for arguments in names)


@pytest.mark.parametrize(
    "planted",
    [
        "from tulle.trusted.rows import Rows",
        "from tulle.trusted import rows",
        "import tulle.trusted.rows as r",
        "import tulle",
        "import tulle.trusted.curator",
        "from tulle.trusted import curator",
        "from tulle.trusted.curator import Curator",
        "from tulle.trusted.curator import Ask, Curator",
        "from tulle.estimators.bounds import Bounds",
        "from tulle.estimators.sparse import SparseClassifier",
        "from . import hard_thresholding",
        "import gc",
        "from inspect import getclosurevars",
        "rows = np.load('rows.npy')",
        "rows = open('rows.csv').read()",
        "def run(self, ask, public): return ask.__self__",
        "def run(self, ask, public): return ask.anything",
        "def run(self, ask, public): return getattr(ask, '__self__')",
        "def run(self, ask, public):\n    other = ask\n    return other.rows",
        "def run(self, ask, public): return helper(ask)",
        "def run(self, ask, public): return self._elsewhere(ask)",
        "def run(self, ask, public): return self._part(ask)\n\ndef _part(self, question): return keep(question)",
        "def run(self, ask, public): return self._part(1, ask)\n\ndef _part(self, one, ask): return ask('a', 1)",
        "def run(self, ask, public): return other._part(ask)\n\ndef _part(self, ask): return ask('a', 1)",
        "def run(self, ask, public): return other.run(ask)",
        "def run(self, ask, public): return other.run(public, ask)",
        "from tulle.trusted.sampling import Sampler",
        "from tulle.fast.lazy_noise import Background, noisy_largest",
        "from tulle.trusted.objectives import PenalisedSum",
        "from tulle.fast.scores_on_demand import Follower",
        "from tulle.fast import kernels",
        "import tulle.fast.kernels",
        "from tulle.fast.compiled_rows import SparseBlock",
        "def run(self, ask, public): go = self._part; return go(ask)\n\ndef _part(self, ask): return ask('a', 1)",
        "from tulle.trusted.fit import open_account",
        "from tulle.monitoring.logged_account import open_logged_account",
        "from tulle.federated import Client",
        "def run(self, ask, public): return objective.minimise(public)",
        "def run(self, ask, public): return query.evaluate(None, public)",
        "def run(self, ask, public): return getattr(query, 'evaluate')(None, public)",
        "def run(self, ask, public): return self.curator._rows",
    ],
)
def test_the_static_check_sees_a_planted_breach(planted: str) -> None:
    """Each way around the boundary, added to a clean method, is found."""
    clean = (
        "import numpy as np\n\n"
        "def go(self, ask, public):\n    return ask('step', 1, then=None)\n\n"
        "def _all(self, ask, public):\n    return self.resolve(public).run(ask, public), self._go_on(ask, public)\n\n"
        "def _go_on(self, ask, public):\n    return ask('step', 1)\n"
    )
    assert violations(clean) == []
    assert violations(clean + planted + "\n") != []


UNTRUSTED_FILES = [
    path
    for path in sorted(SOURCE.rglob("*.py"))
    if not any(path.is_relative_to(SOURCE / folder) for folder in EVALUATING)
]


def evaluations(source: str) -> list[int]:
    """The lines on which an attribute called `evaluate` is taken."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and node.attr in ("evaluate", "_contribution")
    ]


def test_no_file_outside_trusted_folders_evaluates_a_query() -> None:
    """Exact answers exist in the trusted package only, and in queries that it evaluates."""
    found = {
        str(path.relative_to(SOURCE)): len(lines)
        for path in UNTRUSTED_FILES
        if (lines := evaluations(path.read_text(encoding="utf-8")))
    }
    # The server of masked sums evaluates queries on sums that have their noise already: it has no rows.
    masked = {"federated/server_side/masked_server.py": 1}
    assert found == {"methods/recipe.py": 1, "fast/exact_answers.py": 2, **masked}


def test_the_search_for_evaluations_finds_them() -> None:
    """It finds the curator's own call, and a planted one."""
    assert len(evaluations((SOURCE / "trusted" / "curator.py").read_text(encoding="utf-8"))) == 1
    assert evaluations("x = 1\ny = query.evaluate(rows, public)") == [2]
    untrusted = {path.relative_to(SOURCE).parts[0] for path in UNTRUSTED_FILES}
    assert {path.name for path in SOURCE.iterdir() if list(path.glob("*.py"))} - untrusted == {"trusted"}


def test_exact_answers_without_a_sensitivity_are_never_sold() -> None:
    """A query that states no sensitivity gets no noisy answer: the mechanism refuses rather than guess."""
    from tulle.trusted.mechanisms import Gaussian, Sensitivity

    with pytest.raises(ValueError, match="states no sensitivity"):
        Gaussian().release(np.ones((2, 1)), Sensitivity(l1=1.0), np.random.default_rng(0), None)
    assert math.isinf(Sensitivity().l2)


# --- queries ---------------------------------------------------------------------------------------------------------

TRUSTED_QUERIES = {"Query", "ClippedSum", "Affine", "Magnitudes", "VertexScores", "SignedScores"} | {
    "Minimiser",
}
# Queries of other packages: the base class of recipes, exact answers, and classes that are vouched for on use.
OTHER_QUERIES = {
    "methods/recipe.py": ["Recipe derives from Query"],
    "fast/exact_answers.py": ["ExactQuery derives from Query"],
    "tuning/metrics.py": ["CellCounts derives from Query"],
    "estimators/bounds.py": ["QuantileScores derives from Query"],
    "preprocessing/thresholded_sets.py": ["KeyMasses derives from Query"],
}
DECIDED_BY_TRUSTED_CODE = {"sensitivity", "one_unit", "size", "largest", "evaluate", "_contribution", "total", "_clip"}


def own_queries(source: str) -> list[str]:
    """The classes of a file that answer rows themselves, or state a sensitivity: queries that are no mere recipes."""
    found, recipes = [], {"Recipe"}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef):
            continue
        bases = {base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in node.bases}
        methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        if bases & recipes:
            recipes.add(node.name)
            found += [f"{node.name} defines {name}" for name in sorted(methods & DECIDED_BY_TRUSTED_CODE)]
        found += [f"{node.name} derives from {base}" for base in sorted(bases & TRUSTED_QUERIES)]
    return found


def test_outside_trusted_folders_queries_are_recipes() -> None:
    """A recipe says which query of the trusted package is meant. It has no sensitivity and no evaluation of its own."""
    found = {
        str(path.relative_to(SOURCE)): own
        for path in UNTRUSTED_FILES
        if (own := own_queries(path.read_text(encoding="utf-8")))
    }
    assert found == OTHER_QUERIES


def test_the_search_for_queries_finds_them() -> None:
    assert own_queries("class Mine(queries.ClippedSum): ...") == ["Mine derives from ClippedSum"]
    assert own_queries("class A(Recipe):\n    def resolve(self): ...\nclass B(A):\n    def sensitivity(self): ...") == [
        "B defines sensitivity"
    ]
    trusted = [own_queries(path.read_text(encoding="utf-8")) for path in (SOURCE / "trusted").glob("*.py")]
    assert {line.partition(" ")[0] for lines in trusted for line in lines} == TRUSTED_QUERIES - {"Query"}


def test_queries_are_vouched_for_in_few_places() -> None:
    """What may be answered with noise is decided in the trusted package, and in modules whose answers a bill names."""
    calls = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if re.search(r"^@?vouch_for_query\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert {name for name in calls if not name.startswith("trusted/")} == {
        "tuning/metrics.py",
        "estimators/bounds.py",
        "federated/client_side/network_study.py",
        "preprocessing/thresholded_sets.py",
    }
