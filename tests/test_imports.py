"""What an import costs: neither the accountant's library nor compilers nor pictures are loaded for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

HEAVY = ["dp_accounting", "numba", "matplotlib", "torch", "dask", "flwr", "grpc", "cryptography", "randomgen", "pandas"]


def loaded_by(statement: str, **environment: str) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded after `statement`."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env=os.environ | environment,
    )
    return set(json.loads(run.stdout))


def check_imports_load_none_of(module: str, names: list[str], heavy: set[str]) -> set[str]:
    """Import names of a module one after another in one interpreter; which packages are loaded at the end.

    Packages only ever come to those that are loaded, so the first name after which a heavy one is there loads it.
    """
    loops = (
        f"import importlib, sys\nmodule, loads = importlib.import_module({module!r}), {{}}\n"
        f"for name in {names!r}:\n"
        "    getattr(module, name)\n"
        f"    loads[name] = sorted({heavy!r} & {{one.split('.')[0] for one in sys.modules}})\n"
        "assert not any(loads.values()), loads"
    )
    return loaded_by(loops)


def test_import_tulle_loads_no_heavy_package() -> None:
    """`import tulle` loads none of them, and not even scikit-learn or numpy: modules are imported on first use."""
    loaded = loaded_by("import tulle")
    assert "tulle" in loaded
    assert loaded.isdisjoint({*HEAVY, "sklearn", "scipy", "numpy"})


def test_the_front_door_loads_no_heavy_package() -> None:
    """Every name of the front door can be imported without the accountant's library, numba or matplotlib."""
    names = ["Budget", "Bounds", "Ledger", "SparseClassifier", "SparseRegressor", "PrivateSearch", "private_score"]
    names.append("PublicFrequencies")
    loaded = check_imports_load_none_of("tulle", names, set(HEAVY) - {"pandas"})
    assert "numpy" in loaded
    assert loaded.isdisjoint(set(HEAVY) - {"pandas"})


def test_an_import_of_a_heavy_package_is_noticed() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        check_imports_load_none_of("tulle.local", ["answer_for"], {"numpy"})


def test_a_private_fit_loads_no_accountant_library() -> None:
    """Calibration and accounting of a fit run on scipy alone; dp-accounting is for cross-checks."""
    loaded = loaded_by(
        "import numpy as np\nfrom tulle import Bounds, SparseClassifier\n"
        "SparseClassifier(bounds=Bounds(row_l2=1.0)).fit(np.eye(20), np.arange(20) % 2)"
    )
    assert "randomgen" in loaded  # the noise was drawn
    assert loaded.isdisjoint({"dp_accounting", "matplotlib", "torch", "dask", "flwr"})


def test_no_package_loads_the_compiler() -> None:
    """The loops that follow a walk are compiled where they pay, and numba is loaded then."""
    packages = ("methods", "trusted.queries", "fast.scores_on_demand", "fast.coordinate_path", "estimators.lasso_path")
    packages += ("transfer.students", "transfer.public_features", "transfer.synthetic")
    loaded = loaded_by(f"import {', '.join(f'tulle.{name}' for name in packages)}")
    assert loaded.isdisjoint({"numba", "llvmlite"})


def test_a_teacher_and_its_student_load_no_heavy_package() -> None:
    """Public features, a student and a data set to publish need numpy, scipy and scikit-learn alone."""
    loaded = loaded_by(
        "import numpy as np\nfrom tulle import Bounds, SparseRegressor\n"
        "from tulle.methods import KnowledgeTransfer\nfrom tulle.transfer.public_features import UniformFeatures\n"
        "method = KnowledgeTransfer('dense', UniformFeatures(), n_public=30)\n"
        "model = SparseRegressor(method=method, bounds=Bounds(row_linf=1.0, label=20.0))\n"
        "model.fit(np.eye(20), np.arange(20)).release_synthetic(np.eye(20))"
    )
    assert loaded.isdisjoint(set(HEAVY) - {"randomgen", "pandas"})


def test_small_fits_load_no_compiler() -> None:
    """Default fits and paths of few rows, dense and sparse, private and not, read their rows plainly."""
    loaded = loaded_by(
        "import itertools\nimport numpy as np\nimport scipy.sparse as sp\nfrom tulle import Bounds, SparseClassifier\n"
        "from tulle.estimators.lasso_path import lasso_path\n"
        "bounds = Bounds(row_linf=1.0, label=20.0)\n"
        "for rows, epsilon in itertools.product((np.eye(20), sp.csr_array(np.eye(20))), (1.0, None)):\n"
        "    for method in ('frank_wolfe', 'coordinate_descent'):\n"
        "        SparseClassifier(epsilon, method=method, bounds=bounds).fit(rows, np.arange(20) % 2)\n"
        "    lasso_path(rows, np.arange(20.0), [1.0, 2.0], epsilon, bounds=bounds)"
    )
    assert loaded.isdisjoint({"numba", "llvmlite", "dp_accounting", "matplotlib"})


