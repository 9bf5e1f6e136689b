-- Reads rows, the rows that their texts name, and figures, all of one state of the workspace. Replies with the figures
-- as one text, then name and value of each row. It runs as a step unless `epoch` is empty: so a row that a fail-over
-- lost, and that will come back, is not reported as absent. Requested rows: name, follow; figures: name, group, span.
-- @include begin rows
-- @keys workspace
-- @args epoch gateway clock heads
-- @rest name names name wants figures
-- @replies ok absent

local stop = begin(ARGV[1] == '')
if stop then return stop end

local at, count = load(ARGV, 4)
local sums = at + count * 2
local figures_told = {}
tell_figures(figures_told, sums + 1, tonumber(A[sums]), 3)
local answer = { table.concat(figures_told, ' ') }
for i = at, sums - 1, 2 do tell(answer, names[A[i]], A[i + 1]) end
return { 'ok', int(now), meta.epoch, '', unpack(answer) }
