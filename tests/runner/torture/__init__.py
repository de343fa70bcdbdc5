"""Hostile implementations, and the verdicts that they must get.

Each is correct except at one length, so that it passes the contract check.
"""
