"""``python -m tulle``: the command line."""

import sys

from tulle.cli import main

if __name__ == "__main__":
    sys.exit(main())
