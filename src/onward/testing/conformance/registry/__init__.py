"""What every store promises about registered pipelines."""
