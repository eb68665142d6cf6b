-- One worker of mixed_test.py, in Lua; worker.py and worker.pl do the same. Prints the result of every get.

local polyverso = require("polyverso")

local ROWS, COLS, ROUNDS = 5, 3, 12

-- Thirds are not exact in float, so another order of the additions gives other bits.
local function delta(worker, turn)
  local values = {}
  for k = 0, ROWS * COLS - 1 do values[k + 1] = ((k * 7 + worker * 13 + turn * 29) % 31 - 15) / 3 * 10 ^ worker end
  return values
end

local function show(name, rows)
  local words = {name}
  for _, row in ipairs(rows) do
    for _, value in ipairs(row) do words[#words + 1] = ("%.9g"):format(value) end
  end
  print(table.concat(words, " "))
end

local node = polyverso.init()
local shared = node:matrix{rows = ROWS, cols = COLS, name = "mixed"}
local worker = node:worker_id()
for turn = 0, ROUNDS - 1 do
  shared:add(delta(worker, turn), {wait = false})
  shared:add({{1 / 3, -2 / 3, 1 + worker}, {1 / 3, -2 / 3, 1 + worker}}, {rows = {worker, ROWS - 1}})
  show("get", shared:get())
end
node:barrier()
show("end", shared:peek())
node:shutdown()
