"""Which classes are treated as tulle's own: exactly those that are registered, no subclasses and no namesakes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tulle.backends.block_folder import BlockFolder, BlockMatrix
from tulle.backends.block_writer import BlockWriter
from tulle.backends.input_kinds import find_spread
from tulle.estimators.saving import save
from tulle.estimators.sparse import SparseClassifier, SparseRegressor
from tulle.federated.server_side.aggregator import RowsAtClients
from tulle.files.own_types import role_of
from tulle.local.estimators import label_private, whole_rows
from tulle.methods.loss_functions import LOSSES, Logistic, Loss, OneVsRest, Softmax, Squared, is_built_in
from tulle.tuning.metrics import quietly
from tulle.tuning.search import PrivateSearch

ROLES = {
    SparseClassifier: "model",
    SparseRegressor: "model",
    PrivateSearch: "model",
    label_private.LabelPrivateSparseClassifier: "model",
    label_private.LabelPrivateSparseRegressor: "model",
    whole_rows.LocalSparseClassifier: "model",
    whole_rows.LocalSparseRegressor: "model",
    whole_rows.OneRoundSparseRegressor: "model",
    BlockMatrix: "block matrix",
    BlockFolder: "block folder",
    BlockWriter: "block folder",
    RowsAtClients: "rows at clients",
}


@pytest.mark.parametrize("cls", ROLES, ids=lambda cls: cls.__name__)
def test_a_subclass_has_no_role(cls: Any) -> None:
    """Nor has a class that claims to be of a module of tulle."""
    mine = type(cls.__name__, (cls,), {"__module__": cls.__module__})
    assert role_of(object.__new__(cls)) == ROLES[cls]
    assert role_of(object.__new__(mine)) is None
    assert find_spread(object.__new__(mine)) is None
    with pytest.raises(TypeError, match="only tulle models can be saved"):
        save(object.__new__(mine), "nowhere")


def test_messages_of_a_subclass_are_not_shown() -> None:
    """They may quote a row; those of a model of tulle's own do not."""

    class Mine(SparseRegressor):
        def predict(self, X: Any) -> Any:
            raise ValueError("the row of Jane Doe")

    Mine.__module__ = SparseRegressor.__module__
    with pytest.raises(ValueError, match="Its message is not shown") as caught:
        quietly(Mine().predict, np.zeros((1, 1)))
    assert "Jane" not in str(caught.value)
    with pytest.raises(ValueError, match="not fitted yet"):
        quietly(SparseRegressor().predict, np.zeros((1, 1)))


def test_losses_of_users_are_not_built_in() -> None:
    class Mine(Logistic):
        pass

    class Around(OneVsRest):
        pass

    class Claiming(Squared):
        binary = Logistic()

    Mine.__module__ = Logistic.__module__
    built_in: list[Loss] = [*(cls() for cls in LOSSES.values()), Softmax(3), OneVsRest(Logistic(), 3)]
    assert all(map(is_built_in, built_in))
    assert not any(map(is_built_in, (Mine(), OneVsRest(Mine(), 3), Around(Logistic(), 3), Claiming())))


def test_asking_whether_loops_are_compiled_does_not_load_the_compiler() -> None:
    code = (
        "import sys\nfrom tulle.fast import compiled, lazy_noise, scores_on_demand\nimport tulle.trusted.rows\n"
        "assert not compiled.is_loaded() and 'numba' not in sys.modules\n"
        "from tulle.fast import kernels\nassert compiled.is_loaded()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
