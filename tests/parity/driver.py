"""Runs a scenario file (see scenarios.txt) through Python's raw functions: driver.py FILE"""

import array
import re
import sys

import numpy as np

from polyverso import capi
from polyverso.errors import Error

TYPECODES = {"f32": "f", "f64": "d", "i64": "q", "i32": "i", "u8": "B", "i8": "b", "rows": "q"}
TOKEN = re.compile(r'(?:[^\s"]|"[^"]*")+')
variables = {}


def memory(kind, items):
    """Memory with numbers of a kind, as C functions take it."""
    if kind == "f16":
        return np.array(items, np.float16)
    if kind == "bf16":  # the upper half of a float; the scenarios use numbers that bf16 represents exactly
        return (np.array(items, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return array.array(TYPECODES[kind], items)


def value_of(token):
    """The value of a token, as a Python user would write it."""
    if token == "nil":
        return None
    if token.startswith("$"):
        return variables[token]
    if token.startswith(("MV_", "KV_")):
        return getattr(capi, token)
    if token.startswith('"'):
        return token[1:-1]
    if token.startswith("{"):
        pairs = [pair.split("=", 1) for pair in re.findall(r'\w+="[^"]*"|[^,{}]+', token)]
        return {key: value_of(value) for key, value in pairs}
    match = re.fullmatch(r"(\w+)\[(.*)\]", token)
    if match:
        kind, items = match[1], match[2].split(",") if match[2] else []
        if kind == "list":
            return [value_of(item) for item in items]
        if kind == "raw32":
            return array.array("f", map(float, items)).tobytes()
        return memory(kind, list(map(float if kind.endswith(("f32", "f64", "f16")) else int, items)))
    if re.fullmatch(r"-?\d+\.\d+", token):
        return float(token)
    return int(token) if re.fullmatch(r"-?\d+", token) else token


def agrees(result, token):
    if token.startswith("~"):
        return value_of(token[1:]) in result
    expected = value_of(token)
    if isinstance(expected, dict):
        return all(result[key] == wanted for key, wanted in expected.items())
    return type(result) is type(expected) and result == expected


def step(tokens):
    """Runs one line. Returns the problem, or None."""
    if tokens[0] == "buffer":
        variables[tokens[1]] = memory(tokens[2], [77] * int(tokens[3]))
        return None
    if tokens[0] == "array":
        variables[tokens[1]] = value_of(tokens[2])
        return None
    if tokens[0] == "expect":
        got = variables[tokens[1]]
        return None if got.tolist() == value_of(tokens[2]).tolist() else f"holds {got.tolist()}"
    if tokens[0] == "function":
        return None if callable(getattr(capi, tokens[1], None)) else "is missing"
    if tokens[0] == "constant":
        return None if getattr(capi, tokens[1], None) == int(tokens[2]) else f"is {getattr(capi, tokens[1], None)}"
    outcome = next((i for i, token in enumerate(tokens) if token in ("->", "=>", "!")), len(tokens))
    wanted = tokens[outcome:]
    try:
        result = getattr(capi, tokens[0])(*map(value_of, tokens[1:outcome]))
    except Error as error:
        return None if wanted == ["!", error.name] else f"raised {error}"
    if wanted[:1] == ["!"]:
        return f"returned {result!r}"
    if wanted[:1] == ["=>"]:
        variables[wanted[1]] = result
    if wanted[:1] == ["->"] and not agrees(result, wanted[1]):
        return f"returned {result!r}"
    return None


def main():
    scenarios = steps = 0
    with open(sys.argv[1], encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            if line.startswith("scenario "):
                scenarios += 1
                continue
            wrong = step(TOKEN.findall(line))
            steps += 1
            if wrong:
                sys.exit(f"python: line {number}: {line}: {wrong}")
    print(f"python: {scenarios} scenarios, {steps} steps")


main()
