"""Raises an error when it is imported."""

import a_package_that_is_not_there

IMPL = a_package_that_is_not_there.IMPL
