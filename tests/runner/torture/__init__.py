"""Hostile implementations and the verdicts they must get.

Each is correct except at one length, so that it keeps the contract.
"""
