"""`python -m pumice` is the command `pumice`."""

import sys

from .cli import main

sys.exit(main())
