"""The dialect, row by row: what tests/pipeline does not show by its parts."""
