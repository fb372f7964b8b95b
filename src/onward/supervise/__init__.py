"""Processes that cannot outlive us.

`supervisor` is the program between us and them; `supervised` and `dialogue` are our ends.
"""
