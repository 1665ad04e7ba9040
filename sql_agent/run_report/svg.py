"""Matplotlib's SVG made fit to stand inside a page: theme colours, the page's font, unique ids.

Guarantees: no style sheet, link or metadata of matplotlib's is left, so the picture changes nothing else of the page
and loads nothing; colours become the page's CSS variables, so one picture serves the light and the dark theme.
"""

from __future__ import annotations

import io
import re
from typing import Any

# Colours that stand for CSS variables while matplotlib draws, and what they are on paper.
INK, MUTED, GRID = "#fe0001", "#fe0002", "#fe0003"
SERIES = [f"#fe00{n:02x}" for n in range(0x11, 0x1B)]
VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid"}
VARIABLES |= {color: f"--c{n}" for n, color in enumerate(SERIES, start=1)}
FONT = re.compile(r"font-family: [^;\"]*; ")
IDS = re.compile(r'( id="|href="#|url\(#)')


def inline(figure: Any, *, name: str) -> str:
    """The figure as an <svg> element, with ids that begin with `name`."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    drawn = text[text.index("<g ") :].replace("xlink:href", "href")  # what stands before says nothing of the picture
    drawn = FONT.sub("", IDS.sub(rf"\1{name}-", drawn))
    for color, variable in VARIABLES.items():
        drawn = drawn.replace(color, f"var({variable})")
    width, height = 72 * figure.get_size_inches()
    return f'<svg viewBox="0 0 {width:g} {height:g}" aria-hidden="true" focusable="false">{drawn}'
