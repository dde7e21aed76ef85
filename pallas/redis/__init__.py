"""Redis as the rest of the project sees it: the only package that imports redis-py."""

from pallas.redis.batch import Command
from pallas.redis.client import Redis, open_redis
from pallas.redis.embedded import EmbeddedServer, find_endpoint
from pallas.redis.probe import RedisFacts, Severity, fatal_problems, probe, problems
from pallas.redis.scripts import Script, script
from pallas.redis.url import RedisKind, RedisTarget, parse_url
from pallas.redis.valkey import binary_path

__all__ = [
    "Command",
    "EmbeddedServer",
    "Redis",
    "RedisFacts",
    "RedisKind",
    "RedisTarget",
    "Script",
    "Severity",
    "binary_path",
    "fatal_problems",
    "find_endpoint",
    "open_redis",
    "parse_url",
    "probe",
    "problems",
    "script",
]
