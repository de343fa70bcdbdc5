"""Raises an exception whose text is difficult for terminals, JSON, HTML and xdist's channel."""

from flash_attest import Implementation, Supports

ODD = "\x1b[31mred\x1b[0m \x00 \udc80\ud83d </pre><script>alert(1)</script> \x85\r\n{{ 1 + 1 }} \x07"


def forward(q, k, v):
    if q.shape[1] > 1:
        raise RuntimeError(ODD)
    return v * 1


IMPL = Implementation(name="odd_words", forward=forward, supports=Supports(headdims={16}))
