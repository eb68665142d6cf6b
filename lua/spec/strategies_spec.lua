-- polyverso.distlearn: clusters of one rank in this process, and clusters of several processes.

local distlearn = require("polyverso.distlearn")
local polyverso = require("polyverso")
local ranks = require("spec.ranks")
local tensor = require("polyverso.tensor")

describe("ranks with uneven steps", function()
  it("end where the closed form says", function()
    local lines = ranks.lines(3, [[
      local polyverso, tensor, distlearn = require("polyverso"), require("polyverso.tensor"), require("polyverso.distlearn")
      local node = polyverso.init()
      local group = require("polyverso.group").open(node)
      local rank = group.rank
      local sgd = distlearn.AllReduceSGD(group)
      local params = {b = tensor.full({2}, rank + 1, "f64"), a = {tensor.zeros({2, 2})}}
      sgd:synchronize_parameters(params)
      assert(params.b:get(1) == 1)
      local seen = {}
      for step = 0, rank do -- 1, 2 and 3 steps
        local grads = {b = tensor.full({2}, rank + 1, "f64"), a = {tensor.ones({2, 2})}}
        seen[#seen + 1] = sgd:sum_and_normalize_gradients(grads)
        params.b:sub_(grads.b)
      end
      sgd:synchronize_parameters(params)
      local ea = distlearn.AllReduceEA(group, 1, 0.25)
      ea:synchronize_parameters(params)
      params.b:add_(4 * rank)
      ea:average_parameters(params)
      ea:synchronize_center(params)
      print(table.concat(seen, " ") .. (" %.17g"):format(params.b:get(0)))
      ea:close()
      sgd:close()
      group:close()
      node:shutdown()
    ]])
    for rank, seen in ipairs{"3", "3 2", "3 2 1"} do
      -- 1 - 2 - 2.5 - 3 = -6.5; the ranks' d = 0, 1, 2 move the centre to -3.5; then one more move towards it.
      local ends = -6.5 + 3 * (rank - 1)
      assert.equal(("%s %.17g"):format(seen, ends - 0.25 * (ends + 3.5)), lines[rank])
    end
  end)
end)

describe("ranks whose arrays differ", function()
  -- What each of two ranks gets from the expressions, which may use `rank`.
  local function outcomes(expressions)
    return ranks.lines(2, [[
      local polyverso, tensor, distlearn = require("polyverso"), require("polyverso.tensor"), require("polyverso.distlearn")
      local node = polyverso.init{log_level = "off"}
      local group = require("polyverso.group").open(node)
      local rank, seen, sgd = group.rank, {}, distlearn.AllReduceSGD(group)
      local function ones(...) return tensor.ones({...}) end
      for i, call in ipairs{]] .. expressions .. [[} do
        local ended, result = pcall(call)
        seen[i] = ended and "fine" or result.name
      end
      print(table.concat(seen, " "))
      group:close()
      node:shutdown()
    ]])
  end

  it("are told, and go on", function()
    local lines = outcomes([[
      function() group:allreduce(rank == 0 and ones(2, 3) or ones(3, 2)) end,
      function() group:allreduce(rank == 0 and ones(2, 3) or ones(6)) end,
      function() group:allreduce_many{ones(2), rank == 0 and ones(2, 2) or ones(4, 1)} end,
      function() group:allgather(rank == 0 and ones(2, 3) or ones(3, 2)) end,
      function() group:allreduce(ones(2, 3)) end,
      function() group:allreduce_custom(rank == 0 and ones(2, 3) or ones(3, 2), function(a, b) a:add_(b) end) end,
      function() sgd:sum_gradients(rank == 0 and {a = ones(2)} or {b = ones(2)}) end,
      function() sgd:sum_gradients(rank == 0 and {w = {ones(2, 3)}} or {w = {ones(3, 2)}}) end,
      function() sgd:sum_gradients{w = ones(2, 3), b = {x = ones(2)}} end
    ]])
    for _, line in ipairs(lines) do
      assert.equal("MV_EDISAGREE fine MV_EDISAGREE MV_EDISAGREE fine MV_EDISAGREE MV_EDISAGREE MV_EDISAGREE fine", line)
    end
  end)

  it("have the labels of other languages", function()
    local arrays = require("polyverso.arrays")
    local one = arrays.leaves{w = {tensor.ones({2, 3})}, b = {x = tensor.ones({2})}}
    assert.same({"b.x", "w"}, {one[1].name, one[2].name})
    local label = arrays.label({one[1].tensor, one[2].tensor}, {one[1].name, one[2].name})
    assert.equal(require("polyverso.capi").crc32("b.x \nw 2x3\n"), label)
    assert.equal(3421780262, require("polyverso.capi").crc32("123456789"))
    assert.is_nil(arrays.label({one[1].tensor}))
  end)
end)

describe("strategies", function()
  local one = ranks.alone(before_each, after_each)

  it("change arrays in place: nested, by sorted keys", function()
    local ea = distlearn.AllReduceEA(one.group, 1, 0.5)
    local last = tensor.zeros({3, 2}, "f64")
    local params = {tensor.zeros({3}), {x = tensor.zeros({1}, "f16"), last}}
    ea:synchronize_parameters(params)
    params[1]:add_(4)
    last:add_(6)
    ea:average_parameters(params, {timeout = 5})
    assert.same({2, 2, 2}, params[1]:to_list())
    assert.equal(18, last:sum():item())
    local centre = {tensor.zeros({3}), {x = tensor.zeros({1}, "f16"), tensor.zeros({3, 2}, "f64")}}
    ea:read_center(centre)
    assert.same({2, 2, 2}, centre[1]:to_list())
    assert.equal(18, centre[2][1]:sum():item())
    assert.equal(1, ea:meter().steps)
    ea:close()
    ea:close()
  end)

  it("meet a centre in a table", function()
    local ea = distlearn.AsyncEA(one.node:array{size = 2, dtype = "f64"}, 1, 0.5)
    local params = tensor.full({2}, 8, "f64")
    ea:average_parameters(params)
    assert.same({4, 4}, params:to_list())
    ea:read_center(params)
    assert.same({4, 4}, params:to_list())
    ea:close()
  end)

  it("exchange every so many steps", function()
    local plain = distlearn.LocalSGD(one.group, 4)
    local params = tensor.zeros({10}, "f64")
    plain:synchronize_parameters(params)
    local before = plain:meter().payload_bytes
    for _ = 1, 8 do
      params:add_(1)
      plain:step(params)
    end
    local meter = plain:meter()
    assert.equal(meter.dense_bytes, 4 * (meter.payload_bytes - before))
    assert.equal(8, params:get(9))
    plain:close()
    local diloco = distlearn.DiLoCo(one.group, 4, {fragments = 2, overlap = 1, mixing = 0.5})
    diloco:step(params)
    diloco:synchronize_parameters(params)
    diloco:close()
  end)

  it("compress gradients", function()
    for _, how in ipairs{"int8", "topk ratio=1", "powersgd rank=1"} do
      local compressed = distlearn.CompressedAllReduce(one.group, how)
      local gradient = tensor.range(8, 1):reshape({8, 1}):matmul(tensor.range(6, 1):reshape({1, 6}))
      local wanted = gradient:copy()
      assert.equal(1, compressed:average_gradients({gradient}))
      assert.is_true(gradient:close(wanted, 0, 0.5))
      compressed:finish({gradient})
      compressed:close()
    end
  end)

  it("say what is wrong with a call", function()
    assert.error_matches(function() distlearn.AllReduceEA(one.group, 0, 0.5) end, "tau is 0")
    assert.error_matches(function() distlearn.LocalSGD(one.group, 0) end, "inner_step")
    local sgd = distlearn.AllReduceSGD(one.group)
    assert.error_matches(function() sgd:sum_gradients({tensor.zeros({3}, "i64")}) end, "array 0 is i64")
    assert.error_matches(function() sgd:sum_gradients({3}) end, "a tensor or FFI memory is needed, not a number")
    assert.error_matches(function() sgd:sum_gradients(tensor.zeros({3}), {time = 1}) end, 'unknown option "time"')
    assert.error_matches(function() polyverso.mv_ea_average(sgd.handle, {}) end, "not an AllReduceEA")
    sgd:close()
    assert.error_matches(function() sgd:sum_gradients(tensor.zeros({3})) end, "MV_EHANDLE")
  end)

  it("are given back when they are collected", function()
    local handle = distlearn.AllReduceSGD(one.group).handle
    collectgarbage()
    collectgarbage()
    assert.error_matches(function() polyverso.mv_strategy_meter(handle) end, "MV_EHANDLE")
  end)
end)
