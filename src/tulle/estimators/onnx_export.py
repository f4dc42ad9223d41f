"""Fitted linear models as ONNX files, for programs that predict without tulle or Python.

A file is made of the numbers that the fit released: weights, class labels and the scales of private steps. Its metadata
is a fixed list that has no place for names of people, ledgers, data or files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from tulle import __version__
from tulle.estimators.saved_steps import last_model, steps_before
from tulle.estimators.saving import WRITTEN_BEFORE
from tulle.estimators.sparse import SparseClassifier, SparseRegressor
from tulle.files.install_hints import import_optional, install_hint
from tulle.files.number_text import rounded_up
from tulle.methods.loss_functions import Logistic, Poisson, Softmax, is_built_in, resolve_loss
from tulle.preprocessing.private_scaler import LARGEST, MISSING_FROM, PrivateImputer, PrivateScaler
from tulle.reports.report import NOT_COVERED, WIDTH_PUBLISHED, PrivacyReport
from tulle.reports.words import LABELS_PUBLISHED

if TYPE_CHECKING:
    import onnx

__all__ = ["to_onnx"]

_RESULTS_DEPEND_ON = "nothing"

# Of 2022: all runtimes in use read them, and nothing that came later is needed.
_OPSET, _IR_VERSION = 17, 8
_ROWS, _LABEL, _MARGINS, _PROBABILITIES, _PREDICTION = "X", "label", "margins", "probabilities", "prediction"


def to_onnx(model: Any, *, input_type: Literal["float64", "float32"] = "float64") -> onnx.ModelProto:
    """A fitted model as an ONNX model. Needs the extra `onnx`.

    Post-processing: the result is a function of what the fit released.

    Parameters
    ----------
    model : fitted SparseClassifier or SparseRegressor, or a pipeline that ends in one
        Steps before it may be a `PrivateScaler` and a `PrivateImputer`.
    input_type : {"float64", "float32"}, default="float64"
        The type of the rows. Sums are computed in float64 in both cases.

    Returns
    -------
    onnx.ModelProto
        One input, ``X`` of shape (rows, features), dense, in the order of the columns of the fit. Outputs of a
        classifier: ``label``; ``margins`` of shape (rows, 1) for two classes, else (rows, classes); for the logistic
        loss ``probabilities`` of shape (rows, classes). Output of a regressor: ``prediction`` of shape (rows,). All
        without offsets. The metadata states epsilon, delta, the unit that is protected and the version of tulle.

    Raises
    ------
    TypeError, ValueError
        For other models and steps, losses of your own, ``Bounds(normalise=True)``, and class labels that are neither
        all strings nor all numbers of 64 bits.

    Examples
    --------
    >>> import numpy as np
    >>> from tulle import Bounds, SparseRegressor
    >>> from tulle.estimators.onnx_export import to_onnx
    >>> X = np.random.default_rng(0).uniform(-1, 1, (1000, 5))
    >>> model = SparseRegressor(2.0, n_nonzero=1, bounds=Bounds(row_linf=1.0, label=1.0)).fit(X, X[:, 2])
    >>> exported = to_onnx(model)  # doctest: +SKIP
    >>> onnx.save(exported, "model.onnx")  # doctest: +SKIP
    """
    if input_type not in ("float64", "float32"):
        raise ValueError(f'input_type must be "float64" or "float32", got {input_type!r}')
    steps, last = steps_before(model), last_model(model)
    _check_steps(steps)
    _check_model(last)
    graph = _Graph(import_optional("onnx", "ONNX files need the package onnx", install_hint("onnx")))
    weights = np.atleast_2d(last.coef_.toarray() if sp.issparse(last.coef_) else last.coef_)
    # Files of wide models stay small: other columns are never read. One column at least, since shapes of 0 are rare.
    used = last.support_ if len(last.support_) else np.zeros(1, dtype=np.int64)
    rows = graph.add("Gather", _ROWS, graph.constant("columns", used.astype(np.int64)), axis=1)
    if input_type == "float32":
        rows = graph.add("Cast", rows, to=graph.onnx.TensorProto.DOUBLE)
    for _, step in steps:
        rows = _add_step(graph, step, rows, used)
    products = graph.add("MatMul", rows, graph.constant("weights", weights[:, used].T))
    intercepts = graph.constant("intercepts", np.atleast_1d(last.intercept_).astype(np.float64))
    margins = graph.add("Add", products, intercepts, name=_MARGINS)
    outputs = (_add_classes if hasattr(last, "classes_") else _add_prediction)(graph, last, margins)
    made = graph.build(last.n_features_in_, input_type, outputs, f"{type(last).__name__} of tulle")
    graph.onnx.helper.set_model_props(made, _metadata(last.privacy_))
    graph.onnx.checker.check_model(made)
    return made


class _Graph:
    """The nodes and constants of a model that is being made."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def constant(self, name: str, value: npt.NDArray[Any]) -> str:
        """Append a constant; its name, which is unique."""
        name = f"{name}_{len(self._constants)}"
        self._constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def number(self, name: str, value: float) -> str:
        return self.constant(name, np.array(value, dtype=np.float64))

    def add(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Append a node; the name of its output."""
        name = name or f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(self.onnx.helper.make_node(kind, inputs, [name], **attributes))
        return name

    def build(self, n_features: int, input_type: str, outputs: Sequence[Any], words: str) -> Any:
        helper = self.onnx.helper
        element = helper.np_dtype_to_tensor_dtype(np.dtype(input_type))
        given = helper.make_tensor_value_info(_ROWS, element, ["rows", n_features])
        graph = helper.make_graph(self._nodes, "tulle", [given], outputs, self._constants)
        opset = helper.make_opsetid("", _OPSET)
        return helper.make_model(
            graph,
            opset_imports=[opset],
            ir_version=_IR_VERSION,
            producer_name="tulle",
            producer_version=__version__,
            doc_string=words,
        )

    def output(self, name: str, element: int, *shape: int | str) -> Any:
        return self.onnx.helper.make_tensor_value_info(name, element, ["rows", *shape])


def _check_steps(steps: Sequence[tuple[str, Any]]) -> None:
    for name, step in steps:
        if type(step) not in (PrivateScaler, PrivateImputer):
            raise TypeError(
                f"the step {name!r} ({type(step).__name__}) cannot be exported to ONNX; steps that can: PrivateScaler, "
                "PrivateImputer. Export the model behind it (model_ of a PrivatePipeline, the last step of a "
                "Pipeline), and pass it transformed rows"
            )


def _check_model(model: Any) -> None:
    kind = type(model)
    if kind not in (SparseClassifier, SparseRegressor):
        raise TypeError(
            f"only SparseClassifier and SparseRegressor can be exported to ONNX, or a pipeline that ends in one, not a "
            f"{kind.__name__}; of a search export best_estimator_"
        )
    check_is_fitted(model)
    if model.bounds is not None and model.bounds.normalise:
        raise ValueError(
            "a model with Bounds(normalise=True) cannot be exported to ONNX: it scales each row before it predicts; "
            "normalise rows before the fit instead"
        )
    if not is_built_in(_loss_of(model)):
        raise ValueError(f"the loss {_loss_of(model)!r} is not one of tulle's and cannot be exported to ONNX")


def _loss_of(model: Any) -> Any:
    if isinstance(model, SparseRegressor):
        return resolve_loss(model.loss, "regression")
    return resolve_loss(model.loss, "classification", len(model.classes_))


def _add_step(graph: _Graph, step: PrivateScaler | PrivateImputer, rows: str, used: npt.NDArray[np.intp]) -> str:
    """What `transform` of a step does to the columns in `used`."""
    centre = graph.constant("centre", step.centre_[used])
    known = graph.add("Less", graph.add("Abs", rows), graph.number("missing_from", MISSING_FROM))
    if isinstance(step, PrivateImputer):
        return _add_clip(graph, graph.add("Where", known, rows, centre), float(step.row_linf))
    distance = graph.add("Sub", _add_clip(graph, rows, LARGEST), centre)
    scaled = _add_clip(graph, graph.add("Div", distance, graph.constant("scale", step.scale_[used])), 1.0)
    return graph.add("Where", known, scaled, graph.number("zero", 0.0))


def _add_clip(graph: _Graph, values: str, most: float) -> str:
    return graph.add("Clip", values, graph.number("low", -most), graph.number("high", most))


def _add_classes(graph: _Graph, model: SparseClassifier, margins: str) -> list[Any]:
    """Labels, margins and, where the loss has them, probabilities."""
    types, loss, many = graph.onnx.TensorProto, _loss_of(model), len(model.classes_)
    labels, element = _labels(graph.onnx, model.classes_)
    if many == 2:
        place = graph.add("Cast", graph.add("Greater", margins, graph.number("zero", 0.0)), to=types.INT64)
        axis = graph.constant("second", np.array([1], dtype=np.int64))
        place = graph.add("Squeeze", place, axis)
    else:
        place = graph.add("ArgMax", margins, axis=1, keepdims=0)
    graph.add("Gather", graph.constant("classes", labels), place, name=_LABEL)
    outputs = [graph.output(_LABEL, element), graph.output(_MARGINS, types.DOUBLE, model.coef_.shape[0])]
    if type(loss) is Logistic:
        chances = [graph.add("Sigmoid", graph.add("Neg", margins)), graph.add("Sigmoid", margins)]
        graph.add("Concat", *chances, name=_PROBABILITIES, axis=1)
    elif type(loss) is Softmax:
        graph.add("Softmax", margins, name=_PROBABILITIES, axis=1)
    else:
        return outputs
    return [*outputs, graph.output(_PROBABILITIES, types.DOUBLE, many)]


def _labels(onnx: Any, classes: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], int]:
    """Class labels as ONNX has them: strings, truth values, whole numbers or numbers."""
    values = classes.tolist()
    if all(isinstance(value, str) for value in values):
        return np.array(values, dtype=object), onnx.TensorProto.STRING
    if all(isinstance(value, bool) for value in values):
        return np.array(values), onnx.TensorProto.BOOL
    if all(isinstance(value, int) and -(2**63) <= value < 2**63 for value in values):
        return np.array(values, dtype=np.int64), onnx.TensorProto.INT64
    if all(isinstance(value, float) for value in values):
        return np.array(values, dtype=np.float64), onnx.TensorProto.DOUBLE
    raise ValueError(
        "ONNX has no type for these class labels: they must be all strings, all whole numbers of 64 bits or all floats"
    )


def _add_prediction(graph: _Graph, model: SparseRegressor, margins: str) -> list[Any]:
    """The expected target: the margin, or its inverse link."""
    loss = _loss_of(model)
    if isinstance(loss, Poisson):
        margins = graph.add("Exp", graph.add("Min", margins, graph.number("cap", loss.cap)))
    axis = graph.constant("second", np.array([1], dtype=np.int64))
    graph.add("Squeeze", margins, axis, name=_PREDICTION)
    return [graph.output(_PREDICTION, graph.onnx.TensorProto.DOUBLE)]


def _metadata(report: PrivacyReport) -> dict[str, str]:
    """The guarantee, and what limits it. Never `billed` or all of `assumptions`: they can name ledgers."""
    values = {
        "tulle.version": report.version or "not stated",
        "tulle.exported_by": __version__,
        "tulle.epsilon": rounded_up(report.epsilon, 5),
        "tulle.delta": rounded_up(report.delta, 5),
        "tulle.unit": report.unit,
    }
    notes: list[str] = []
    if report.asked is None:
        notes.append("Fitted without privacy: the model may reveal any row that it was fitted to.")
    elif math.isinf(report.epsilon):
        notes.append("No epsilon is proved for the noise that was drawn.")
    elif report.seeded:
        notes.append("The noise came from a seed: not for release.")
    limits = (WRITTEN_BEFORE, NOT_COVERED, LABELS_PUBLISHED, WIDTH_PUBLISHED)
    notes += [line for line in report.assumptions if line.startswith(limits)]
    return {**values, **({"tulle.note": " ".join(notes)} if notes else {})}
