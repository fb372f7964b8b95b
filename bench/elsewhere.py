"""`python elsewhere.py BOOT_ID_FILE SCRIPT WORD...`: a Python script that takes itself for another machine's.

Its boot id is the one in the file. Nobody else can then see whether the process is alive, nor can it see
others: what is left is the time of the lease, as between machines.
"""

from __future__ import annotations

import runpy
import sys

from onward import host

if __name__ == "__main__":
    _, host.BOOT_ID, *sys.argv = sys.argv
    runpy.run_path(sys.argv[0], run_name="__main__")
