-- The stand-in for Torch: for any arguments, its functions return or raise an error that names the user's line. The
-- arguments come from a generator of our own, so a failure is reproducible on every machine.

require("torch")

local state = 1
local function random(count)
  state = (state * 16807) % 2147483647
  return state % count + 1
end

local function pick(list) return list[random(#list)] end

local NUMBERS = {-1, 0, 1, 1, 2, 3, 4, 2.5, 0 / 0, 1 / 0, -1 / 0, 1e300, -1e18, 2 ^ 53, 7}
local MAKERS = {
  function() return torch.Tensor() end,
  function() return torch.range(1, 6):view(2, 3) end,
  function() return torch.range(1, 6):view(3, 2):t() end,
  function() return torch.ones(1, 3):expand(2, 3) end,
  function() return torch.LongTensor{1, 2} end,
  function() return torch.ByteTensor{{0, 1, 1}, {1, 0, 1}} end,
  function() return torch.FloatTensor(2, 2, 2) end,
  function() return torch.IntTensor(3):fill(-2) end,
}

local made = {} -- results of earlier calls: tensors that share memory

local function tensor() return #made > 0 and random(2) == 1 and pick(made) or pick(MAKERS)() end

local function change_another()
  local other = tensor()
  if other:storage() then other:storage():resize(1) end
end

local function argument(depth)
  local choice = random(12)
  if choice <= 4 then return pick(NUMBERS) end
  if choice <= 8 then return tensor() end
  if choice == 9 then return pick{torch.LongStorage{2, 3}, torch.LongStorage{-1}, torch.DoubleStorage(4), "x", true} end
  if choice == 10 then return nil end
  if choice == 11 then return pick{change_another, function(x) return x end, function() return "text" end} end
  local list = {}
  for i = 1, depth < 3 and random(3) or 0 do list[i] = argument(depth + 1) end
  return list
end

local function callable_names(holder, but)
  local names = {}
  for name, value in pairs(holder) do
    local metatable = type(value) == "table" and getmetatable(value)
    if not but[name] and (type(value) == "function" or metatable and metatable.__call) then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

describe("functions of torch", function()
  local function try(name, call, self)
    local arguments, count = {self}, random(4)
    for i = self and 2 or 1, count do arguments[i] = argument(0) end
    local results = {pcall(call, (unpack or table.unpack)(arguments, 1, count))}
    if not results[1] then
      assert.falsy(tostring(results[2]):find("compat/torch/%w+%.lua:%d"), name .. ": " .. tostring(results[2]))
    end
    for i = 2, 3 do
      if torch.isTensor(results[i]) and results[i]:nElement() < 1000 then made[random(20) % (#made + 1) + 1] = results[i] end
    end
    torch.setdefaulttensortype("torch.DoubleTensor")
  end

  it("survive any arguments", function()
    local functions = callable_names(torch, {class = true, TestSuite = true, Tester = true, save = true, load = true})
    for _ = 1, 2500 do
      local name = pick(functions)
      try("torch." .. name, torch[name])
    end
  end)

  it("survive any arguments as methods", function()
    local methods = callable_names(getmetatable(torch.Tensor()), {__gc = true})
    local of_storages = callable_names(getmetatable(torch.Storage()), {__gc = true})
    for _ = 1, 2500 do
      local name = pick(methods)
      local self = tensor()
      if self[name] then try("Tensor:" .. name, self[name], self) end
      name = pick(of_storages)
      local storage = torch.LongStorage{1, 2}
      try("Storage:" .. name, storage[name], storage)
    end
  end)

  it("survive any index", function()
    for _ = 1, 1500 do
      local self, key, value = tensor(), argument(0), argument(0)
      try("index", function() return self[key] end)
      try("newindex", function() self[key] = value end)
    end
  end)
end)
