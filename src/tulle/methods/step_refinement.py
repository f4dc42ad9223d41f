"""Refining by a few noisy gradient steps: every release is Gaussian noise on a sum over rows.

For studies whose answers are noisy sums (masked sums of hospitals), where neither a noisy maximum nor objective
perturbation can be had. What lets few steps do:

    start     the intercept b of the constant model, from one noisy mean slope
    screen    only where it lets rows be clipped far below their length: the s largest of a noisy gradient
    mean row  c, with noise: weights are moved at a fixed b + <c, w>, as if rows were centred
    spread    the mean squared length of rows without their part along c: sizes the clip and the step
    step      K times  v = momentum v - eta (g - c g_b),  w = w + v;  before the last steps the s largest weights stay
    length    the mean squared margin: weights are shortened by the part of it that is noise
    finish    the intercept again, from one noisy mean slope

Features that occur in most rows make the loss far more curved along the mean row than elsewhere; without centring a
step that is stable there moves nothing else. Two noisy gradients also tell the curvature along the step between them:
a step that went too far is taken back. Proof: docs/proofs/screen_refine.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tulle.methods.column_rules import ColumnRules
from tulle.methods.gradient_queries import ClippedGradient, Curvature, MeanRow
from tulle.methods.loss_functions import Loss, of_one_output
from tulle.methods.noise_scales import budget_mu, kept_row_norm, signal_to_noise
from tulle.methods.penalised_fit import Start, gaussian
from tulle.trusted.curator import Ask
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.plan import Release

Mask = npt.NDArray[np.bool_]

# The parts of the cost of the small releases, and what screening takes of the rest where it is done.
_MEAN_SHARE, _SPREAD_SHARE, _LENGTH_SHARE, _FINISH_SHARE, _SCREENING_SHARE = 0.08, 0.01, 0.01, 0.02, 0.6
# The number of steps is sqrt(n mu) over the first, within the range; without privacy the last.
_ROWS_PER_STEP, _STEPS, _EXACT_STEPS = 8.0, (6, 8), 200
_MOMENTUM = 0.5
# The standard deviation that all noise together may put on a margin, in units of the scale on which margins live.
_MARGIN_NOISE = 0.7
# Slopes are cut at this part of the loss's default, rows at this multiple of their root mean square length.
_CLIP, _ROW_BOUND = 0.6, 1.25
# The largest step, in units of 1 / (curvature of the loss × mean squared length of centred rows); per feature, too.
_LONGEST, _LONGEST_PER_FEATURE = 250.0, 0.5
# Screening pays where rows are no longer than this part of their bound on the features that are kept.
_SHORTER = 0.6
# Public directions in which the spread is measured, and the bound there of a row's squared length over its mean.
_PROBES, _PROBE_BOUND = 8, 4.0
# Squared margins are clipped at this multiple of what noise gives them, and this much of the weights is left at least.
_LONG_MARGIN, _LEAST_LENGTH = 6.0, 0.5
# From this many features for each n mu on, half of the features is kept by default.
_SCARCE = 2.0


@dataclass(frozen=True)
class StepSettings:
    """The public settings of one run, after defaults."""

    n_steps: int
    late: int  # of these the steps on the features that are kept, after all others
    screened: bool  # whether the features are chosen before the steps
    clip: float  # of slopes in steps
    row_bound: float  # what rows are clipped to at most in steps
    start_share: float
    screening_share: float
    mean_share: float
    spread_share: float
    step_share: float  # of all steps
    length_share: float
    finish_share: float


@dataclass(frozen=True)
class Geometry:
    """Estimates about the rows on the current features, from noisy answers."""

    centre: FloatArray  # of shape (features, 1): the mean row; 0 where noise hides it
    spread: float  # the root mean square length of rows without their part along the centre
    row_bound: float  # what rows are clipped to, without the constant column
    size: int  # how many features are in play


@dataclass(frozen=True, eq=False)
class StepRefinement:
    """Noisy gradient steps, as `ScreenRefine(refinement="steps")` runs them.

    Parameters
    ----------
    steps : int or None
        At least 1. None: sqrt(n mu) / 8 within [6, 8]; 200 without privacy.
    start_share : float
        In [0, 1): the part of the cost of the first intercept.
    screening_share : float or None
        In (0, 1): what screening takes, where it is done, of what start and finish leave. None: 0.6.
    finish_share : float or None
        In [0, 1): the part of the cost of the last intercept. None: 0.02.
    clip : float or None
        Largest slope kept in the start and in screening, > 0. None: the loss's default.
    slope_clip : float or None
        Largest slope kept in steps, > 0. None: 0.6 times the loss's default.
    row_bound : float or None
        What rows are clipped to in steps, > 0. None: 1.25 times their length as it is measured.
    rules : ColumnRules
    """

    steps: int | None
    start_share: float
    screening_share: float | None
    finish_share: float | None
    clip: float | None
    slope_clip: float | None
    row_bound: float | None
    rules: ColumnRules

    # --- defaults: functions of public quantities alone ---

    def settings(self, public: PublicFacts) -> StepSettings:
        """The settings of a run. Reads nothing but the parameters and public facts."""
        private, steps = public.budget is not None, self.steps
        if steps is None:
            few = math.sqrt(public.n_rows * budget_mu(public.budget)) / _ROWS_PER_STEP if private else _EXACT_STEPS
            steps = int(np.clip(round(few), *_STEPS)) if private else _EXACT_STEPS
        kept = self.rules.in_features(public)
        chosen = kept.n_nonzero < public.n_features
        screened = private and chosen and kept_row_norm(kept, False) <= _SHORTER * public.row_l2
        screened = screened and self.rules.n_free(public) > 0
        start = self.start_share if public.fit_intercept else 0.0
        finish = _FINISH_SHARE if self.finish_share is None else self.finish_share
        finish = finish if public.fit_intercept else 0.0
        rest = 1 - start - finish
        screening = (self.screening_share or _SCREENING_SHARE) * rest if screened else 0.0
        mean, spread = ((_MEAN_SHARE if public.fit_intercept else 0.0) * rest, _SPREAD_SHARE * rest)
        # With fewer features than n mu the curvature of the loss takes most of the noise away, and weights are right.
        in_play = kept.n_nonzero if screened else public.n_features
        noisy = private and in_play >= public.n_rows * budget_mu(public.budget)
        length = _LENGTH_SHARE * rest if noisy else 0.0
        clip = self.slope_clip or (_CLIP * public.loss.default_clip(public.label) if private else math.inf)
        bound = kept_row_norm(kept, False) if screened else public.row_l2
        return StepSettings(
            n_steps=steps,
            late=max(steps // 4, 1) if chosen and not screened and steps > 1 else 0,
            screened=screened,
            clip=clip,
            row_bound=min(self.row_bound or math.inf, bound),
            start_share=start,
            screening_share=screening,
            mean_share=mean,
            spread_share=spread,
            step_share=rest - screening - mean - spread - length,
            length_share=length,
            finish_share=finish,
        )

    def default_nonzero(self, public: PublicFacts) -> int:
        """All features; half of them where rows are scarce. For regression on dense features, where keeping few lets
        rows be clipped far below their length, n mu / 60, or sqrt(n mu) / 2 if that is more."""
        d, budget = public.n_features, public.budget
        if budget is None:
            return self.rules.to_units(d)
        told = public.n_rows * budget_mu(budget)
        few = min(max(int(told / 60), int(math.sqrt(told) / 2), 1), d)
        short = kept_row_norm(replace(public, n_nonzero=few), False) <= _SHORTER * public.row_l2
        if public.loss.kind == "regression" and short:
            return self.rules.to_units(few)
        return self.rules.to_units(max(d // 2, 1) if d >= _SCARCE * told else d)

    # --- what will be released ---

    def releases(self, public: PublicFacts) -> tuple[Release, ...]:
        run = self.settings(public)
        parts = {
            "start": (run.start_share, 1),
            "screen": (run.screening_share, 1),
            "mean row": (run.mean_share, 1),
            "spread": (run.spread_share, 1),
            "step": (run.step_share, run.n_steps),
            "length": (run.length_share, 1),
            "finish": (run.finish_share, 1),
        }
        return tuple(Release(name, gaussian(share / count), count) for name, (share, count) in parts.items() if share)

    # --- the algorithm ---

    def run(self, ask: Ask, public: PublicFacts) -> FloatArray:
        run, d, outputs = self.settings(public), public.n_features, public.loss.n_outputs
        constant = np.zeros(outputs)
        if run.start_share:
            first = Start(public, self._start_clip(public), run.start_share, 1.0)
            constant = first.intercepts(ask("start", first.question()))
        support = self._screen(ask, public, constant) if run.screened else np.ones((d, outputs), dtype=bool)
        rows = self._measure(ask, public, run, support)
        w, constant, noise = self._walk(ask, public, _Steps(public, run, rows), support, constant)
        if run.length_share:
            w = self._shorten(ask, public, run, rows, w, noise)
        constant = constant - (rows.centre * w).sum(axis=0)
        if run.finish_share:
            constant = self._finish(ask, public, run, w, constant)
        return np.vstack([w, constant[None, :]])

    def _start_clip(self, public: PublicFacts) -> float:
        return self.clip or (public.loss.default_clip(public.label) if public.budget is not None else math.inf)

    def _screen(self, ask: Ask, public: PublicFacts, constant: FloatArray) -> Mask:
        """The features whose scores are largest, and those that are never dropped."""
        d = public.n_features
        a = public.row_l2 / 4 if public.fit_intercept else 0.0
        w = np.zeros((public.n_parameters, len(constant)))
        w[d:] = constant / a if a else 0.0
        threshold = self.rules.threshold(self.rules.n_free(public), d, always=False)
        stays = np.repeat(self.rules.mask(d)[:, None], len(constant), axis=1)
        noisy = ask("screen", ClippedGradient(w, self._start_clip(public), "l2", a))[:d]
        return stays | self.rules.whole_groups(threshold(np.where(stays, 0.0, noisy)) != 0)

    def _measure(self, ask: Ask, public: PublicFacts, run: StepSettings, support: Mask) -> Geometry:
        """The mean row and the lengths of rows, on features that are in play for any output."""
        d, private = public.n_features, public.budget is not None
        in_play = np.asarray(support.any(axis=1))
        size = max(int(in_play.sum()), 1)
        centre = np.zeros((d, 1))
        if run.mean_share:
            query = MeanRow(run.row_bound, None if in_play.all() else in_play[:, None])
            answer = ask("mean row", query)
            noise = 2 * query.level(public) * self._noise(public, run.mean_share) if private else 0.0
            # Entries that noise alone can have are worth nothing here, and would be added to every step.
            least = math.sqrt(2 * math.log(size + 1)) * noise
            centre = np.where(np.abs(answer[:d]) > least, answer[:d], 0.0) / query.mean_weight(answer, public)
        bound = run.row_bound * math.sqrt(_PROBE_BOUND / size)
        answer = ask("spread", Curvature(_probes(public, in_play, centre), 0.0, bound))
        mean_square = float(answer[0, 0]) * size
        if private:
            # Where noise hides the lengths, they are as long as it could hide.
            hidden = 2 * bound**2 * size * self._noise(public, run.spread_share)
            mean_square = max(mean_square, min(hidden, run.row_bound**2), 1e-3 * run.row_bound**2)
        mean_square = max(mean_square, 1e-200)
        spread = min(math.sqrt(mean_square), run.row_bound)
        length = math.sqrt(mean_square + float((centre**2).sum()))
        bound = self.row_bound or _ROW_BOUND * length
        return Geometry(centre, spread, min(bound, run.row_bound) if private else length, size)

    @staticmethod
    def _noise(public: PublicFacts, share: float) -> float:
        """The standard deviation, about, of noise on a mean of contributions that are clipped to 1/2, or lie in [0, 1],
        for a part of the cost."""
        return public.rows_per_unit / (public.n_rows * budget_mu(public.budget) * math.sqrt(share))

    def _walk(
        self, ask: Ask, public: PublicFacts, loop: _Steps, support: Mask, constant: FloatArray
    ) -> tuple[FloatArray, FloatArray, float]:
        """The weights, the constants b', and the standard deviation, about, of the noise in one weight."""
        run, rows = loop.run, loop.rows
        d, centre = public.n_features, rows.centre
        entry = rows.row_bound / 4 if public.fit_intercept else 0.0
        # Without privacy nothing is cut.
        length = math.hypot(rows.row_bound, entry) if public.budget is not None else None
        threshold = self.rules.threshold(public.n_nonzero, d)
        w, velocity = np.zeros((2, d, len(constant)))
        bends, before, step, noise = _bends(public, constant), None, 0.0, 0.0
        for number in range(run.n_steps):
            if run.late and number == run.n_steps - run.late:
                w = threshold(w)
                support = self.rules.whole_groups(w != 0)
                velocity = np.where(support, velocity, 0.0)
                before = None if before is None else np.where(support, before, 0.0)
            lines = np.vstack([w, (constant - (centre * w).sum(axis=0))[None, :] / entry]) if entry else w
            query = loop.question(lines, entry, length, support)
            answer = ask("step", query)
            noise = loop.noise(query)
            step = step or loop.first_step(noise)
            slopes = answer[d] / entry if entry else np.zeros(len(constant))
            gradient = np.where(support, answer[:d] - centre * slopes, 0.0)
            if before is not None:
                w, gradient, velocity, step = loop.look_back(
                    w, gradient, before, velocity, step, noise * math.sqrt(2), int(support.sum())
                )
            velocity, before = _MOMENTUM * velocity - step * gradient, gradient
            w = w + velocity
            constant = constant - 0.7 * slopes / bends if entry else constant
        w = threshold(w) if public.n_nonzero < d else w
        return w, constant, step * noise * loop.sum_of_noise()

    def _shorten(
        self, ask: Ask, public: PublicFacts, run: StepSettings, rows: Geometry, w: FloatArray, noise: float
    ) -> FloatArray:
        """The weights times the part of the mean squared margin, of centred rows, that is not the noise of weights: a
        model that is mostly noise comes close to the constant one."""
        a = public.row_l2 / 4 if public.fit_intercept else 0.0
        direction = np.vstack([w, -(rows.centre * w).sum(axis=0)[None, :] / a]) if a else w
        square, of_noise = float((direction**2).sum()), w.shape[1] * (noise * rows.spread) ** 2
        # The plan has the question, so it is asked of weights that are zero, too.
        bound = math.sqrt(_LONG_MARGIN * of_noise / square) if square else public.row_l2
        mean_square = float(ask("length", Curvature(direction, a, bound))[0, 0]) * square
        # 1 - noise / mean square at about 2, and nothing from 3 on: clipping hides how long long margins are.
        part = (mean_square / of_noise - 1) / 2 if of_noise else 1.0
        return w * min(max(part, _LEAST_LENGTH), 1.0)

    def _finish(
        self, ask: Ask, public: PublicFacts, run: StepSettings, w: FloatArray, constant: FloatArray
    ) -> FloatArray:
        """The intercepts after one more step: clipping the rows' gradients has moved them, most where classes are of
        different size."""
        clip = 2 * public.loss.default_clip(public.label) if public.budget is not None else math.inf
        nowhere = np.zeros((public.n_parameters, len(constant)), dtype=bool)
        a = public.row_l2 / 4 if public.row_l2 < math.inf else 1.0
        query = ClippedGradient(np.vstack([w, constant[None, :] / a]), clip, "l2", a, nowhere, a)
        slopes = ask("finish", query)[public.n_features] / a
        if public.budget is not None:
            noise = 2 * query.level(public) / a * self._noise(public, run.finish_share)
            slopes = slopes * slopes**2 / np.maximum(slopes**2 + noise**2, 1e-300)
        return np.asarray(constant - slopes / _bends(public, constant))

    # --- for the report and for warnings ---

    def describe(self, public: PublicFacts) -> str:
        run = self.settings(public)
        screened = "screening by Gaussian noise on all scores, " if run.screened else ""
        late = f", the last {run.late} on the features that are kept" if run.late else ""
        return (
            f"screen and refine: {screened}{self.rules.words(public)}, refined by {run.n_steps} noisy gradient steps "
            f"(slopes clipped at {run.clip:.4g}{late})"
        )

    def n_passes(self, public: PublicFacts) -> float:
        return float(sum(release.count for release in self.releases(public)))

    def signal_to_noise(self, public: PublicFacts, releases: tuple[Release, ...]) -> float:
        """As `ScreenRefine` where features are screened, else as `FitAgain`: n mu / 100 per row of a unit."""
        screening = [release.mechanism for release in releases if release.name == "screen"]
        if screening:
            return signal_to_noise(public, screening[0])
        return public.n_rows * budget_mu(public.budget) / (100.0 * public.rows_per_unit)


