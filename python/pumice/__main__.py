"""`python -m pumice` is the command `pumice`."""

import sys

from .tools.cli import main

sys.exit(main())
