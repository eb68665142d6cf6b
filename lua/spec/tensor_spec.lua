-- polyverso.tensor: operators, views, FFI memory.

local failure_of = require("spec.failures").of
local polyverso = require("polyverso")
local tensor = require("polyverso.tensor")
local ffi = jit and require("ffi")

describe("a tensor", function()
  local matrix
  before_each(function() matrix = tensor.copy_of{{1, 2, 3}, {4, 5, 6}} end)

  it("says what it is", function()
    assert.same({2, 3}, matrix:shape())
    assert.equal("f32", matrix:dtype())
    assert.equal(6, matrix:count())
    assert.equal(1, matrix:info().is_shared)
    assert.equal("f32 (2, 3)\n[[1, 2, 3],\n [4, 5, 6]]", tostring(matrix))
    assert.is_true(tensor.is_tensor(matrix))
    assert.is_false(tensor.is_tensor{})
  end)

  it("computes", function()
    assert.same({{11, 22, 33}, {14, 25, 36}}, (matrix + {10, 20, 30}):to_list())
    assert.same({{9, 8, 7}, {6, 5, 4}}, (10 - matrix):to_list())
    assert.same({{-0.5, -1, -1.5}, {-2, -2.5, -3}}, (-matrix / 2):to_list())
    assert.same({{1, 4, 9}, {16, 25, 36}}, (matrix ^ 2):to_list())
    assert.same({{0, 0, 0}, {1, 1, 1}}, matrix:gt(3):to_list())
    assert.same({2, 3}, tensor.copy_of{-4, 9}:abs():sqrt():to_list())
    assert.same({{14, 32}, {32, 77}}, matrix:matmul(matrix, {transpose_b = true}):to_list())
    assert.same({5, 7, 9}, matrix:sum(0):to_list())
    assert.equal(6, matrix:max():item())
    assert.same({2, 2}, matrix:argmax(1):to_list())
    assert.equal(91, matrix:dot(matrix))
    assert.is_true(matrix:close(matrix + 1e-7))
    assert.is_false(matrix:equal(matrix + 1))
  end)

  it("is changed in place", function()
    assert.equal(matrix, matrix:add_(1):mul_{2, 2, 2}:sub_(4))
    assert.same({{0, 2, 4}, {6, 8, 10}}, matrix:to_list())
    matrix[0] = 7
    matrix[1] = {1, 2, 3}
    matrix:set(1, 2, -1)
    assert.same({{7, 7, 7}, {1, 2, -1}}, matrix:to_list())
    assert.equal(-1, matrix[1][2])
    assert.equal(7, matrix:get(0, 0))
  end)

  it("has views and copies", function()
    matrix:row(1):fill(0)
    matrix:slice(0, 1):assign{7, 8, 9}
    assert.same({{7, 8, 9}, {0, 0, 0}}, matrix:to_list())
    assert.same({{0, 0}, {7, 8}}, matrix:reshape{3, -1}:take{2, 0}:to_list())
    assert.same({{7, 0}, {8, 0}, {9, 0}}, matrix:transpose():to_list())
    assert.same("i64", matrix:cast("i64"):dtype())
    assert.same({1.5, math.huge}, tensor.copy_of({1.5, 65520}, "f16"):to_list())
  end)

  it("outlives what it was cut from", function()
    local flat = tensor.range(6)
    local folded = flat:reshape{2, 3}
    local row = folded[1]
    assert.equal(3, row:info().sharers)
    flat:free()
    folded:free()
    for _ = 1, 20 do tensor.full(6, -1) end
    assert.same({3, 4, 5}, row:to_list())
    assert.equal(1, row:info().sharers)
  end)

  it("holds some rows of many", function()
    local sparse = tensor.sparse({5, 2, 5}, {{1, 2}, {3, 4}, {5, 6}}, 8)
    local ids, held = sparse:parts()
    assert.same({2, 5}, ids:to_list())
    assert.same({{3, 4}, {6, 8}}, held:to_list())
    assert.same({13, 17}, tensor.ones{8, 2}:axpy(2, sparse)[5]:to_list())
    assert.is_true(sparse:row_sparse())
  end)

  it("is a table's data", function()
    local node = polyverso.init()
    local shared = node:matrix{rows = 2, cols = 2, init = tensor.ones{2, 2}}
    shared:add(tensor.copy_of{{1, 2}, {3, 4}})
    shared:add(tensor.ones{1, 2}, {rows = tensor.copy_of({1}, "i64")})
    local got = tensor.zeros{2, 2}
    shared:get{out = got}
    assert.same({{2, 3}, {5, 6}}, got:to_list())
    assert.equal("MV_ESHAPE", failure_of(shared.add, shared, tensor.zeros(3)).name)
    node:shutdown()
  end)

  it("refuses what does not fit", function()
    assert.equal("MV_ESHAPE", failure_of(function() return matrix + {1, 2} end).name)
    assert.truthy(failure_of(function() return matrix + {1, 2} end).text:find("(2, 3) and (2,)", 1, true))
    assert.equal("MV_EDTYPE", failure_of(function() return tensor.zeros(3, "i64") * 0.5 end).name)
    assert.equal("MV_EINVAL", failure_of(tensor.zeros, 3, "f8").name)
    assert.equal("MV_ESHAPE", failure_of(tensor.copy_of, {{1}, {1, 2}}).name)
    assert.equal("MV_ERANGE", failure_of(matrix.row, matrix, 2).name)
    matrix:free()
    matrix:free()
    assert.equal("MV_EHANDLE", failure_of(matrix.sum, matrix).name)
  end)

  if ffi then
    it("shares its memory with the FFI library", function()
      local pointer, count = matrix:pointer()
      assert.equal(6, count)
      pointer[5] = 60
      assert.equal(60, matrix:get(1, 2))
      local memory = ffi.new("double[4]", {1, 2, 3, 4})
      local row = tensor.view(memory, {2, 2})[1]
      memory = nil
      collectgarbage()
      collectgarbage()
      assert.same({3, 4}, row:to_list())
      assert.same({1, 2}, tensor.view(ffi.new("float[2]", {1, 2})):to_list())
      assert.equal("MV_ESHAPE", failure_of(tensor.view, ffi.new("float[2]"), {3}).name)
    end)

    it("is a forked child's own", function()
      ffi.cdef("int fork(void); void _exit(int); int waitpid(int, int *, int);")
      local pointer = matrix:pointer()
      local child = ffi.C.fork()
      if child == 0 then
        pointer[0] = 7
        local well = pcall(function() assert(matrix:sum():item() == 27 and (matrix * 2):sum():item() == 54) end)
        matrix:free()
        tensor.zeros{2, 3}
        ffi.C._exit(well and 0 or 1)
      end
      local status = ffi.new("int[1]")
      assert.equal(child, ffi.C.waitpid(child, status, 0))
      assert.equal(0, status[0])
      assert.equal(1, pointer[0])
      assert.equal(21, matrix:sum():item())
    end)
  else
    it("takes no tables for memory", function()
      assert.equal("MV_EDTYPE", failure_of(tensor.view, {1, 2}, {2}).name)
    end)
  end
end)
