-- Gives one message to exactly one holder where every end reports sequences: the first report by sequence wins.
-- KEYS: block (HASH), open (HASH), books (HASH), plain (ZSET)
-- ARGV: token, field, record, ttl, space, seq
-- Returns 1 the caller holds the entry (also when it won earlier and the reply was lost), -1 the space has an end
-- without sequences, or may have (call entry_match), 'q' state token: another holds it, 'x' content time: as 'q', but
-- the claim stands in that content's entry, to which a pointer of that time leads.
--
-- token   10 bytes: shard (2), epoch (4), nonce (4)
-- field   sequence % 64, as text; seq the 16-bit sequence, as text
-- record  19 bytes: 'c' token time (4) sender (4). State c claimed, e effect, d done; p is a pointer to a content
--         entry and has its 9-byte field and a zero in the token's place.
-- A sequence counts only for the same sender within an hour: it wraps after 65 536 messages.

local function number(text, at)
    local a, b, c, d = text:byte(at, at + 3)
    return ((a * 256 + b) * 256 + c) * 256 + d
end

-- Fleets whose ends all report sequences have no such key, and pay for no more than this.
if redis.call('EXISTS', plain) == 1 then
    local marks = redis.call('ZMSCORE', plain, space, '*')
    if marks[1] or marks[2] then
        local now = tonumber(redis.call('TIME')[1])
        if tonumber(marks[1] or 0) >= now or tonumber(marks[2] or 0) >= now then return -1 end
    end
end
local records = redis.call('HGET', block, field)
if records then
    if #records % 19 ~= 0 then return redis.error_reply('WRONGTYPE field ' .. field .. ' is none of ours') end
    local sender, time = record:sub(16, 19), number(record, 12)
    for at = 1, #records, 19 do
        if records:sub(at + 15, at + 18) == sender
            and math.abs(number(records, at + 11) - time) <= 3600 then
            local state = records:sub(at, at)
            if state == 'p' then return 'x' .. records:sub(at + 1, at + 9) .. records:sub(at + 11, at + 14) end
            if records:sub(at + 1, at + 10) == token then return 1 end
            return 'q' .. records:sub(at, at + 10)
        end
    end
    -- Three records are kept: an end that invents sequences cannot push out another sender's message at once.
    record = (records .. record):sub(-57)
end
-- Counted and listed first: where a foreign value stands in the way, nothing is left half done.
redis.call('HINCRBY', books, 'distinct', 1)
local listed = redis.pcall('HSETNX', open, token, 'c' .. space .. '|' .. seq)
if listed ~= 1 then
    redis.call('HINCRBY', books, 'distinct', -1)
    -- Listed already: asked again by who holds it, whose record newer ones have pushed out.
    return listed == 0 and 1 or listed
end
redis.call('HSET', block, field, record)
if redis.call('TTL', block) < tonumber(ttl) then redis.call('EXPIRE', block, math.ceil(ttl * 1.05)) end
return 1
