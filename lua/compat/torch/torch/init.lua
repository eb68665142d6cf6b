--- A stand-in for Torch, for machines without it: Torch's tensors, classes, Tester and random numbers on polyverso's
--- tensors, in Lua 5.1, LuaJIT and 5.4.
--
--     require 'torch'
--     local t = torch.range(1, 6):view(2, 3)
--     t[{{}, 2}] = 0
--     print(t * 2)
--
-- docs/torch.md lists what it supports and what it does not.

local class = require("torch.class")
local dispatch = require("torch.dispatch")
local indexing = require("torch.indexing")
local storages = require("torch.storage")
local tensors = require("torch.tensor")
local tester = require("torch.tester")
local types = require("torch.types")
require("torch.views")
require("torch.arithmetic")
require("torch.reduction")
require("torch.linear")
require("torch.creation")
require("torch.printing")
types.install(indexing.index, indexing.newindex)
local file = require("torch.file") -- needs storages

local torch = {
  class = class.class,
  factory = class.factory,
  getmetatable = class.getmetatable,
  isTypeOf = class.isTypeOf,
  type = class.type,
  typename = class.typename,
  Tester = tester.Tester,
  TestSuite = tester.TestSuite,
  save = file.save,
  load = file.load,
  serialize = file.serialize,
  deserialize = file.deserialize,
}

function torch.isTensor(value) return types.kind(value) ~= nil end
function torch.isStorage(value) return types.storage_kind(value) ~= nil end
function torch.isequal(a, b) return rawequal(a, b) end

-- ------------------------------------------------------------------ functions

for name, call in pairs(dispatch.functions) do torch[name] = call end

-- Methods that Torch also has as functions, with the tensor first.
for _, name in ipairs{"expand", "expandAs", "fill", "gather", "index", "isSameSizeAs", "maskedSelect", "nonzero",
                      "numel", "permute", "repeatTensor", "reshape", "scatter", "squeeze", "t", "totable",
                      "transpose", "unfold", "view", "viewAs", "zero"} do
  local method = types.methods[name]
  torch[name] = function(first, ...)
    types.check(first, "torch." .. name)
    return method(first, ...)
  end
end
torch.indexSelect, torch.split, torch.chunk = torch.index, types.methods.split, types.methods.chunk

-- ------------------------------------------------------------------ constructors

local function constructor(construct, kind, metatable)
  return setmetatable({}, {
    __call = function(_, ...) return construct(kind, ...) end,
    __index = metatable,
    __newindex = metatable,
    __constructs = metatable.__typename,
  })
end

for _, kind in pairs(types.kinds) do
  torch[kind.short .. "Tensor"] = constructor(tensors.construct, kind, kind.metatable)
  torch[kind.short .. "Storage"] = constructor(storages.construct, kind, kind.storage_metatable)
end

function torch.getdefaulttensortype() return types.default.name end

function torch.setdefaulttensortype(name)
  local kind = types.kind_named(name)
  if kind.is_integral then types.fail("setdefaulttensortype(): only FloatTensor and DoubleTensor are supported") end
  types.default = kind
  torch.Tensor, torch.Storage = torch[kind.short .. "Tensor"], torch[kind.short .. "Storage"]
end
torch.setdefaulttensortype("torch.DoubleTensor")

-- ------------------------------------------------------------------ scripts

torch.CmdLine = require("torch.cmdline")
torch.Timer = require("torch.timer")

--- tic() returns a time in seconds; toc(since) returns the seconds since then.
torch.tic = types.strided.clock
function torch.toc(since)
  types.check_numbers("toc", since)
  return types.strided.clock() - since
end

function torch.setnumthreads() end
function torch.getnumthreads() return 1 end

_G.torch = torch -- Torch also sets the global
return torch
