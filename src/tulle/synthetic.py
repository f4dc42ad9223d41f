"""A private model's answers on public features, as a data set to publish."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tulle.events import FloatArray
from tulle.report import BillLine, PrivacyReport

_FORMAT = "tulle synthetic data 1"


@dataclass(frozen=True, eq=False)
class SyntheticData:
    """Public features with a private teacher's answers. It may be published with its report.

    Attributes
    ----------
    X : array or CSR array of shape (m, d)
        The public features, as given.
    y : array of shape (m,)
        Predicted targets; for a classifier, predicted classes.
    margins : array of shape (m, outputs)
        The teacher's margins, what `y` was made of; a student learns more from them than from classes.
    privacy : PrivacyReport
        The teacher's. The answers are a function of the teacher and of public features: they cost nothing more.
    """

    X: Any
    y: npt.NDArray[Any]
    margins: FloatArray
    privacy: PrivacyReport

    def save(self, path: str | Path) -> None:
        """Write one .npz file, without pickles, that holds features, answers and the report as JSON."""
        arrays: dict[str, Any] = {"y": self.y, "margins": self.margins}
        if sp.issparse(self.X):
            X = sp.csr_array(self.X)
            arrays |= {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
        else:
            arrays["X"] = np.asarray(self.X)
        for name, array in arrays.items():
            if np.asarray(array).dtype == object:
                raise ValueError(f"{name} holds Python objects, which only a pickle could keep; use numbers or strings")
        header = json.dumps({"format": _FORMAT, "privacy": json.loads(self.privacy.to_json())})
        with Path(path).open("wb") as file:  # numpy would add a suffix to a name
            np.savez_compressed(file, header=np.array(header), **arrays)

    @classmethod
    def load(cls, path: str | Path) -> SyntheticData:
        """Read what `save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            header = json.loads(str(arrays.pop("header")))
            if header["format"] != _FORMAT:
                raise ValueError(f"its format is {header['format']!r}")
            X = arrays.get("X")
            if X is None:
                shape = tuple(int(size) for size in arrays["shape"])
                X = sp.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)
                X.check_format(full_check=True)
            if not X.shape[0] == len(arrays["y"]) == len(arrays["margins"]):
                raise ValueError("features and answers are of different lengths")
            return cls(X, arrays["y"], arrays["margins"], _report(header["privacy"]))
        except FileNotFoundError:
            raise
        except Exception as error:
            raise ValueError(f"{path} is not a data set that tulle saved: {error}") from error


def _report(values: dict[str, Any]) -> PrivacyReport:
    """A report from its JSON."""
    values = dict(values)
    values["epsilon"] = float(values["epsilon"])
    values["asked"] = None if values["asked"] is None else tuple(values["asked"])
    values["bill"] = tuple(
        BillLine(**{**line, "epsilon_alone": float(line["epsilon_alone"])}) for line in values["bill"]
    )
    values["assumptions"] = tuple(values["assumptions"])
    values["who_saw_what"] = tuple(values["who_saw_what"])
    return PrivacyReport(**values)
