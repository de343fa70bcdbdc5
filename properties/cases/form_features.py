"""The features that only forms other than dense, or splits, have: what stands around a case, and
how its keys lie.

They change the call, not the problem. features.py has all features.
"""

from __future__ import annotations

from flash_attest.properties.cases.case import NEIGHBOURS, PAGE_ORDERS
from flash_attest.properties.cases.feature import Feature, Need

PAGES = (16, 1, 64, 2, 128, 32, 8, 4, 256, 512, 1024)  # numbers of keys in a page, if they are declared
RAGGED = ("varlen", "padded", "cache", "paged")  # forms in which sequences of other lengths are neighbours

TABLE = (
    Feature(
        name="num_splits",
        values=(1, 2, 3, 8, 64),
        takes=lambda s, number: number in s.splits,
        words=lambda number: f"num_splits {number}",
        declare="`splits=range(1, 65)`",
        neutral=1,
        together=True,
        advice="supports.splits=(1,)",
        needs={"splits": Need((2, 3, 8, 64), "takes no num_splits")},
        tried=(2,),
    ),
    Feature(
        name="neighbours",
        values=NEIGHBOURS,
        takes=lambda s, kind: kind == "none" or s.form in RAGGED,
        words=lambda kind: "no neighbours" if kind == "none" else f"neighbours {kind}",
        declare='`form="varlen"`, `"padded"`, `"cache"` or `"paged"`',
        neutral="none",
        together=True,
        needs={"neighbours": Need(NEIGHBOURS[1:], "its form has no sequences of other lengths")},
        tried=("mixed",),
    ),
    Feature(
        name="slack",
        values=(0, 1, 17),
        takes=lambda s, rows: rows == 0 or s.form in RAGGED,
        words=lambda rows: f"{rows} row{'s' * (rows != 1)} of slack",
        neutral=0,
        together=True,
        tried=(1,),
    ),
    Feature(
        name="page_size",
        values=(None, *PAGES),
        takes=lambda s, size: size is None or (s.form == "paged" and size in s.page_sizes),
        words=lambda size: "the smallest page_size" if size is None else f"page_size {size}",
        declare="`page_sizes={16, 64}`",
        together=True,
        needs={"pages": Need(PAGES, 'has no pages: its form is not "paged"')},
    ),
    Feature(
        name="page_order",
        values=PAGE_ORDERS,
        takes=lambda s, order: order == "in_order" or s.form == "paged",
        words=lambda order: f"pages {order.replace('_', ' ')}",
        neutral="in_order",
        together=True,
        tried=("shuffled",),
    ),
    Feature(
        name="append",
        values=(0, 1, 5),
        takes=lambda s, keys: keys == 0 or s.append,
        words=lambda keys: f"{keys} new keys" if keys != 1 else "1 new key",
        declare="`append=True`",
        neutral=0,
        together=True,
        advice="supports.append=False",
        needs={"append": Need((1, 5), "takes no new keys")},
        tried=(1,),
    ),
)
# What is around a case in a call, and how the call is split. Sizes and features of the case stay.
OF_FORM = ("neighbours", "slack", "append", "page_order", "page_size", "num_splits")
