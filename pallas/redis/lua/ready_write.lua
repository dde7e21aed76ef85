-- Proves that this server takes scripts and writes, which an answered PING does not.
-- KEYS: ready (STRING)
-- ARGV: life_s
-- Returns the server's time in seconds.

local time = redis.call('TIME')
redis.call('SET', ready, time[1], 'EX', life_s)
return tonumber(time[1])
