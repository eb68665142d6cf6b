-- One worker of tests/multiverso, over LuaJIT's FFI, as a binding for Multiverso calls it: handles in an array of one,
-- C ints for sizes, the library global.
--     worker.lua async|sync

local ffi = require("ffi")

ffi.cdef[[
  typedef void* TableHandler;
  void MV_Init(int* argc, char* argv[]);
  void MV_ShutDown();
  void MV_Barrier();
  int MV_NumWorkers();
  int MV_WorkerId();
  int MV_ServerId();
  void MV_NewArrayTable(int size, TableHandler* out);
  void MV_GetArrayTable(TableHandler handler, float* data, int size);
  void MV_AddArrayTable(TableHandler handler, float* data, int size);
  void MV_AddAsyncArrayTable(TableHandler handler, float* data, int size);
  void MV_NewMatrixTable(int num_row, int num_col, TableHandler* out);
  void MV_GetMatrixTableAll(TableHandler handler, float* data, int size);
  void MV_AddMatrixTableAll(TableHandler handler, float* data, int size);
  void MV_AddAsyncMatrixTableAll(TableHandler handler, float* data, int size);
  void MV_GetMatrixTableByRows(TableHandler handler, float* data, int size, int row_ids[], int row_ids_n);
  void MV_AddMatrixTableByRows(TableHandler handler, float* data, int size, int row_ids[], int row_ids_n);
  void MV_AddAsyncMatrixTableByRows(TableHandler handler, float* data, int size, int row_ids[], int row_ids_n);
]]
local library = ffi.load("libmultiverso", true)

local function init(words)
  local argc, argv, kept = ffi.new("int[1]", #words), ffi.new("char*[?]", #words), {}
  for i, word in ipairs(words) do
    kept[i] = ffi.new("char[?]", #word + 1, word)
    argv[i - 1] = kept[i]
  end
  library.MV_Init(argc, argv)
  return argc[0]
end

local SIZE, ROWS, COLS, SOME = 1000, 11, 10, {0, 1, 5, 10}

local function floats(count, value)
  local data = ffi.new("float[?]", count)
  for i = 0, count - 1 do data[i] = value(i) end
  return data
end
local function expect(data, count, value)
  for i = 0, count - 1 do
    if data[i] ~= value(i) then error(("element %d is %g, not %g"):format(i, data[i], value(i))) end
  end
end

assert(init(arg[1] == "sync" and {"", "-sync=true"} or {""}) == 1)
local workers, id = library.MV_NumWorkers(), library.MV_WorkerId()
assert(id >= 0 and id < workers and library.MV_ServerId() >= 0)

local handler, size = ffi.new("TableHandler[1]"), ffi.new("int", SIZE)
library.MV_NewArrayTable(size, handler)
local ramp, data = floats(SIZE, function(i) return i + 1 end), ffi.new("float[?]", SIZE)
library.MV_AddArrayTable(handler[0], id == 0 and ramp or floats(SIZE, function() return 0 end), size)
library.MV_Barrier()
for i = 0, 9 do
  library.MV_GetArrayTable(handler[0], data, size)
  expect(data, SIZE, function(k) return (k + 1) * (1 + 2 * i * workers) end)
  library.MV_Barrier()
  library.MV_AddAsyncArrayTable(handler[0], ramp, size)
  library.MV_AddArrayTable(handler[0], ramp, size)
  library.MV_Barrier()
end

library.MV_NewMatrixTable(ffi.new("int", ROWS), ffi.new("int", COLS), handler)
library.MV_Barrier()
local all, some = ROWS * COLS, #SOME * COLS
local everything = floats(all, function(i) return i end)
local part = floats(some, function(i) return SOME[math.floor(i / COLS) + 1] * COLS + i % COLS end)
local ids, twice = ffi.new("int[?]", #SOME, SOME), {}
for _, row in ipairs(SOME) do twice[row] = true end
data = ffi.new("float[?]", all)
for i = 1, 10 do
  library.MV_AddAsyncMatrixTableAll(handler[0], everything, all)
  local add = i % 2 == 0 and library.MV_AddMatrixTableByRows or library.MV_AddAsyncMatrixTableByRows
  add(handler[0], part, some, ids, #SOME)
  library.MV_Barrier()
  library.MV_GetMatrixTableAll(handler[0], data, all)
  expect(data, all, function(k) return k * i * workers * (twice[math.floor(k / COLS)] and 2 or 1) end)
  library.MV_GetMatrixTableByRows(handler[0], data, some, ids, #SOME)
  expect(data, some, function(k) return part[k] * 2 * i * workers end)
  library.MV_Barrier()
end

library.MV_ShutDown()
print("as it should be")
