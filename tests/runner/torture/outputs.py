"""Results that are not tensors, and tensors that misbehave."""

import ctypes
import itertools
import mmap

import numpy
import torch

from tests.plugins import good
from tests.runner.torture.table import FAIL, PASS, Table

TABLE = Table()
RETURNS = "forward returns"


def gives_value(name, words, value):
    def act(q, k, v):
        return value(q, k, v)

    act.__name__ = name
    TABLE.gives(FAIL, words)(act)


def right(q, k, v):
    return good.forward(q, k, v)


gives_value("a_number", f"{RETURNS} float", lambda q, k, v: 1.0)
gives_value("nan", f"{RETURNS} float", lambda q, k, v: float("nan"))
gives_value("a_string", f"{RETURNS} str", lambda q, k, v: "out")
gives_value("nothing_but_false", f"{RETURNS} bool", lambda q, k, v: False)
gives_value("a_list", f"{RETURNS} list of 1 (tensor (1, 1, 1, 16))", lambda q, k, v: [right(q, k, v)])
gives_value("nested", f"{RETURNS} tuple of 1", lambda q, k, v: ((right(q, k, v),),))
gives_value("an_array", f"{RETURNS} ndarray", lambda q, k, v: right(q, k, v).numpy())
gives_value("objects", f"{RETURNS} ndarray", lambda q, k, v: numpy.array([None, object()]))
gives_value("a_class", f"{RETURNS} ", lambda q, k, v: torch.Tensor)
gives_value("endless", f"{RETURNS} count", lambda q, k, v: itertools.count())
gives_value("a_generator", f"{RETURNS} generator", lambda q, k, v: (x for x in itertools.count()))
gives_value("three", f"{RETURNS} tuple of 3", lambda q, k, v: (q, k, v))
gives_value("empty", f"{RETURNS} tuple of 0", lambda q, k, v: ())
gives_value("two_wrong", "lse=None is declared", lambda q, k, v: (right(q, k, v), right(q, k, v)))
gives_value("nan_tensor", "", lambda q, k, v: torch.full_like(q, float("nan")))
gives_value("on_meta", "out is on meta, should be on cpu", lambda q, k, v: right(q, k, v).to("meta"))
gives_value("a_scalar", "out has shape ()", lambda q, k, v: torch.tensor(1.0))
gives_value("huge", "out has shape (1000000, 1000000)", lambda q, k, v: torch.zeros(1).expand(10**6, 10**6))
gives_value("complex", "out has dtype torch.complex64", lambda q, k, v: right(q, k, v).to(torch.complex64))
gives_value("whole_numbers", "out has dtype torch.int8", lambda q, k, v: right(q, k, v).to(torch.int8))
gives_value(
    "a_sparse_tensor",
    "out has layout torch.sparse_coo, should be torch.strided",
    lambda q, k, v: right(q, k, v).to_sparse(),
)
gives_value("a_nested_tensor", "", lambda q, k, v: torch.nested.nested_tensor([right(q, k, v)[0]]))
gives_value(
    "a_quantised_tensor", "out has dtype torch.quint8",
    lambda q, k, v: torch.quantize_per_tensor(right(q, k, v), 0.1, 0, torch.quint8),
)  # fmt: skip
gives_value("the_same_for_all", "", lambda q, k, v: torch.zeros(1).expand(q.shape) + 7)


class Failing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        raise RuntimeError("lazily")


class Agreeing(torch.Tensor):
    """A tensor that is equal to everything."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return torch.tensor(0.0)


class Dispatching(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise RuntimeError("late")


gives_value("a_subclass_that_agrees", "", lambda q, k, v: (right(q, k, v) + 1).as_subclass(Agreeing))
gives_value("a_subclass_that_fails", "", lambda q, k, v: (right(q, k, v) + 1).as_subclass(Failing))
gives_value(
    "a_subclass_that_dispatches", "__torch_dispatch__ is in the way", lambda q, k, v: q.as_subclass(Dispatching)
)


class Posing:
    """An object that says that it is a tensor."""

    __class__ = torch.Tensor


gives_value("an_impostor", "", lambda q, k, v: Posing())


class Lying(tuple):
    def __len__(self):
        raise RuntimeError("no length")


gives_value("a_lying_tuple", "forward raises RuntimeError: no length", lambda q, k, v: Lying((q, k)))


class Unrepresentable:
    def __repr__(self):
        raise RuntimeError("no words")

    __str__ = __repr__


gives_value("without_a_repr", f"{RETURNS} Unrepresentable", lambda q, k, v: Unrepresentable())
gives_value("an_odd_class", f"{RETURNS} A\nB", lambda q, k, v: type("A\nB\x1b[0m", (), {})())


@TABLE.gives("fail unknown")
def unmapped_memory(q, k, v):
    """Return a tensor of unmapped memory: reading it after the call is a segmentation fault."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    size = q.numel() * 4
    address = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    out = torch.frombuffer((ctypes.c_float * q.numel()).from_address(address), dtype=torch.float32).view(q.shape)
    libc.munmap(address, size)
    return out


@TABLE.gives("fail")
def freed_memory(q, k, v):
    array = (ctypes.c_float * q.numel())(*[7.0] * q.numel())
    out = torch.frombuffer((ctypes.c_float * q.numel()).from_address(ctypes.addressof(array)), dtype=torch.float32)
    del array
    return out.view(q.shape)


@TABLE.gives(FAIL, "forward resizes k")
def resizes_an_input(q, k, v):
    out = right(q, k, v)
    k.resize_(0)
    return out


@TABLE.gives(FAIL, "forward resizes k")
def frees_an_input(q, k, v):
    out = right(q, k, v)
    k.untyped_storage().resize_(0)
    return out


@TABLE.gives(PASS)
def requires_a_gradient(q, k, v):
    return right(q, k, v).requires_grad_()


@TABLE.gives(PASS)
def a_negated_view(q, k, v):
    return torch._neg_view(-right(q, k, v))


@TABLE.gives("pass fail")
def a_lazy_conjugate(q, k, v):
    return torch.complex(torch.zeros_like(q), -right(q, k, v)).conj().imag


IMPLS, EVERY = TABLE.implementations(
    "nan",
    "a_string",
    "nothing_but_false",
    "nested",
    "objects",
    "three",
    "empty",
    "complex",
    "whole_numbers",
    "a_generator",
    "the_same_for_all",
    "requires_a_gradient",
    "a_lazy_conjugate",
    "frees_an_input",
)
