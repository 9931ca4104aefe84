/* SPDX-License-Identifier: BSD-3-Clause */
/* An object in fabric memory: freed with the last view of it. */
#include "module.h"

#include <errno.h>

#include "soda.h"

struct buffer {
	PyObject_HEAD void *memory;
	Py_ssize_t bytes;
	bool read_only;
};

static PyTypeObject *buffer_type;
static Py_ssize_t alive; /* guarded by the GIL */

Py_ssize_t soda_python_buffers(void)
{
	return alive;
}

static PyObject *wrap(void *memory, size_t bytes, bool read_only)
{
	struct buffer *b;

	if (!memory)
		return soda_python_raise(-errno);
	b = PyObject_New(struct buffer, buffer_type);
	if (!b) {
		soda_free(memory);
		return NULL;
	}
	b->memory = memory;
	b->bytes = (Py_ssize_t)bytes;
	b->read_only = read_only;
	alive++;
	return (PyObject *)b;
}

static PyObject *buffer_alloc(PyObject *module, PyObject *args)
{
	Py_ssize_t bytes;
	void *memory;

	if (!PyArg_ParseTuple(args, "n", &bytes))
		return NULL;
	Py_BEGIN_ALLOW_THREADS memory = soda_alloc((size_t)bytes, 0);
	Py_END_ALLOW_THREADS return wrap(memory, (size_t)bytes, false);
}

static PyObject *buffer_open(PyObject *module, PyObject *args)
{
	const char *name;
	size_t its = 0;
	Py_ssize_t bytes;
	unsigned flags;
	void *memory;

	if (!PyArg_ParseTuple(args, "snI", &name, &bytes, &flags))
		return NULL;
	Py_BEGIN_ALLOW_THREADS memory = soda_alloc_file(name, (size_t)bytes, flags, &its);
	Py_END_ALLOW_THREADS return wrap(memory, its, flags & SODA_READ_ONLY);
}

static void buffer_dealloc(PyObject *self)
{
	struct buffer *b = (struct buffer *)self;
	PyTypeObject *type = Py_TYPE(self);
	int ret = 0;

	alive--;
	if (!soda_python_forked()) {
		Py_BEGIN_ALLOW_THREADS soda_python_pins_forget(b->memory, (size_t)b->bytes);
		ret = soda_try_free(b->memory);
		Py_END_ALLOW_THREADS
	}
	if (ret) {
		PyObject *type_now, *value, *trace;

		PyErr_Fetch(&type_now, &value, &trace);
		soda_python_raise(ret);
		PyErr_WriteUnraisable(NULL);
		PyErr_Restore(type_now, value, trace);
	}
	PyObject_Free(self);
	Py_DECREF(type);
}

static int buffer_get(PyObject *self, Py_buffer *view, int flags)
{
	struct buffer *b = (struct buffer *)self;

	return PyBuffer_FillInfo(view, self, b->memory, b->bytes, b->read_only, flags);
}

static PyType_Slot slots[] = {
	{ Py_tp_doc, (char *)"A live object in fabric memory; freed with its last view." },
	{ Py_tp_dealloc, buffer_dealloc },
	{ Py_bf_getbuffer, buffer_get },
	{ 0, NULL },
};
static PyType_Spec spec = {
	.name = "soda._soda.Buffer",
	.basicsize = sizeof(struct buffer),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};

static PyMethodDef methods[] = {
	{ "alloc", buffer_alloc, METH_VARARGS, "alloc(bytes) -> Buffer of zeros" },
	{ "open", buffer_open, METH_VARARGS, "open(name, bytes, flags) -> Buffer of a file" },
	{ NULL, NULL, 0, NULL },
};

int soda_python_buffer_add(PyObject *module)
{
	buffer_type = (PyTypeObject *)PyType_FromSpec(&spec);
	if (!buffer_type || PyModule_AddObjectRef(module, "Buffer", (PyObject *)buffer_type) ||
	    PyModule_AddFunctions(module, methods))
		return -1;
	return PyModule_AddIntConstant(module, "READ_ONLY", SODA_READ_ONLY) ||
			       PyModule_AddIntConstant(module, "WRITABLE", SODA_WRITABLE) ||
			       PyModule_AddIntConstant(module, "PRIVATE", SODA_PRIVATE) ||
			       PyModule_AddIntConstant(module, "CREATE", SODA_CREATE)
		       ? -1
		       : 0;
}
