"""Plots as SVG that stands inside a page and tells its numbers when it is pointed at."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import Any
from xml.etree import ElementTree as ET

SIZE = (5.4, 4.3)  # inches: small enough for a telephone, so that two stand side by side on a desk
SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"


def drawn(draw: Callable[[Any], Any], name: str) -> str:
    """Draw into an SVG element whose identifiers all begin with a name.

    Parameters
    ----------
    draw : callable
        From axes to a display, whose ``hover_``, if it has one, says what is known of its points.
    name : str
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "onefit", "font.size": 10.0, "svg.fonttype": "path"}):
        figure = Figure(figsize=SIZE, layout="constrained")
        display = draw(figure.subplots())
        hover = getattr(display, "hover_", [])
        for k, (artist, _) in enumerate(hover):
            artist.set_gid(f"hover-{k}")
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", transparent=True, dpi=160, metadata={"Date": None})
    ET.register_namespace("", SVG[1:-1])
    ET.register_namespace("xlink", LINK[1:-5])
    root = ET.fromstring(buffer.getvalue())
    for k, (_, texts) in enumerate(hover):
        _say(root, f"hover-{k}", texts)
    return _inline(root, name)


def _say(root: ET.Element, gid: str, texts: Sequence[str]) -> None:
    """Give each mark of a group its text, as a title."""
    group = next((one for one in root.iter(f"{SVG}g") if one.get("id") == gid), None)
    if group is None:
        return
    hidden = {id(one) for defs in group.iter(f"{SVG}defs") for one in defs.iter()}
    marks = [one for one in group.iter() if one.tag in (f"{SVG}use", f"{SVG}path") and id(one) not in hidden]
    for mark, text in zip(marks, texts, strict=False):
        ET.SubElement(mark, f"{SVG}title").text = text


def _inline(root: ET.Element, name: str) -> str:
    """The element alone, sized by its box, with identifiers that no other picture has."""
    for one in [*root.iter(f"{SVG}metadata")]:
        root.remove(one)
    root.attrib.pop("width", None)
    root.attrib.pop("height", None)
    text = ET.tostring(root, encoding="unicode")
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', text)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
