"""What tests read of a page without a browser."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import numpy as np
import numpy.typing as npt

VOID = {"meta", "link", "br", "img", "input", "hr"}


@dataclass
class Element:
    """An element with what is in it, in order: elements and text."""

    tag: str
    attributes: dict[str, str]
    inside: list[Any] = field(default_factory=list)

    def walk(self) -> Iterator[Element]:
        """This element and those in it, as the page has them."""
        yield self
        for part in self.inside:
            if isinstance(part, Element):
                yield from part.walk()

    @property
    def text(self) -> str:
        """All text in it, whitespace as one space."""
        return " ".join("".join(self._texts()).split())

    def _texts(self) -> Iterator[str]:
        for part in self.inside:
            if isinstance(part, str):
                yield part
            else:
                yield from part._texts()

    def all(self, tag: str = "", cls: str = "", **attributes: str) -> list[Element]:
        """Those in it with a tag, a class, and attributes of these values."""
        return [
            one
            for one in self.walk()
            if (not tag or one.tag == tag)
            and (not cls or cls in one.attributes.get("class", "").split())
            and all(one.attributes.get(name) == value for name, value in attributes.items())
        ]

    def by_id(self, name: str) -> Element:
        (found,) = self.all(id=name)
        return found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("page", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].inside.append(made)
        if tag not in VOID:
            self.open.append(made)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].inside.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].inside.append(data)


def read(text: str) -> Element:
    """The elements of a page; an AssertionError where tags do not close in the order in which they opened."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == [reader.root], f"<{reader.open[-1].tag}> is not closed"
    return reader.root


def data_of(root: Element) -> dict[str, Any]:
    """The JSON in the page."""
    found: dict[str, Any] = json.loads(root.by_id("data").text)
    return found


def columns_of(root: Element) -> dict[str, npt.NDArray[Any]]:
    """The packed columns by name, scaled ones as they were."""
    packed = zlib.decompress(base64.b64decode(root.by_id("columns").text))
    return {
        name: np.frombuffer(packed, np.dtype("<" + entry["type"]), entry["length"], entry["offset"]) * entry.get("scale", 1)
        for name, entry in data_of(root)["columns"].items()
    }
