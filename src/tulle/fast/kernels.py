"""Loops over single entries, compiled by numba; everything here sees private rows. Imported on use.

Most of them follow a path over sparse columns (`tulle.fast.scores_on_demand` calls these) and draw an exponential
mechanism over its coordinates without visiting all of them. Why the draw is exact: docs/proofs/scores_on_demand.md.
The arrays that they work on: `tulle.fast.kernel_arrays`.

Notation. The margin of row i is scale × z[i]; its slope r[i] is a 1-Lipschitz function of the loss's slope at the
margin, cut at ±cap[i]. Coordinate j has the slope sum g_j = sum_i x_ij r[i] and the log-weight f(g_j), f 1-Lipschitz
after division by `sharpness`. Slopes drift as the path goes on; three running sums bound by how much g_j can have
changed since some moment: spread_j × drift[0] + drift[1] + length_j × drift[2], where spread is the ℓ1 and length the
ℓ2 norm of a column.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from tulle.fast import compiled

SQUARED, HUBER, LOGISTIC, SQUARED_HINGE = 0, 1, 2, 3
VERTICES, SIMPLEX, MAGNITUDES = 0, 1, 2

# What came of a draw, where it is not the number of a coordinate.
MORE_DRAWS, TOO_MUCH_WORK = -1, -2

# Largest value of |m s'(m)| for the logistic function s: 0.22390 at m = 1.5434, rounded up.
LOGISTIC_SCALE_DRIFT = 0.2240

_LOG_2 = math.log(2.0)

# Sums and choices among many are made in chunks of this many.
_CHUNK = 64

# Drift is charged with this much room for the rounding of long sums.
_CHARGED = 1.0 + 1e-6


@njit(cache=True, nogil=True, inline="always")
def _slope(data, i, margin):  # type: ignore[no-untyped-def]
    y = data.targets[i]
    if data.loss == LOGISTIC:
        agreement = y * margin
        e = math.exp(-abs(agreement))
        slope = -y * (e / (1.0 + e) if agreement >= 0 else 1.0 / (1.0 + e))
    elif data.loss == SQUARED_HINGE:
        short = 1.0 - y * margin
        slope = -y * short if short > 0 else 0.0
    else:
        slope = margin - y
        if data.loss == HUBER:
            slope = min(max(slope, -data.threshold), data.threshold)
    if not abs(slope) < np.inf:  # a record that is not finite counts as nothing
        return 0.0
    return min(max(slope, -data.cap[i]), data.cap[i])


@njit(cache=True, nogil=True)
def _unit(data, j):  # type: ignore[no-untyped-def]
    return data.units[j] if len(data.units) > 1 else data.units[0]


@njit(cache=True, nogil=True)
def exact_sum(data, path, j):  # type: ignore[no-untyped-def]
    """g_j of the path's present weights."""
    scale = path.now[0]
    total = 0.0
    if j == len(data.starts) - 1:
        for i in range(len(path.z)):
            total += _slope(data, i, scale * path.z[i])
        total *= data.constant
    else:
        for p in range(data.starts[j], data.starts[j + 1]):
            i = data.rows[p]
            # In the order of `_remembered_sum`: where slopes are fresh, both are equal to the last bit.
            total += data.entries[p] * (data.row_scale[i] * _slope(data, i, scale * path.z[i]))
    return total / _unit(data, j)


@njit(cache=True, nogil=True)
def _remembered_sum(data, path, j):  # type: ignore[no-untyped-def]
    total = 0.0
    if j == len(data.starts) - 1:
        for i in range(len(path.z)):
            total += path.slopes[i]
        total *= data.constant
    else:
        for p in range(data.starts[j], data.starts[j + 1]):
            total += data.entries[p] * path.scaled[data.rows[p]]
    return total / _unit(data, j)


@njit(cache=True, nogil=True)
def refresh_slopes(data, path):  # type: ignore[no-untyped-def]
    """Take all slopes at the present margins."""
    scale = path.now[0]
    for i in range(len(path.z)):
        path.slopes[i] = _slope(data, i, scale * path.z[i])
        path.scaled[i] = data.row_scale[i] * path.slopes[i]
    path.since[:] = 0.0
    path.now[3] = 0.0


