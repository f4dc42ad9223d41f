"""A private text classifier, its words, its accuracy and its privacy bill, on synthetic patient notes: `make demo`.

12,000 notes as bags of words. A model with 20 words is fitted to 8,000 of them at several budgets, and without privacy.
The chart goes to build/demo.png, and the privacy report of the model at ε = 1, as it would be signed, to
build/demo.html.
"""

from __future__ import annotations

import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from matplotlib.axes import Axes
from medical_text import GRAVE, MILD, NEUTRAL, PLACES, drug_names

from tulle import Bounds, SparseClassifier
from tulle.files.number_text import rounded_up
from tulle.reports.pages import fit_page
from tulle.reports.report import About

BUILD = Path(__file__).resolve().parent.parent / "build"
N_NOTES, N_TRAINING, N_DRUGS, N_WORDS = 12_000, 8_000, 4_000, 20
BUDGETS, REPETITIONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0), 3
SIGNS = [*GRAVE, *MILD, *NEUTRAL]
N_TELLING = len(GRAVE) + len(MILD)  # the first signs decide, the others have no effect
BLUE, RED, GREY = "#0b6fb8", "#c2452d", "#8a8a8a"


def make_notes(rng: np.random.Generator) -> tuple[sp.csr_array, npt.NDArray[np.str_]]:
    """Words of notes, each row of length 1, and whether a hospital stay followed. The first words are `SIGNS`."""
    # Two to five signs in each note, of which grave ones are rarer; then one place and one medicine.
    chances = np.array([0.7] * len(GRAVE) + [1.0] * (len(MILD) + len(NEUTRAL)))
    order = np.argsort(-np.log(chances) - rng.gumbel(size=(N_NOTES, len(SIGNS))), axis=1)
    count = rng.integers(2, 6, N_NOTES)
    signs = [row[:many] for row, many in zip(order, count)]
    place = len(SIGNS) + rng.integers(0, len(PLACES), N_NOTES)
    drug = len(SIGNS) + len(PLACES) + rng.integers(0, N_DRUGS, N_NOTES)
    columns = np.concatenate([np.append(of, (one, two)) for of, one, two in zip(signs, place, drug)])
    width = count + 2
    values = np.repeat(1 / np.sqrt(width), width)
    shape = (N_NOTES, len(SIGNS) + len(PLACES) + N_DRUGS)
    notes = sp.csr_array((values, columns, np.append(0, np.cumsum(width))), shape=shape)
    odds = [-1.5 + 3.0 * np.sum(of < len(GRAVE)) - 1.5 * np.sum((of >= len(GRAVE)) & (of < N_TELLING)) for of in signs]
    stay = rng.uniform(size=N_NOTES) < 1 / (1 + np.exp(-np.array(odds)))
    return notes, np.where(stay, "stay", "home")


def classifier(epsilon: float | None) -> SparseClassifier:
    bounds = Bounds(row_l2=1.0)  # true by construction, known without looking at the notes
    return SparseClassifier(epsilon, 1e-6, n_nonzero=N_WORDS, bounds=bounds, classes=["home", "stay"])


def main() -> None:
    rng = np.random.default_rng(1)
    X, y = make_notes(rng)
    words = [*SIGNS, *PLACES, *drug_names(rng, N_DRUGS)]
    train, test = slice(0, N_TRAINING), slice(N_TRAINING, None)
    print(f"{N_TRAINING:,} made-up patient notes of {X.shape[1]:,} different words; a model with {N_WORDS} words.\n")
    print(f"{'ε':>5}  {'test accuracy':>13}  {'seconds':>7}")
    accuracy: dict[float, list[float]] = {}
    exact: SparseClassifier | None = None
    for epsilon in (*BUDGETS, None):
        start = time.perf_counter()
        fits = [classifier(epsilon).fit(X[train], y[train]) for _ in range(REPETITIONS if epsilon else 1)]
        seconds = (time.perf_counter() - start) / len(fits)
        scores = [float(fit.score(X[test], y[test])) for fit in fits]
        name = "none" if epsilon is None else f"{epsilon:g}"
        print(f"{name:>5}  {np.mean(scores):>13.3f}  {seconds:>7.2f}", flush=True)
        if epsilon is None:
            exact, best = fits[0], scores[0]
        else:
            accuracy[epsilon] = scores
        if epsilon == 1.0:
            model = fits[0]
    assert exact is not None
    print("\nThe promise about each patient at ε = 1 (model.privacy_):\n")
    print(model.privacy_)

    BUILD.mkdir(exist_ok=True)
    guess = max(float(np.mean(y[test] == label)) for label in ("home", "stay"))
    draw(model, exact, words, accuracy, best, guess)
    model.weight_names_ = np.array(words)
    about = About(title="Words that foretell a hospital stay", purpose="Triage", data=f"{N_TRAINING:,} made-up notes")
    (BUILD / "demo.html").write_text(fit_page(model, about), encoding="utf-8")
    print("\nPicture: build/demo.png. Report to sign: build/demo.html.")


