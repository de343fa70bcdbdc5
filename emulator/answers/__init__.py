"""Torch's answers while its GPU is the emulator; ../guards.py installs these tables.

memory.py    which tensors the program keeps on the host, and who is told where a tensor really is
tensors.py   torch.Tensor, and the functions of torch that make tensors
device.py    torch.cuda, torch.accelerator: the device, its streams and events
random.py    torch.Generator, torch.cuda's random numbers
operators.py torch.library: operators that are registered for CUDA only
autocast.py  torch.autocast("cuda")
"""
