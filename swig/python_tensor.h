/* Tensors in Python: the buffer protocol, DLPack, and lent memory that is kept alive. All of it runs with the
 * interpreter lock held, except the deleter of a DLPack capsule. */
#ifndef POLYVERSO_SWIG_PYTHON_TENSOR_H
#define POLYVERSO_SWIG_PYTHON_TENSOR_H

#include <structmember.h>

/* The owners of lent memory: {storage: memoryview or capsule}. */
static PyObject *pv_lent;

/* ------------------------------------------------------------------ lent memory */

static int pv_lent_store(mv_tensor tensor, PyObject *owner) {
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  PyObject *key = mv_tensor_describe(tensor, &info) == MV_OK ? PyLong_FromUnsignedLongLong(info.storage) : NULL;
  const int stored = key && PyDict_SetItem(pv_lent, key, owner) == 0;
  Py_XDECREF(key);
  if (!stored) mv_tensor_free(tensor);
  return stored;
}

static int pv_tensor_keep(mv_tensor tensor, PyObject *object) {
  PyObject *view = object == Py_None ? Py_NewRef(object) : PyMemoryView_FromObject(object);
  const int kept = view && pv_lent_store(tensor, view);
  if (!view) mv_tensor_free(tensor);
  Py_XDECREF(view);
  return kept;
}

/* Frees the handle, and releases lent memory with the last tensor in it, after all work of its device that may use it.
 * Preserves a pending exception. */
static mv_status pv_tensor_free(mv_tensor tensor) {
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  const int is_last = mv_tensor_describe(tensor, &info) == MV_OK && info.is_lent && info.sharers == 1;
  if (is_last && info.device >= 0) (void)mv_device_wait((int32_t)info.device);
  const mv_status status = mv_tensor_free(tensor);
  if (status == MV_OK && is_last) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *key = PyLong_FromUnsignedLongLong(info.storage);
    if (key && PyDict_Contains(pv_lent, key) == 1) PyDict_DelItem(pv_lent, key);
    Py_XDECREF(key);
    PyErr_Restore(type, value, trace);
  }
  return status;
}

/* ------------------------------------------------------------------ the buffer protocol */

/* A tensor's handle as an object that exports its memory as a buffer. polyverso.Tensor is derived from it. */
typedef struct {
  PyObject_HEAD
  long long handle;
} pv_tensor_memory;

/* An exported buffer: it has a handle of its own, so that the memory outlives the object. */
typedef struct {
  mv_tensor alias;
  Py_ssize_t lengths[MV_MAX_DIMS], strides[MV_MAX_DIMS];
} pv_tensor_export;

static const char *pv_tensor_format(mv_dtype dtype, Py_ssize_t *size) {
  switch (dtype) {
    case MV_F32: *size = 4; return "f";
    case MV_F64: *size = 8; return "d";
    case MV_I64: *size = 8; return "q";
    case MV_I32: *size = 4; return "i";
    case MV_U8: *size = 1; return "B";
    case MV_I8: *size = 1; return "b";
    case MV_F16: *size = 2; return "e";
    default: *size = 2; return "H"; /* MV_BF16: Python has no format for it */
  }
}

static int pv_tensor_getbuffer(PyObject *self, Py_buffer *view, int flags) {
  const mv_tensor handle = ((pv_tensor_memory *)self)->handle;
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  void *data = NULL;
  view->obj = NULL;
  mv_status status = mv_tensor_describe(handle, &info);
  if (status == MV_OK) status = pv_data_of(handle, pv_lends_devices, &data, NULL, NULL);
  if (status != MV_OK) {
    pv_raise(status);
    return -1;
  }
  pv_tensor_export *out = (pv_tensor_export *)PyMem_Malloc(sizeof *out);
  if (!out) {
    PyErr_NoMemory();
    return -1;
  }
  status = mv_tensor_reshape(handle, info.shape, info.dims, &out->alias);
  if (status != MV_OK) {
    PyMem_Free(out);
    pv_raise(status);
    return -1;
  }
  view->format = (char *)pv_tensor_format(info.dtype, &view->itemsize);
  Py_ssize_t stride = view->itemsize;
  for (uint32_t d = info.dims; d-- > 0; stride *= out->lengths[d]) {
    out->lengths[d] = (Py_ssize_t)info.shape[d];
    out->strides[d] = stride;
  }
  if (!(flags & PyBUF_FORMAT)) view->format = NULL;
  view->buf = data;
  view->len = (Py_ssize_t)info.bytes;
  view->readonly = 0;
  view->ndim = (int)info.dims;
  view->shape = flags & PyBUF_ND ? out->lengths : NULL;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? out->strides : NULL;
  view->suboffsets = NULL;
  view->internal = out;
  view->obj = Py_NewRef(self);
  return 0;
}

