"""flash-attest: a verification suite for attention kernels."""
