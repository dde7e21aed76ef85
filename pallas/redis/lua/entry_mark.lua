-- Moves an entry on to effect or done, only for the holder of its token, and counts its end once.
-- KEYS: home (HASH), open (HASH), books (HASH)
-- ARGV: field, token, state, outcome
-- Returns 1 moved, 2 it was there already, 0 the caller is not its holder, -1 the entry is remembered no more.
--
-- `state` is e or d; a done entry stays done. `outcome` names the count in `books` for d, else it is empty. An entry
-- that newer ones pushed out is still its holder's while `open` names the token: its end is counted as any other.

local list = redis.call('HGET', home, field)
local at = list and list:find(token, 1, true)
if not at then
    local is_open = redis.call('HEXISTS', open, token) == 1
    if is_open and state == 'd' then
        redis.call('HDEL', open, token)
        redis.call('HINCRBY', books, outcome, 1)
    end
    return (is_open or not list) and -1 or 0
end
local old = list:sub(at - 1, at - 1)
if old == state or old == 'd' then return 2 end
redis.call('HSET', home, field, list:sub(1, at - 2) .. state .. list:sub(at))
if state == 'd' then
    redis.call('HDEL', open, token)
    redis.call('HINCRBY', books, outcome, 1)
end
return 1