static void pv_tensor_releasebuffer(PyObject *self, Py_buffer *view) {
  (void)self;
  pv_tensor_export *out = (pv_tensor_export *)view->internal;
  pv_tensor_free(out->alias);
  PyMem_Free(out);
}

static int pv_tensor_init(PyObject *self, PyObject *arguments, PyObject *named) {
  static char *names[] = {"handle", NULL};
  return PyArg_ParseTupleAndKeywords(arguments, named, "L", names, &((pv_tensor_memory *)self)->handle) ? 0 : -1;
}

/* Frees the tensor now; other users of its memory keep the memory. */
static PyObject *pv_tensor_close(PyObject *self, PyObject *nothing) {
  (void)nothing;
  const mv_tensor handle = ((pv_tensor_memory *)self)->handle;
  ((pv_tensor_memory *)self)->handle = 0;
  if (handle != 0) pv_tensor_free(handle);
  Py_RETURN_NONE;
}

static void pv_tensor_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  if (((pv_tensor_memory *)self)->handle != 0) pv_tensor_free(((pv_tensor_memory *)self)->handle);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static PyMethodDef pv_tensor_methods[] = {
    {"free", pv_tensor_close, METH_NOARGS, "Frees the tensor now, rather than with its last reference."},
    {NULL, NULL, 0, NULL}};
static PyMemberDef pv_tensor_members[] = {
    {"handle", T_LONGLONG, offsetof(pv_tensor_memory, handle), READONLY, "The mv_tensor."},
    {NULL, 0, 0, 0, NULL}};
static PyType_Slot pv_tensor_slots[] = {{Py_tp_init, (void *)pv_tensor_init},
                                        {Py_tp_dealloc, (void *)pv_tensor_dealloc},
                                        {Py_tp_methods, pv_tensor_methods},
                                        {Py_tp_members, pv_tensor_members},
                                        {Py_bf_getbuffer, (void *)pv_tensor_getbuffer},
                                        {Py_bf_releasebuffer, (void *)pv_tensor_releasebuffer},
                                        {Py_tp_doc, (void *)"A tensor's handle and its memory."},
                                        {0, NULL}};
static PyType_Spec pv_tensor_spec = {"polyverso._capi.TensorMemory", sizeof(pv_tensor_memory), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, pv_tensor_slots};

static PyObject *pv_tensor_type;

static int pv_tensor_start(PyObject *module) {
  if (!pv_lent && !(pv_lent = PyDict_New())) return 0;
  if (!pv_tensor_type && !(pv_tensor_type = PyType_FromSpec(&pv_tensor_spec))) return 0;
  return PyModule_AddObjectRef(module, "TensorMemory", pv_tensor_type) == 0;
}

/* A tensor as an argument: an object of this module, a handle, or None for 0. */
static int pv_tensor_handle(PyObject *object, const char *function, int position, mv_tensor *tensor) {
  *tensor = 0;
  if (object == Py_None) return 1;
  if (!PyObject_TypeCheck(object, (PyTypeObject *)pv_tensor_type))
    return pv_integer(object, function, position, "mv_tensor", tensor);
  *tensor = ((pv_tensor_memory *)object)->handle;
  return 1;
}

/* ------------------------------------------------------------------ DLPack */