@njit(cache=True, nogil=True)
def _entries_of(data, j):  # type: ignore[no-untyped-def]
    if j == len(data.starts) - 1:
        return len(data.targets)
    return data.starts[j + 1] - data.starts[j]


@njit(cache=True, nogil=True)
def measure_columns(data, spread, length):  # type: ignore[no-untyped-def]
    """The ℓ1 and ℓ2 norm of every column."""
    for j in range(len(spread)):
        one = two = 0.0
        if j == len(data.starts) - 1:
            one = abs(data.constant) * len(data.targets)
            two = data.constant**2 * len(data.targets)
        else:
            for p in range(data.starts[j], data.starts[j + 1]):
                entry = abs(data.entries[p]) * data.row_scale[data.rows[p]]
                one += entry
                two += entry * entry
        spread[j] = one / _unit(data, j) * (1 + 1e-9)
        length[j] = math.sqrt(two) / _unit(data, j) * (1 + 1e-9)


@njit(cache=True, nogil=True)
def measure_rows(data, size):  # type: ignore[no-untyped-def]
    """The largest |entry| / unit of every row, the constant column included."""
    size[:] = 0.0
    for j in range(len(data.starts) - 1):
        for p in range(data.starts[j], data.starts[j + 1]):
            i = data.rows[p]
            size[i] = max(size[i], abs(data.entries[p]) * data.row_scale[i] / _unit(data, j))
    if data.constant:
        size[:] = np.maximum(size, data.constant / _unit(data, len(data.starts) - 1))


@njit(cache=True, nogil=True)
def _charge(path, weights, most, together, summed):  # type: ignore[no-untyped-def]
    """Three bounds hold for one change of the slopes; charge the one that loosens the weights least."""
    by_most, by_length = weights.mean[0] * most, weights.mean[1] * together
    if summed <= by_most and summed <= by_length:
        path.drift[1] += _CHARGED * summed
    elif by_most <= by_length:
        path.drift[0] += _CHARGED * most
    else:
        path.drift[2] += _CHARGED * together


@njit(cache=True, nogil=True)
def advance(data, path, weights, shrink, j, amount):  # type: ignore[no-untyped-def]
    """One move of the path: margins, the slopes of the touched rows, and the drift of everything else."""
    scale_before = path.now[0]
    scale = scale_before * shrink
    path.now[0] = scale
    if shrink < 1:
        # Every margin shrinks. In the largest slope: |r'| |m| (1 - shrink), or for the logistic loss a constant times
        # log(1 / shrink), whichever is less; in ℓ2: |r'| (1 - shrink) |m|_2.
        most = _CHARGED * data.curvature * (1 - shrink) * scale_before * path.now[1]
        if data.loss == LOGISTIC:
            most = min(most, -_CHARGED * LOGISTIC_SCALE_DRIFT * math.log(shrink))
        together = _CHARGED * data.curvature * (1 - shrink) * scale_before * math.sqrt(path.now[2])
        if most * weights.mean[0] < together * weights.mean[1]:
            path.drift[0] += most
            path.since[0] += most
        else:
            path.drift[2] += together
            path.since[1] += together
    whole = j == len(data.starts) - 1
    begin, end = (0, len(path.z)) if whole else (data.starts[j], data.starts[j + 1])
    most = squares = summed = grown = touched = 0.0
    for p in range(begin, end):
        i = p if whole else data.rows[p]
        before = path.z[i]
        # The entry as it now is comes first: a raw one can be so large that its product with the amount overflows.
        moved = amount * (data.constant if whole else data.entries[p] * data.row_scale[i])
        after = before + moved / scale
        path.z[i] = after
        path.now[1] = max(path.now[1], abs(after))
        grown += after * after - before * before
        touched += after * after + before * before
        slope = _slope(data, i, scale * after)
        # What the true slope can have changed by. The remembered one may be stale and is no measure of it.
        changed = min(data.curvature * abs(moved), 2.0 * data.cap[i])
        path.slopes[i] = slope
        path.scaled[i] = data.row_scale[i] * slope
        most = max(most, changed)
        squares += changed * changed
        summed += changed * data.row_size[i]
    # Kept by differences, so rounded up: the rounding of large margins outlives them.
    path.now[2] = max(path.now[2] + grown, 0.0) * (1 + 2.0**-50) + touched * 2.0**-52 * (end - begin + 4.0)
    _charge(path, weights, most, math.sqrt(squares), summed)


