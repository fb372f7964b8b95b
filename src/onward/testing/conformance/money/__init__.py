"""What every store promises about limits."""
