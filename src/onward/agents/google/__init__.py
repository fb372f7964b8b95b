"""Google's generateContent. Begin with `format`; all of it is pure."""
