-- One worker of mixed_test.py's stores, in Lua; store.py and store.pl do the same. Prints the result of every pull.

local kvstore = require("polyverso.kvstore")
local polyverso = require("polyverso")
local tensor = require("polyverso.tensor")

local SHAPE, ROUNDS = {5, 3}, 6

-- Thirds are not exact in float, so another order of the additions gives other bits.
local function delta(worker, turn)
  local values = {}
  for k = 0, 14 do values[k + 1] = ((k * 7 + worker * 13 + turn * 29) % 31 - 15) / 3 * 10 ^ worker end
  return tensor.copy_of(values):reshape(SHAPE)
end

local function show(name, values)
  local words = {name}
  for _, row in ipairs(values:to_list()) do
    for _, value in ipairs(row) do words[#words + 1] = ("%.9g"):format(value) end
  end
  print(table.concat(words, " "))
end

local node = polyverso.init()
local named, numbered = kvstore.create("dist_sync"), kvstore.create("dist_sync")
local worker = named:rank()
local w, b, out = delta(worker, 99), delta(worker, 98), tensor.zeros(SHAPE)
named:init({"w", "b"}, {w, b})
numbered:init({3, 7}, {w, b})
if worker == 0 then named:set_optimizer("mx.sgd learning_rate=0.1 momentum=0.9") end
named:barrier()
for turn = 0, ROUNDS - 1 do
  named:push({"w", "b"}, {{delta(worker, turn), delta(worker, turn + 50)}, {delta(worker, -turn)}})
  numbered:push(7, delta(worker, turn))
  named:pull({"b", "w"}, {b, w})
  numbered:pull(7, out)
  for _, pair in ipairs{{"w", w}, {"b", b}, {"7", out}} do show(pair[1], pair[2]) end
end
numbered:pull(3, out)
show("3", out)
node:shutdown()
