"""Messages and tensors between two processes arrive as sent, and anything that is not a message is
refused.
"""

import json
import os

import pytest
import torch

from flash_attest.properties.cases.layouts import place
from flash_attest.runner.untrusted import tensors, wire


@pytest.fixture
def pipe():
    """A pipe: (the end to read from, the end to write to)."""
    read, write = os.pipe()
    yield read, write
    os.close(read)
    os.close(write)


def garbled(pipe, data: bytes) -> str:
    read, write = pipe
    os.write(write, data)
    with pytest.raises(wire.Garbled) as caught:
        wire.receive(read)
    return str(caught.value)


def headed(header: object) -> bytes:
    data = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(data).to_bytes(wire.HEAD, "little") + data


def test_what_is_sent_arrives(pipe):
    blocks = [torch.arange(5, dtype=torch.uint8), torch.empty(0, dtype=torch.uint8)]
    wire.send(pipe[1], {"n": 3, "text": "\udc80"}, blocks)
    header, got = wire.receive(pipe[0])
    assert (header["n"], header["text"]) == (3, "\udc80")
    assert [block.tolist() for block in got] == [[0, 1, 2, 3, 4], []]


@pytest.mark.parametrize(
    ("data", "words"),
    (
        ((1 << 60).to_bytes(8, "little"), "a header of 1152921504606846976 bytes"),
        (headed(b"cos\nsystem\n(S'exit 0'\ntR."), "a header that is no JSON (JSONDecodeError)"),
        (headed(b"[" * 200_000)[: 1 << 15], None),
        (headed([1]), "a header without lengths"),
        (headed({"blocks": [-1]}), "a header without lengths"),
        (headed({"blocks": [1 << 50]}), "a header without lengths"),
        (headed({"blocks": [True]}), "a header without lengths"),
        (headed({"blocks": [0] * 100}), "a header without lengths"),
    ),
)
def test_what_is_no_message_is_refused_before_memory_is_taken_for_it(pipe, data, words):
    if words is None:
        data = headed(b"[" * 20_000)
        assert garbled(pipe, data).startswith("a header that is no JSON")
    else:
        assert garbled(pipe, data) == words


@pytest.mark.parametrize("layout", ("contiguous", "transposed", "packed", "gapped", "sliced", "last_strided"))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_an_input_arrives_with_the_memory_around_it_and_at_the_same_place_in_a_page(layout, dtype):
    placed = place(torch.randn(2, 3, 4, 5).to(dtype), layout, fill=7.0)
    (got,), (memory,) = (list(each) for each in unpacked({"q": placed.tensor}))
    assert torch.equal(got, placed.tensor) and got.stride() == placed.tensor.stride()
    assert got.data_ptr() % tensors.PAGE == placed.tensor.data_ptr() % tensors.PAGE
    assert memory.numel() == placed.buffer.untyped_storage().nbytes()
    assert torch.equal(memory.view(dtype), placed.buffer)


def unpacked(given):
    header, blocks = tensors.pack(given)
    inputs, memories = tensors.unpack(json.loads(json.dumps(header)), blocks, tensors.Rooms())
    return inputs.values(), memories


def test_new_values_at_an_address_arrive_at_one_address():
    rooms, x = tensors.Rooms(), torch.ones(3)
    first, _ = tensors.unpack(*tensors.pack({"q": x}), rooms)
    x.fill_(2.0)
    second, _ = tensors.unpack(*tensors.pack({"q": x}), rooms)
    assert first["q"].data_ptr() == second["q"].data_ptr() and second["q"].tolist() == [2.0, 2.0, 2.0]


def test_a_tensor_that_is_expanded_travels_as_its_one_number():
    one = torch.tensor([3.0])
    (got,), (memory,) = unpacked({"dout": one.expand(2, 3)})
    assert memory.numel() == 4 and got.tolist() == [[3.0] * 3] * 2


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16, torch.bfloat16, torch.float64))
def test_an_output_arrives_with_the_order_of_its_dimensions(dtype):
    for sent in (
        torch.randn(2, 3, 4).to(dtype).transpose(0, 2),
        torch.randn(6).to(dtype)[::2],
        torch.zeros(2, 0, 3, dtype=dtype),
        torch.ones((), dtype=dtype).expand(2, 2),
    ):
        got = tensors.unpack_values(*tensors.pack_values(sent))
        assert torch.equal(got, sent) and got.dtype == dtype
    transposed = torch.randn(2, 3, 4).transpose(0, 2)
    assert tensors.unpack_values(*tensors.pack_values(transposed)).stride() == transposed.stride()


RIGHT = {"dtype": "float32", "shape": [2], "order": [0], "device": "cpu"}


@pytest.mark.parametrize(
    ("changed", "words"),
    (
        ({"shape": [3]}, "8 bytes for an output of shape [3] and dtype torch.float32"),
        ({"shape": [-2]}, "an output of dtype torch.float32, shape [-2], on cpu"),
        ({"shape": [1 << 62, 4]}, "an output with dimensions in the order [0]"),
        ({"order": [1]}, "an output with dimensions in the order [1]"),
        ({"order": ["0"]}, "an output with dimensions in the order ['0']"),
        ({"device": "cuda:99"}, "an output of dtype torch.float32, shape [2], on cuda:99"),
        ({"dtype": "load"}, "shape [2], on cpu"),
        ({"dtype": "no_such_thing"}, "an output without dtype, shape, order and device"),
        ({"dtype": 5}, "an output without dtype, shape, order and device"),
    ),
)
def test_an_output_whose_header_does_not_fit_is_refused(changed, words):
    with pytest.raises(wire.Garbled) as caught:
        tensors.unpack_values(RIGHT | changed, torch.zeros(8, dtype=torch.uint8))
    assert words in str(caught.value)
