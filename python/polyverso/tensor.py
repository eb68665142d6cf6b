"""Tensors: arrays of numbers in shared memory, for scripts and for tables.

    from polyverso import Tensor

    weights = Tensor.normal((10, 64), seed=1)
    table.add(weights * 0.1)             # not copied on the way to a server of this host
    weights.numpy()[0] = 0               # the same memory, as an array
"""

from __future__ import annotations

import math
import operator
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from . import capi, dtypes
from ._numpy import np
from ._capi import TensorMemory, tensor_dlpack, tensor_from_dlpack, tensor_lend
from .arrays import CODES
from .devices import Device
from .enums import described
from .errors import ArgumentError, Error
from .foreign import device_of, memory_of

_NAMES = {code: name for name, code in CODES.items()}
_NUMPY = {"f32": "float32", "f64": "float64", "i64": "int64", "i32": "int32", "u8": "uint8", "i8": "int8", "f16": "float16"}

_HOST_MEMORY = (1, 0)  # DLPack's device
_TYPESTRS = {"f32": "<f4", "f64": "<f8", "i64": "<i8", "i32": "<i4", "u8": "|u1", "i8": "|i1", "f16": "<f2"}

Shape = Union[int, Sequence[int]]
DeviceLike = Union[Device, str, int, None]


def _code(dtype: Any) -> int:
    """The mv_dtype of "f32" and the like, or of anything that numpy.dtype() accepts."""
    if isinstance(dtype, str) and dtype in CODES:
        return CODES[dtype]
    wanted = np.dtype(dtype)
    for name, known in _NUMPY.items():
        if wanted == known:
            return CODES[name]
    if wanted == np.bool_:
        return capi.MV_U8
    if wanted == dtypes.BF16 != dtypes.BITS:
        return capi.MV_BF16
    raise TypeError(f"a tensor holds {', '.join(CODES)}, not {wanted}")


def _has_only_cuda(array: Any) -> bool:
    return not hasattr(array, "__dlpack__") and hasattr(array, "__cuda_array_interface__")


def _ids(rows: Any) -> np.ndarray:
    return np.ascontiguousarray(rows, dtype=np.int64)


def _operator(op: int, swapped: bool = False, in_place: bool = False) -> Callable[["Tensor", Any], "Tensor"]:
    if in_place:
        return lambda self, other: self._binary(op, other, out=self)
    return lambda self, other: self._binary(op, other, swapped)


