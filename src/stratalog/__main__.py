"""`python -m stratalog`: the command line."""

import sys

from stratalog.cli import main

sys.exit(main())
