"""What several test modules share: waiting, a real Valkey, product processes, a browser."""
