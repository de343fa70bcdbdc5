"""Messages and tensors between two processes arrive as sent, and anything that is not a message is
refused.
"""

import json
import os

import pytest
import torch

from flash_attest.properties.cases.layouts import place
from flash_attest.runner.untrusted import reading, shared, tensors, wire
from flash_attest.runner.untrusted.shared import PAGE, Mapped, Shared


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
    got = Sides()({"q": placed.tensor})["q"]
    assert torch.equal(got, placed.tensor) and got.stride() == placed.tensor.stride()
    assert got.data_ptr() % PAGE == placed.tensor.data_ptr() % PAGE
    memory = torch.empty(0, dtype=dtype).set_(got.untyped_storage())
    assert torch.equal(memory, placed.buffer)


class Sides:
    """Both sides of the memory of inputs, in one process."""

    def __init__(self):
        self.judge = Shared()
        self.kernel = Mapped(self.judge.file)

    def __call__(self, given: dict) -> dict:
        header, self.blocks = tensors.pack(given)
        self.offsets = self.judge.place([memory["address"] for memory in header["memories"]], self.blocks)
        for memory, offset in zip(header["memories"], self.offsets, strict=True):
            memory["offset"] = offset
        header["shared"] = len(self.judge.memory)
        return tensors.unpack(json.loads(json.dumps(header)), self.kernel, tensors.Rooms())

    def changed(self) -> dict:
        return self.judge.changed(self.offsets, self.blocks)


def test_new_values_at_an_address_arrive_at_one_address():
    sides, x = Sides(), torch.ones(3)
    first = sides({"q": x})["q"]
    x.fill_(2.0)
    second = sides({"q": x})["q"]
    assert first.data_ptr() == second.data_ptr() and second.tolist() == [2.0, 2.0, 2.0]


def test_a_tensor_that_is_expanded_travels_as_its_one_number():
    sides = Sides()
    got = sides({"dout": torch.tensor([3.0]).expand(2, 3)})["dout"]
    assert sides.blocks[0].numel() == 4 and got.tolist() == [[3.0] * 3] * 2


def test_what_a_call_writes_to_an_input_or_around_it_is_seen():
    sides, q, wide = Sides(), torch.zeros(4), torch.zeros(8)
    got = sides({"q": q, "k": wide[2:6]})
    assert sides.changed() == {}
    got["k"].as_strided((1,), (1,), got["k"].storage_offset() + 4).fill_(1.0)
    ((n, block),) = sides.changed().items()
    assert n == 1 and block.view(torch.float32).tolist() == [0.0] * 6 + [1.0, 0.0]


def test_memory_for_inputs_grows_and_is_used_again(monkeypatch):
    """Few rooms are kept, and those of the call in progress are among them."""
    monkeypatch.setattr(shared, "MOST_ROOMS", 3)
    monkeypatch.setattr(shared, "MOST_ROOM", 1 << 20)
    sides, kept = Sides(), []
    for n in (1, 50, 3 << 20, 1 << 20, 40 << 20, 7):
        given = {name: torch.full((n,), len(name) + n % 7, dtype=torch.uint8) for name in ("q", "kk", "vvv")}
        got = sides(given)
        assert all(torch.equal(got[name], given[name]) for name in given) and sides.changed() == {}
        kept.append(got["q"])
    assert len(sides.judge._rooms) == 3 and len(sides.judge.memory) < 512 << 20
    assert kept[0].numel() == 1  # an earlier mapping lives as long as a tensor in it


def test_a_kernel_process_grows_the_memory_within_its_limits_only(monkeypatch):
    large = torch.full((shared.FIRST,), 3, dtype=torch.uint8)
    sides, beyond = Sides(), Sides()
    for each in (sides, beyond):
        os.ftruncate(each.kernel.file, 1 << 30)
    assert torch.equal(sides({"q": large})["q"], large) and len(sides.judge.memory) == 1 << 30
    monkeypatch.setattr(shared, "FILE", 1 << 29)
    with pytest.raises(OSError, match="it has 1,073,741,824 bytes, should be at most 536,870,912"):
        beyond({"q": large})


def test_an_output_is_read_where_it_lies():
    for sent in (
        torch.randn(2, 3, 4).transpose(0, 2), torch.randn(6)[::2], torch.zeros(2, 0, 3), torch.ones(()).expand(2, 2),
        torch.randn(5, 4)[1:3].t(), torch.tensor(3, dtype=torch.int8),
    ):  # fmt: skip
        header = json.loads(json.dumps(tensors.described(sent)))
        got = tensors.taken(header, lambda address, size: reading.read(os.getpid(), address, size))
        assert torch.equal(got, sent) and got.dtype == sent.dtype
    transposed = torch.randn(2, 3, 4).transpose(0, 2)
    header = tensors.described(transposed)
    assert tensors.taken(header, lambda *place: reading.read(os.getpid(), *place)).stride() == transposed.stride()


LYING = {"dtype": "float32", "shape": [2], "strides": [1], "address": 64, "device": "cpu"}


@pytest.mark.parametrize(
    ("changed", "words"),
    (
        ({}, "an output at 0x40, where it has no memory"),
        ({"strides": [-1]}, "an output of shape [2], with strides [-1], at 64"),
        ({"strides": [1, 1]}, "with strides [1, 1]"),
        ({"address": -1}, "at -1"),
        ({"address": 1 << 64}, "at 18446744073709551616"),
        ({"address": "0"}, "with strides [1], at 0"),
        ({"strides": [1 << 40]}, "in 1099511627777 elements, which is too large"),
        ({"shape": [1 << 40], "strides": [0]}, "in 1 elements, which is too large"),
        ({"dtype": "load"}, "an output of dtype <function load"),
    ),
)
def test_an_output_that_lies_nowhere_is_refused(changed, words):
    with pytest.raises(wire.Garbled) as caught:
        tensors.taken(LYING | changed, lambda address, size: reading.read(os.getpid(), address, size))
    assert words in str(caught.value)


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
        ({"shape": [-2]}, "an output of dtype torch.float32, shape [-2]"),
        ({"shape": [1 << 62, 4]}, "an output with dimensions in the order [0]"),
        ({"order": [1]}, "an output with dimensions in the order [1]"),
        ({"order": ["0"]}, "an output with dimensions in the order ['0']"),
        ({"device": "cuda:99"}, "an output of dtype torch.float32, shape [2], on cuda:99"),
        ({"dtype": "load"}, "an output of dtype <function load"),
        ({"dtype": "no_such_thing"}, "an output of dtype no_such_thing, shape [2]"),
        ({"dtype": 5}, "an output of dtype 5, shape [2]"),
    ),
)
def test_an_output_whose_header_does_not_fit_is_refused(changed, words):
    with pytest.raises(wire.Garbled) as caught:
        tensors.unpack_values(RIGHT | changed, torch.zeros(8, dtype=torch.uint8))
    assert words in str(caught.value)