/* The structures of DLPack's ABI, version 0.x (https://dmlc.github.io/dlpack/latest/c_api.html). */
typedef struct {
  void *data;
  struct {
    int32_t type, id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} pv_dl_tensor;
typedef struct pv_dl_managed {
  pv_dl_tensor tensor;
  void *context;
  void (*deleter)(struct pv_dl_managed *);
} pv_dl_managed;
enum { PV_DL_CPU = 1, PV_DL_CUDA = 2, PV_DL_CUDA_HOST = 3, PV_DL_CUDA_MANAGED = 13 };
enum { PV_DL_INT = 0, PV_DL_UINT = 1, PV_DL_FLOAT = 2, PV_DL_BFLOAT = 4 };

static const struct {
  mv_dtype dtype;
  uint8_t code, bits;
} pv_dl_types[] = {{MV_F32, PV_DL_FLOAT, 32}, {MV_F64, PV_DL_FLOAT, 64},  {MV_I64, PV_DL_INT, 64},
                   {MV_I32, PV_DL_INT, 32},   {MV_U8, PV_DL_UINT, 8},     {MV_F16, PV_DL_FLOAT, 16},
                   {MV_BF16, PV_DL_BFLOAT, 16}, {MV_I8, PV_DL_INT, 8}};
enum { PV_DL_TYPES = sizeof pv_dl_types / sizeof *pv_dl_types };

/* An export of this module, with the lengths that it points to. */
typedef struct {
  pv_dl_managed managed;
  mv_tensor alias;
  int32_t device;
  uint64_t stream; /* of the consumer, or 0 */
  int64_t shape[MV_MAX_DIMS];
} pv_dl_export;

/* Called on any thread, with or without the interpreter lock. */
static void pv_dl_delete(pv_dl_managed *managed) {
  pv_dl_export *out = (pv_dl_export *)managed->context;
  PyGILState_STATE state = PyGILState_Ensure();
  if (out->stream != 0) (void)mv_device_follow(out->device, out->stream); /* the memory is freed after the consumer's work */
  pv_tensor_free(out->alias);
  PyGILState_Release(state);
  free(out);
}

static void pv_dl_capsule_end(PyObject *capsule) {
  if (!PyCapsule_IsValid(capsule, "dltensor")) return; /* consumed: the consumer owns it now */
  pv_dl_managed *managed = (pv_dl_managed *)PyCapsule_GetPointer(capsule, "dltensor");
  managed->deleter(managed);
}

/* tensor_dlpack(tensor, stream=0): a capsule with the tensor's memory. On a device, the stream is the one that uses it:
 * its work begins after that of the tensor, and the memory is freed after its work. */
static PyObject *pv_tensor_dlpack(PyObject *self, PyObject *arguments) {
  PyObject *tensor_object;
  mv_tensor handle;
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  uint64_t address = 0;
  (void)self;
  unsigned long long stream = 0;
  if (!PyArg_ParseTuple(arguments, "O|K", &tensor_object, &stream)) return NULL;
  if (!pv_tensor_handle(tensor_object, "tensor_dlpack", 1, &handle)) return NULL;
  pv_dl_export *out = (pv_dl_export *)calloc(1, sizeof *out);
  if (!out) return PyErr_NoMemory();
  mv_status status = mv_tensor_describe(handle, &info);
  if (status == MV_OK) status = mv_tensor_address(handle, &address);
  if (status == MV_OK && stream != 0) status = mv_device_order((int32_t)info.device, stream);
  if (status == MV_OK) status = mv_tensor_reshape(handle, info.shape, info.dims, &out->alias);
  if (status != MV_OK) {
    free(out);
    pv_raise(status);
    return NULL;
  }
  pv_dl_tensor *tensor = &out->managed.tensor;
  memcpy(out->shape, info.shape, sizeof out->shape);
  tensor->data = (void *)(uintptr_t)address;
  tensor->device.type = info.device >= 0 ? PV_DL_CUDA : PV_DL_CPU;
  tensor->device.id = info.device >= 0 ? (int32_t)info.device : 0;
  out->device = (int32_t)info.device;
  out->stream = stream;
  tensor->ndim = (int32_t)info.dims;
  tensor->shape = out->shape;
  tensor->dtype.lanes = 1;
  for (int i = 0; i < PV_DL_TYPES; ++i)
    if (pv_dl_types[i].dtype == info.dtype) {
      tensor->dtype.code = pv_dl_types[i].code;
      tensor->dtype.bits = pv_dl_types[i].bits;
    }
  out->managed.context = out;
  out->managed.deleter = pv_dl_delete;
  PyObject *capsule = PyCapsule_New(&out->managed, "dltensor", pv_dl_capsule_end);
  if (!capsule) pv_dl_delete(&out->managed);
  return capsule;
}

static void pv_dl_holder_end(PyObject *holder) {
  pv_dl_managed *managed = (pv_dl_managed *)PyCapsule_GetPointer(holder, "polyverso.lent");
  if (managed && managed->deleter) managed->deleter(managed);
}

/* The number of the array's device, MV_HOST, or -2 for memory that no function reaches. */
static int32_t pv_dl_device(const pv_dl_tensor *tensor) {
  const int32_t type = tensor->device.type;
  if (type == PV_DL_CPU || type == PV_DL_CUDA_HOST) return MV_HOST;
  return type == PV_DL_CUDA || type == PV_DL_CUDA_MANAGED ? tensor->device.id : -2;
}

static mv_dtype pv_dl_dtype(const pv_dl_tensor *tensor) {
  if (tensor->dtype.lanes != 1) return MV_RAW;
  for (int i = 0; i < PV_DL_TYPES; ++i)
    if (pv_dl_types[i].code == tensor->dtype.code && pv_dl_types[i].bits == tensor->dtype.bits)
      return pv_dl_types[i].dtype;
  return MV_RAW;
}

/* The number of elements, or -1 if they are not contiguous in row-major order. Strides of no elements mean nothing. */
static int64_t pv_dl_count(const pv_dl_tensor *tensor) {
  for (int d = 0; d < tensor->ndim; ++d)
    if (tensor->shape[d] == 0) return 0;
  int64_t count = 1;
  for (int d = tensor->ndim; d-- > 0; count *= tensor->shape[d])
    if (tensor->strides && tensor->shape[d] > 1 && tensor->strides[d] != count) return -1;
  return count;
}

/* tensor_from_dlpack(capsule): a handle of the memory, which still belongs to its owner, and is kept alive. */
static PyObject *pv_tensor_from_dlpack(PyObject *self, PyObject *arguments) {
  PyObject *capsule;
  mv_tensor handle = 0;
  (void)self;
  if (!PyArg_ParseTuple(arguments, "O", &capsule)) return NULL;
  pv_dl_managed *managed = (pv_dl_managed *)PyCapsule_GetPointer(capsule, "dltensor");
  if (!managed) return NULL;
  const pv_dl_tensor *tensor = &managed->tensor;
  const mv_dtype dtype = pv_dl_dtype(tensor);
  const int64_t count = pv_dl_count(tensor);
  const int32_t device = pv_dl_device(tensor);
  if (dtype == MV_RAW || count < 0 || device < MV_HOST) {
    pv_refuse(count < 0 ? MV_ESHAPE : MV_EDTYPE, "from_dlpack",
              device < MV_HOST ? "the array is neither in this machine's memory nor on a CUDA device: copy it to the host"
              : count < 0      ? "the array is not contiguous in row-major order: copy it first"
                               : "the array has a dtype that tensors do not have");
    return NULL;
  }
  void *data = tensor->data ? (char *)tensor->data + tensor->byte_offset : NULL;
  mv_status status = mv_tensor_view_on(device, (uint64_t)(uintptr_t)data, (uint64_t)count, dtype, tensor->shape, (uint64_t)tensor->ndim, &handle);
  if (status != MV_OK) {
    pv_raise(status);
    return NULL;
  }
  PyObject *holder = PyCapsule_New(managed, "polyverso.lent", pv_dl_holder_end);
  if (holder) PyCapsule_SetName(capsule, "used_dltensor");
  const int kept = holder && pv_lent_store(handle, holder);
  if (!holder) mv_tensor_free(handle);
  Py_XDECREF(holder);
  return kept ? PyLong_FromLongLong(handle) : NULL;
}

/* tensor_lend(tensor, owner): keeps the owner of memory that mv_tensor_view_on() has viewed alive. */
static PyObject *pv_tensor_lend(PyObject *self, PyObject *arguments) {
  PyObject *tensor_object, *owner;
  mv_tensor handle;
  (void)self;
  if (!PyArg_ParseTuple(arguments, "OO", &tensor_object, &owner)) return NULL;
  if (!pv_tensor_handle(tensor_object, "tensor_lend", 1, &handle) || !pv_lent_store(handle, owner)) return NULL;
  Py_RETURN_NONE;
}

/* ------------------------------------------------------------------ many at once */

/* An object of `type` in the array's own memory, which keeps the array alive; NULL, without an exception, if that is
 * not possible. */
static PyObject *pv_tensor_view_of(PyObject *array, PyTypeObject *type) {
  int64_t shape[MV_MAX_DIMS];
  Py_buffer view;
  mv_tensor handle = 0;
  if (PyObject_GetBuffer(array, &view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) != 0) {
    PyErr_Clear();
    return NULL;
  }
  const mv_dtype dtype = pv_dtype(&view);
  mv_status status = MV_EDTYPE;
  /* 16 unsigned bits may be bfloat16 or integers: arrays.py decides. */
  if (dtype > 0 && dtype != MV_BF16 && view.ndim > 0 && view.ndim <= MV_MAX_DIMS) {
    for (int d = 0; d < view.ndim; ++d) shape[d] = view.shape[d];
    status = mv_tensor_view(view.buf, (uint64_t)(view.len / view.itemsize), dtype, shape, (uint64_t)view.ndim, &handle);
  }
  PyBuffer_Release(&view);
  if (status != MV_OK) return NULL;
  const int kept = pv_lent_store(handle, array);
  PyObject *made = kept ? PyType_GenericAlloc(type, 0) : NULL;
  if (made)
    ((pv_tensor_memory *)made)->handle = handle;
  else if (kept)
    pv_tensor_free(handle);
  PyErr_Clear();
  return made;
}

/* tensor_views(arrays, type): a list of such objects, or None if any array needs special treatment. A loop in Python
 * over thousands of keys would cost more than their values. */
static PyObject *pv_tensor_views(PyObject *self, PyObject *arguments) {
  PyObject *arrays, *type;
  (void)self;
  if (!PyArg_ParseTuple(arguments, "OO", &arrays, &type)) return NULL;
  if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, (PyTypeObject *)pv_tensor_type)) {
    PyErr_SetString(PyExc_TypeError, "tensor_views: a class of tensors is needed");
    return NULL;
  }
  PyObject *items = PySequence_Fast(arrays, "tensor_views: a sequence of arrays is needed");
  if (!items) return NULL;
  const Py_ssize_t count = PySequence_Size(items);
  PyObject *made = PyList_New(count);
  for (Py_ssize_t i = 0; made && i < count; ++i) {
    PyObject *tensor = pv_tensor_view_of(pv_fast_item(items, i), (PyTypeObject *)type);
    if (tensor) {
      PyList_SetItem(made, i, tensor);
      continue;
    }
    Py_DECREF(made);
    Py_DECREF(items);
    Py_RETURN_NONE;
  }
  Py_DECREF(items);
  return made;
}

