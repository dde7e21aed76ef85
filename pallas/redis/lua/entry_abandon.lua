-- Ends an entry whose holder cannot say how it went, once: not begun is lost, begun is unknown; both are listed.
-- KEYS: home (HASH), open (HASH), books (HASH), dead (HASH)
-- ARGV: field, token, note, limit, keep_s
-- Returns 'c' it had not begun: counted as dead:holder_lost, 'e' it had: counted as dead:sent_unknown, 0 the token holds
-- no open entry.
--
-- `dead` keeps the state and `note` under the token, up to `limit` of them, for `keep_s` after the last one.
-- That the token's epoch is dead, or that its holder itself gives up, is for the caller to know. The entry stays, so
-- that later reports find it ended; in state u a late end by the same token still tells how it went (entry_late). One
-- that newer ones pushed out of its home is ended by what `open` says of it.

local place = redis.call('HGET', open, token)
if not place then return 0 end
local state = place:sub(1, 1)
local list = redis.call('HGET', home, field)
local at = list and list:find(token, 1, true)
if at then
    state = list:sub(at - 1, at - 1)
    redis.call('HSET', home, field, list:sub(1, at - 2) .. (state == 'e' and 'u' or 'd') .. list:sub(at))
end
redis.call('HDEL', open, token)
redis.call('HINCRBY', books, state == 'e' and 'dead:sent_unknown' or 'dead:holder_lost', 1)
if redis.call('HLEN', dead) < tonumber(limit) then
    redis.call('HSET', dead, token, state .. note)
    redis.call('EXPIRE', dead, keep_s)
end
return state
