"""GPU memory with many GiB of addresses: one small allocation that is mapped repeatedly.

    address     | 0 .. PERIOD | PERIOD .. 2 PERIOD | 2 PERIOD .. 3 PERIOD | ...
    physical    | the same PERIOD bytes each time

Every address of the range is valid, so an offset that is cut to 32 bits reads a wrong element or 0,
and no kernel faults. Such an offset never reads the right element by accident: cutting moves it by
1 to 16 times 2^32 bytes, and PERIOD divides none of these distances, as it is an odd number of
pages above 16.

This uses CUDA's virtual memory management (cuMemAddressReserve, cuMemCreate, cuMemMap,
cuMemSetAccess). Managed memory is no substitute: asking for more of it than the GPU has can hang
the driver.
"""

from __future__ import annotations

import torch

from flash_attest.properties.machine.cuda_driver import call, driver

PAGE = 2 * 2**20  # bytes; the granularity of CUDA's mappings on every GPU so far (the code checks it)
PERIOD = 33 * PAGE  # bytes of physical memory
RANGE = -(-32 * 2**30 // PERIOD) * PERIOD  # bytes of addresses: 2^31 + 2^32 float32, and room for rounded strides
_free: dict[int, list[_Ring]] = {}  # by device; reused, because mapping takes longer than filling with zeros


class _Ring:
    """A range of addresses. While a tensor in it is alive, no other tensor gets it."""

    def __init__(self, device: int):
        api = driver()
        self.device = device
        location = api.CUmemLocation()
        location.type, location.id = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, device
        properties = api.CUmemAllocationProp()
        properties.type = api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location = location
        minimum = api.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        granularity = call(api.cuMemGetAllocationGranularity, properties, minimum)
        if PAGE % granularity:
            raise OSError(f"this GPU maps memory in steps of {granularity} bytes, which do not divide {PAGE}")
        physical = call(api.cuMemCreate, PERIOD, properties, 0)
        self.address = None
        try:
            self.address = call(api.cuMemAddressReserve, RANGE, 0, 0, 0)
            self.mapped = 0
            while self.mapped < RANGE:
                call(api.cuMemMap, int(self.address) + self.mapped, PERIOD, 0, physical, 0)
                self.mapped += PERIOD
            access = api.CUmemAccessDesc()
            access.location, access.flags = location, api.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            call(api.cuMemSetAccess, self.address, RANGE, [access], 1)
        except (MemoryError, OSError):
            self.release()
            raise
        finally:
            call(api.cuMemRelease, physical)  # the mappings keep it alive

    def release(self) -> None:
        """Free the addresses and the memory."""
        if self.address is None:
            return
        api = driver()
        if self.mapped:
            call(api.cuMemUnmap, self.address, self.mapped)
        call(api.cuMemAddressFree, self.address, RANGE)
        self.address = None


class _Loan:
    """Holds a ring as long as torch.as_tensor keeps this object alive, then returns the ring."""

    def __init__(self, ring: _Ring):
        self.ring = ring
        self.__cuda_array_interface__ = dict(shape=(RANGE,), typestr="|u1", data=(int(ring.address), False), version=3)

    def __del__(self):
        _free.setdefault(self.ring.device, []).append(self.ring)


def zeros(nbytes: int, device: torch.device) -> torch.Tensor:
    """Return (nbytes,) uint8 zeros on a GPU, at most RANGE.

    Raises MemoryError or OSError if there is no such memory.
    """
    if nbytes > RANGE:
        raise OSError(f"{nbytes} bytes are more than the {RANGE} bytes of a range")
    index = torch.cuda.current_device() if device.index is None else device.index
    with torch.cuda.device(index):
        torch.cuda.synchronize()  # this makes the context, and no kernel may still use the ring
        ring = _free[index].pop() if _free.get(index) else _Ring(index)
        memory = torch.as_tensor(_Loan(ring), device=torch.device("cuda", index))
        memory[:PERIOD].zero_()
    return memory[:nbytes]