@njit(cache=True, nogil=True)
def change_caps(data, path, weights, cap):  # type: ignore[no-untyped-def]
    """Other caps from now on. What they change in the slopes is measured row by row; all slopes are fresh then."""
    scale = path.now[0]
    most = squares = summed = 0.0
    for i in range(len(path.z)):
        before = _slope(data, i, scale * path.z[i])
        data.cap[i] = cap[i]
        slope = _slope(data, i, scale * path.z[i])
        path.slopes[i] = slope
        path.scaled[i] = data.row_scale[i] * slope
        changed = abs(slope - before)
        most = max(most, changed)
        squares += changed * changed
        summed += changed * data.row_size[i]
    path.since[:] = 0.0
    path.now[3] = 0.0
    _charge(path, weights, most, math.sqrt(squares), summed)


@njit(cache=True, nogil=True)
def _log_weight(kind, x):  # type: ignore[no-untyped-def]
    if kind == SIMPLEX:
        return -x
    if kind == MAGNITUDES:
        return abs(x)
    # Both vertices of a coordinate: log(exp(x) + exp(-x)), and its series where that is as exact and much faster.
    if abs(x) < 0.02:
        square = x * x
        return _LOG_2 + square * (0.5 - square * (1.0 / 12.0 - square / 45.0))
    return abs(x) + math.log1p(math.exp(-2 * abs(x)))


@njit(cache=True, nogil=True)
def _largest(kind, g, error):  # type: ignore[no-untyped-def]
    """The slope sum within `error` of g that weighs most."""
    return g - error if kind == SIMPLEX else abs(g) + error


@njit(cache=True, nogil=True)
def _least(kind, g, error):  # type: ignore[no-untyped-def]
    return g + error if kind == SIMPLEX else max(abs(g) - error, 0.0)


@njit(cache=True, nogil=True)
def _error(data, path, weights, j):  # type: ignore[no-untyped-def]
    """How far the sum over remembered slopes can be from the exact one: drift, and the rounding of sums."""
    if path.since[0] == 0 and path.since[1] == 0:
        return 0.0
    count = float(_entries_of(data, j))
    return weights.spread[j] * path.since[0] + weights.length[j] * path.since[1] + 2.0**-51 * data.level * count * count


@njit(cache=True, nogil=True)
def _sum(values, begin, end):  # type: ignore[no-untyped-def]
    total = 0.0
    for start in range(begin, end, _CHUNK):
        part = 0.0
        for k in range(start, min(start + _CHUNK, end)):
            part += values[k]
        total += part
    return total


@njit(cache=True, nogil=True)
def _pick(values, begin, end, total, first, second):  # type: ignore[no-untyped-def]
    """An index with probability values / total: a chunk by one uniform, and what it holds by another.

    A uniform has 53 bits, so that every border that it is compared with costs a rounding: few borders, few roundings.
    """
    at, start = first * total, begin
    part = _sum(values, start, min(start + _CHUNK, end))
    reached = part
    while reached <= at and start + _CHUNK < end:
        start += _CHUNK
        part = _sum(values, start, min(start + _CHUNK, end))
        reached += part
    at, k = second * part, start
    reached = values[k]
    while reached <= at and k < min(start + _CHUNK, end) - 1:
        k += 1
        reached += values[k]
    return k


@njit(cache=True, nogil=True)
def _sum_block(weights, b):  # type: ignore[no-untyped-def]
    top = -np.inf
    for k in range(weights.first[b], weights.first[b + 1]):
        top = max(top, weights.log[k])
    for k in range(weights.first[b], weights.first[b + 1]):
        weights.relative[k] = math.exp(weights.log[k] - top)
    weights.top[b] = top
    weights.total[b] = _sum(weights.relative, weights.first[b], weights.first[b + 1])


