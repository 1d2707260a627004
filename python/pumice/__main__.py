"""`python -m pumice` runs the `pumice` command."""

import sys

from .tools.cli import main

sys.exit(main())
