-- Writes an account's presence, unless a newer connection of it to another worker is alive.
-- KEYS: presence (HASH)
-- ARGV: account, epoch, connected_ms, purge_ms, keep_s, record
-- Returns 1 written, 0 the account has a newer connection elsewhere, -1 a foreign value stands there and is left alone.
--
-- A value is epoch|connected_ms|seen_ms|record; `seen_ms` is the server's time.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local value = redis.call('HGET', presence, account)
if value then
    local holder, connected, seen = value:match('^(%d+)|(%d+)|(%d+)|')
    if not holder then return -1 end
    if holder ~= epoch and tonumber(connected) > tonumber(connected_ms)
        and now - tonumber(seen) < tonumber(purge_ms) then
        return 0
    end
end
redis.call('HSET', presence, account, string.format('%s|%s|%d|%s', epoch, connected_ms, now, record))
redis.call('EXPIRE', presence, keep_s)
return 1
