"""The library that compiled host code of CuTe DSL calls, without CuTe DSL: ctypes calls it as such
code does.
"""

from __future__ import annotations

import ctypes
import struct

import pytest
import torch

from flash_attest import trace
from flash_attest.emulator.cutedsl import library
from flash_attest.emulator.cutedsl.calls import called
from flash_attest.emulator.cutedsl.memory import GPU, OnGpu, _Head, is_ours
from flash_attest.emulator.errors import NotCovered
from flash_attest.emulator.ptx.module import PtxError
from flash_attest.races.finding import Kind

PTX = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry twice(.param .align 8 .b8 tensor[16], .param .u32 n)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    .reg .f32 %f<3>;
    .reg .pred %p;
    mov.u32 %r1, %tid.x;
    ld.param.u32 %r2, [n];
    setp.ge.u32 %p, %r1, %r2;
    @%p ret;
    ld.param.u64 %rd1, [tensor];
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    add.f32 %f2, %f1, %f1;
    st.global.f32 [%rd3], %f2;
    ret;
}
"""
CLUSTER, COOPERATIVE = 4, 2
IMAGE = struct.pack("<IHHQ16s", library.FATBIN, 1, 16, 16, b"machine code")


class Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16))


class Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_size_t), ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)), ("count", ctypes.c_uint),
    )  # fmt: skip


@pytest.fixture(scope="module")
def host() -> ctypes.CDLL:
    library.connect()
    return ctypes.CDLL(str(library.path()))


def launch(host, name=b"twice", count=8, threads=32, shared=0, attributes=(), image=IMAGE):
    """Return host code: a function of addresses that loads the PTX and launches a kernel."""

    def call(addresses: list[int]) -> list[int]:
        loaded, kernel = ctypes.c_void_p(), ctypes.c_void_p()
        errors = [host._cudaLibraryLoadData(ctypes.byref(loaded), image)]
        errors.append(host._cudaLibraryGetKernel(ctypes.byref(kernel), loaded, name))
        tensor, n = (ctypes.c_uint64 * 2)(addresses[0], 0), ctypes.c_uint32(count)
        arguments = (ctypes.c_void_p * 2)(ctypes.addressof(tensor), ctypes.addressof(n))
        given = (Attribute * max(1, len(attributes)))(*attributes)
        config = Config((1, 1, 1), (threads, 1, 1), shared, None, given, len(attributes))
        errors.append(host._cudaLaunchKernelEx(ctypes.byref(config), kernel, arguments))
        return errors

    return call


def test_a_launch_reads_and_writes_the_tensors_of_the_call(host):
    x = torch.arange(8.0)
    assert called(PTX, [("x", x)], launch(host)) == [0, 0, 0]
    assert torch.equal(x, 2 * torch.arange(8.0))


def test_an_access_outside_of_a_tensor_is_found_by_the_names_of_the_call(host):
    x = torch.arange(8.0)
    with pytest.raises(PtxError, match="outside of its tensors: 0 to 4 bytes past the end of theirs"):
        called(PTX, [("theirs", x)], launch(host, count=9))
    found = trace(lambda: called(PTX, [("theirs", x)], launch(host, count=9)))
    assert {finding.kind for finding in found} == {Kind.OUTSIDE} and {finding.tensor for finding in found} == {"theirs"}


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"name": b"thrice"}, KeyError, "has no kernel 'thrice'; its kernels: twice"),
        ({"threads": 2048}, PtxError, "twice cannot be launched"),
        ({"shared": 228 * 1024}, PtxError, "twice cannot be launched"),
        ({"attributes": [Attribute(CLUSTER, 0, (2, 1, 1))]}, PtxError, "a multiple of the cluster"),
        ({"attributes": [Attribute(COOPERATIVE, 0, (1,))]}, NotCovered, "cooperative launches"),
    ],
)
def test_what_cannot_be_launched_is_raised(host, change, error, words):
    with pytest.raises(error, match=words):
        called(PTX, [("x", torch.arange(8.0))], launch(host, **change))
    assert library.state.raised is None, "the next call does not raise it again"


def test_a_cluster_of_one_block_is_launched(host):
    call = launch(host, attributes=[Attribute(CLUSTER, 0, (1, 1, 1)), Attribute(6, 0, (1,))])
    assert called(PTX, [("x", torch.arange(8.0))], call) == [0, 0, 0]


def test_a_function_from_a_file_has_the_ptx_of_its_machine_code(host):
    x = torch.arange(8.0)
    with pytest.raises(NotCovered, match="from a file, and no process has compiled it"):
        called(None, [("x", x)], launch(host, image=IMAGE[:-1] + b"1"))
    called(PTX, [("x", x)], launch(host))
    called(None, [("x", x)], launch(host))
    assert torch.equal(x, 4 * torch.arange(8.0))
    with pytest.raises(NotCovered, match="is no fatbin: it begins with 0x0"):
        called(PTX, [("x", x)], launch(host, image=bytes(64)))


def test_the_device_answers_and_other_functions_are_refused_by_name(host):
    value = ctypes.c_int()
    assert host._cudaDeviceGetAttribute(ctypes.byref(value), 10, 0) == 0 and value.value == 32
    with pytest.raises(NotCovered, match="cudaDeviceAttr 9999"):
        called(PTX, [], lambda _: host._cudaDeviceGetAttribute(ctypes.byref(value), 9999, 0))
    with pytest.raises(NotCovered, match="not covered on the CPU: cudaMalloc"):
        called(PTX, [], lambda _: host._cudaMalloc(ctypes.byref(value), 8))


@pytest.mark.parametrize("address", [None, 4096])
def test_a_tensor_is_handed_over_as_one_of_a_gpu(address):
    x = torch.zeros(4, 8, dtype=torch.bfloat16)[:, ::2]
    assert is_ours(x) and not is_ours(3)
    shown = OnGpu(x, address)
    assert shown.__dlpack_device__() == (GPU, 0)
    capsule = shown.__dlpack__(stream=None)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    head = _Head.from_address(get(capsule, b"dltensor"))
    assert (head.device_type, head.device_id, head.data) == (GPU, 0, address or x.data_ptr())
