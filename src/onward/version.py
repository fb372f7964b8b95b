"""The version of Onward, for the log and for people."""

VERSION = "0.1.0"
