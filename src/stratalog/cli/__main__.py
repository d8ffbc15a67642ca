"""`python -m stratalog.cli`."""

import sys

from stratalog.cli import main

sys.exit(main())
