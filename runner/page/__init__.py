"""The pages that people open: one file each, without a server, a network or another file.

`template.py` renders. `base.html.j2` is the frame of every page, `parts.html.j2` has macros,
`style.css` is the look and `script.js` the behaviour. A page of another room extends the frame:

    {% extends "base.html.j2" %}
    {% import "parts.html.j2" as parts %}
    {% block title %}...{% endblock %}

The frame says which blocks there are. `render(Path(__file__).with_name("report.html.j2"), tone=BAD,
...)` returns the page.
"""
