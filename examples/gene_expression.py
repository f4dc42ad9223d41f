"""Which genes are associated with the response to a treatment? Private sparse regression on synthetic patients.

Each patient has thousands of genes, a dozen of which matter. Expression is scaled by a public reference cohort, bounds
are declared, and the same model is fitted to 60, 600 and 6,000 patients: a few dozen are too few for private learning,
and tulle warns beforehand. The privacy report is written to build/gene_expression.html.
"""

from __future__ import annotations

import copy
import time
import warnings
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import OrthogonalMatchingPursuit
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from tulle import Bounds, SparseRegressor, check_pipeline, save
from tulle.reports.pages import fit_page
from tulle.reports.report import About

BUILD = Path(__file__).resolve().parent.parent / "build"
N_PATIENTS, N_TEST, N_REFERENCE, N_GENES, N_TRUE = 6_000, 1_000, 400, 4_000, 12

Floats = npt.NDArray[np.float32]


def make_expression(
    rng: np.random.Generator, n: int, centre: Floats, spread: Floats, pathway: npt.NDArray[np.intp]
) -> Floats:
    """Log expression: the genes of each of 40 pathways are correlated."""
    pathways = rng.standard_normal((n, 40), dtype=np.float32)
    own = rng.standard_normal((n, len(centre)), dtype=np.float32)
    return centre + spread * (np.float32(0.9) * own + np.float32(0.45) * pathways[:, pathway])


def main() -> None:
    rng = np.random.default_rng(0)
    names = [f"GENE{number:04}" for number in range(N_GENES)]
    centre = rng.uniform(4, 12, N_GENES).astype(np.float32)
    spread = rng.uniform(0.3, 1.5, N_GENES).astype(np.float32)
    pathway = rng.integers(0, 40, N_GENES)
    X = make_expression(rng, N_PATIENTS + N_TEST, centre, spread, pathway)
    true = np.sort(rng.choice(N_GENES, N_TRUE, replace=False))
    effects = rng.choice([-1.0, 1.0], N_TRUE) * rng.uniform(0.7, 1.2, N_TRUE)
    # On a clinical scale that runs from -10 to 10.
    response = (X[:, true] - centre[true]) / spread[true] @ effects + 0.5 * rng.standard_normal(len(X))
    y = np.clip(response, -10, 10)
    X_test, y_test = X[N_PATIENTS:], y[N_PATIENTS:]
    print(f"{N_PATIENTS:,} patients, {N_GENES:,} genes, {N_TRUE} of which decide the response to a treatment.")

    print(
        "\nGenes are measured on different scales. A scaler that is fitted to the patients is a release of its own:\n"
    )
    # Known without looking at any patient: most z-scores are within 3, so a row of 4,000 has norm about 63, and
    # responses are on a scale that ends at 10.
    bounds = Bounds(row_linf=3.0, row_l2=80.0, label=10.0)
    model = SparseRegressor(epsilon=2.0, n_nonzero=N_TRUE, bounds=bounds)
    for peek in check_pipeline(make_pipeline(StandardScaler(), model)):
        print(f"  {peek}")
    reference = make_expression(rng, N_REFERENCE, centre, spread, pathway)
    scaler = FrozenEstimator(StandardScaler().fit(reference))
    pipeline = make_pipeline(scaler, model)
    print(f"\nInstead: a scaler fitted to a public cohort of {N_REFERENCE} healthy donors, frozen.")
    print(f"Steps that peek: {len(check_pipeline(pipeline))}")

    print(f"\n{'':>24}  {'patients':>8}  {'genes found':>11}  {'R² on others':>12}  {'seconds':>7}")
    cautions = []
    for n in (60, 600, N_PATIENTS):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            tell("private, ε = 2", pipeline, X[:n], y[:n], X_test, y_test, true)
        cautions += [f"{n:,} patients: {warning.message}" for warning in said]
    exact = OrthogonalMatchingPursuit(n_nonzero_coefs=N_TRUE)
    tell(
        "no privacy (scikit-learn)", make_pipeline(scaler, exact), X[:N_PATIENTS], y[:N_PATIENTS], X_test, y_test, true
    )
    print("\nWhat was said before the smaller fits spent anything:")
    for caution in cautions:
        print(f"  {caution}")

    print(f"\nThe genes of the private model of {N_PATIENTS:,} patients, per standard deviation, and the truth:")
    planted = {names[gene]: effect for gene, effect in zip(true, effects)}
    weights = model.named_weights(names)
    for name, weight in weights:
        truth = f"{planted[name]:+.2f}" if name in planted else "  none"
        print(f"  {name}  {weight:+.2f}  {truth}")
    print(f"Found: {sum(name in planted for name, _ in weights)} of {N_TRUE} genes.")

    promise = model.privacy_
    print(f"\nProved for this model: ε = {promise.epsilon:.4g}, δ = {promise.delta:.2g}. Unit: {promise.unit}.")
    print(
        "The smaller fits would have a bill of their own (a tulle.Ledger adds them up), and so would scores. Here they"
    )
    print("are exact, and can be shown because there are no such patients.")
    BUILD.mkdir(exist_ok=True)
    about = About(
        title="Genes that go with the response",
        purpose="Choosing genes for a follow-up study",
        made=datetime.now().isoformat(timespec="minutes"),
        data=f"{N_PATIENTS:,} generated patients",
    )
    save(model, BUILD / "gene_expression.npz", about)
    # The array has no feature names, so they are passed to the page.
    with_names = copy.copy(model)
    with_names.feature_names_in_ = np.array(names, dtype=object)
    (BUILD / "gene_expression.html").write_text(fit_page(with_names, about), encoding="utf-8")
    print("The whole report is in build/gene_expression.html, the model in build/gene_expression.npz.")


def tell(
    name: str,
    pipeline: Pipeline,
    X: Floats,
    y: npt.NDArray[np.float64],
    X_test: Floats,
    y_test: npt.NDArray[np.float64],
    true: npt.NDArray[np.intp],
) -> None:
    """Fit, and print one row of the table."""
    start = time.perf_counter()
    pipeline.fit(X, y)
    seconds = time.perf_counter() - start
    found = len(set(np.flatnonzero(pipeline[-1].coef_)) & set(true))
    score = pipeline.score(X_test, y_test)
    print(f"{name:>24}  {len(X):>8,}  {found:>4} of {len(true):<3}  {score:>12.3f}  {seconds:>7.1f}", flush=True)


if __name__ == "__main__":
    main()
