"""Numbers for readers: few digits, powers of ten, and no epsilon or delta printed smaller than it is proved."""

from __future__ import annotations

import math

from tulle.files.number_text import rounded_up

_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_MINUS = "−"


def readable(text: str) -> str:
    """A number as Python prints it, with thousands in groups, a minus sign, and a power of ten instead of an "e"."""
    if text in ("inf", "-inf", "nan"):
        return {"inf": "∞", "-inf": f"{_MINUS}∞", "nan": "not a number"}[text]
    mantissa, _, exponent = text.partition("e")
    sign = _MINUS if mantissa.startswith("-") else ""
    whole, dot, fraction = mantissa.lstrip("+-").partition(".")
    if not exponent:
        return f"{sign}{int(whole):,}{dot}{fraction}"
    power = f"10{str(int(exponent)).translate(_SUPERSCRIPTS)}"
    return sign + (power if (whole, fraction) == ("1", "") else f"{whole}{dot}{fraction}\u00a0×\u00a0{power}")


def setting(value: float) -> str:
    """A value that a user chose, as they would write it."""
    return readable(f"{value:.5g}")


def epsilon_is(figure: str) -> str:
    """The symbol and its value, without a line break between them."""
    return f"ε\u00a0=\u00a0{figure}"


def delta_is(figure: str) -> str:
    """The symbol and its value, without a line break between them."""
    return f"δ\u00a0=\u00a0{figure}"


def rho_is(figure: str) -> str:
    """The symbol and its value, without a line break between them."""
    return f"ρ\u00a0=\u00a0{figure}"


def number(value: float, digits: int = 4) -> str:
    """A number to a few significant digits."""
    rounded = float(f"{value:.{digits}g}")
    if math.isfinite(rounded) and 1e-3 <= abs(rounded) < 1e6:
        return readable(f"{rounded:.{max(0, digits - 1 - math.floor(math.log10(abs(rounded))))}f}")
    return readable(f"{value:.{digits}g}")


def format_rounded_up(value: float, digits: int = 5) -> str:
    """An epsilon, delta or probability, rounded up: a larger one is a weaker guarantee."""
    text = rounded_up(value, digits)
    return readable(f"{float(text):.0f}" if "e+" in text and float(text) < 1e9 else text)


def odds_factor(epsilon: float) -> str:
    """The factor e^epsilon, rounded up."""
    if epsilon > 700:
        return f"e to the power of {format_rounded_up(epsilon)}"
    return format_rounded_up(math.exp(epsilon), 3)


def belief_after(prior: float, epsilon: float) -> float:
    """The most that a belief of `prior`, in (0, 1), can become where odds are multiplied by at most e^epsilon."""
    return 1 / (1 + math.exp(-epsilon) * (1 - prior) / prior)


def percent_up(chance: float) -> str:
    """A chance in percent, to three digits, rounded up, and at most 100 %."""
    return f"{readable(rounded_up(min(100 * chance, 100.0), 3))}\u00a0%"


def one_in(chance: float) -> str:
    """A small chance in words, never smaller than it is: "1 in 100,000"."""
    if chance >= 0.01:
        return percent_up(chance)
    if chance < 1e-15:
        return f"{format_rounded_up(chance)} of 1"
    times = round(1 / chance)
    return f"1 in {times if 1 / times >= chance else times - 1:,}"
