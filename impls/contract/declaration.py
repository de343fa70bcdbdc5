"""Finds what is wrong with the record of an implementation itself, before anything is called."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from flash_attest.impls.contract.precision import MOST_OF_EXP, Precision
from flash_attest.impls.contract.record import DEVICES, INVARIANCES, OUTPUTS, Implementation, KnownFailure
from flash_attest.impls.contract.supports import (
    BIAS_KINDS,
    DTYPES,
    FORMS,
    HIDDEN_KINDS,
    LARGEST_HEADDIM,
    WINDOW_KINDS,
    Supports,
)

TRACED = "traced"  # this flag has a message of its own, which also covers the device
LONGEST_PATH = 2**20  # a length
LARGEST_PAGE, MOST_SPLITS = 1024, 1024  # of keys; of parts of the keys
LEAST_SHARE = 0.01  # a smaller one leaves one case of each law in every profile but nightly


def declaration_problems(impl: Implementation) -> list[str]:
    """Return everything that is wrong with the record itself. Each problem says what to change."""
    problems: list[str] = []

    def must(ok: bool, text: str) -> None:
        if not ok:
            problems.append(text)

    def check_values(record: object, prefix: str = "") -> None:
        """Check the fields whose annotations list their values."""
        for name, allowed in listed_values(type(record)).items():
            value = getattr(record, name)
            must(value in allowed, f"{prefix}{name}={value!r}: should be one of {', '.join(map(repr, allowed))}")

    p = impl.precision
    # The implementation: its functions, devices and outputs.
    named = isinstance(impl.name, str) and re.fullmatch(r"[a-z0-9_]+", impl.name)
    must(bool(named), f"name={impl.name!r}: should match [a-z0-9_]+, as it becomes part of test ids")
    must(callable(impl.forward), f"forward={impl.forward!r}: should be a function of (q, k, v, ...)")
    must(
        impl.backward in (None, "autograd") or callable(impl.backward),
        f'backward={impl.backward!r}: should be a function, "autograd" to differentiate forward, or None',
    )
    check_values(impl)
    must(_subset(impl.devices, DEVICES, least=1), f"devices={impl.devices!r}: should be a subset of {{'cuda', 'cpu'}}")
    must(
        _has_reasons(impl),
        f"unavailable={impl.unavailable!r}: should give a reason in one line for a device that is not in devices, as in "
        "{'cuda': 'no nvcc found'}",
    )
    must(_subset(impl.repeatable, OUTPUTS), f"repeatable={impl.repeatable!r}: should be a subset of {set(OUTPUTS)}")
    must(
        impl.equal_heads is None or _subset(impl.equal_heads, OUTPUTS),
        f"equal_heads={impl.equal_heads!r}: should be a subset of {set(OUTPUTS)}, or None",
    )
    must(
        _subset(impl.invariant, INVARIANCES),
        f"invariant={impl.invariant!r}: should be a subset of {set(INVARIANCES)}",
    )
    # What it supports, once or by device.
    for prefix, s in _supports_of(impl).items():
        if not isinstance(s, Supports):
            problems.append(f"{prefix}={s!r}: should be a Supports(...)")
            continue
        known = "a non-empty set of torch.float32, torch.float16, torch.bfloat16"
        must(_subset(s.dtypes, DTYPES, least=1), f"{prefix}.dtypes={s.dtypes!r}: should be {known}")
        must(
            _has_headdims(s),
            f"{prefix}.headdims={s.headdims!r}: should be a container with at least one int from 1 to {LARGEST_HEADDIM}",
        )
        check_values(s, f"{prefix}.")
        kinds_fit = s.bias == "none" or (not isinstance(s.bias, str) and _subset(s.bias, BIAS_KINDS, least=1))
        kinds = ", ".join(map(repr, BIAS_KINDS))
        must(kinds_fit, f'{prefix}.bias={s.bias!r}: should be "none" or a subset of {{{kinds}}}')
        has_numbers = kinds_fit and any(not kind.startswith("boolean") for kind in s.bias_kinds)
        must(
            not (s.bias_grad and not (has_numbers and impl.backward)),
            f"{prefix}.bias_grad=True needs a bias of numbers and a backward: declare both, or bias_grad=False",
        )
        for problem in itertools.chain(_feature_problems(impl, s), _form_problems(impl, s)):
            problems.append(f"{prefix}.{problem}")
        must(
            s.accepts is None or callable(s.accepts), f"{prefix}.accepts={s.accepts!r}: should be a function of a case"
        )
    if isinstance(impl.supports, Mapping):
        must(
            set(impl.supports) == set(impl.devices),
            f"supports is given for {_listed(impl.supports)}: should be for {_listed(impl.devices)}, as devices says",
        )
    # Its rounding, and how it is judged.
    if isinstance(p, Precision):
        check_values(p, "precision.")
        must(
            p.parts != "operand" or p.merge == "lse",
            'precision.parts="operand" needs merge="lse", as other merges have no partial outs: declare both, or '
            'parts="float32"',
        )
        whole = p.tile_sum is None or (isinstance(p.tile_sum, int) and p.tile_sum is not True and p.tile_sum > 0)
        must(whole, f"precision.tile_sum={p.tile_sum!r}: should be a number of keys, at least 1, or None")
        for name in ("exp", "tanh"):
            error = getattr(p, name)
            number = isinstance(error, (int, float)) and error is not True and 0 <= error <= MOST_OF_EXP
            must(number, f"precision.{name}={error!r}: should be a relative error, from 0 to {MOST_OF_EXP}")
    else:
        problems.append(f"precision={p!r}: should be a Precision(...)")
    must(
        impl.tile is None or _is_tile(impl.tile),
        f"tile={impl.tile!r}: should be (BLOCK_M, BLOCK_N), both at least 1, or None",
    )
    must(
        _has_paths(impl.paths),
        f"paths={impl.paths!r}: should give lengths from 2 to {LONGEST_PATH}, as in {{'seqlen_k': (256, 16384)}}, for "
        "seqlen_q, seqlen_k or both",
    )
    must(
        impl.traced is False or (impl.traced is True and _subset(impl.devices, DEVICES) and "cpu" in impl.devices),
        f'traced={impl.traced!r}: should be False, or True with "cpu" among the devices, where kernels are traced',
    )
    must(
        _is_share(impl.share),
        f"share={impl.share!r}: should be a number from {LEAST_SHARE} to 1, or such numbers by device, as in {{'cpu': 0.2}}",
    )
    listed = isinstance(impl.known_failures, Mapping) and all(isinstance(law, str) for law in impl.known_failures)
    must(listed, f"known_failures={impl.known_failures!r}: should be {{'law': 'why, #123'}}")
    for law, known in impl.known_failures.items() if listed else ():
        problems += (f"known_failures[{law!r}]={known!r}: should {what}" for what in _known_problems(known))
    return problems


def _known_problems(known: object) -> Iterator[str]:
    """Yield what an entry of known_failures should do."""
    by_device = isinstance(known, Mapping)
    if by_device and not _subset(known, DEVICES, least=1):
        yield "be by device, as in {'cuda': 'why, #123'}"
    for one in known.values() if by_device else [known]:
        match one:
            case str(why) | KnownFailure(str(why), str(), bool()):
                if "#" not in why:
                    yield "name its issue, as in 'why, #123'"
            case _:
                yield "be 'why, #123', or KnownFailure('why, #123', 'seqlen_q=65 ...')"


def _feature_problems(impl: Implementation, s: Supports) -> Iterator[str]:
    """Yield what is wrong with the declared window, sinks, gradients, hidden keys and v."""
    kinds = ", ".join(map(repr, WINDOW_KINDS))
    if s.window != "none" and not _subset(s.window, WINDOW_KINDS, least=1):
        yield f'window={s.window!r}: should be "none" or a subset of {{{kinds}}}'
    if s.sink_grad and not (s.sinks and impl.backward):
        yield "sink_grad=True needs sinks and a backward: declare both, or sink_grad=False"
    if s.lse_grad and not (impl.lse and impl.backward):
        yield "lse_grad=True needs an lse and a backward: declare both, or lse_grad=False"
    if s.lse_grad and not impl.sink_in_lse:
        yield "lse_grad=True needs an lse with the sink: declare sink_in_lse=True, or lse_grad=False"
    if s.hidden != "none" and not _subset(s.hidden, HIDDEN_KINDS, least=1):
        yield f'hidden={s.hidden!r}: should be "none" or a subset of {{{", ".join(map(repr, HIDDEN_KINDS))}}}'
    if not _is_tile(s.hidden_block):
        yield f"hidden_block={s.hidden_block!r}: should be (queries, keys) of a block, each at least 1"
    if s.shared_kv == "always" and impl.backward is not None:
        yield 'shared_kv="always" has no backward, as dk and dv would be one tensor: declare backward=None'
    pairs = s.headdims_v
    if isinstance(pairs, str) or not isinstance(pairs, Collection) or not all(map(_is_pair, pairs)):
        yield (
            f"headdims_v={pairs!r}: should be pairs (headdim, headdim_v) of different ints from 1 to "
            f"{LARGEST_HEADDIM}, as in {{(192, 128)}}"
        )


def _form_problems(impl: Implementation, s: Supports) -> Iterator[str]:
    """Yield what is wrong with the declared form, pages, new keys and splits."""
    if s.form not in FORMS:
        return  # as for any field with listed values
    if s.form != "dense" and s.bias != "none":
        yield f'bias={s.bias!r}: should be "none" with form={s.form!r}, which has no bias yet'
    for name, off in (("hidden", "none"), ("shared_kv", "never")):
        if s.form != "dense" and getattr(s, name) != off:
            yield f"{name}={getattr(s, name)!r}: should be {off!r} with form={s.form!r}, which has none yet"
    if s.form in ("cache", "paged", "parts") and impl.backward is not None:
        yield f"form={s.form!r} has no backward: declare backward=None"
    if not _has_counts(s.page_sizes, least=1 if s.form == "paged" else 0, most=LARGEST_PAGE):
        with_pages = "at least one int" if s.form == "paged" else "ints"
        yield f"page_sizes={s.page_sizes!r}: should be a container of {with_pages} from 1 to {LARGEST_PAGE}"
    elif s.form != "paged" and _has_counts(s.page_sizes, least=1, most=LARGEST_PAGE):
        yield f'page_sizes={s.page_sizes!r}: should be () with form={s.form!r}, or form="paged"'
    if s.append and s.form not in ("cache", "paged"):
        yield f'append=True needs form="cache" or "paged", is {s.form!r}'
    if not _has_counts(s.splits, least=1, most=MOST_SPLITS) or 1 not in s.splits:
        yield f"splits={s.splits!r}: should be a container of ints from 1 to {MOST_SPLITS}, 1 among them"


def _has_counts(container: Any, least: int, most: int) -> bool:
    """Return whether a container has at least `least` of the ints from 1 to `most`."""
    if isinstance(container, str):
        return False
    try:
        if isinstance(container, Collection) and len(container) == 0:  # as most are: each n takes time
            return least == 0
        return sum(n in container for n in range(1, most + 1)) >= least
    except TypeError:
        return False


def _is_pair(pair: Any) -> bool:
    return (
        isinstance(pair, tuple)
        and len(pair) == 2
        and all(isinstance(d, int) and d is not True and 1 <= d <= LARGEST_HEADDIM for d in pair)
        and pair[0] != pair[1]
    )


@cache
def listed_values(record: type) -> dict[str, tuple]:
    """Return field -> the values that its annotation lists, by bool, None or Literal[...].

    Fields with an annotation that allows other values are left out.
    """
    listed = {name: _values_of(hint) for name, hint in get_type_hints(record).items() if name != TRACED}
    return {name: values for name, values in listed.items() if values is not None}


def _values_of(hint: Any) -> tuple | None:
    if hint is bool:
        return True, False
    if hint is type(None):
        return (None,)
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        parts = [_values_of(part) for part in get_args(hint)]
        return None if None in parts else tuple(value for part in parts for value in part)
    return None


def _supports_of(impl: Implementation) -> dict[str, Any]:
    """Return each Supports, keyed by its name in messages."""
    if isinstance(impl.supports, Mapping):
        return {f"supports[{device!r}]": supports for device, supports in impl.supports.items()}
    return {"supports": impl.supports}


def _listed(devices: Collection[str]) -> str:
    return " and ".join(sorted(map(str, devices))) or "no device"


def _subset(values: Any, allowed: tuple, least: int = 0) -> bool:
    if isinstance(values, str) or not isinstance(values, Collection):
        return False
    return len(values) >= least and all(value in allowed for value in values)


def _has_reasons(impl: Implementation) -> bool:
    here = impl.devices if isinstance(impl.devices, Collection) else ()
    others = tuple(device for device in DEVICES if device not in here)
    return (
        isinstance(impl.unavailable, Mapping)
        and _subset(impl.unavailable, others)
        and all(
            isinstance(reason, str) and len(reason.splitlines()) == 1 and reason.strip()
            for reason in impl.unavailable.values()
        )
    )


def _is_tile(tile: Any) -> bool:
    return isinstance(tile, Sequence) and len(tile) == 2 and all(isinstance(n, int) and n > 0 for n in tile)


def _has_paths(paths: Any) -> bool:
    return isinstance(paths, Mapping) and all(
        name in ("seqlen_q", "seqlen_k")
        and isinstance(edges, Collection)
        and not isinstance(edges, (str, Mapping))
        and all(isinstance(n, int) and n is not True and 2 <= n <= LONGEST_PATH for n in edges)
        for name, edges in paths.items()
    )


def _is_share(share: Any) -> bool:
    if isinstance(share, Mapping):
        return _subset(share, DEVICES) and not any(isinstance(n, Mapping) or not _is_share(n) for n in share.values())
    return isinstance(share, (int, float)) and LEAST_SHARE <= share <= 1


def _has_headdims(s: Supports) -> bool:
    try:
        return bool(s.headdim_list)
    except TypeError:
        return False
