"""`python -m onward` is the same as `onward`."""

from __future__ import annotations

from onward.cli.main import main

if __name__ == "__main__":
    main()
