"""Whole stories with real servers, through the paths of the documents."""
