"""python -m flash_attest is the command flash-attest."""

import sys

from flash_attest.command import main

if __name__ == "__main__":
    sys.exit(main())