def test_following_a_walk_loads_it() -> None:
    """engine="incremental" on sparse rows does: the tests above can fail.

    Compiling takes seconds and is left out; the fit may then fail, but not before the compiler is loaded.
    """
    loaded = loaded_by(
        "import contextlib\nimport numpy as np\nimport scipy.sparse as sp\nfrom tulle import Bounds, SparseClassifier\n"
        "from tulle.methods import FrankWolfe\n"
        "method = FrankWolfe(n_iter=2, noise='selection', engine='incremental')\n"
        "model = SparseClassifier(method=method, bounds=Bounds(row_linf=1.0))\n"
        "with contextlib.suppress(Exception):\n    model.fit(sp.csr_array(np.eye(20)), np.arange(20) % 2)",
        NUMBA_DISABLE_JIT="1",
    )
    assert "numba" in loaded


def test_the_front_door_lists_its_names_and_refuses_others() -> None:
    """`dir(tulle)` is the front door, each name resolves, and an unknown one is an AttributeError that names it."""
    import tulle

    names = ["Bounds", "Budget", "FileLedger", "Ledger", "PrivatePipeline", "PrivateSearch", "PublicFrequencies"]
    names += ["Schema", "SparseClassifier", "SparseRegressor"]
    assert dir(tulle) == [*names, "__version__", "check_pipeline", "compare", "load", "private_score", "save"]
    assert all(getattr(tulle, name) is not None for name in dir(tulle))
    with pytest.raises(AttributeError, match="module 'tulle' has no attribute 'SparseForest'"):
        tulle.SparseForest  # noqa: B018


LOCAL_NAMES = [
    "FileRecord",
    "HttpStudy",
    "HttpUserClient",
    "LabelCollection",
    "LabelPrivateSparseClassifier",
    "LabelPrivateSparseRegressor",
    "LdpIht",
    "LocalSparseClassifier",
    "LocalSparseRegressor",
    "OneRoundSparseRegressor",
    "Response",
    "Server",
    "User",
    "answer_for",
]


def test_the_door_of_local_studies_loads_nothing_at_all() -> None:
    """`import tulle.local` loads neither numpy nor scikit-learn; its rooms open on first use."""
    assert loaded_by("import tulle.local").isdisjoint({*HEAVY, "sklearn", "scipy", "numpy"})


def test_a_user_loads_neither_scikit_learn_nor_anything_heavy() -> None:
    """A user's device needs numpy and scipy alone."""
    loaded = loaded_by("from tulle.local import FileRecord, Response, User")
    assert {"numpy", "scipy"} <= loaded
    assert loaded.isdisjoint({*HEAVY, "sklearn", "joblib"})


def test_local_studies_load_no_heavy_package() -> None:
    """Estimators, servers and studies over HTTP run on numpy, scipy and scikit-learn."""
    names = ["Server", "HttpStudy", "LocalSparseRegressor", "LabelPrivateSparseClassifier"]
    check_imports_load_none_of("tulle.local", names, set(HEAVY) - {"randomgen", "pandas"})


def test_a_local_study_loads_no_heavy_package() -> None:
    """From rows to a report, with an open ledger: no accountant's library, no compiler."""
    loaded = loaded_by(
        "import numpy as np\nfrom tulle import Bounds, Budget, Ledger\nfrom tulle.local import LocalSparseRegressor\n"
        "with Ledger(Budget(1.0, 1e-6)):\n"
        "    model = LocalSparseRegressor(bounds=Bounds(row_l2=1.0, label=1.0)).fit(np.ones((200, 2)), np.ones(200))\n"
        "str(model.privacy_)"
    )
    assert loaded.isdisjoint(set(HEAVY) - {"randomgen", "pandas"})


def test_the_door_of_local_studies_lists_its_names_and_refuses_others() -> None:
    """`dir(tulle.local)` is the door, each name resolves, and an unknown one is an AttributeError that names it."""
    import tulle.local

    assert dir(tulle.local) == LOCAL_NAMES == sorted(tulle.local.__all__)
    assert all(getattr(tulle.local, name) is not None for name in LOCAL_NAMES)
    with pytest.raises(AttributeError, match=r"module 'tulle\.local' has no attribute 'Curator'"):
        tulle.local.Curator  # noqa: B018
