"""Implementations that return tensors with which ordinary operations raise.

The table of outputs.py has those with a wrong shape, dtype or class.
"""

import warnings

import torch

from tests.plugins import good
from tests.runner.torture.table import FAIL, PASS, Table

TABLE = Table()
TRANSFORM = "out is a tensor of a torch.func transform (vmap, grad) that has ended"


def gives_value(name, verdict, words, value):
    def act(q, k, v):
        return value(good.forward(q, k, v))

    act.__name__ = name
    TABLE.gives(verdict, words)(act)


def inferred(out):
    with torch.inference_mode():
        return out * 1


def within(transform):
    """Return a function that returns what its argument becomes inside of a transform."""

    def leaked(out):
        inside = []
        transform(lambda x: inside.append(x * 1) or x.sum())(out)
        return inside[0]

    return leaked


def with_attribute(name, value):
    def changed(out):
        setattr(out, name, value)
        return out

    return changed


def of_a_read_only_array(out):
    array = out.numpy().copy()
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.from_numpy(array)


def without_memory(out):
    out = out.clone()
    out.untyped_storage().resize_(0)
    return out


def beyond_its_memory(out):
    rows = torch.zeros(8, *out.shape)
    last = rows[-1].copy_(out)
    rows.untyped_storage().resize_(out.nbytes)
    return last


gives_value("an_inference_tensor", PASS, "", inferred)  # without a backward, nobody needs more
gives_value("inside_vmap", FAIL, TRANSFORM, within(torch.vmap))
gives_value("inside_grad", FAIL, TRANSFORM, within(torch.func.grad))
gives_value("inside_functionalize", FAIL, TRANSFORM, within(torch.func.functionalize))
gives_value("zeros_without_memory", FAIL, "", lambda out: torch._efficientzerotensor(out.shape))
gives_value("opaque", FAIL, "out has layout torch._mkldnn, should be torch.strided", lambda out: out.to_mkldnn())
gives_value("a_jagged_tensor", FAIL, "out is a NestedTensor",
            lambda out: torch.nested.nested_tensor([out[0]], layout=torch.jagged))  # fmt: skip
gives_value("a_padded_tensor", FAIL, "out is a nested tensor", lambda out: torch.nested.nested_tensor([out[0]]))
gives_value("freed", FAIL, "out has a storage of 0 bytes, should have ", without_memory)
gives_value("cut_off", FAIL, "its memory was freed or resized", beyond_its_memory)
gives_value("uninitialised", FAIL, "out has shape (0,)", lambda out: torch.nn.parameter.UninitializedParameter())
gives_value("a_parameter", PASS, "", torch.nn.Parameter)
gives_value("a_view_of_a_parameter", PASS, "", lambda out: torch.nn.Parameter(out)[:])
gives_value("of_a_read_only_array", PASS, "", of_a_read_only_array)
gives_value("without_a_clone", PASS, "", with_attribute("clone", None))
gives_value("without_a_detach", PASS, "", with_attribute("detach", None))
gives_value("overlapping", PASS, "", lambda out: torch.cat([out.flatten()] * 2).as_strided(out.shape, (1, 1, 1, 1)))


@TABLE.gives(PASS)
def leaves_a_gradient_on_its_inputs(q, k, v):
    q.requires_grad_()


@TABLE.gives(FAIL, "forward makes k part of an autograd graph")
def leaves_a_graph_on_its_inputs(q, k, v):
    with torch.enable_grad():
        k.copy_(torch.nn.Parameter(k.clone()))


@TABLE.gives(FAIL, "forward replaces the memory of q")
def replaces_the_memory_of_an_input(q, k, v):
    out = good.forward(q, k, v)
    q.data = q.clone()
    return out


@TABLE.gives(FAIL, "forward sets q.clone")
def hides_a_method_of_an_input(q, k, v):
    q.clone = None


IMPLS, EVERY = TABLE.implementations(
    "inside_functionalize",
    "a_jagged_tensor",
    "uninitialised",
    "a_view_of_a_parameter",
    "without_a_detach",
    "opaque",
)
