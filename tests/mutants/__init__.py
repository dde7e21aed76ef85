"""The product broken on purpose, one rule at a time: each break must be caught by the test that it names."""
