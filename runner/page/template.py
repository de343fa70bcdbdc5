"""Renders pages: the Jinja environment, and what the frame base.html.j2 needs.

A page of another room is a template beside its code:

    page = render(Path(__file__).with_name("report.html.j2"), tone=BAD, findings=findings)

tone colours the strip at the top: GOOD, BAD, OPEN (undecided) or BUSY (running). `data` is put into
the page as JSON, where scripts find it as `attest.data`. `scripts` are further files of JavaScript,
which run after script.js.

Nothing in a page is trusted, as an implementation may have written any text. Jinja escapes text and
attributes, `tojson` escapes what would end a script element, svg.py escapes what it draws, and
scripts set textContent only. Behind that stands a content security policy: the page loads nothing,
sends nothing, and runs no script but its own, which the policy names by its hash.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

import jinja2
from markupsafe import Markup

from flash_attest.runner.page.words import FILTERS, VERDICTS

HERE = Path(__file__).parent
GOOD, BAD, OPEN, BUSY = "good", "bad", "open", "busy"


def render(template: Path, *, tone: str, data: object = None, scripts: Iterable[Path] = (), **context: object) -> str:
    """Return a page as HTML.

    template: a file that extends base.html.j2; context: its variables.
    """
    script = "\n".join(_read(path) for path in (HERE / "script.js", *scripts))
    frame = {"tone": tone, "data": data, "style": Markup(_read(HERE / "style.css")), "script": Markup(script)}
    return compiled(template).render(frame, policy=_policy(script), **context)


@functools.cache
def compiled(template: Path) -> jinja2.Template:
    """Compile a template once. A run writes its page again and again."""
    return _environment().from_string(_read(template))


@functools.cache
def _environment() -> jinja2.Environment:
    """Make the environment. A template finds others by their names in this folder."""
    made = jinja2.Environment(
        # Not by paths: Jinja writes them into code, which a quote in a path would break.
        loader=jinja2.FunctionLoader(lambda name: _read(HERE / name)),
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    made.filters |= FILTERS
    made.globals["VERDICTS"] = VERDICTS
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    return made


@functools.cache
def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Return the content security policy of a page with this script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
