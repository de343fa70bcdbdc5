"""The two limits of every comparison (score.py), in units of the error that rounding explains."""

from __future__ import annotations

# The limit for one element. Correct kernels reach z = 4 in the independent form. sigma is first
# order, and leaves out errors of the machine (truncating tensor cores, an exp with an error of 2
# ulp). Most bugs give z from 14 to 10^6.
Z_LIMIT = 8.0
# The largest z that roundings alone can reach. In the independent form, 6.4 sigma is the expected
# maximum over some 10^10 elements, more than a run has. In the linear form it is the worst case, by
# definition. So both forms have the same reserve, Z_LIMIT / Z_WORST = 1.25.
Z_WORST = 6.4
# The limit for all elements together. Correct kernels reach 1.07. This limit finds errors that are
# in all elements but lift none over 8 sigma: P or dS with one bit less gives a ratio of 2.
RMS_LIMIT = 1.5
