-- Records what is in no redo record, so this is not a step: the time, while nothing is written (a start checks the
-- server's clock against it); which kinds need messages; what the gateway announces to the others; and that an operator
-- says that the server's clock is right, however far it is ahead (`trusted`). With none of these it is a write of the
-- barrier's own connection, because WAIT counts from the connection's last write. entered: a workspace that joins the
-- installation: a step, so that a store set back to before it can be recognised. Replies with the server's time last.
-- @args epoch gateway clock loud announced entered trusted
-- @replies ok

if ARGV[7] ~= '' and meta.time > (tonumber(meta.clock) or 0) then now, meta.new_skew = meta.time, 0 end
redis.call('HSET', KEYS[1], 'clock', int(now))
if meta.new_skew then redis.call('HSET', KEYS[1], 'skew', int(meta.new_skew)) end
if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'loud', ARGV[4]) end
if ARGV[5] ~= '' then
  redis.call('HSET', P .. 'on', ARGV[2], ARGV[5])
  redis.call('PUBLISH', P .. 'changes', redis.call('HGET', KEYS[1], 'rows') .. ' gateway')
end
if ARGV[6] ~= '' and redis.call('SADD', P .. 'entered', ARGV[6]) == 1 then
  redis.call('HSET', KEYS[1], 'sn', int(meta.sn + 1))
end
return { 'ok', int(now), meta.epoch, '', int(meta.time) }
