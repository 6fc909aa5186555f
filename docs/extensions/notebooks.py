"""What tutorials leave: notebooks that can be downloaded, and a picture each for the gallery."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import nbformat
from sphinx.util import logging

logger = logging.getLogger(__name__)

FOLDER = "tutorials"
GALLERY_TAG = "gallery"


def keep_inside(app: Any) -> None:
    """Have MyST-NB write executed notebooks into the build's folder, not beside it."""
    folder = Path(app.outdir) / ".notebooks"
    app.env.mystnb_config = app.env.mystnb_config.copy(output_folder=str(folder))


def plain_markdown(text: str) -> str:
    """Markdown as Jupyter shows it: Sphinx's roles become what they stand for.

    >>> plain_markdown("See {class}`~gpflow_bae.models.SGPBAE` {cite}`tran2023`.")
    'See `SGPBAE` [tran2023].'
    >>> plain_markdown("Then [the guide](../guides/impute.md#files), or [this](gplvm.md).")
    'Then the guide (docs/guides/impute.md), or this (docs/tutorials/gplvm.md).'
    """
    text = re.sub(r"^.*\{nb-download\}.*\n?", "", text, flags=re.MULTILINE)
    text = re.sub(r"\{cite\}`([^`]*)`", r"[\1]", text)
    text = re.sub(r"\[([^\]]*)\]\((?:\.\./)?([\w/]+\.md)[^)]*\)", _page, text)
    text = re.sub(r"\{\w+\}`([^`<]*?) ?<[^`>]*>`", r"`\1`", text)
    return re.sub(r"\{\w+\}`(?:~[\w.]*\.)?([^`]*)`", r"`\1`", text)


def _page(link: re.Match[str]) -> str:
    """Name the page of a relative link, which has no target beside a downloaded notebook."""
    title, path = link.groups()
    return f"{title} (docs/{path if '/' in path or '../' in link[0] else f'{FOLDER}/{path}'})"


def attach_pictures(cell: Any, folder: Path) -> None:
    """Put pictures that a Markdown cell links to into the cell, because notebooks are moved."""

    def attached(link: re.Match[str]) -> str:
        picture = folder / link[2]
        data = base64.b64encode(picture.read_bytes()).decode()
        cell.setdefault("attachments", {})[picture.name] = {"image/png": data}
        return f"![{link[1]}](attachment:{picture.name})"

    cell.source = re.sub(r"!\[([^\]]*)\]\((?!\w+:)([^)]*\.png)\)", attached, cell.source)


def finish(app: Any, env: Any) -> None:
    """Take stderr and Sphinx's markup out of executed notebooks, before they are copied."""
    folder = Path(env.mystnb_config.output_folder) / FOLDER
    for path in sorted(folder.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = plain_markdown(cell.source)
                attach_pictures(cell, Path(app.srcdir) / FOLDER)
            else:
                cell.outputs = [v for v in cell.get("outputs", []) if v.get("name") != "stderr"]
        nbformat.validate(notebook)  # an invalid one would open with an error in Jupyter
        nbformat.write(notebook, path)


def write_gallery(app: Any, exception: Exception | None) -> None:
    """The figure of each tutorial's cell with the tag ``gallery``, as _images/gallery/NAME.png."""
    if exception is not None or app.builder.format != "html":
        return
    target = Path(app.outdir) / "_images" / "gallery"
    target.mkdir(parents=True, exist_ok=True)
    for name in sorted(app.env.found_docs):
        if not name.startswith(f"{FOLDER}/"):
            continue
        path = Path(app.env.mystnb_config.output_folder) / f"{name}.ipynb"
        if not path.exists():  # the list of the tutorials is none
            continue
        picture = _tagged_picture(path)
        if picture is None:
            logger.warning("%s has no figure in a cell with the tag %r", name, GALLERY_TAG)
        else:
            (target / f"{path.stem}.png").write_bytes(picture)


def _tagged_picture(path: Path) -> bytes | None:
    for cell in nbformat.read(path, as_version=4).cells:
        if GALLERY_TAG in cell.metadata.get("tags", []):
            for output in cell.get("outputs", []):
                if "image/png" in output.get("data", {}):
                    return base64.b64decode(output["data"]["image/png"])
    return None


def setup(app: Any) -> dict[str, Any]:
    """Sphinx's entrance."""
    app.connect("builder-inited", keep_inside, priority=900)  # after MyST-NB chose its folder
    app.connect("env-updated", finish)
    app.connect("build-finished", write_gallery)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
