-- One rank of mixed_test.py, in Lua; ranks.py and ranks.pl do the same. All ranks print the same lines.

local polyverso = require("polyverso")
local tensor = require("polyverso.tensor")

local function show(name, ...)
  local words = {name}
  for _, value in ipairs{...} do
    local list = tensor.is_tensor(value) and value:reshape({value:count()}):to_list() or {value}
    for _, number in ipairs(list) do words[#words + 1] = ("%g"):format(number) end
  end
  print(table.concat(words, " "))
end

local function keep_greater(mine, theirs) return theirs[1]:get(0) > mine[1]:get(0) and theirs or mine end

local function add(mine, theirs) return mine + theirs end

local node = polyverso.init()
local group = require("polyverso.group").open(node)
local rank, size = group.rank, group.size
show("gathered", group:allgather(tensor.copy_of({{rank, 10 * rank}})))
local part = group:reduce_scatter(tensor.range(2 * size, 0, rank + 1, "f64"))
show("scattered", group:allgather(part))

local gathered = group:gather(tensor.copy_of({rank, 5}), {root = 1})
local own = tensor.zeros({2}, "f64")
group:scatter(own, rank == 0 and tensor.range(2 * size, 0, 1, "f64"):reshape({size, 2}) or nil)
local given = group:alltoall(tensor.range(size, 100 * rank, 1, "f64"))
local rows, all = {}, 0 -- as many from each rank as for it
for to = 0, size - 1 do
  rows[to + 1] = (rank + to) % 3
  all = all + rows[to + 1]
end
local uneven = group:alltoall(tensor.full({all}, rank, "i32"), {send_rows = rows, receive_rows = rows})
local request = group:allreduce(tensor.full({2}, rank + 1, "f64"), {async = true})
group:send(tensor.copy_of({rank}, "i64"), (rank + 1) % size, {tag = 3})
local taken = tensor.zeros({1}, "i64")
local source = group:recv(taken, nil, {tag = 3})
local reduced = request:wait()
local function sum(list) return list:count() > 0 and list:sum():item() or 0 end
show("exchanged", group:allreduce(tensor.copy_of({sum(own), sum(given) - rank * size, sum(uneven) + rank, uneven:count(), taken:get(0) - source,
  (source + 1 - rank) % size, reduced:get(0), reduced:get(1)}, "f64")))
show("gathered at 1", group:broadcast(gathered or tensor.zeros({size, 2}), {root = 1}))

local best = {tensor.copy_of({(rank * 7 + 1) % 5}, "f64"), tensor.copy_of({rank}, "i64")}
local kept = group:allreduce_custom(best, keep_greater)
show("best", kept, best[1], best[2])

local total = {0, 0, 0}
for step = 0, rank do
  local values, contributors
  if step % 2 == 1 then
    values = tensor.full({2}, rank + 1, "f64")
    contributors = group:allreduce_custom(values, add)
  else
    values = tensor.full({3}, rank + 1)
    contributors = group:allreduce_many({values})
  end
  total = {total[1] + contributors, total[2] + values:get(0), total[3] + 1}
end
while true do
  local coming = group:drain()
  if not coming then break end
  local nothing = {}
  for i, array in ipairs(coming.arrays) do nothing[i] = tensor.zeros({array.count}, array.dtype) end
  if coming.op then
    group:allreduce_many(nothing, {op = coming.op, draining = true})
  else
    group:allreduce_custom(nothing[1], add, {draining = true})
  end
  total[3] = total[3] + 1
end
show("steps", group:allreduce(tensor.copy_of(total, "f64"), {op = "max"}))

local _, failure = pcall(group.allreduce_custom, group, tensor.zeros({2}, "f64"), function() error("of one's own", 0) end)
print((failure == "of one's own" or failure.name == "MV_ECANCELED") and "failed" or failure)
show("after", group:allreduce(tensor.ones({1}, "f64")))

-- Numeric keys come before text keys, in numeric order.
local named = {b = tensor.full({1}, 3, "f64"), a9 = tensor.full({1}, 4, "f64"), a10 = tensor.full({1}, 5, "f64")}
named[10], named[9] = tensor.full({1}, 2, "f64"), tensor.full({1}, 1, "f64")
local sgd = require("polyverso.distlearn").AllReduceSGD(group)
sgd:sum_gradients(named)
show("keys", named[9], named[10], named.b, named.a9, named.a10)
sgd:close()
group:close()
node:shutdown()
