-- polyverso.group: groups of one rank in this process, and groups of several processes started by `polyverso run`.

local group = require("polyverso.group")
local polyverso = require("polyverso")
local ranks = require("spec.ranks")
local tensor = require("polyverso.tensor")

local BEGIN = [[
  local polyverso, tensor = require("polyverso"), require("polyverso.tensor")
  local node = polyverso.init()
  local group = require("polyverso.group").open(node)
  local rank = group.rank
  local seen = {}
  local function see(...) for _, value in ipairs{...} do seen[#seen + 1] = tostring(value) end end
  local function list(of) return table.concat(of, ",") end
]]
local END = [[
  print(table.concat(seen, " "))
  group:close()
  node:shutdown()
]]

-- The lines that the ranks of a cluster print, by rank.
local function seen(script) return ranks.lines(3, BEGIN .. script .. END) end

describe("a group", function()
  it("gives all what each has, and each a part of what all have", function()
    for rank, line in ipairs(seen([[
      local gathered = group:allgather(tensor.copy_of({{rank, 10 * rank}}, "i32"))
      see(list(gathered:shape()), list(gathered:reshape({6}):to_list()))
      local whole, wide = tensor.range(6, 0, 1, "f64"), tensor.range(12, 0, 1, "f64"):reshape({6, 2})
      see(list(group:reduce_scatter(whole):to_list()), whole:get(2 * rank))
      see(group:reduce_scatter(wide, {op = "avg"}):sum():item(), group:reduce_scatter(wide, {op = "max"}):sum():item())
      local fitted, failure = pcall(group.reduce_scatter, group, tensor.zeros({4}))
      see(fitted, failure.name)
    ]])) do
      local first = 6 * (rank - 1)
      local sum = 4 * 4 * (rank - 1) + 6
      local wanted = "3,1,2 0,0,1,10,2,20 %d,%d %d %d %d false MV_ESHAPE"
      assert.equal(wanted:format(first, first + 3, first, sum, sum), (line:gsub("%.0", "")))
    end
  end)

  it("gathers, scatters, exchanges and sends", function()
    for rank, line in ipairs(seen([[
      local gathered = group:gather(tensor.copy_of({rank, 7}, "i32"), {root = 1})
      see(tostring(gathered and list(gathered:reshape({6}):to_list())))
      local own = tensor.zeros({2}, "i64")
      group:scatter(own, rank == 2 and tensor.range(6, 0, 1, "i64"):reshape({3, 2}) or nil, {root = 2})
      see(list(own:to_list()), list(group:alltoall(tensor.range(3, 10 * rank, 1, "i64")):to_list()))
      local rows = {{1, 1, 1}, {0, 1, 2}, {0, 0, 0}}
      see(list(group:alltoall(tensor.range(1 + rank, 10 * rank, 1, "i64"), {send_rows = {1, rank, 0}, receive_rows = rows[rank + 1]}):to_list()))
      local long, back = tensor.full({200000}, rank), tensor.zeros({200000})
      local from_any = group:recv(tensor.zeros({2}), nil, {tag = 5, async = true})
      group:send(tensor.ones({2}), (rank + 1) % 3, {tag = 5})
      assert(from_any:wait() == (rank + 2) % 3 and from_any:wait() == (rank + 2) % 3)
      local sent = group:send(long, (rank + 1) % 3, {tag = 4, async = true})
      see(group:recv(back, (rank + 2) % 3, {tag = 4}), ("%d"):format(back:sum():item() / 200000), sent:wait())
      group:send(tensor.zeros({2}), (rank + 1) % 3)
      local _, failure = pcall(group.recv, group, tensor.zeros({3}))
      see(failure.name, ("%d"):format(group:allreduce(tensor.ones({1})):get(0)))
    ]])) do
      rank = rank - 1
      local previous = (rank + 2) % 3
      local rows = ({"0,10,20", "11,21,22", ""})[rank + 1]
      local wanted = "%s %d,%d %d,%d,%d %s %d %d MV_ESHAPE 3"
      local gathered = rank == 1 and "0,7,1,7,2,7" or "nil"
      assert.equal(wanted:format(gathered, 2 * rank, 2 * rank + 1, rank, rank + 10, rank + 20, rows, previous, previous), line)
    end
  end)

  it("runs asynchronous operations in the order of the calls", function()
    for rank, line in ipairs(seen([[
      local sums, begun = {}, {}
      for i = 1, 10 do
        sums[i] = tensor.full({5000}, i, "i64")
        begun[i] = group:allreduce(sums[i], {async = true})
      end
      local one, many = tensor.full({2}, rank, "i64"), {tensor.ones({2}, "i64")}
      begun[11] = group:broadcast(one, {root = 1, async = true})
      begun[12] = group:allreduce_many(many, {async = true})
      begun[13] = group:allgather(tensor.full({1}, rank, "i64"), {async = true})
      begun[14] = group:reduce_scatter(tensor.ones({3}, "i64"), {async = true})
      begun[15] = group:gather(tensor.full({1}, rank, "i64"), {async = true})
      begun[16] = group:alltoall(tensor.range(3, 0, 1, "i64"), {async = true})
      begun[17] = group:broadcast_many({tensor.full({1}, rank, "i64")}, {async = true})
      begun[18] = group:reduce(tensor.ones({1}, "i64"), {async = true})
      begun[19] = group:barrier({async = true})
      group:barrier()
      local done, results = 0, {}
      for i, request in ipairs(begun) do
        if request:done() then done = done + 1 end
        results[i] = request:wait()
      end
      see(done, sums[1]:get(4999), sums[10]:get(4999), results[10] == sums[10], list(one:to_list()), results[12] == many, list(many[1]:to_list()))
      see(list(results[13]:reshape({3}):to_list()), results[14]:get(0), tostring(results[15] and list(results[15]:reshape({3}):to_list())))
      see(list(results[16]:to_list()), results[17][1]:get(0))
      local wrong = group:allreduce(tensor.ones({2 + (rank == 1 and 1 or 0)}), {async = true})
      local _, failure = pcall(wrong.wait, wrong)
      see(failure.name, tostring(wrong), ("%d"):format(group:allreduce(tensor.ones({1}), {async = true}):wait():get(0)))
    ]])) do
      rank = rank - 1
      local wanted = "19 3 30 true 1,1 true 3,3 0,1,2 3 %s %d,%d,%d 0 MV_EDISAGREE "
        .. "<polyverso.Request allreduce of the group of rank %d of 3, failed> 3"
      assert.equal(wanted:format(rank == 0 and "0,1,2" or "nil", rank, rank, rank, rank), line)
    end
  end)

  it("reduces by a function of one's own", function()
    for _, line in ipairs(seen([[
      local values = tensor.full({2, 2}, rank + 1)
      see(group:allreduce_custom(values, function(mine, theirs) mine:add_(theirs) end), values:sum():item())
      local best = {tensor.full({1}, 5 - rank, "i64"), tensor.full({1}, rank)}
      group:allreduce_custom(best, function(mine, theirs) mine[2] = mine[2]:maximum(theirs[2]) end)
      see(best[1]:get(0), best[2]:get(0))
      local returned = {tensor.full({3}, rank)}
      group:allreduce_custom(returned, function(mine, theirs) return {mine[1] + theirs[1]} end)
      see(returned[1]:sum():item())
    ]])) do
      assert.equal("3 24 5 2 9", (line:gsub("%.0", "")))
    end
  end)

  it("fails on all ranks where the function fails on one, and goes on", function()
    assert.same({"oops oops 3", "failed: oops failed: oops 3", "failed: oops failed: oops 3"}, seen([[
      for _, values in ipairs{tensor.zeros({3}), {tensor.zeros({3}), tensor.zeros({1})}} do
        local _, failure = pcall(group.allreduce_custom, group, values, function() error("oops", 0) end)
        see(type(failure) == "table" and failure.name == "MV_ECANCELED" and failure.text:match("failed: oops") or failure)
      end
      see(("%d"):format(group:allreduce(tensor.ones({1})):get(0)))
    ]]))
  end)

  it("refuses a yield of the function, and goes on", function()
    assert.same({"true 3", "true 3", "true 3"}, seen([[
      local values, failure = tensor.zeros({3}), nil
      coroutine.wrap(function()
        _, failure = pcall(group.allreduce_custom, group, values, function() coroutine.yield() end)
      end)()
      see(tostring(tostring(failure):find("yield") ~= nil), ("%d"):format(group:allreduce(tensor.ones({1})):get(0)))
    ]]))
  end)

  it("refuses results that are no tensors, and tells all ranks", function()
    local told = "a tensor, not a string; a list of tensors, not a boolean"
    assert.same({told, told, told}, seen([[
      local texts = {}
      for _, case in ipairs{{tensor.zeros({3}), "x"}, {{tensor.zeros({3})}, true}} do
        local _, failure = pcall(group.allreduce_custom, group, case[1], function() return case[2] end)
        texts[#texts + 1] = failure.text:match("reduce must return nothing or (a[%a ]-, not a %a+)")
      end
      see(table.concat(texts, "; "))
    ]]))
  end)

  it("lets ranks that are through drain", function()
    assert.same({
      "max,1i64,2f64 custom,1f64 max,3i64,2f64 custom,3f64",
      "2 2 max,3i64,2f64 custom,3f64",
      "2 2 1 1",
    }, seen([[
      local function add(mine, theirs) mine:add_(theirs) end
      for step = 0, 2 * rank - 1 do
        if step % 2 == 1 then
          see(group:allreduce_custom(tensor.ones({step}, "f64"), add))
        else
          see(group:allreduce_many({tensor.ones({step + 1}, "i64"), tensor.ones({2}, "f64")}, {op = "max"}))
        end
      end
      while true do
        local coming = group:drain()
        if not coming then break end
        local words, nothing = {coming.op or "custom"}, {}
        for i, array in ipairs(coming.arrays) do
          words[i + 1] = ("%d%s"):format(array.count, array.dtype)
          nothing[i] = tensor.zeros({array.count}, array.dtype)
        end
        see(list(words))
        if coming.op then
          group:allreduce_many(nothing, {op = coming.op, draining = true})
        else
          group:allreduce_custom(nothing[1], add, {draining = true})
        end
      end
    ]]))
  end)
end)

describe("a group of one", function()
  local one = ranks.alone(before_each, after_each)

  it("has every operation", function()
    assert.same({0, 1, 0}, {one.group.rank, one.group.size, one.group:info().rank})
    assert.same({0}, one.group:members())
    local values = tensor.copy_of({1, 2})
    assert.equal(values, one.group:allreduce(values, {op = "avg", timeout = 5}))
    assert.equal(values, one.group:reduce(values, {root = 0}))
    assert.equal(values, one.group:broadcast(values))
    assert.equal(1, one.group:allreduce_many({values, tensor.ones({2})}))
    one.group:broadcast_many({values})
    one.group:allreduce_zeros()
    one.group:barrier()
    assert.same({{1, 2}}, one.group:allgather(values):to_list())
    assert.same({1, 2}, one.group:reduce_scatter(values):to_list())
    assert.equal(0, one.group:allreduce_custom(values, error, {draining = true}))
    assert.is_nil(one.group:drain())
    assert.same({1, 2}, values:to_list())
    local left = one.group:shrink()
    assert.equal(1, left.size)
    left:close()
    local here = group.of_host(one.node)
    here:close()
    here:close()
  end)

  it("says what is wrong with a call", function()
    local values = tensor.zeros({2})
    assert.error_matches(function() one.group:allreduce(values, {op = "mean"}) end, 'op is "mean"')
    assert.error_matches(function() one.group:allreduce(values, {ops = "sum"}) end, 'unknown option "ops"')
    assert.error_matches(function() one.group:allreduce({1, 2}) end, "a tensor or FFI memory is needed, not a table")
    assert.error_matches(function() one.group:allreduce_many({5}) end, "a tensor or FFI memory is needed, not a number")
    local custom = polyverso.mv_custom_begin(one.group.handle, {values}, 0)
    assert.error_matches(function() polyverso.mv_custom_next(custom, {}) end, "0 arrays given, 1 needed")
    assert.equal(0, polyverso.mv_custom_next(custom, {tensor.zeros({2})}))
    assert.equal(1, polyverso.mv_custom_end(custom))
  end)

  it("takes FFI memory", function()
    if not jit then return end
    local memory = require("ffi").new("double[4]", 1, 2, 3, 4)
    assert.same({{1, 2, 3, 4}}, one.group:allgather(memory):to_list())
    assert.same({1, 2, 3, 4}, one.group:reduce_scatter(memory):to_list())
    assert.equal(1, one.group:allreduce_custom(memory, error))
  end)
end)