/* ------------------------------------------------------------------ values */

/* One integer, or a sequence of them. Beyond the largest number of dimensions they are only counted: the function
 * will refuse them. */
static int pv_lengths(PyObject *object, const char *function, int position, int64_t *lengths, uint64_t *dims) {
  *dims = 1;
  if (PyIndex_Check(object)) return pv_integer(object, function, position, "length", lengths);
  PyObject *items = PySequence_Fast(object, "a sequence of integers is needed");
  if (!items) return 0;
  const Py_ssize_t count = PySequence_Size(items);
  int fine = 1;
  for (Py_ssize_t i = 0; fine && i < count && i < MV_MAX_DIMS; ++i) {
    PyObject *number = PyNumber_Index(pv_fast_item(items, i));
    fine = number && pv_integer(number, function, position, "length", &lengths[i]);
    Py_XDECREF(number);
  }
  Py_DECREF(items);
  *dims = (uint64_t)count;
  return fine;
}

static PyObject *pv_tensor_info(const mv_tensor_info *info) {
  typedef unsigned long long wide;
  PyObject *shape = PyTuple_New((Py_ssize_t)info->dims);
  for (uint32_t d = 0; shape && d < info->dims; ++d) PyTuple_SetItem(shape, d, PyLong_FromLongLong(info->shape[d]));
  return Py_BuildValue("{s:i,s:N,s:K,s:K,s:i,s:i,s:i,s:i,s:K,s:K,s:K,s:L}", "dtype", info->dtype, "shape", shape,
                       "count", (wide)info->count, "bytes", (wide)info->bytes, "is_view", info->is_view,
                       "is_lent", info->is_lent, "is_shared", info->is_shared, "row_sparse", info->row_sparse,
                       "rows_held", (wide)info->rows_held, "storage", (wide)info->storage,
                       "sharers", (wide)info->sharers, "device", (long long)info->device);
}

static PyObject *pv_device_info(const mv_device_info *info) {
  typedef unsigned long long wide;
  return Py_BuildValue("{s:s,s:s,s:s,s:s,s:s,s:i,s:i,s:K,s:K}", "name", info->name, "model", info->model, "bus", info->bus,
                       "driver", info->driver, "runtime", info->runtime, "architecture", info->architecture,
                       "processors", info->processors, "memory", (wide)info->memory, "unused", (wide)info->unused);
}

/* The text of mv_tensor_text(); repeats the call with more room if the text was cut. */
static PyObject *pv_tensor_text(mv_tensor tensor, const char *first, uint64_t capacity, uint64_t length) {
  if (length < capacity) return pv_str_of(first, length);
  char *more = (char *)PyMem_Malloc(length + 1);
  if (!more) return PyErr_NoMemory();
  mv_status status = mv_tensor_text(tensor, more, length + 1, &length);
  PyObject *text = status == MV_OK ? pv_str(more) : NULL;
  if (status != MV_OK) pv_raise(status);
  PyMem_Free(more);
  return text;
}

#endif
