"""`python -m gateway`: serve, or work on the ledger while no gateway does."""

from __future__ import annotations

import sys

from gateway.commands import main

if __name__ == "__main__":
    sys.exit(main())
