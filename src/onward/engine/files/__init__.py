"""Runs on disk: directories, receipts, work trees. Nothing here decides anything."""
