"""`python -m memlane` is the command `memlane`."""

import sys

from memlane.cli import main

sys.exit(main())
