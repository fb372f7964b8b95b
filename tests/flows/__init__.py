"""Flows: functions whose steps are recorded."""
