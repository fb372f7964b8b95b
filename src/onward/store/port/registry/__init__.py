"""What a store keeps about registered pipelines."""
