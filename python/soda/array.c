/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ArrayBase, a subclass of ndarray that gives its memory to the kernel.  The kernel reads and
 * writes only what is resident, and says EFAULT of the rest.  Who wants plain bytes of an array
 * (socket.send, file.readinto, os.write; PyBUF_SIMPLE, or PyBUF_WRITABLE alone) mostly hands them
 * to the kernel, so these stay resident as long as he has them, or he gets soda.Error where they do
 * not fit.  Views with a format (memoryview, numpy itself) have the memory as it is.
 */
#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL soda_python_numpy
#include "module.h"

#include <errno.h>
#include <numpy/arrayobject.h>

#include "soda.h"

/* A range that is pinned for a buffer; pins do not count in libsoda, so they are counted here. */
struct pin {
	struct pin *next;
	char *start;
	size_t bytes;
};

static struct pin *pins; /* guarded by the GIL */

int soda_python_array_range(PyObject *array, char **start_p, size_t *bytes_p)
{
	PyArrayObject *a = (PyArrayObject *)array;
	char *low, *high;

	if (!PyArray_Check(array))
		return -1;
	low = high = PyArray_BYTES(a);
	for (int i = 0; i < PyArray_NDIM(a); i++) {
		npy_intp n = PyArray_DIM(a, i), step = PyArray_STRIDE(a, i);

		if (n == 0) {
			high = low - PyArray_ITEMSIZE(a);
			break;
		}
		if (step > 0)
			high += (n - 1) * step;
		else
			low += (n - 1) * step;
	}
	high += PyArray_ITEMSIZE(a);
	*start_p = low;
	*bytes_p = high > low ? (size_t)(high - low) : 0;
	return 0;
}

/* The pages can be written to by the kernel, which may not be the first to store to one. */
static void touch(char *start, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += 4096)
		__atomic_fetch_or(start + at, 0, __ATOMIC_RELAXED);
	__atomic_fetch_or(start + bytes - 1, 0, __ATOMIC_RELAXED);
}

static int pin(Py_buffer *view)
{
	struct pin *p = PyMem_Malloc(sizeof(*p));
	int ret;

	if (!p) {
		PyErr_NoMemory();
		return -1;
	}
	*p = (struct pin){ pins, view->buf, (size_t)view->len };
	Py_BEGIN_ALLOW_THREADS ret = soda_advise(p->start, p->bytes, SODA_PIN);
	if (!ret && !view->readonly)
		touch(p->start, p->bytes);
	Py_END_ALLOW_THREADS if (ret)
	{
		PyMem_Free(p);
		if (ret == -EINVAL) /* the result of a computation: local memory */
			return 0;
		if (ret == -ENOMEM)
			soda_python_say(ENOMEM,
					"what the kernel is given stays in the page buffer, "
					"where so much does not fit: hand over parts of the "
					"array, or use soda.tofile(), send() or readinto()");
		else
			soda_python_raise(ret);
		return -1;
	}
	p->next = pins;
	pins = p;
	view->internal = p;
	return 0;
}

/* Whether the chunks of two ranges may be the same: to stay pinned for too long is harmless. */
static bool near(const struct pin *a, const struct pin *b)
{
	const size_t chunk = 2 << 20; /* no chunk is larger */

	return a->start < b->start + b->bytes + chunk && b->start < a->start + a->bytes + chunk;
}

static void unpin(struct pin *p)
{
	struct pin **at = &pins, *other;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	for (other = pins; other && !near(other, p);)
		other = other->next;
	if (!other) {
		Py_BEGIN_ALLOW_THREADS soda_advise(p->start, p->bytes, SODA_UNPIN);
		Py_END_ALLOW_THREADS
	}
	PyMem_Free(p);
}

static int get_buffer(PyObject *self, Py_buffer *view, int flags)
{
	int ret = PyArray_Type.tp_as_buffer->bf_getbuffer(self, view, flags);

	if (ret)
		return ret;
	view->internal = NULL;
	if ((flags & (PyBUF_FORMAT | PyBUF_STRIDES)) || !view->len || soda_python_forked() ||
	    (!soda_python_buffers() && !soda_python_blocks()))
		return 0;
	if (pin(view)) {
		PyBuffer_Release(view);
		return -1;
	}
	return 0;
}

static void release_buffer(PyObject *self, Py_buffer *view)
{
	if (view->internal)
		unpin(view->internal);
	view->internal = NULL;
}

static PyType_Slot slots[] = {
	{ Py_tp_doc, (char *)"An ndarray whose bytes the kernel can be given." },
	{ Py_bf_getbuffer, get_buffer },
	{ Py_bf_releasebuffer, release_buffer },
	{ 0, NULL },
};
static PyType_Spec spec = {
	.name = "soda._soda.ArrayBase",
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.slots = slots,
};

int soda_python_array_add(PyObject *module)
{
	PyObject *type;

	import_array1(-1);
	type = PyType_FromSpecWithBases(&spec, (PyObject *)&PyArray_Type);
	if (!type)
		return -1;
	if (PyModule_AddObject(module, "ArrayBase", type)) {
		Py_DECREF(type);
		return -1;
	}
	return 0;
}