def draw(
    model: SparseClassifier,
    exact: SparseClassifier,
    words: list[str],
    accuracy: dict[float, list[float]],
    best: float,
    guess: float,
) -> None:
    plt.rcParams.update({"font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False})
    figure, places = plt.subplot_mosaic(
        [["words", "accuracy"], ["words", "bill"]],
        figsize=(11, 6.4),
        layout="constrained",
        width_ratios=(1.0, 1.15),
        height_ratios=(1.5, 1.0),
    )
    figure.suptitle(
        f"{N_TRAINING:,} made-up patient notes, {len(words):,} words, one private model at ε = 1",
        x=0.01,
        ha="left",
        size=15,
    )
    _draw_words(places["words"], model, exact, words)
    _draw_accuracy(places["accuracy"], accuracy, best, guess)
    _draw_bill(places["bill"], model)
    figure.savefig(BUILD / "demo.png", dpi=130)


def _draw_words(axes: Axes, model: SparseClassifier, exact: SparseClassifier, words: list[str]) -> None:
    weights, true = model.coef_[0], exact.coef_[0]
    chosen = sorted(model.support_, key=lambda word: weights[word])
    heights = range(len(chosen))
    colours = [RED if weights[word] > 0 else BLUE for word in chosen]
    axes.barh(heights, weights[chosen], color=colours, height=0.72)
    axes.plot(true[chosen], heights, "o", color="white", markeredgecolor="#222222", markersize=5, label="no privacy")
    axes.set_yticks(heights, [words[word] for word in chosen])
    for label, word in zip(axes.get_yticklabels(), chosen):
        label.set_color("#222222" if word < N_TELLING else GREY)
    axes.axvline(0, color="#222222", linewidth=0.8)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("weight: ← stays home      goes to hospital →")
    right = sum(word < N_TELLING for word in chosen)
    axes.set_title(f"The words it chose: {right} of the {N_TELLING} that matter (grey: noise)", loc="left", size=11)
    axes.legend(frameon=False, loc="lower right")


def _draw_accuracy(axes: Axes, accuracy: dict[float, list[float]], best: float, guess: float) -> None:
    budgets = list(accuracy)
    means = [float(np.mean(scores)) for scores in accuracy.values()]
    least, most = (list(map(extreme, accuracy.values())) for extreme in (min, max))
    axes.fill_between(budgets, least, most, color=BLUE, alpha=0.15)
    axes.plot(budgets, means, marker="o", color=BLUE, linewidth=2)
    for level, name, place, side in ((best, "no privacy", 0, "left"), (guess, "guessing", -1, "right")):
        axes.axhline(level, color=GREY, linewidth=1, linestyle="--")
        text = f"{name}: {100 * level:.0f} %"
        axes.annotate(text, (budgets[place], level), (0, 4), textcoords="offset points", ha=side, color="#555555")
    one = budgets.index(1.0)
    text = f"ε = 1: {100 * means[one]:.0f} %"
    axes.annotate(text, (1.0, means[one]), (8, -16), textcoords="offset points", weight="bold")
    axes.set(xscale="log", ylim=(guess - 0.05, best + 0.05))
    axes.set(ylabel="test accuracy", xlabel="ε: privacy loss allowed (less is more private)")
    axes.set_xticks(budgets, [f"{epsilon:g}" for epsilon in budgets])
    axes.minorticks_off()
    axes.set_title(f"What privacy costs ({REPETITIONS} fits at each ε)", loc="left", size=11)


def _draw_bill(axes: Axes, model: SparseClassifier) -> None:
    lines = model.privacy_.bill[::-1]
    axes.barh(range(len(lines)), [line.epsilon_alone for line in lines], color=GREY, height=0.6)
    axes.barh(len(lines), model.privacy_.epsilon, color=BLUE, height=0.6)
    names = [f"{line.release} ({line.mechanism})" for line in lines]
    axes.set_yticks(range(len(lines) + 1), [*names, "everything together, proved"])
    for height, value in enumerate([*(line.epsilon_alone for line in lines), model.privacy_.epsilon]):
        axes.annotate(rounded_up(value, 2), (value, height), (4, 0), textcoords="offset points", va="center")
    axes.tick_params(axis="y", length=0)
    axes.set(xlabel="ε of each release by itself", xlim=(0, 1.15))
    axes.set_title("The privacy bill: together less than the sum", loc="left", size=11)


if __name__ == "__main__":
    main()
