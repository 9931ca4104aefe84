/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ArrayBase, a subclass of ndarray that gives its memory to the kernel.  The kernel reads and
 * writes only what is resident, and says EFAULT of the rest.  Who wants plain bytes of an array
 * (socket.send, file.readinto, os.write; PyBUF_SIMPLE, or PyBUF_WRITABLE alone) mostly hands them
 * to the kernel, so these stay resident as long as he has them, or he gets soda.Error where they do
 * not fit.  Views with a format (memoryview, numpy itself) have the memory as it is.
 */
#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL soda_python_numpy
#include "module.h"

#include <errno.h>
#include <numpy/arrayobject.h>

#include "soda.h"

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

/* The dimension with the smallest step that is `step` bytes and has more than one element, or -1.
 */
static int dimension_of(PyArrayObject *a, npy_intp step, unsigned long done)
{
	for (int i = 0; i < PyArray_NDIM(a); i++)
		if (!(done >> i & 1) && PyArray_DIM(a, i) != 1 &&
		    (PyArray_STRIDE(a, i) == step || PyArray_STRIDE(a, i) == -step))
			return i;
	return -1;
}

int soda_python_array_dense(PyObject *array)
{
	PyArrayObject *a = (PyArrayObject *)array;
	unsigned long done = 0; /* bits: no array has 64 dimensions or more */
	npy_intp step, all;
	int i;

	if (!PyArray_Check(array))
		return -1;
	all = PyArray_NBYTES(a);
	step = PyArray_ITEMSIZE(a);
	while (step && step < all && (i = dimension_of(a, step, done)) >= 0) {
		done |= 1ul << i;
		step *= PyArray_DIM(a, i);
	}
	return step == all || !all;
}

/* The pages can be written to by the kernel, which may not be the first to store to one. */
static void touch(char *start, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += 4096)
		__atomic_fetch_or(start + at, 0, __ATOMIC_RELAXED);
	__atomic_fetch_or(start + bytes - 1, 0, __ATOMIC_RELAXED);
}

static int pin(Py_buffer *view, bool writes)
{
	struct soda_python_pin *p;
	int ret;

	Py_BEGIN_ALLOW_THREADS ret = soda_python_pin(view->buf, (size_t)view->len, &p);
	if (!ret && writes)
		touch(view->buf, (size_t)view->len);
	Py_END_ALLOW_THREADS if (!ret)
	{
		view->internal = p;
		return 0;
	}
	if (ret == -EINVAL) /* the result of a computation: local memory */
		return 0;
	if (ret == -ENOBUFS)
		PyErr_NoMemory();
	else if (ret == -ENOMEM)
		soda_python_say(ENOMEM, "what the kernel is given stays in the page buffer, "
					"where so much does not fit: hand over parts of the "
					"array, or use soda.tofile(), send() or readinto()");
	else
		soda_python_raise(ret);
	return -1;
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
	if (pin(view, flags & PyBUF_WRITABLE)) { /* who only reads must not make pages dirty */
		PyBuffer_Release(view);
		return -1;
	}
	return 0;
}

static void release_buffer(PyObject *self, Py_buffer *view)
{
	struct soda_python_pin *p = view->internal;

	view->internal = NULL;
	if (p && !soda_python_forked()) {
		Py_BEGIN_ALLOW_THREADS soda_python_unpin(p);
		Py_END_ALLOW_THREADS
	}
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