class Tensor(TensorMemory):
    """An array of f32, f64, i64, i32, u8, i8, f16 or bf16 in shared memory, or a row-sparse one.

    It has the buffer protocol: numpy.asarray(tensor), memoryview(tensor) and everything else that takes a buffer use
    its memory, and keep it alive. Positions count from 0. Results are new tensors, except for `+=` and the like.
    Slices, rows and reshaped tensors are views. The names are the same in Perl and Lua.

    `device` is where a tensor is made: None or "cpu" for shared memory, or "cuda:0", whose memory has no buffer, but
    __dlpack__ and __cuda_array_interface__. See docs/cuda.md.
    """

    __slots__ = ()
    __array_priority__ = 1000  # makes numpy leave `array + tensor` to this class

    # ------------------------------------------------------------------ creation

    @classmethod
    def zeros(cls, shape: Shape, dtype: Any = "f32", device: DeviceLike = None) -> "Tensor":
        """A tensor of zeros."""
        if device is None:
            return cls(capi.mv_tensor_create(_code(dtype), shape))
        return cls(capi.mv_tensor_create_on(Device(device).number, _code(dtype), shape))

    @classmethod
    def full(cls, shape: Shape, value: float, dtype: Any = "f32", device: DeviceLike = None) -> "Tensor":
        """A tensor whose elements all have this value."""
        return cls.zeros(shape, dtype, device).fill(value)

    @classmethod
    def ones(cls, shape: Shape, dtype: Any = "f32", device: DeviceLike = None) -> "Tensor":
        """A tensor of ones."""
        return cls.full(shape, 1, dtype, device)

    @classmethod
    def range(
        cls, count: int, start: float = 0, step: float = 1, dtype: Any = "f32", device: DeviceLike = None
    ) -> "Tensor":
        """`count` numbers: start, start + step, ..."""
        tensor = cls.zeros(count, dtype, device)
        capi.mv_tensor_range(tensor, start, step)
        return tensor

    @classmethod
    def uniform(
        cls, shape: Shape, seed: int, low: float = 0, high: float = 1, dtype: Any = "f32", device: DeviceLike = None
    ) -> "Tensor":
        """Random numbers; a seed gives the same ones on every machine and device and in every language."""
        tensor = cls.zeros(shape, dtype, device)
        capi.mv_tensor_uniform(tensor, seed, low, high)
        return tensor

    @classmethod
    def normal(
        cls, shape: Shape, seed: int, mean: float = 0, deviation: float = 1, dtype: Any = "f32", device: DeviceLike = None
    ) -> "Tensor":
        """Normally distributed random numbers, with a seed as for uniform()."""
        tensor = cls.zeros(shape, dtype, device)
        capi.mv_tensor_normal(tensor, seed, mean, deviation)
        return tensor

    @classmethod
    def copy_of(cls, data: Any, dtype: Any = None, device: DeviceLike = None) -> "Tensor":
        """A copy of an array, a list of lists, or anything else that numpy converts.

        dtype: None = the array's own; f32 for Python numbers.
        device: None = the array's own.
        """
        if device is not None:
            return cls.copy_of(data, dtype).to(device)
        if not isinstance(data, Tensor) and device_of(data) is not None:
            data = cls._of_cuda(data, to_copy=True) if _has_only_cuda(data) else cls.view(data)
        if isinstance(data, Tensor):
            return data.copy() if dtype is None else data.cast(dtype)
        array = np.asarray(data)
        code = _code(array.dtype if dtype is None and hasattr(data, "dtype") else dtype or "f32")
        if code == capi.MV_BF16:
            wide = cls(capi.mv_tensor_from(np.ascontiguousarray(array, dtype=np.float64).reshape(-1), array.shape))
            return wide.cast("bf16")
        values = np.ascontiguousarray(array, dtype=_NUMPY[_NAMES[code]])
        return cls(capi.mv_tensor_from(values.reshape(-1), array.shape))

    @classmethod
    def view(cls, array: Any) -> "Tensor":
        """A tensor over an array's own memory, which it keeps alive. The array must be C-contiguous and writable, and
        have a dtype of tensors. Arrays of PyTorch, CuPy and JAX may be on a CUDA device."""
        if _has_only_cuda(array):
            return cls._of_cuda(array)
        if device_of(array) is not None:
            return cls.from_dlpack(array.detach() if hasattr(array, "detach") else array)
        memory = memory_of(array)
        try:
            shape = memoryview(memory).shape
        except TypeError:
            raise TypeError(f"an array whose memory can be shared is needed, not {type(array).__name__}: Tensor.copy_of() copies") from None
        return cls(capi.mv_tensor_view(memory, shape))

    @classmethod
    def from_dlpack(cls, array: Any) -> "Tensor":
        """A tensor over the memory of a PyTorch tensor or any other array with __dlpack__, which it keeps alive. For an
        array on a CUDA device, work of this library begins after the array's work so far."""
        number = device_of(array)
        if number is None:
            return cls(tensor_from_dlpack(array.__dlpack__()))
        return cls(tensor_from_dlpack(array.__dlpack__(stream=Device(number).stream)))

    @classmethod
    def _of_cuda(cls, array: Any, to_copy: bool = False) -> "Tensor":
        """Of an array with __cuda_array_interface__ alone, which does not tell its device: the first one."""
        about = array.__cuda_array_interface__
        if about.get("mask") is not None:
            raise ArgumentError(capi.MV_EINVAL, "Tensor.view: the array has a mask, which tensors do not have: fill it")
        address, is_readonly = about["data"]
        if is_readonly and not to_copy:
            raise ArgumentError(capi.MV_EINVAL, "Tensor.view: the array is read-only: Tensor.copy_of() copies it")
        dtype = next((name for name, text in _TYPESTRS.items() if text == about["typestr"]), None)
        if dtype is None:
            raise TypeError(f"a tensor holds {', '.join(CODES)}, not {about['typestr']!r}")
        shape, step = tuple(about["shape"]), int(about["typestr"][2:])
        count = math.prod(shape)
        for length, stride in zip(reversed(shape), reversed(about.get("strides") or ())):
            if length > 1 and stride != step and count > 0:
                raise ArgumentError(capi.MV_ESHAPE, "Tensor.view: the array is not contiguous in row-major order: copy it first")
            step *= length
        device = Device(0)
        if about.get("stream") is not None:
            device.follow(about["stream"])
        tensor = cls(capi.mv_tensor_view_on(0, address or 0, count, CODES[dtype], shape))
        tensor_lend(tensor, array)
        return tensor

    @classmethod
    def sparse(cls, rows: Any, values: Any, height: int) -> "Tensor":
        """A row-sparse tensor of `height` rows: copies of values[i] at rows[i]; repeated rows are summed."""
        held = values if isinstance(values, Tensor) else cls.copy_of(values)
        return cls(capi.mv_tensor_sparse(_ids(rows), held, height))

    # ------------------------------------------------------------------ properties

    def info(self) -> Dict[str, Any]:
        """The fields of mv_tensor_info; `dtype` is a DType."""
        return described(capi.mv_tensor_describe(self))

    @property
    def shape(self) -> Tuple[int, ...]:
        """The lengths of the dimensions."""
        return capi.mv_tensor_describe(self)["shape"]

    @property
    def dtype(self) -> str:
        """"f32" and the like."""
        return _NAMES[capi.mv_tensor_describe(self)["dtype"]]

    @property
    def dims(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def count(self) -> int:
        """The number of elements: the product of the shape."""
        return capi.mv_tensor_describe(self)["count"]

    @property
    def row_sparse(self) -> bool:
        """Whether only some rows are stored: see sparse()."""
        return bool(capi.mv_tensor_describe(self)["row_sparse"])

    def numpy(self) -> np.ndarray:
        """An array over the same memory, which it keeps alive. bf16 becomes uint16, the bits: numpy has no bf16. A
        device's tensor is copied."""
        return np.asarray(memoryview(self if self._device() < 0 else self.to("cpu")))

    def to_list(self) -> List[Any]:
        """Nested lists of numbers; a number for a tensor without dimensions."""
        return (self.cast("f32") if self.dtype == "bf16" else self).numpy().tolist()

    def item(self) -> Union[int, float]:
        """The only element."""
        value, integer = capi.mv_tensor_get(self.reshape(()), ())
        return value if self.dtype in ("f32", "f64", "f16", "bf16") else integer

    @property
    def device(self) -> str:
        """"cpu" or "cuda:0": where the elements are."""
        return str(Device(self._device()))

    def _device(self) -> int:
        return capi.mv_tensor_describe(self)["device"]

    def __dlpack__(self, *, stream: Any = None, dl_device: Any = None, copy: Any = None, **wishes: Any) -> Any:
        """stream: of the array's user: None or 1 for CUDA's default stream, -1 for one that needs no order."""
        number = self._device()
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            if tuple(dl_device) != _HOST_MEMORY or copy is False:
                raise BufferError(f"this tensor is on {self.device}: copy it with to(device)")
            return tensor_dlpack(self.to("cpu"))
        tensor = self.copy() if copy else self
        return tensor_dlpack(tensor) if number < 0 or stream == -1 else tensor_dlpack(tensor, 1 if stream is None else stream)

    def __dlpack_device__(self) -> Tuple[int, int]:
        number = self._device()
        return _HOST_MEMORY if number < 0 else (2, number)

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        """Of a tensor on a CUDA device: the array's user must wait for `stream`."""
        info = capi.mv_tensor_describe(self)
        typestr = _TYPESTRS.get(_NAMES[info["dtype"]])
        if info["device"] < 0 or typestr is None:
            raise AttributeError("__cuda_array_interface__")
        return {
            "shape": info["shape"], "typestr": typestr, "data": (capi.mv_tensor_address(self), False), "strides": None,
            "version": 3, "stream": Device(info["device"]).stream,
        }

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        """For numpy.asarray(tensor) where there is no buffer: on a device, and of row-sparse tensors."""
        if self.row_sparse:
            raise ArgumentError(capi.MV_EINVAL, "this tensor is row-sparse, a dense one is needed: use tensor.to_dense() or tensor.parts()")
        if self._device() != capi.MV_HOST:
            raise ArgumentError(capi.MV_EINVAL, f"this tensor is on device {self.device}, and is needed on the host: copy it there, as by tensor.to('cpu')")
        array = np.asarray(memoryview(self), dtype)
        return array.copy() if copy else array

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError("a tensor without dimensions has no length")
        return shape[0]

    def __str__(self) -> str:
        return capi.mv_tensor_text(self)

    def __repr__(self) -> str:
        try:
            return str(self)
        except Error as failure:  # on a device that has failed, in a forked child
            return f"<polyverso.Tensor: {failure}>"

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    # ------------------------------------------------------------------ elements and rows

    def get(self, *index: int) -> Union[int, float]:
        """get(i, j): one element."""
        value, integer = capi.mv_tensor_get(self, index)
        return value if self.dtype in ("f32", "f64", "f16", "bf16") else integer

    def set(self, *index_and_value: Any) -> None:
        """set(i, j, value)"""
        capi.mv_tensor_set(self, index_and_value[:-1], index_and_value[-1])

    def row(self, row: int) -> "Tensor":
        """A view of one row, with one dimension less."""
        return Tensor(capi.mv_tensor_row(self, row))

    def slice(self, begin: int, end: int) -> "Tensor":
        """A view of rows begin .. end - 1."""
        return Tensor(capi.mv_tensor_slice(self, begin, end))

    def take(self, rows: Any) -> "Tensor":
        """Copies of some rows, in this order. For a row-sparse tensor: those that it holds, row-sparse."""
        return Tensor(capi.mv_tensor_take(self, _ids(rows)))

    def _part(self, key: Any) -> "Tensor":
        """The view that an index selects: integers for the first dimensions, or a slice of rows."""
        if isinstance(key, slice):
            begin, end, step = key.indices(len(self))
            if step != 1:
                raise IndexError("slices of rows must have step 1: use take() to copy other rows")
            return self.slice(begin, max(begin, end))
        part = self
        for position in key if isinstance(key, tuple) else (key,):
            place = operator.index(position)
            part = part.row(place + len(part) if place < 0 else place)
        return part

    def __getitem__(self, key: Any) -> Any:
        """t[i], t[i, j]: a row, or the element if no dimension is left; t[a:b]: rows."""
        if not isinstance(key, (slice, tuple)) and operator.index(key) >= len(self):
            raise IndexError(f"row {key} is out of range: {self.dtype} {self.shape}")  # ends a for loop
        part = self._part(key)
        return part.item() if part.dims == 0 else part

    def __setitem__(self, key: Any, value: Any) -> None:
        part = self._part(key)
        if isinstance(value, (int, float)):
            part.fill(value)
        else:
            capi.mv_tensor_copy(_tensor(value, part.dtype), part)

    # ------------------------------------------------------------------ copies and views

    def to(self, device: DeviceLike) -> "Tensor":
        """A copy on a device, "cuda:1", or on the "cpu"."""
        return Tensor(capi.mv_tensor_to(self, Device(device).number))

    def copy(self) -> "Tensor":
        """A tensor with memory of its own and the same values."""
        return Tensor(capi.mv_tensor_copy(self, 0))

    __copy__ = copy

    def __deepcopy__(self, memory: Any) -> "Tensor":
        return self.copy()

    def __reduce__(self) -> Any:  # pickled as its values
        if self.row_sparse:
            rows, values = self.parts()
            return Tensor.sparse, (rows.numpy(), values, self.shape[0])
        wide = self.cast("f32") if self.dtype == "bf16" else self
        return Tensor.copy_of, (np.array(wide.numpy()), self.dtype)  # a device's tensor is restored on the host

    def assign(self, other: Any) -> "Tensor":
        """Copies another tensor's values into this one, converted and broadcast to its shape."""
        capi.mv_tensor_copy(_tensor(other, self.dtype), self)
        return self

    def cast(self, dtype: Any) -> "Tensor":
        """A copy with another dtype. To floats: rounded to nearest, ties to even. From floats to integers: truncated
        and clamped to the range."""
        return Tensor(capi.mv_tensor_cast(self, _code(dtype)))

    def reshape(self, *shape: Any) -> "Tensor":
        """A view; one length may be -1."""
        return Tensor(capi.mv_tensor_reshape(self, shape[0] if len(shape) == 1 else shape))

    def transpose(self) -> "Tensor":
        """A transposed copy of a matrix."""
        return Tensor(capi.mv_tensor_transpose(self))

    def parts(self) -> Tuple["Tensor", "Tensor"]:
        """A row-sparse tensor's ids and rows, as views."""
        ids, values = capi.mv_tensor_parts(self)
        return Tensor(ids), Tensor(values)

    def to_dense(self) -> "Tensor":
        """A row-sparse tensor as one with all rows."""
        return Tensor(capi.mv_tensor_to_dense(self))

    def to_sparse(self) -> "Tensor":
        """A tensor as a row-sparse one, of the rows that are not zero."""
        return Tensor(capi.mv_tensor_to_sparse(self))

    def fill(self, value: float) -> "Tensor":
        """Sets all elements to a number; returns the tensor itself."""
        capi.mv_tensor_fill(self, value)
        return self

    # ------------------------------------------------------------------ arithmetic

    def _binary(self, op: int, other: Any, swapped: bool = False, out: Optional["Tensor"] = None) -> Any:
        into = 0 if out is None else out
        if isinstance(other, (bool, int, float, np.integer, np.floating)):
            made = capi.mv_tensor_scalar(op, self, float(other), int(swapped), into)
        else:
            operand = _tensor(other, like=self)
            first, second = (operand, self) if swapped else (self, operand)
            made = capi.mv_tensor_binary(op, first, second, into)
        return Tensor(made) if out is None else out

    def _unary(self, op: int) -> "Tensor":
        return Tensor(capi.mv_tensor_unary(op, self, 0))

    def axpy(self, alpha: float, other: Any) -> "Tensor":
        """self += alpha * other, in place; other may be row-sparse."""
        capi.mv_tensor_axpy(alpha, _tensor(other, like=self), self)
        return self

    def minimum(self, other: Any) -> "Tensor":
        """The lesser of each two elements."""
        return self._binary(capi.MV_MIN, other)

    def maximum(self, other: Any) -> "Tensor":
        """The greater of each two elements."""
        return self._binary(capi.MV_MAX, other)

    def abs(self) -> "Tensor":
        """The absolute values."""
        return self._unary(capi.MV_ABS)

    def sqrt(self) -> "Tensor":
        """The square root of each element."""
        return self._unary(capi.MV_SQRT)

    def exp(self) -> "Tensor":
        """e to the power of each element."""
        return self._unary(capi.MV_EXP)

    def log(self) -> "Tensor":
        """The natural logarithm of each element."""
        return self._unary(capi.MV_LOG)

    def __neg__(self) -> "Tensor":
        return self._unary(capi.MV_NEG)

    __abs__ = abs

    # ------------------------------------------------------------------ reductions

    def _reduce(self, op: int, axis: Optional[int]) -> "Tensor":
        return Tensor(capi.mv_tensor_reduce(op, self, capi.MV_ALL_AXES if axis is None else axis))

    def sum(self, axis: Optional[int] = None) -> "Tensor":
        """The sum along an axis, or of all elements: then a tensor without dimensions."""
        return self._reduce(capi.MV_SUM, axis)

    def mean(self, axis: Optional[int] = None) -> "Tensor":
        """The mean along an axis, or of all elements."""
        return self._reduce(capi.MV_MEAN, axis)

    def min(self, axis: Optional[int] = None) -> "Tensor":
        """The least element, along an axis or of all."""
        return self._reduce(capi.MV_LEAST, axis)

    def max(self, axis: Optional[int] = None) -> "Tensor":
        """The greatest element, along an axis or of all."""
        return self._reduce(capi.MV_GREATEST, axis)

    def argmin(self, axis: Optional[int] = None) -> "Tensor":
        """The positions of the least elements, along an axis or among all elements."""
        return self._reduce(capi.MV_ARGMIN, axis)

    def argmax(self, axis: Optional[int] = None) -> "Tensor":
        """The positions of the greatest elements, along an axis or among all elements."""
        return self._reduce(capi.MV_ARGMAX, axis)

    def norm(self, axis: Optional[int] = None) -> "Tensor":
        """The square root of the sum of squares."""
        return self._reduce(capi.MV_NORM, axis)

    def dot(self, other: Any) -> float:
        """The sum of the products of the elements."""
        return capi.mv_tensor_dot(self, _tensor(other, like=self))

    def close(self, other: Any, relative: float = 1e-5, absolute: float = 1e-8) -> bool:
        """Whether the shapes are equal and |self - other| <= absolute + relative * |other| everywhere."""
        return bool(capi.mv_tensor_close(self, _tensor(other), relative, absolute))

    def equal(self, other: Any) -> bool:
        """Whether shapes and values are equal."""
        return self.close(other, 0, 0)

    def matmul(self, other: Any, transpose_a: bool = False, transpose_b: bool = False) -> "Tensor":
        """The product of two matrices, each of them transposed on demand."""
        flags = (capi.MV_TRANSPOSE_A if transpose_a else 0) | (capi.MV_TRANSPOSE_B if transpose_b else 0)
        return Tensor(capi.mv_tensor_matmul(self, _tensor(other, like=self), flags, 0))

    __matmul__ = matmul
    __add__ = _operator(capi.MV_ADD)
    __radd__ = _operator(capi.MV_ADD, swapped=True)
    __iadd__ = _operator(capi.MV_ADD, in_place=True)
    __sub__ = _operator(capi.MV_SUB)
    __rsub__ = _operator(capi.MV_SUB, swapped=True)
    __isub__ = _operator(capi.MV_SUB, in_place=True)
    __mul__ = _operator(capi.MV_MUL)
    __rmul__ = _operator(capi.MV_MUL, swapped=True)
    __imul__ = _operator(capi.MV_MUL, in_place=True)
    __truediv__ = _operator(capi.MV_DIV)
    __rtruediv__ = _operator(capi.MV_DIV, swapped=True)
    __itruediv__ = _operator(capi.MV_DIV, in_place=True)
    __pow__ = _operator(capi.MV_POW)
    __rpow__ = _operator(capi.MV_POW, swapped=True)
    __ipow__ = _operator(capi.MV_POW, in_place=True)
    __eq__ = _operator(capi.MV_EQ)  # type: ignore[assignment]
    __ne__ = _operator(capi.MV_NE)  # type: ignore[assignment]
    __lt__ = _operator(capi.MV_LT)
    __le__ = _operator(capi.MV_LE)
    __gt__ = _operator(capi.MV_GT)
    __ge__ = _operator(capi.MV_GE)
    __hash__ = object.__hash__


def _tensor(value: Any, dtype: Any = None, like: Optional[Tensor] = None) -> Tensor:
    """The value as a tensor: numbers and arrays of the host are copied to the device of `like`."""
    if isinstance(value, Tensor):
        return value
    made = Tensor.copy_of(value, dtype)
    number = -1 if like is None else like._device()
    return made if number < 0 or made._device() >= 0 else made.to(number)
