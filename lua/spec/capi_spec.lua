-- The C functions: arguments, results and errors. Runs under Lua 5.1, LuaJIT and Lua 5.4.

local globals = {}
for name in pairs(_G) do globals[name] = true end

local failure_of = require("spec.failures").of
local polyverso = require("polyverso")
local ffi = jit and require("ffi")

local function numbers(count, value)
  local list = {}
  for i = 1, count do list[i] = value or i end
  return list
end

describe("the C functions", function()
  local t

  before_each(function()
    polyverso.mv_init(nil)
    t = polyverso.mv_table_create(0, {kind = "matrix", rows = 2, cols = 3}, nil)
  end)
  after_each(function() polyverso.mv_shutdown(0) end)

  it("take tables of numbers and write into them", function()
    polyverso.mv_table_add(t, {1, 2, 3, 4, 5, 6})
    local out = numbers(6, 77)
    polyverso.mv_table_get(t, out)
    assert.same({1, 2, 3, 4, 5, 6}, out)
    local fresh = {n = 6}
    polyverso.mv_table_peek(t, fresh)
    assert.same({n = 6, 1, 2, 3, 4, 5, 6}, fresh)
    local some = {n = 3}
    polyverso.mv_table_get_rows(t, {1}, some)
    assert.same({n = 3, 4, 5, 6}, some)
  end)

  it("take strings as bytes", function()
    polyverso.mv_table_add(t, ("\0\0\128\63"):rep(6)) -- 1.0
    local out = {n = 6}
    polyverso.mv_table_get(t, out)
    assert.equal(1, out[6])
    assert.equal("MV_ESHAPE", failure_of(polyverso.mv_table_add, t, "short").name)
    assert.equal("MV_EINVAL", failure_of(polyverso.mv_table_get, t, ("\0"):rep(24)).name)
  end)

  it("give a table's numbers the dtype of the mv_table", function()
    local double = polyverso.mv_table_create(0, {size = 1, dtype = "f64"}, {0.1, dtype = polyverso.MV_F64})
    polyverso.mv_table_add(double, {0.1})
    local out = {n = 1}
    polyverso.mv_table_get(double, out)
    assert.equal(0.2, out[1])
    assert.equal("MV_EDTYPE", failure_of(polyverso.mv_table_add, double, {0.1, dtype = polyverso.MV_F32}).name)
  end)

  it("refuse other data", function()
    for _, data in ipairs{12, true, print, io.stdout, {1, 2, 3, "four", 5, 6}, {1, 2, {}, 4, 5, 6}} do
      assert.equal("MV_EDTYPE", failure_of(polyverso.mv_table_add, t, data).name)
    end
    assert.equal("MV_ESHAPE", failure_of(polyverso.mv_table_add, t, {1, 2}).name)
    assert.equal("MV_ESHAPE", failure_of(polyverso.mv_table_add, t, nil).name)
    assert.equal("MV_EDTYPE", failure_of(polyverso.mv_table_add_rows, t, {0.5}, {1, 2, 3}).name)
    assert.equal("MV_EDTYPE", failure_of(polyverso.mv_table_add_rows, t, "odd", {1, 2, 3}).name)
    assert.equal("MV_ERANGE", failure_of(polyverso.mv_table_add_rows, t, {2}, {1, 2, 3}).name)
  end)

  it("take integers, also as whole floats, and nothing else", function()
    assert.equal(0, polyverso.mv_rank(0.0))
    assert.equal(2, polyverso.mv_table_describe(t + 0.0).rows)
    for _, wrong in ipairs{"0", 0.5, true, {}, math.huge, -math.huge, 0 / 0, 1e300} do
      assert.equal("MV_EINVAL", failure_of(polyverso.mv_rank, wrong).name)
    end
    assert.equal("MV_EINVAL", failure_of(polyverso.mv_rank, nil).name)
    assert.equal("MV_EINVAL", failure_of(polyverso.mv_log_level_set, 2 ^ 40).name)
    assert.truthy(failure_of(polyverso.mv_rank):find("expected 1"))
    if math.type then assert.equal("integer", math.type(polyverso.mv_rank(0))) end
  end)

  it("take options in three ways", function()
    local data = numbers(6, 0)
    for _, options in ipairs{0, {}, {timeout_ms = 1000}} do assert.is_nil(polyverso.mv_table_add(t, data, options)) end
    assert.is_nil(polyverso.mv_table_add(t, data, nil))
    local wrong = {"async", -1, 0.5, true, {flag = 1}, {flags = "async"}, {flags = {}}, {1}, {timeout_ms = 0.5}}
    for _, options in ipairs(wrong) do
      assert.equal("MV_EINVAL", failure_of(polyverso.mv_table_add, t, data, options).name)
    end
  end)

  it("keep the memory of unfinished gets", function()
    polyverso.mv_table_set(t, numbers(6))
    local out = {n = 6}
    local request = polyverso.mv_table_get(t, out, polyverso.MV_ASYNC)
    assert.same({request}, polyverso.mv_poll(0, 8, 5000))
    collectgarbage()
    assert.equal(1, polyverso.mv_request_test(request))
    assert.same({n = 6, 1, 2, 3, 4, 5, 6}, out)
    local requests = {}
    for i = 1, 100 do requests[i] = polyverso.mv_table_get(t, {n = 6}, polyverso.MV_ASYNC) end
    collectgarbage()
    for _, pending in ipairs(requests) do polyverso.mv_request_wait(pending, 0) end
  end)

  it("raise error values", function()
    local failure = failure_of(function() polyverso.mv_rank(12345) end)
    assert.equal(polyverso.MV_EHANDLE, failure.code)
    assert.equal("MV_EHANDLE", failure.name)
    assert.equal("handle", failure.family)
    assert.truthy(tostring(failure):find("capi_spec.lua:%d+: MV_EHANDLE: " .. failure.text:gsub("%p", "%%%0")))
    failure = failure_of(function() polyverso.init{no_such = 1} end)
    assert.truthy(tostring(failure):find("capi_spec.lua:%d+: .*no_such"))
  end)

  it("list tables, however many", function()
    for i = 1, 60 do polyverso.mv_table_create(0, {size = 1, name = "a table with quite a long name " .. i}, nil) end
    assert.truthy(polyverso.mv_table_list(0):find("quite a long name 60"))
  end)
end)