@njit(cache=True, nogil=True)
def _set_weight(weights, b, k, log_weight):  # type: ignore[no-untyped-def]
    """A lower bound for one candidate of a block. Sums are taken anew: differences would lose small weights."""
    weights.log[k] = log_weight
    if log_weight > weights.top[b] + 30.0:
        _sum_block(weights, b)
        return
    weights.relative[k] = math.exp(log_weight - weights.top[b])
    total = _sum(weights.relative, weights.first[b], weights.first[b + 1])
    weights.total[b] = total
    if total < 1e-9:  # the leader fell: others would vanish next to its former weight
        _sum_block(weights, b)


@njit(cache=True, nogil=True)
def _stamp(path, weights, b):  # type: ignore[no-untyped-def]
    for k in range(3):
        weights.stamp[b, k] = path.drift[k]
    weights.wasted[b] = 0
    _sum_block(weights, b)


@njit(cache=True, nogil=True)
def _loosened(path, weights, draw, b):  # type: ignore[no-untyped-def]
    """By how much the log-weights of a block can have grown since its stamp."""
    return draw.bounded_at * (
        weights.widest[b] * (path.drift[0] - weights.stamp[b, 0])
        + (path.drift[1] - weights.stamp[b, 1])
        + weights.longest[b] * (path.drift[2] - weights.stamp[b, 2])
    )


@njit(cache=True, nogil=True)
def _refresh_block(data, path, weights, draw, b):  # type: ignore[no-untyped-def]
    loosened = _loosened(path, weights, draw, b)
    for k in range(weights.first[b], weights.first[b + 1]):
        j = weights.order[k]
        g = _largest(draw.kind, _remembered_sum(data, path, j), _error(data, path, weights, j))
        weights.log[k] = min(_log_weight(draw.kind, draw.bounded_at * g), weights.log[k] + loosened)
    _stamp(path, weights, b)


@njit(cache=True, nogil=True)
def refresh_all(data, path, weights, draw):  # type: ignore[no-untyped-def]
    """The full gather: all slopes, all slope sums. In the order in which columns lie in memory."""
    refresh_slopes(data, path)
    for j in range(len(weights.order)):
        g = _largest(draw.kind, _remembered_sum(data, path, j), _error(data, path, weights, j))
        weights.log[weights.place[j]] = _log_weight(draw.kind, draw.bounded_at * g)
    for b in range(len(weights.top)):
        _stamp(path, weights, b)


@njit(cache=True, nogil=True)
def sharpen(weights, factor):  # type: ignore[no-untyped-def]
    """Bounds for a draw that is sharper by a factor >= 1, where f(factor × x) <= factor × f(x)."""
    for k in range(len(weights.log)):
        weights.log[k] = factor * (weights.log[k] + 2.0**-50 * abs(weights.log[k]))  # rounded up
    for b in range(len(weights.top)):
        _sum_block(weights, b)


@njit(cache=True, nogil=True)
def all_sums(data, path, out):  # type: ignore[no-untyped-def]
    """All slope sums at the present weights."""
    refresh_slopes(data, path)
    for j in range(len(out)):
        out[j] = _remembered_sum(data, path, j)


@njit(cache=True, nogil=True)
def _plus(g, sharpness):  # type: ignore[no-untyped-def]
    """The probability of the vertex +e_j against -e_j, whose scores are -g and +g."""
    return 1.0 / (1.0 + math.exp(min(2.0 * sharpness * g, 700.0)))


@njit(cache=True, nogil=True)
def _weigh_blocks(path, weights, draw):  # type: ignore[no-untyped-def]
    top = -np.inf
    for b in range(len(weights.top)):
        weights.log_block[b] = weights.top[b] + math.log(weights.total[b]) + _loosened(path, weights, draw, b)
        top = max(top, weights.log_block[b])
    for b in range(len(weights.top)):
        weights.block[b] = math.exp(weights.log_block[b] - top)
    return top


