"""What Onward's own tests stand on, shipped so that yours can too. Nothing outside tests imports it."""
