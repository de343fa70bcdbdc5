"""Hostile implementations, and what each must give. They answer rightly but for one length, so that the contract is kept."""
