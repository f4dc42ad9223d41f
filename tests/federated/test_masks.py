"""Pairwise masks: they cancel in the sum over a set, and hide everything else."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tulle.federated.client_side.masks import Mask, MaskKey, add_up


def set_of_masks(members: int, questions: list[bytes]) -> list[Mask]:
    keys = [MaskKey(bytes([k + 1]) * 32) for k in range(members)]
    return [
        Mask([(keys[i].agree(keys[j].public), i < j) for j in range(members) if j != i], questions[i])
        for i in range(members)
    ]


def hidden(masks: list[Mask], units: np.ndarray, grids: list[float] | None = None) -> list[np.ndarray]:
    return [
        mask.hide(one, grid).values for mask, one, grid in zip(masks, units, grids or [0.25] * len(masks), strict=True)
    ]


UNITS = np.random.default_rng(0).integers(-(2**40), 2**40, (5, 4000))


@pytest.mark.parametrize("members", [2, 3, 5])
def test_masks_cancel_in_the_sum_over_the_set(members: int) -> None:
    masks = set_of_masks(members, [b"q"] * members)
    assert {mask.n_members for mask in masks} == {members}
    total = add_up(hidden(masks, UNITS[:members]))
    assert np.array_equal(total, UNITS[:members].sum(axis=0))


@pytest.mark.parametrize("missing", range(5))
def test_a_sum_with_a_missing_member_is_uniform(missing: int) -> None:
    there = [k for k in range(5) if k != missing]
    masks = set_of_masks(5, [b"q"] * 5)
    assert_uniform(add_up([hidden(masks, UNITS)[k] for k in there]))


def test_one_answer_is_uniform_whatever_it_is() -> None:
    """The server's view without keys. A false alarm has a chance of 1e-6 in each of 12 tests."""
    masks = set_of_masks(3, [b"q"] * 3)
    for units in (np.zeros((3, 40_000), dtype=np.int64), np.full((3, 40_000), 2**50)):
        for one in hidden(masks, units):
            assert_uniform(one)
        assert_uniform(hidden(masks, units)[0] - hidden(set_of_masks(3, [b"r"] * 3), units)[0])


def assert_uniform(values: np.ndarray) -> None:
    """All 256 values of all bytes alike, and neighbours not related: chances of a false alarm 1e-6 each."""
    octets = values.view(np.uint8)
    assert stats.chisquare(np.bincount(octets, minlength=256)).pvalue > 1e-6
    pairs = octets[:-1].astype(int) // 16 * 16 + octets[1:] // 16
    assert stats.chisquare(np.bincount(pairs, minlength=256)).pvalue > 1e-6


def test_members_that_were_asked_different_questions_have_masks_that_do_not_cancel() -> None:
    masks = set_of_masks(3, [b"q", b"q", b"other"])
    assert_uniform(add_up(hidden(masks, UNITS[:3])))


def test_members_that_work_out_different_grids_have_masks_that_do_not_cancel() -> None:
    """Their whole numbers, and their noise, count different units."""
    masks = set_of_masks(3, [b"q"] * 3)
    assert_uniform(add_up(hidden(masks, UNITS[:3], [0.25, 0.25, 0.125])))


def test_two_questions_have_nothing_in_common() -> None:
    """Of the same answer to two questions the difference is uniform: nothing is left of the answer, and no mask is
    used twice."""
    first, second = (hidden(set_of_masks(2, [one] * 2), UNITS[:2])[0] for one in (b"number 1", b"number 2"))
    assert_uniform(first - second)


def test_keys_are_drawn_anew_and_agree() -> None:
    one, other = MaskKey(MaskKey.draw()), MaskKey(MaskKey.draw())
    assert one.public != other.public
    assert one.agree(other.public) == other.agree(one.public)


def twins_of(key: bytes) -> list[bytes]:
    """Other public keys with the same X25519 secrets: the highest bit is not read, and a point of order 2, (0, 0), adds
    nothing: u(P + (0, 0)) = 1 / u(P)."""
    prime = 2**255 - 19
    u = int.from_bytes(key, "little")
    return [(u | 2**255).to_bytes(32, "little"), pow(u, prime - 2, prime).to_bytes(32, "little")]


@pytest.mark.parametrize("which", [0, 1])
def test_a_twin_of_a_key_shares_no_secret(which: int) -> None:
    """The plain X25519 secrets are the same: see to it that these are twins."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    one, other = b"\1" * 32, MaskKey(b"\2" * 32).public
    twin = twins_of(other)[which]
    private = X25519PrivateKey.from_private_bytes(one)
    assert twin != other
    assert len({private.exchange(X25519PublicKey.from_public_bytes(key)) for key in (other, twin)}) == 1
    assert len({MaskKey(one).agree(key) for key in (other, twin)}) == 2


@pytest.mark.parametrize("point", [bytes(32), b"\1" + bytes(31)])
def test_points_that_agree_on_a_known_secret_are_refused(point: bytes) -> None:
    with pytest.raises(ValueError, match="shared key"):
        MaskKey(MaskKey.draw()).agree(point)


def test_a_mask_is_no_function_of_answers() -> None:
    with pytest.raises(TypeError, match="only a masked mechanism"):
        set_of_masks(2, [b"q"] * 2)[0](np.zeros(3))
