-- The stand-in for Torch: files.

require("torch")

local function assert_error(text, call, ...)
  local ended, failure = pcall(call, ...)
  assert.is_false(ended)
  assert.truthy(tostring(failure):find(text, 1, true), tostring(failure))
end

local function example()
  local shared = torch.range(1, 4)
  local object = {
    1, 2.5, "a line\nand another", "", true, false,
    flat = shared, square = shared:view(2, 2), turned = torch.range(1, 6):view(2, 3):t(), empty = torch.Tensor(),
    long = torch.LongTensor{1, -2}, bytes = torch.ByteTensor{0, 255}, storage = torch.FloatStorage{1, 0.5},
    extremes = {1 / 0, -1 / 0, 0 / 0}, nothing = {},
  }
  object.itself = object
  return object
end

for _, format in ipairs{"binary", "ascii"} do
  describe("a file in " .. format, function()
    it("holds what was written", function()
      local path = os.tmpname()
      torch.save(path, example(), format)
      local read = torch.load(path, format)
      os.remove(path)
      assert.same({1, 2.5, "a line\nand another", "", true, false}, {read[1], read[2], read[3], read[4], read[5], read[6]})
      assert.equal(read, read.itself)
      assert.same({{1, 4}, {2, 5}, {3, 6}}, read.turned:totable())
      assert.same({1, 3}, read.turned:stride():totable())
      read.flat[4] = 40
      assert.equal(40, read.square[2][2])
      assert.equal(0, read.empty:dim())
      assert.same({1, -2}, read.long:totable())
      assert.equal("torch.ByteTensor", read.bytes:type())
      assert.same({1, 0.5}, read.storage:totable())
      assert.same({1 / 0, -1 / 0}, {read.extremes[1], read.extremes[2]})
      assert.is_true(read.extremes[3] ~= read.extremes[3])
      assert.same({}, read.nothing)
    end)

    it("holds objects of classes", function()
      local name = "Point_" .. format
      local Point = torch.class(name)
      function Point:__init(x) self.x = x end
      function Point:twice() return 2 * self.x end
      local point = _G[name](3)
      local read = torch.deserialize(torch.serialize({point, point}, format), format)
      assert.equal(name, torch.type(read[1]))
      assert.equal(6, read[1]:twice())
      assert.equal(read[1], read[2])
      _G[name] = nil
    end)

    it("that is damaged is an error, or other data", function()
      local bytes = torch.serialize(example(), format)
      for cut = 0, #bytes / 2, 7 do -- near the end a truncated word of ascii may still be valid
        assert.is_false((pcall(torch.deserialize, bytes:sub(1, cut), format)), tostring(cut))
      end
      for at = 1, #bytes, 3 do
        for _, byte in ipairs{"\3", "8", "\255"} do
          local ended, failure = pcall(torch.deserialize, bytes:sub(1, at - 1) .. byte .. bytes:sub(at + 1), format)
          assert.falsy(not ended and tostring(failure):find("compat/torch/%a+%.lua"), tostring(failure))
        end
      end
    end)
  end)
end

describe("a file", function()
  it("has Torch's bytes", function()
    assert.equal("\3\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0\0\0\240\63\5\0\0\0\1\0\0\0", torch.serialize{true})
    assert.equal("4\n1\n3\nV 1\n17\ntorch.FloatTensor\n1\n2\n1\n1\n4\n2\n3\nV 1\n18\ntorch.FloatStorage\n2\n1.5 -2\n",
      torch.serialize(torch.FloatTensor{1.5, -2}, "ascii"))
  end)

  it("runs nothing", function()
    assert_error("can't be written", torch.serialize, {function() end})
    assert_error("functions are not loaded", torch.deserialize, "\8\0\0\0\1\0\0\0")
  end)

  it("must be there, and in a format", function()
    local path = os.tmpname()
    os.remove(path)
    assert_error("No such file", torch.load, path)
    assert_error("No such file", torch.save, path .. "/file", {})
    assert_error("binary", torch.save, "/tmp/never", {}, "xml")
    assert_error("unknown class nn.Top", torch.deserialize, "4\n1\n3\nV 1\n6\nnn.Top\n", "ascii")
    assert_error("not a Torch file", torch.deserialize, "\99\0\0\0")
  end)
end)
