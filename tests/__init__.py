"""The tests, by cost: `unit` (pure), `redis` (a real Valkey), `process`, `wire` and `web` (a browser)."""