describe("loading", function()
  it("leaves no globals behind", function()
    for _, name in ipairs{"capi", "swig_type", "swig_equals"} do assert.equal(globals[name], rawget(_G, name) and true) end
  end)
end)

describe("arguments", function()
  it("that are not ours stay", function()
    local rest = polyverso.mv_init_args{"train.lua", "-sync=true", "data.txt", "--lr=0.1"}
    assert.same({"train.lua", "data.txt", "--lr=0.1"}, rest)
    assert.equal(1, polyverso.mv_is_sync(0))
    polyverso.mv_shutdown(0)
    assert.equal("MV_EINVAL", failure_of(polyverso.mv_init_args, "train.lua").name)
    assert.equal("MV_EINVAL", failure_of(polyverso.mv_init_args, {"train.lua", 1}).name)
  end)
end)

if ffi then
  -- LuaJIT's own literals, which other Lua versions can't parse.
  local function literal(text) return assert(loadstring("return " .. text))() end

  describe("FFI memory", function()
    local t

    before_each(function()
      polyverso.mv_init(nil)
      t = polyverso.mv_table_create(0, {kind = "matrix", rows = 2, cols = 3}, ffi.new("float[6]", {1, 2, 3, 4, 5, 6}))
    end)
    after_each(function() polyverso.mv_shutdown(0) end)

    it("is used as it is", function()
      for _, out in ipairs{ffi.new("float[6]"), ffi.new("float[?]", 6), ffi.new("float[2][3]")} do
        polyverso.mv_table_get(t, out)
        assert.equal(6, ffi.cast("float *", out)[5])
      end
      local array = ffi.new("float[?]", 6)
      polyverso.mv_table_get(t, {pointer = ffi.cast("float *", array), count = 6})
      assert.equal(6, array[5])
      polyverso.mv_table_add(t, {pointer = ffi.cast("const float *", array), count = 6})
      polyverso.mv_table_get_rows(t, ffi.new("int64_t[1]", {1}), ffi.cast("float(&)[3]", array))
      assert.equal(12, array[2])
      local bytes = ffi.new("char[24]")
      polyverso.mv_table_get(t, bytes)
      assert.equal(2, ffi.cast("float *", bytes)[0])
    end)

    it("must be of a type that is known, and long enough", function()
      for text, data in pairs{
        ["short %[6%]"] = ffi.new("short[6]"),
        ["uint64_t %[6%]"] = ffi.new("uint64_t[6]"),
        ["count"] = ffi.cast("float *", ffi.new("float[6]")),
        ["i64 was given"] = ffi.new("int64_t[6]"),
        ["i32 was given"] = ffi.new("int[6]"),
        ["u8 was given"] = ffi.new("uint8_t[24]"),
        ["array or a pointer"] = ffi.new("float"),
        ["float %*%*"] = ffi.cast("float **", 0),
        ["complex"] = ffi.new("complex[6]"),
      } do
        local failure = failure_of(polyverso.mv_table_add, t, data)
        assert.equal("MV_EDTYPE", failure.name)
        assert.truthy(failure.text:find(text), failure.text)
      end
      assert.equal("MV_EDTYPE", failure_of(polyverso.mv_table_get, t, ffi.new("const float[6]")).name)
      assert.equal("MV_EDTYPE", failure_of(polyverso.mv_table_add_rows, t, ffi.new("uint64_t[1]"), {1, 2, 3}).name)
      assert.equal("MV_EDTYPE", failure_of(polyverso.mv_table_get, t, ffi.new("double[6]")).name)
      assert.equal("MV_ESHAPE", failure_of(polyverso.mv_table_get, t, ffi.new("float[5]")).name)
      assert.equal("MV_EDTYPE", failure_of(polyverso.mv_table_add_rows, t, ffi.new("int[1]"), {1, 2, 3}).name)
    end)

    it("is of every dtype", function()
      local ctypes = {
        f32 = "float", f64 = "double", i64 = "int64_t", i32 = "int32_t", u8 = "uint8_t", i8 = "int8_t",
        bf16 = "uint16_t",
      }
      for dtype, ctype in pairs(ctypes) do
        local given, out = ffi.new(ctype .. "[3]", {1, 2, 3}), ffi.new(ctype .. "[3]")
        polyverso.mv_table_get(polyverso.mv_table_create(0, {rows = 3, dtype = dtype}, given), out)
        for i = 0, 2 do assert.equal(given[i], out[i]) end
      end
    end)

    it("receives scans", function()
      local kv = polyverso.mv_table_create(0, {kind = "keyvalue", cols = 2, dtype = "f64"}, nil)
      local keys = ffi.new("int64_t[2]", {-1, literal("2LL ^ 62")})
      polyverso.mv_table_add_rows(kv, keys, {1, 2, 3, 4})
      local ids, data = ffi.new("int64_t[4]"), ffi.new("double[8]")
      assert.same({-1, 2}, {polyverso.mv_table_scan(kv, 0, ids, data)})
      local sum = 0
      for i = 0, 3 do sum = sum + data[i] end
      assert.equal(10, sum)
      assert.equal(keys[0] + keys[1], ids[0] + ids[1])
    end)

    it("has integers that no number holds", function()
      local initial = {literal("2LL ^ 53") + 1, literal("-5LL"), dtype = polyverso.MV_I64}
      local wide = polyverso.mv_table_create(0, {rows = 2, dtype = "i64"}, initial)
      local out = {n = 2}
      polyverso.mv_table_get(wide, out)
      assert.equal("int64_t", tostring(ffi.typeof(out[1])):match("<(.*)>"))
      assert.is_true(out[1] == literal("2LL ^ 53") + 1)
      assert.equal(-5, out[2])
      assert.equal("number", type(out[2]))
      polyverso.mv_table_add(wide, {literal("1ULL"), 2})
      polyverso.mv_table_get(wide, out)
      assert.is_true(out[1] == literal("2LL ^ 53") + 2)
      assert.equal("MV_EDTYPE", failure_of(polyverso.mv_table_add, wide, {literal("2ULL ^ 63"), 0}).name)
      assert.equal("MV_EDTYPE", failure_of(polyverso.mv_table_add, wide, {ffi.new("double", 1), 0}).name)
      assert.equal(0, polyverso.mv_rank(literal("0LL")))
    end)

    it("lives as long as its request", function()
      local requests = {}
      for i = 1, 100 do requests[i] = polyverso.mv_table_get(t, ffi.new("float[6]"), polyverso.MV_ASYNC) end
      collectgarbage()
      for _, request in ipairs(requests) do polyverso.mv_request_wait(request, 0) end
    end)
  end)
end
