"""What a store keeps about limits and spending."""
