"""The dialect, row by row and by random programs: what tests/pipeline does not show by its parts."""
