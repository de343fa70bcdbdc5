"""Two mistakes in one declaration."""

from flash_attest import Implementation, Supports

IMPL = Implementation(name="Wrong-Declaration", forward=lambda q, k, v: q, supports=Supports(causal=True))
