"""Bugs of gradients through lse: docs/why/bugs.md#backward."""

from flash_attest.mutants.mutant import ONE
from flash_attest.mutants.tiled.build import planted

GIVEN = "    if dlse is not None:"
DELTA = "delta = delta - dlse.transpose(1, 2).unsqueeze(-1)"
P_SINK = "        p_sink = torch.exp(sinks[:, None, None] - lse)"

MUTANTS = [
    planted(
        name="gradient_of_lse_is_dropped",
        law="test_loss_on_out_and_lse",
        edits=((GIVEN, "    if False:"),),
        smallest=ONE,
        story="dlse is taken and not used, as the output lse is thought to be for the backward alone",
    ),
    planted(
        name="gradient_of_lse_has_the_wrong_sign",
        law="test_loss_on_out_and_lse",
        edits=((DELTA, DELTA.replace("- dlse", "+ dlse")),),
        smallest=ONE,
        story="delta + dlse in place of delta - dlse",
    ),
    planted(
        name="gradient_of_lse_is_dropped_without_dout",
        law="test_loss_on_out_and_lse",
        edits=((GIVEN, "    if dlse is not None and bool(dout.any()):"),),
        smallest=ONE,
        story="the backward ends early where dout is 0; a loss on lse alone has no gradient",
    ),
    planted(
        name="gradient_of_lse_is_taken_for_base_2",
        law="test_loss_on_out_and_lse",
        edits=((DELTA, DELTA.replace("dlse.t", "1.4426950408889634 * dlse.t")),),
        smallest=ONE,
        story="the kernel keeps lse in base 2, and dlse is converted though lse was returned in base e",
    ),
    planted(
        name="gradient_of_lse_is_that_of_the_first_head",
        law="test_loss_on_out_and_lse",
        edits=((DELTA, DELTA.replace("dlse.t", "dlse[:, :1].t")),),
        smallest=ONE | dict(nheads=2, nheads_k=2),
        story="dlse is (batch, nheads, seqlen_q) and read without its stride of heads",
    ),
    planted(
        name="dsink_lacks_the_gradient_of_lse",
        law="test_loss_on_out_and_lse",
        edits=(
            (P_SINK, "        delta_of_sink = (dout.float() * out.float()).sum(-1, keepdim=True)\n" + P_SINK),
            ("p_sink * delta.transpose", "p_sink * delta_of_sink.transpose"),
        ),
        smallest=ONE,
        story="dsink is computed from rowsum(dO * O), before dlse was folded into delta",
    ),
]
