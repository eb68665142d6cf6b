-- torch/annotations.lua and nn/annotations.lua have every public function of the stand-in, and no others.

local torch = require("torch")
local nn = require("nn")

-- The functions of each class in a file of annotations: {["torch.Tensor"] = {add = true, ...}, ...}.
local function annotated(module)
  local classes, class, file = {}, nil, nil
  for pattern in package.path:gmatch("[^;]+") do file = file or io.open((pattern:gsub("%?", module))) end
  for line in file:lines() do
    local begun = line:match("^%-%-%-@class ([%w.]+)")
    if begun then
      class = {}
      classes[begun] = class
    end
    local name, signature = line:match("^%-%-%-@field (%w+) (fun%b().*)")
    if name then
      assert.is_nil(class[name], name .. " is there twice")
      class[name] = signature
    end
  end
  file:close()
  return classes
end

-- The sorted names of a table's functions, and of its constructors.
local function public(functions)
  local names = {}
  for name, value in pairs(functions) do
    local metatable = type(value) == "table" and getmetatable(value)
    local is_call = type(value) == "function" or metatable and metatable.__call
    if is_call and type(name) == "string" and not name:find("^_") then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

local function names_of(class)
  local names = {}
  for name in pairs(class) do names[#names + 1] = name end
  table.sort(names)
  return names
end

describe("annotations of the stand-in for Torch", function()
  local classes = annotated("torch/annotations")
  local modules = annotated("nn/annotations")

  it("name all functions of torch", function() assert.same(public(torch), names_of(classes.torch)) end)

  for _, name in ipairs{"Storage", "Tensor", "Tester", "CmdLine", "Timer"} do
    it("name all methods of torch." .. name, function()
      local of_doubles = {Storage = "DoubleStorage", Tensor = "DoubleTensor"}
      local metatable = torch.getmetatable("torch." .. (of_doubles[name] or name))
      assert.same(public(metatable), names_of(classes["torch." .. name]))
    end)
  end

  it("name all classes of nn", function() assert.same(public(nn), names_of(modules.nn)) end)

  for _, name in ipairs{"Module", "Criterion"} do
    it("name all methods of nn." .. name, function()
      local all = torch.getmetatable("nn." .. name)
      -- A criterion inherits nothing; what forward() calls is its own classes' to define.
      local methods = {updateOutput = true, updateGradInput = true}
      for _, method in ipairs(public(all)) do methods[method] = true end
      assert.same(names_of(methods), names_of(modules["nn." .. name]))
    end)
  end

  for _, name in ipairs{"Sequential", "Linear"} do
    it("name the methods that nn." .. name .. " adds", function()
      local own = {}
      for _, method in ipairs(public(torch.getmetatable("nn." .. name))) do
        if not modules["nn.Module"][method] then own[method] = true end
      end
      assert.same(names_of(own), names_of(modules["nn." .. name]))
    end)
  end

  it("give a receiver to methods, and none to functions", function()
    for _, file in ipairs{classes, modules} do
      for class, methods in pairs(file) do
        for name, signature in pairs(methods) do
          local is_method = class ~= "torch" and class ~= "nn" and name ~= "new"
          assert.equal(is_method, signature:find("^fun%(self: " .. class:gsub("%.", "%%.") .. "[,)]") ~= nil, class .. "." .. name)
        end
      end
    end
  end)
end)
