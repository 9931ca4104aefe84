/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * numpy's own allocations, by a handler of NEP 49: blocks of at least `threshold` bytes are objects
 * in fabric memory, the others the C library's.  numpy keeps the handler with each array, so that
 * blocks come back here when it is no longer in use.  numpy may call without the GIL.
 */
#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define NO_IMPORT_ARRAY
#define PY_ARRAY_UNIQUE_SYMBOL soda_python_numpy
#include "module.h"

#include <errno.h>
#include <numpy/arrayobject.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "soda.h"

enum { BUCKETS = 1024 };

/* A block in fabric memory: numpy's sizes are not always those that it asked for. */
struct block {
	struct block *next;
	void *memory;
	size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *buckets[BUCKETS]; /* guarded by lock */
static Py_ssize_t alive;	       /* guarded by lock */

Py_ssize_t soda_python_blocks(void)
{
	Py_ssize_t n;

	pthread_mutex_lock(&lock);
	n = alive;
	pthread_mutex_unlock(&lock);
	return n;
}

static struct block **place_locked(const void *memory)
{
	struct block **at = &buckets[((uintptr_t)memory >> 12) * 0x9e3779b1u % BUCKETS];

	while (*at && (*at)->memory != memory)
		at = &(*at)->next;
	return at;
}

/* The size of a block in fabric memory; 0: it is none. forget: it is none any more. */
static size_t block_bytes(const void *memory, bool forget)
{
	struct block **at, *b;
	size_t bytes = 0;

	if ((uintptr_t)memory & 4095) /* objects are whole chunks */
		return 0;
	pthread_mutex_lock(&lock);
	at = place_locked(memory);
	b = *at;
	if (b)
		bytes = b->bytes;
	if (b && forget) {
		*at = b->next;
		alive--;
	}
	pthread_mutex_unlock(&lock);
	if (forget)
		free(b);
	return bytes;
}

static void *fam_alloc(size_t bytes)
{
	struct block *b = malloc(sizeof(*b));
	struct block **at;

	if (!b)
		return NULL;
	b->memory = soda_alloc(bytes, 0);
	b->bytes = bytes;
	if (!b->memory) {
		free(b);
		errno = ENOMEM;
		return NULL;
	}
	pthread_mutex_lock(&lock);
	at = &buckets[((uintptr_t)b->memory >> 12) * 0x9e3779b1u % BUCKETS];
	b->next = *at;
	*at = b;
	alive++;
	pthread_mutex_unlock(&lock);
	return b->memory;
}

static bool large(void *threshold, size_t bytes)
{
	return bytes >= (size_t)(uintptr_t)threshold && !soda_python_forked();
}

static void *hook_malloc(void *threshold, size_t bytes)
{
	return large(threshold, bytes) ? fam_alloc(bytes) : malloc(bytes);
}

static void *hook_calloc(void *threshold, size_t n, size_t bytes)
{
	size_t all;

	if (__builtin_mul_overflow(n, bytes, &all))
		return NULL;
	return large(threshold, all) ? fam_alloc(all) : calloc(n, bytes);
}

static void hook_free(void *threshold, void *memory, size_t bytes)
{
	if (!block_bytes(memory, true))
		free(memory);
	else if (!soda_python_forked())
		soda_try_free(memory);
}

static void *hook_realloc(void *threshold, void *memory, size_t bytes)
{
	size_t before = memory ? block_bytes(memory, false) : 0;
	void *grown;

	if (!before && !large(threshold, bytes))
		return realloc(memory, bytes);
	if (before >= bytes && large(threshold, bytes))
		return memory;
	grown = hook_malloc(threshold, bytes);
	if (!grown)
		return NULL;
	if (before)
		memcpy(grown, memory, before < bytes ? before : bytes);
	else if (memory) { /* it becomes large, so it has fewer than threshold bytes */
		memory = realloc(memory, bytes);
		if (!memory) {
			hook_free(threshold, grown, bytes);
			return NULL;
		}
		memcpy(grown, memory, bytes);
	}
	hook_free(threshold, memory, before);
	return grown;
}

static void handler_end(PyObject *capsule)
{
	PyMem_RawFree(PyCapsule_GetPointer(capsule, "mem_handler"));
}

static PyObject *use_handler(PyObject *module, PyObject *args)
{
	PyDataMem_Handler *handler;
	PyObject *capsule, *before;
	Py_ssize_t threshold;

	if (!PyArg_ParseTuple(args, "n", &threshold))
		return NULL;
	handler = PyMem_RawCalloc(1, sizeof(*handler));
	if (!handler)
		return PyErr_NoMemory();
	strcpy(handler->name, "soda");
	handler->version = 1;
	handler->allocator = (PyDataMemAllocator){ (void *)threshold, hook_malloc, hook_calloc,
						   hook_realloc, hook_free };
	capsule = PyCapsule_New(handler, "mem_handler", handler_end);
	if (!capsule) {
		PyMem_RawFree(handler);
		return NULL;
	}
	before = PyDataMem_SetHandler(capsule);
	Py_DECREF(capsule);
	return before;
}

static PyObject *put_handler(PyObject *module, PyObject *handler)
{
	PyObject *before = PyDataMem_SetHandler(handler);

	if (!before)
		return NULL;
	Py_DECREF(before);
	Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
	{ "use_handler", use_handler, METH_VARARGS, "use_handler(threshold) -> handler before" },
	{ "put_handler", put_handler, METH_O, "put_handler(handler)" },
	{ NULL, NULL, 0, NULL },
};

int soda_python_hook_add(PyObject *module)
{
	return PyModule_AddFunctions(module, methods);
}
