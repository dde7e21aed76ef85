-- Moves entries on to effect or done, each only for the holder of its token, and counts each end once.
-- KEYS: home (HASH), open (HASH), books (HASH) …
-- ARGV: field, token, state, outcome …
-- Returns for each entry: 1 moved, 2 it was there already, 3 it was ended as unknown (call entry_late), 0 the caller is
-- not its holder, -1 the entry is remembered no more, -2 a foreign value stands in its place.
--
-- `state` is e or d; what has ended (d, or u: nobody knows how) takes no effect any more. `outcome` names the count in
-- `books` for d, else it is empty. `open` knows the state too: an entry that newer ones pushed out of its home is still
-- its holder's while `open` names the token.

local function mark(home, open, books, field, token, state, outcome)
    local list = redis.pcall('HGET', home, field)
    if type(list) == 'table' then return -2 end
    local at = list and list:find(token, 1, true)
    local answer = 1
    if at then
        local old = list:sub(at - 1, at - 1)
        if old == state then return 2 end
        if old == 'd' then return 0 end
        if old == 'u' then return state == 'd' and 3 or 0 end
        redis.call('HSET', home, field, list:sub(1, at - 2) .. state .. list:sub(at))
    elseif redis.call('HEXISTS', open, token) == 0 then
        return list and 0 or -1
    elseif state == 'd' and not list then
        answer = -1
    end
    if state == 'd' then
        redis.call('HDEL', open, token)
        redis.call('HINCRBY', books, outcome, 1)
        return answer
    end
    local place = redis.call('HGET', open, token)
    if place then redis.call('HSET', open, token, state .. place:sub(2)) end
    return answer
end

local answers = {}
for i = 0, #KEYS / 3 - 1 do
    local k, a = i * 3, i * 4
    answers[i + 1] = mark(KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4])
end
return answers
