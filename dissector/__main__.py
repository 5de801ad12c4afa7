"""python -m dissector: the same as the command dissector."""

import sys

from dissector.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
