"""Databases that earlier versions wrote, and what this version must make of them."""
