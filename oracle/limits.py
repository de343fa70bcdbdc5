"""The two limits of every comparison (score.py), in units of the error that rounding explains."""

from __future__ import annotations

# For one element. Correct kernels reach z = 4 in the independent form. sigma is first order, and
# leaves out errors of the machine (truncating tensor cores, exp of 2 ulp). Most bugs give z from 14
# to 10^6.
Z_LIMIT = 8.0
# The most that roundings alone can reach. In the independent form, 6.4 sigma is the largest of some
# 10^10 elements, more than a run has; in the linear form it stands for the worst case. So both
# forms keep the same reserve, Z_LIMIT / Z_WORST = 1.25.
Z_WORST = 6.4
# For all elements. Correct kernels reach 1.07. This limit finds errors that are too small to lift
# one element over 8 sigma but are in all of them: P or dS with one bit less gives a ratio of 2.
RMS_LIMIT = 1.5
