"""A private model's answers on public features, as a data set to publish."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tulle.files.archive import ArchiveError, read_archive, write_archive
from tulle.reports.report import PrivacyReport
from tulle.trusted.events import FloatArray

_KIND, _VERSION = "tulle synthetic data", 1


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
        arrays: dict[str, Any] = {"y": np.asarray(self.y), "margins": self.margins}
        if sp.issparse(self.X):
            X = sp.csr_array(self.X)
            arrays |= {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
        else:
            arrays["X"] = np.asarray(self.X)
        write_archive(path, _KIND, _VERSION, {"privacy": self.privacy.to_dict()}, arrays)

    @classmethod
    def load(cls, path: str | Path) -> SyntheticData:
        """Read what `save` wrote."""
        header, arrays = read_archive(path, _KIND, _VERSION)
        try:
            X = arrays.get("X")
            if X is None:
                shape = tuple(int(size) for size in arrays["shape"])
                X = sp.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)
                X.check_format(full_check=True)
            if not X.shape[0] == len(arrays["y"]) == len(arrays["margins"]):
                raise ValueError("features and answers are of different lengths")
            return cls(X, arrays["y"], arrays["margins"], PrivacyReport.from_dict(header["privacy"]))
        except Exception as error:
            raise ArchiveError(f"{path} is not a data set that tulle saved: {error}") from error
