-- Proves that this server takes scripts and writes, which an answered PING does not.
-- KEYS: ready (STRING)
-- ARGV: life_s
-- Returns the server's time in seconds.

local time = redis.call('TIME')
-- With GET a key of another type is refused instead of overwritten.
redis.call('SET', ready, time[1], 'EX', life_s, 'GET')
return tonumber(time[1])