@njit(cache=True, nogil=True)
def draw_coordinate(data, path, weights, draw, uniforms, patience):  # type: ignore[no-untyped-def]
    """A coordinate with probability proportional to its weight, and for vertices the sign.

    Candidates are proposed by upper bounds of their weights and taken with probability weight / bound. Most are
    decided by the remembered slopes, whose error is bounded; the exact sum is taken only where that does not decide.
    Uses six uniforms a candidate; returns MORE_DRAWS when they are used up, and TOO_MUCH_WORK when more than
    `patience` entries were read: then a full gather is cheaper.
    """
    # Bounds that are looser than all scores lie apart are worth nothing, and would lose digits.
    limit = 2.0 * draw.bounded_at * data.level * len(path.z) + 1000.0
    for b in range(len(weights.top)):
        if _loosened(path, weights, draw, b) > limit:
            return TOO_MUCH_WORK, 0.0
    top = _weigh_blocks(path, weights, draw)
    read = 0
    for used in range(0, len(uniforms) - 5, 6):
        total = _sum(weights.block, 0, len(weights.block))
        if total < 1e-100:  # the leading block fell: others would vanish next to its former weight
            top = _weigh_blocks(path, weights, draw)
            total = _sum(weights.block, 0, len(weights.block))
        b = _pick(weights.block, 0, len(weights.block), total, uniforms[used], uniforms[used + 1])
        begin, end = weights.first[b], weights.first[b + 1]
        k = _pick(weights.relative, begin, end, weights.total[b], uniforms[used + 2], uniforms[used + 3])
        j = weights.order[k]
        loosened = _loosened(path, weights, draw, b)
        # Taken if log(uniform) + bound <= log-weight.
        needed = math.log(uniforms[used + 4]) + weights.log[k] + loosened if uniforms[used + 4] > 0 else -np.inf
        side = uniforms[used + 5]

        cost = _entries_of(data, j)
        g = _remembered_sum(data, path, j)
        error = _error(data, path, weights, j)
        highest = _largest(draw.kind, g, error)
        upper = _log_weight(draw.kind, draw.sharpness * highest)
        taken = needed <= _log_weight(draw.kind, draw.sharpness * _least(draw.kind, g, error))
        decided = taken or needed > upper
        sign = 1.0
        if taken and draw.kind == VERTICES:
            if side < _plus(g + error, draw.sharpness):
                sign = 1.0
            elif side >= _plus(g - error, draw.sharpness):
                sign = -1.0
            else:
                decided = False
        if not decided:
            path.now[3] += cost
            if path.now[3] > len(path.z):
                refresh_slopes(data, path)
                read += len(path.z)
                g = _remembered_sum(data, path, j)
            else:
                g = exact_sum(data, path, j)
            read += cost
            highest = _largest(draw.kind, g, 0.0)
            taken = needed <= _log_weight(draw.kind, draw.sharpness * g)
            if draw.kind == VERTICES:
                sign = 1.0 if side < _plus(g, draw.sharpness) else -1.0
        read += cost
        fresh = min(_log_weight(draw.kind, draw.bounded_at * highest) - loosened, weights.log[k])
        if taken:
            spread = length = 0.0
            for c in range(len(weights.block)):
                spread += weights.block[c] * weights.widest[c]
                length += weights.block[c] * weights.longest[c]
            weights.mean[0] = spread / total
            weights.mean[1] = length / total
            _set_weight(weights, b, k, fresh)
            return j, sign
        weights.wasted[b] += cost
        if weights.wasted[b] > weights.size[b] and loosened > 0:
            read += weights.size[b]
            _refresh_block(data, path, weights, draw, b)
            loosened = 0.0
        else:
            _set_weight(weights, b, k, fresh)
        if read > patience:
            return TOO_MUCH_WORK, 0.0
        weights.log_block[b] = weights.top[b] + math.log(weights.total[b]) + loosened
        weights.block[b] = math.exp(weights.log_block[b] - top)
    return MORE_DRAWS, 0.0


@njit(cache=True, nogil=True)
def lines_above(values, cut, lines):  # type: ignore[no-untyped-def]
    """How many values exceed a cut in magnitude, and the first of their numbers, as many as `lines` has room for."""
    found = 0
    for j in range(len(values)):
        if abs(values[j]) > cut:
            if found < len(lines):
                lines[found] = j
            found += 1
    return found


compiled.mark_loaded()
