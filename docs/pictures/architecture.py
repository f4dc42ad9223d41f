"""The two pictures of docs/architecture.md: the packages, and the way of one fit through them.

    python docs/pictures/architecture.py        # a second; writes packages.svg and one_fit.svg

Lines are counted from the source, without privacy: this looks at code only.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parent.parent / "src" / "tulle"

# Top down, as in tests/test_architecture.py bottom up: a package imports its own line and the lines below.
LAYERS = (
    ("cli",),
    ("experiments",),
    ("audit", "datasets"),
    ("local", "federated"),
    ("estimators", "tuning"),
    ("methods", "transfer", "reports", "preprocessing", "inference"),
    ("backends", "schema"),
    ("accounting", "ledgers", "files", "fast", "monitoring"),
    ("trusted",),
)
# Folders that see rows or bills, and are named in the report of a fit that used them.
VOUCHED = (
    "backends",
    "schema",
    "preprocessing",
    "fast",
    "ledgers",
    "tuning",
    "federated/client_side",
    "local/user_side",
)
PARTLY = {"federated": "client_side", "local": "user_side", "accounting": "most", "estimators": "bounds"}

COLOURS = {"trusted": ("#7a1f3d", "#ffffff"), "vouched": ("#f2c9d4", "#26141a"), "checked": ("#eef0f2", "#1c2226")}
FONT = 'font-family="system-ui, sans-serif"'


def lines_in(folder: str) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (SOURCE / folder).rglob("*.py"))


def ring_of(package: str) -> str:
    if package == "trusted":
        return "trusted"
    return "vouched" if package in VOUCHED else "checked"


def text(x: float, y: float, words: str, size: int = 14, colour: str = "#1c2226", **more: str) -> str:
    extra = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}" {FONT}{extra}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, ring: str) -> str:
    fill, _ = COLOURS[ring]
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{fill}" stroke="#8a9096"/>'


def packages() -> str:
    width, height, gap, top = 900, 46, 10, 20
    parts = []
    for row, layer in enumerate(LAYERS):
        y = top + row * (height + gap)
        each = (width - 40 - gap * (len(layer) - 1)) / len(layer)
        for column, package in enumerate(layer):
            x = 20 + column * (each + gap)
            ring = ring_of(package)
            colour = COLOURS[ring][1]
            middle = {"text_anchor": "middle"}
            parts.append(box(x, y, each, height, ring))
            parts.append(text(x + each / 2, y + 20, package, 15, colour, font_weight="600", **middle))
            words = f"{lines_in(package):,} lines"
            if package in PARTLY:
                words += f", {PARTLY[package]} vouched for"
            parts.append(text(x + each / 2, y + 37, words, 11, colour, **middle))
    y = top + len(LAYERS) * (height + gap) + 8
    legend = (
        ("trusted", "trusted: every fit rests on it"),
        ("vouched", "vouched for: reports name it when used"),
        ("checked", "checked: a bug costs accuracy, or raises"),
    )
    for place, (ring, words) in enumerate(legend):
        x = 20 + place * 290
        parts += [box(x, y, 18, 18, ring), text(x + 26, y + 14, words, 12)]
    return svg(width, y + 40, parts, "The packages of tulle in layers; imports point down")


STEPS = (
    ("checked", "fit(X, y)", "estimators: validate settings, make the request"),
    ("trusted", "intake", "each cell is read by a rule of that cell alone"),
    ("checked", "plan", "the method states its releases; calibration finds the noise"),
    ("trusted", "prove and bill", "the plan is proved again; ledgers are billed; then the generator is keyed"),
    ("trusted", "curator", "query of known sensitivity, mechanism, noise; each answer is charged first"),
    ("checked", "method.run(ask, public)", "the algorithm of a paper: sees noisy answers and public facts"),
    ("trusted", "settle", "what was released equals the plan, or the fit raises; receipt"),
    ("checked", "coef_, intercept_, privacy_", "estimators and reports: post-processing"),
)


def one_fit() -> str:
    width, height, gap, top = 900, 48, 16, 20
    parts = [
        '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="6" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#555b61"/></marker></defs>'
    ]
    for number, (ring, name, words) in enumerate(STEPS):
        y = top + number * (height + gap)
        colour = COLOURS[ring][1]
        parts.append(box(20, y, width - 180, height, ring))
        parts.append(text(36, y + 21, name, 15, colour, font_weight="600"))
        parts.append(text(36, y + 39, words, 12, colour))
        if number < len(STEPS) - 1:
            x = (width - 140) / 2
            line = f'<line x1="{x:g}" y1="{y + height:g}" x2="{x:g}" y2="{y + height + gap - 2:g}"'
            parts.append(f'{line} stroke="#555b61" stroke-width="1.5" marker-end="url(#head)"/>')
    # Each question goes back to the curator.
    asks, run = (top + k * (height + gap) + height / 2 for k in (4, 5))
    right = width - 160
    path = f"M{right:g},{run:g} C{right + 90:g},{run:g} {right + 90:g},{asks:g} {right + 4:g},{asks:g}"
    parts.append(f'<path d="{path}" fill="none" stroke="#555b61" stroke-width="1.5" marker-end="url(#head)"/>')
    parts.append(text(right + 72, (asks + run) / 2 + 4, "next question", 12))
    return svg(width, top + len(STEPS) * (height + gap) + 10, parts, "One fit, from rows to model")


def svg(width: float, height: float, parts: list[str], title: str) -> str:
    inside = "\n".join(parts)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">'
    paper = f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>'
    return f"{head}\n<title>{escape(title)}</title>\n{paper}\n{inside}\n</svg>\n"


if __name__ == "__main__":
    (HERE / "packages.svg").write_text(packages(), encoding="utf-8")
    (HERE / "one_fit.svg").write_text(one_fit(), encoding="utf-8")