@dataclass(frozen=True)
class _Steps:
    """What the loop asks, and how far it goes. Weights w and constants b' = b + <centre, w> are moved, so that neither
    pulls at the other."""

    public: PublicFacts
    run: StepSettings
    rows: Geometry

    def question(self, lines: FloatArray, entry: float, length: float | None, support: Mask) -> ClippedGradient:
        clip, extra = self.run.clip, len(lines) - len(support)
        chosen = None if support.all() else np.vstack([support, np.ones((extra, support.shape[1]), dtype=bool)])
        return ClippedGradient(lines, clip, "l2", entry, chosen, length)

    def noise(self, query: ClippedGradient) -> float:
        """The standard deviation, about, of the noise on one coordinate of an answer."""
        public, run = self.public, self.run
        if public.budget is None:
            return 0.0
        mu = budget_mu(public.budget) * math.sqrt(run.step_share / run.n_steps)
        return 2 * query.level(public) * public.rows_per_unit / (public.n_rows * mu)

    def first_step(self, noise: float) -> float:
        """As long as noise allows, and no longer than may be stable for rows of this spread."""
        public, rows = self.public, self.rows
        longest = min(_LONGEST, _LONGEST_PER_FEATURE * rows.size)
        longest /= public.loss.typical_curvature(public.label) * rows.spread**2
        if not noise:
            return longest
        moved = noise * rows.spread * self.sum_of_noise()
        clip = public.loss.default_clip(public.label)
        scale = 1.0 if public.loss.kind == "classification" else 2 * clip
        return min(longest, _MARGIN_NOISE * scale / moved)

    def sum_of_noise(self) -> float:
        """All noise in a weight, over that of a step: the noise of step t is multiplied by the sum of momentum^i for
        the steps that follow."""
        count = self.run.n_steps
        factors = [(1 - _MOMENTUM ** (count - t)) / (1 - _MOMENTUM) for t in range(count)]
        return math.sqrt(sum(factor**2 for factor in factors))

    @staticmethod
    def look_back(
        w: FloatArray,
        gradient: FloatArray,
        before: FloatArray,
        velocity: FloatArray,
        step: float,
        noise: float,
        size: int,
    ) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        """Weights, gradient, velocity and step, after the curvature along the last step was read from two gradients.

        `noise` is that of a difference. The velocity holds the noise of the gradient before, times the step: the
        product with the difference is too large by step × variance × size.
        """
        square, change = float((velocity**2).sum()), gradient - before
        if square == 0:
            return w, gradient, velocity, step
        single = noise**2 / 2
        product = float((velocity * change).sum()) - step * single * size
        doubt = noise * math.sqrt(square) + step * single * math.sqrt(2 * size)
        least = (product - doubt) / square
        step = min(step, 1 / least) if least > 0 else step
        uphill = float((velocity * gradient).sum())
        if uphill > math.sqrt(2) * noise * math.sqrt(square):
            # Too far: back to where the slope along the step was zero, by interpolation of gradients.
            whole = float((velocity * change).sum())
            part = min(max(-float((velocity * before).sum()) / whole, 0.0), 1.0) if whole > 0 else 0.0
            w, gradient = w - (1 - part) * velocity, (1 - part) * before + part * gradient
            velocity = np.zeros_like(velocity)
        return w, gradient, velocity, step


def _bends(public: PublicFacts, constant: FloatArray) -> FloatArray:
    """The curvature of the loss at constant margins, for steps of intercepts; at least a sixth of the usual one."""
    loss, usual = of_one_output(public.loss), public.loss.typical_curvature(public.label)
    if type(loss).curvature_at is Loss.curvature_at:
        return np.full(len(constant), usual)
    return np.maximum(loss.curvature_at(constant), usual / 6)


def _probes(public: PublicFacts, in_play: Mask, centre: FloatArray) -> FloatArray:
    """Public signs on the features in play, orthogonal to the centre: mean squares of <x, v> in such directions v are
    in proportion to the mean squared length of rows."""
    signs = np.random.default_rng(0).integers(0, 2, (public.n_features, _PROBES)) * 2.0 - 1.0
    signs[~in_play] = 0.0
    length = float(np.linalg.norm(centre))
    if length:
        unit = centre / length
        signs -= unit @ (unit.T @ signs)
    return np.vstack([signs, np.zeros((public.n_parameters - public.n_features, _PROBES))])
