"""Matplotlib's SVG made fit to stand inside a page: theme colours, the page's font, unique ids, tooltips.

Guarantees: no style sheet, link or metadata of matplotlib's is left, so the picture changes nothing else of the page
and loads nothing; colours become the page's CSS variables, so one picture serves the light and the dark theme.
"""

from __future__ import annotations

import io
import re
from typing import Any
from xml.etree import ElementTree

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
# Colours that stand for CSS variables while matplotlib draws, and what they are on paper.
INK, MUTED, GRID, SURFACE = "#fe0001", "#fe0002", "#fe0003", "#fe0004"
SERIES = [f"#fe00{n:02x}" for n in range(0x11, 0x1B)]
VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid", SURFACE: "--card"}
VARIABLES |= {color: f"--c{n}" for n, color in enumerate(SERIES, start=1)}
FONT = re.compile(r"font: (?:\w+ )*?([\d.]+)px [^;]*")
Tips = dict[str, list[str]]


def inline(figure: Any, *, name: str, tips: Tips) -> str:
    """The figure as an <svg> element. `tips`: gid of an artist -> the tooltip of each of its marks, in order."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(file.getvalue())
    _drop(root, {f"{{{SVG}}}metadata", f"{{{SVG}}}style"})
    for element in root.iter():
        if marks := tips.get(element.get("id", "")):
            _add_tips(element, marks)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for key, value in list(element.attrib.items()):
            del element.attrib[key]
            element.set("href" if key == f"{{{XLINK}}}href" else key, _value(value, name, key))
    root.attrib = {"viewBox": root.get("viewBox", ""), "aria-hidden": "true", "focusable": "false"}
    return ElementTree.tostring(root, encoding="unicode")


def _drop(element: ElementTree.Element, tags: set[str]) -> None:
    for child in list(element):
        if child.tag in tags:
            element.remove(child)
        else:
            _drop(child, tags)


def _add_tips(group: ElementTree.Element, marks: list[str]) -> None:
    """A <title> in each drawn mark: a marker of a line is a <use>, a bar is a <path>."""
    drawn = list(group.iter(f"{{{SVG}}}use")) or [p for p in group.iter(f"{{{SVG}}}path")][:1]
    if len(drawn) == len(marks):
        for mark, tip in zip(drawn, marks, strict=True):
            ElementTree.SubElement(mark, f"{{{SVG}}}title").text = tip


def _value(value: str, name: str, key: str) -> str:
    """An attribute with CSS variables for colours, the page's font, and ids that no other picture has."""
    if key == "id":
        return f"{name}-{value}"
    value = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", value)
    if value.startswith("#") and key.endswith("href"):
        return f"#{name}-{value[1:]}"
    if key == "style":
        value = FONT.sub(r"font-size: \1px", value)
    for color, variable in VARIABLES.items():
        value = value.replace(color, f"var({variable})")
    return value
