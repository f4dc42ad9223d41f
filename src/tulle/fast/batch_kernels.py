"""Loops over the entries of a batch of sparse rows, compiled by numba; they see private rows. Imported on use."""

from __future__ import annotations

import numpy as np
from numba import njit

from tulle.fast import compiled

# All runs of six bits in one word: the top six bits of _DE_BRUIJN << k are different for each k.
_DE_BRUIJN = 0x03F79D71B4CB0A89
_BIT_NUMBERS = np.zeros(64, dtype=np.int64)
_BIT_NUMBERS[[((_DE_BRUIJN << k) & (2**64 - 1)) >> 58 for k in range(64)]] = np.arange(64)


@njit(cache=True, nogil=True)
def take_rows(starts, features, entries, numbers, bound, taken_features, taken_entries):  # type: ignore[no-untyped-def]
    """The entries of some rows of a CSR matrix, one row after another, clipped to ±bound."""
    at = 0
    for k in range(len(numbers)):
        for p in range(starts[numbers[k]], starts[numbers[k] + 1]):
            taken_features[at] = features[p]
            taken_entries[at] = min(max(entries[p], -bound), bound)
            at += 1


@njit(cache=True, nogil=True)
def row_products(counts, features, entries, weights, products):  # type: ignore[no-untyped-def]
    """<x, weights> of each row, added up in the order of its entries."""
    at = 0
    for k in range(len(counts)):
        total = 0.0
        for p in range(at, at + counts[k]):
            total += entries[p] * weights[features[p]]
        products[k] = total
        at += counts[k]


@njit(cache=True, nogil=True)
def _lowest_bit(word):  # type: ignore[no-untyped-def]
    """The number of the lowest bit that is set, of 64; by de Bruijn's sequence."""
    return _BIT_NUMBERS[((word & (~word + np.uint64(1))) * np.uint64(_DE_BRUIJN)) >> np.uint64(58)]


@njit(cache=True, nogil=True)
def sum_rows(counts, features, entries, slopes, sums, bits, words, lines, values):  # type: ignore[no-untyped-def]
    """The sum of slope × row over rows: how many features it touches, and in rising order their numbers and values.

    `sums` has a number for each feature, `bits` a bit for each, and `words` a bit for each 64 of these; all are zero
    before and after. Walking along the bits that are set is faster than sorting.
    """
    one = np.uint64(1)
    at = 0
    for k in range(len(counts)):
        for p in range(at, at + counts[k]):
            j = np.uint64(features[p])
            sums[j] += entries[p] * slopes[k]
            bits[j >> np.uint64(6)] |= one << (j & np.uint64(63))
            words[j >> np.uint64(12)] |= one << ((j >> np.uint64(6)) & np.uint64(63))
        at += counts[k]
    found = 0
    for block in range(len(words)):
        outer = words[block]
        words[block] = 0
        while outer:
            word = 64 * block + _lowest_bit(outer)
            outer &= outer - one
            inner = bits[word]
            bits[word] = 0
            while inner:
                j = np.uint64(64 * word + _lowest_bit(inner))
                inner &= inner - one
                lines[found] = j
                values[found] = sums[j]
                sums[j] = 0.0
                found += 1
    return found


compiled.mark_loaded()
