"""Every link of the pages leads to a file and a heading that exist; addresses are not visited."""

from __future__ import annotations

import functools
import itertools
import pathlib
import re
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(
        path
        for path in sorted(DOCS.rglob("*.md"))
        # Notes are parts of other pages.
        if "_build" not in path.parts and not path.name.endswith(".notes.md")
    ),
]
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.S | re.M)
CARD = re.compile(r"^:link: (\S+)\n:link-type: doc$", re.M)
INLINE = re.compile(r"\]\(\s*<?([^)\s>]+)>?\s*\)")
HTML = re.compile(r"<(?:img|a)\b[^>]*?\b(?:src|href)=\"([^\"]+)\"")
BUILT = ("_images/gallery/",)  # pictures that a build draws

pytestmark = pytest.mark.skipif(not PAGES, reason="Bazel gives a test its own package alone.")


def prose(text: str) -> str:
    """The page without programs, commands and comments; what fences of colons hold stays."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"^(`{3,})(?!\{raw\})[^\n]*\n.*?^\1\s*$", "", text, flags=re.S | re.M)
    return re.sub(r"(`+)(?:(?!\1).)+\1", "", text)


@functools.cache
def anchors(page: pathlib.Path, depth: int) -> frozenset[str]:
    """Anchors of headings down to a depth, as GitHub and MyST make them, and of labels."""
    text = re.sub(r"^(`{3,})[^\n]*\n.*?^\1\s*$", "", page.read_text("utf-8"), flags=re.S | re.M)
    found: set[str] = set(re.findall(r"^\(([\w-]+)\)=$", text, re.M))
    for title in re.findall(rf"^#{{1,{depth}}} +(.+?)\s*$", text, re.M):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        slugs = itertools.chain([slug], (f"{slug}-{i}" for i in itertools.count(1)))
        found.add(next(s for s in slugs if s not in found))
    return frozenset(found)


def targets(page: pathlib.Path) -> Iterator[str]:
    """Relative targets of a page, with their anchors; pages of cards and contents with suffix."""
    text = page.read_text("utf-8")
    for contents in TOCTREE.findall(text):
        lines = [line.strip() for line in contents.splitlines()]
        yield from (f"{line}.md" for line in lines if line and not line.startswith(":"))
    yield from (f"{name}.md" for name in CARD.findall(text))
    kept = prose(text)
    yield from (*INLINE.findall(kept), *HTML.findall(kept))


def broken(page: pathlib.Path) -> list[str]:
    """Targets of a page that lead nowhere."""
    found = []
    for target in targets(page):
        if re.match(r"\w+:", target) or target.startswith(BUILT):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        depth = 3 if file.is_relative_to(DOCS) else 6  # myst_heading_anchors of docs/conf.py
        if not file.exists() or (anchor and anchor not in anchors(file, depth)):
            found.append(target)
        elif page.is_relative_to(DOCS) and not file.is_relative_to(DOCS):
            found.append(f"{target}, which is outside of the documentation")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: pathlib.Path) -> None:
    assert not broken(page)


def test_links_that_lead_nowhere_are_found(tmp_path: pathlib.Path) -> None:
    """Of each kind one, beside one that is right; programs hold no links."""
    (tmp_path / "other.md").write_text("# Other `page`\n\n## A part, of it\n\n## A part, of it\n")
    page = tmp_path / "page.md"
    page.write_text(
        """# Page
[a](other.md#a-part-of-it) [b](other.md#a-part-of-it-1) [c](other.md#a-part-of-it-2) [d](#page)
[e](#no) ![f](no.png) [g](https://no.such/page) `[h](no.md)` <img src="no.gif">
[two
lines](none.md)

```python
x[i](no)
```

:::{card} T
:link: nowhere
:link-type: doc
:::

```{toctree}
:hidden:

other
neither
```
"""
    )
    assert sorted(broken(page)) == [
        "#no",
        "neither.md",
        "no.gif",
        "no.png",
        "none.md",
        "nowhere.md",
        "other.md#a-part-of-it-2",
    ]
