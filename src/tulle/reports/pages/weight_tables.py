"""The weights of a model as a page shows them: the largest first, by name, one block a class."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tulle.reports.number_format import number
from tulle.reports.pages.markup import Markup, breakable, element, join_markup
from tulle.reports.pages.page import signed_bar, table

# Weights per class that are shown at once, and that are written at all; classes that have a block.
_SHOWN, _WRITTEN, _CLASSES = 30, 1000, 50
_LONGEST_NAME = 160


@dataclass(frozen=True)
class Block:
    """The non-zero weights of one class by falling size, or of a model that has one set of weights."""

    label: str
    weights: list[tuple[str, float]]
    intercept: float


def blocks(model: Any) -> tuple[Block, ...]:
    """The weights of a fitted linear model, one block a class where there are more than two."""
    intercepts = np.atleast_1d(model.intercept_)
    classes = getattr(model, "classes_", ())
    if len(classes) <= 2:
        return (Block("", model.named_weights(), float(intercepts[0])),)
    return tuple(
        Block(str(label), model.named_weights(of=label), float(intercept))
        for label, intercept in zip(classes, intercepts)
    )


def fingerprint(model: Any) -> str:
    """SHA-256 of what a fitted model released: weights, intercepts, class labels, and its teacher's where there is one.

    A page prints it, so that a signature is one for these weights. Dense and sparse weights have the same.

    Parameters
    ----------
    model : estimator
        Fitted, with `coef_` and `intercept_`.

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for prefix in ("", "teacher_"):
        if not hasattr(model, f"{prefix}coef_"):
            continue
        coef = getattr(model, f"{prefix}coef_")
        found = sp.coo_array(coef) if sp.issparse(coef) else sp.coo_array(np.asarray(coef, dtype=np.float64))
        places = np.ravel_multi_index(found.coords, found.shape)
        order = np.argsort(places, kind="stable")
        kept = order[found.data[order] != 0]
        digest.update(f"{prefix}{found.shape}{len(kept)}".encode())
        digest.update(places[kept].astype("<i8").tobytes() + found.data[kept].astype("<f8").tobytes())
        digest.update(np.atleast_1d(getattr(model, f"{prefix}intercept_")).astype("<f8").tobytes())
    digest.update("\0".join(str(label) for label in getattr(model, "classes_", ())).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


# Files may count their columns from 1; where there are no names, everything here counts from 0.
NUMBERED = "The features have no names: x0 is the first column, x1 the second, and so on."


def weight_blocks(model: Any, every: Sequence[Block]) -> Markup:
    """The chosen features by name, with signs and sizes."""
    parts: list[str] = [element("p", _reading(model, every)), _teacher(model)]
    if not (hasattr(model, "feature_names_in_") or hasattr(model, "weight_names_")):
        parts.append(element("p", NUMBERED))
    parts += [_block(block, several=len(every) > 1) for block in every[:_CLASSES]]
    if len(every) > _CLASSES:
        rest = f"The other {len(every) - _CLASSES:,} classes are in the model but not on this page."
        parts.append(element("p", rest))
    return join_markup(parts)


def _reading(model: Any, every: Sequence[Block]) -> str:
    if len(every) > 1:
        return "There is one set of weights per class; the class with the largest sum is predicted."
    classes = getattr(model, "classes_", None)
    if classes is None:
        return "A positive weight raises the prediction as its feature grows, a negative one lowers it."
    return f"A positive weight favours class “{classes[1]}” as its feature grows, a negative one “{classes[0]}”."


def _teacher(model: Any) -> Markup:
    if not hasattr(model, "teacher_coef_"):
        return Markup("")
    coef = model.teacher_coef_
    kept = int(coef.count_nonzero() if sp.issparse(coef) else np.count_nonzero(coef))
    words = f"The private teacher of this model was also released, with {kept:,} non-zero weights"
    return element("p", f"{words}; they are in the model file.")


def _block(block: Block, several: bool) -> Markup:
    of_class = f" of class “{block.label}”" if several else ""
    count = len(block.weights)
    parts: list[str] = [element("h3", f"Class “{block.label}”")] if several else []
    parts.append(element("p", f"Intercept: {number(block.intercept)}. Non-zero weights: {count:,}."))
    if count:
        parts.append(_rows(block, slice(0, _SHOWN), f"The largest weights{of_class}"))
    written = min(count, _WRITTEN)
    if written > _SHOWN:
        rest = _rows(block, slice(_SHOWN, written), f"Further weights{of_class}, in decreasing magnitude")
        parts.append(element("details", element("summary", f"The next {written - _SHOWN:,} weights{of_class}"), rest))
    if count > written:
        words = f"Of {count:,} weights{of_class} the largest {written:,} are on this page"
        parts.append(element("p", f"{words}; the other {count - written:,} are in the model file."))
    return join_markup(parts)


def _rows(block: Block, part: slice, caption: str) -> Markup:
    largest = max((abs(value) for _, value in block.weights if math.isfinite(value)), default=1.0)
    rows = [
        (
            _named(name),
            f"{'+' if value > 0 else ''}{number(value)}",
            signed_bar(value / largest if math.isfinite(value) else 0.0),
        )
        for name, value in block.weights[part]
    ]
    return table(caption, ("Feature", "Weight", "Size and sign"), rows, numeric={1}, bars=2)


def _named(name: str) -> Markup:
    """A feature's name, set apart from the text around it: names may be written from right to left."""
    if not name.strip():
        return element("span", "(its name is empty)", class_="soft")
    if len(name) <= _LONGEST_NAME:
        return element("bdi", breakable(name))
    more = element("span", f"and {len(name) - _LONGEST_NAME:,} characters", class_="under")
    return join_markup([element("bdi", f"{name[:_LONGEST_NAME]}…"), more])
