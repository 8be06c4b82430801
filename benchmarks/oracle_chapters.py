"""All chapters of the oracle: importing them binds their entries."""

import oracle_compare  # noqa: F401
import oracle_convert  # noqa: F401
import oracle_exchange  # noqa: F401
import oracle_floating  # noqa: F401
import oracle_integer  # noqa: F401
import oracle_memory  # noqa: F401
