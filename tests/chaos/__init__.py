"""Long fault runs: what takes too long for every change, run before a release."""
