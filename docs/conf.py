"""Settings of Sphinx for the site. `tox -e docs` builds it from README.md and docs/.

The pages are plain Markdown that also reads well on GitHub. What only the site needs is done here.
"""

import re
import shutil
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import download_reference, pending_xref

ROOT = Path(__file__).resolve().parents[1]
INDEX = ROOT / "docs" / "index.md"  # its headings and links are the navigation

project = author = html_title = "flash-attest"
root_doc = "README"
include_patterns = ["*.md", "docs/findings.md", "docs/**/*.md"]
extensions = ["myst_parser"]
myst_heading_anchors = 6
nitpicky = True
html_theme = "furo"
# A line of a message has up to 120 characters.
html_theme_options = {"navigation_with_keys": True, "light_css_variables": {"code-font-size": "75%"}}
html_copy_source = html_use_index = html_show_sphinx = html_show_copyright = False


def navigation() -> str:
    """Return the table of contents in Markdown: a toctree for each heading of docs/index.md."""
    parts = re.split(r"^## (.*)\n", INDEX.read_text(), flags=re.M)[1:]
    lines = []
    for heading, text in zip(parts[::2], parts[1::2], strict=True):
        pages = re.findall(r"^- \[(.*)\]\((.*?)\)", text, flags=re.M)
        lines += ["", "```{toctree}", ":hidden:", f":caption: {heading}", ""]
        lines += [f"{title} </{(INDEX.parent / page).resolve().relative_to(ROOT)}>" for title, page in pages]
        lines += ["```"]
    return "\n".join(lines)


def add_navigation(app, name: str, text: list[str]) -> None:
    """Add the navigation to the home page, where GitHub does not show it."""
    if name == root_doc:
        text[0] += f"{navigation()}\n"


def unlink_sources(app, tree: nodes.document) -> None:
    """Show a link to a source file or a folder as code: the site has pages only."""
    folder = Path(app.env.doc2path(app.env.docname)).parent
    for node in [*tree.findall(download_reference), *tree.findall(pending_xref)]:
        target = node["reftarget"]
        if isinstance(node, pending_xref):
            page = node.get("refdomain") == "doc"
            if (page and target in app.env.found_docs) or not (page or (folder / target).is_dir()):
                continue
        text = node.astext()
        node.replace_self(nodes.literal(text, text))


def add_index(app, error: Exception | None) -> None:
    """Make the home page what a server shows first."""
    if not error:
        shutil.copyfile(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app) -> None:
    """Register the functions above."""
    app.connect("source-read", add_navigation)
    app.connect("doctree-read", unlink_sources, priority=0)  # before files to download are collected
    app.connect("build-finished", add_index)
