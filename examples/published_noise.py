"""The epsilon that the noise printed for DP-SGD-HT and DP-SCSG-HT proves, and the side conditions that fail.

The theorems claim (epsilon, delta)-privacy for batches of a fixed size, under conditions on batch and noise. The
columns on the right are the epsilon that privacy loss distributions prove for the same noise: the claim is too large
for large batches, and far too small for small ones. Poisson batches, which are as cheap to draw, cost much less.

    python examples/published_noise.py        # or: make published; a few seconds
"""

from __future__ import annotations

from tulle.methods.published_noise import TrueEpsilon, true_epsilon_table

HEADINGS = ("data", "rows", "batch", "batches", "noise", "constants", "claim", "fixed size", "Poisson")
WIDTHS = (6, 7, 11, 9, 12, 10, 6, 11, 8)


def line(cells: tuple[str, ...]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, WIDTHS))


def figures(row: TrueEpsilon) -> tuple[str, ...]:
    return (
        row.data,
        f"{row.n_rows:,}",
        " / ".join(f"{batch}" for batch in row.batches),
        "/".join(f"{uses}" for uses in row.uses),
        " / ".join(f"{noise:.3g}" for noise in row.noise),
        row.constants if len(row.batches) == 2 else "",
        f"{row.claim:g}",
        f"{'!' if row.without_replacement > row.claim else ''}{row.without_replacement:.3g}",
        f"{'!' if row.poisson > row.claim else ''}{row.poisson:.3g}",
    )


def main() -> None:
    sizes = 0
    for row in true_epsilon_table():
        if len(row.batches) != sizes:
            sizes = len(row.batches)
            title = "DP-SGD-HT, 20 passes" if sizes == 1 else "DP-SCSG-HT, epochs of fixed length, 10 passes"
            print(f"\n{title}: the epsilon that is claimed, and that is proved, at delta = {row.delta:g}\n")
            print(line(HEADINGS))
        print(line(figures(row)))
        print(f"{'':8}fails: {'; '.join(row.failed)}" if row.failed else "", flush=True)
    print("\nNoise is per sensitivity of replacing one row. ! marks values above the claim.")


if __name__ == "__main__":
    main()
