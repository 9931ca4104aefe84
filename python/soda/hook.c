/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * numpy's own allocations, by a handler of NEP 49: blocks of at least `threshold` bytes are in
 * fabric memory, large ones as objects and the others of its heap; what is less is the C library's.
 * numpy keeps the handler with each array, so that blocks come back here when it is no longer in
 * use.  numpy may call without the GIL.
 */
#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION
#define NO_IMPORT_ARRAY
#define PY_ARRAY_UNIQUE_SYMBOL soda_python_numpy
#include "module.h"

#include <errno.h>
#include <numpy/arrayobject.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "soda.h"

enum { BUCKETS = 1024 };

/*
 * A server reserves whole granules of 2 MiB for an object, so that smaller blocks are of the heap,
 * which many share.
 */
#define OBJECT_BYTES ((size_t)4 << 20)

/* A block that is an object: numpy's sizes are not always those that it asked for. */
struct block {
	struct block *next;
	void *memory;
	size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *buckets[BUCKETS]; /* guarded by lock */
static _Atomic Py_ssize_t alive;       /* objects and blocks of the heap */

/*
 * All blocks in fabric memory are between these: it is one range of addresses, in which nothing
 * else lies.
 */
static _Atomic uintptr_t lowest = UINTPTR_MAX, highest;

Py_ssize_t soda_python_blocks(void)
{
	return atomic_load(&alive);
}

/* A block that was handed out is seen by who got it: numpy passes it on with the array. */
static bool in_fam(const void *memory)
{
	uintptr_t at = (uintptr_t)memory;

	return at >= atomic_load_explicit(&lowest, memory_order_relaxed) &&
	       at < atomic_load_explicit(&highest, memory_order_relaxed);
}

static void widen(const void *memory, size_t bytes)
{
	uintptr_t begin = (uintptr_t)memory, end = begin + (bytes ? bytes : 1), seen;

	seen = atomic_load(&lowest);
	while (begin < seen && !atomic_compare_exchange_weak(&lowest, &seen, begin))
		;
	seen = atomic_load(&highest);
	while (end > seen && !atomic_compare_exchange_weak(&highest, &seen, end))
		;
}

/* Objects begin at multiples of 4 KiB at least. */
static struct block **bucket(const void *memory)
{
	return &buckets[((uintptr_t)memory >> 12) * 0x9e3779b97f4a7c15u >> 54];
}

static struct block **place_locked(const void *memory)
{
	struct block **at = bucket(memory);

	while (*at && (*at)->memory != memory)
		at = &(*at)->next;
	return at;
}

/* The size of a block that is an object; 0: it is none. forget: it is none any more. */
static size_t object_bytes(const void *memory, bool forget)
{
	struct block **at, *b;
	size_t bytes;

	if ((uintptr_t)memory & 4095)
		return 0;
	pthread_mutex_lock(&lock);
	at = place_locked(memory);
	b = *at;
	bytes = b ? b->bytes : 0;
	if (b && forget)
		*at = b->next;
	pthread_mutex_unlock(&lock);
	if (forget)
		free(b);
	return bytes;
}

static void *object_alloc(size_t bytes)
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
	at = bucket(b->memory);
	b->next = *at;
	*at = b;
	pthread_mutex_unlock(&lock);
	return b->memory;
}

/* An object where there is no heap in this libsoda. */
static void *fam_alloc(size_t bytes, bool zero)
{
	void *memory = NULL;

	errno = ENOTSUP;
	if (bytes < OBJECT_BYTES)
		memory = zero ? soda_calloc(1, bytes) : soda_malloc(bytes);
	if (!memory && errno == ENOTSUP)
		memory = object_alloc(bytes);
	if (!memory)
		return NULL;
	widen(memory, bytes);
	atomic_fetch_add(&alive, 1);
	return memory;
}

static void fam_free(void *memory, size_t bytes)
{
	size_t all = object_bytes(memory, true);

	atomic_fetch_sub(&alive, 1);
	if (soda_python_forked())
		return;
	soda_python_pins_forget(memory, all ? all : bytes);
	soda_try_free(memory);
}

bool soda_python_shares(const void *memory)
{
	return in_fam(memory) && !object_bytes(memory, false);
}

static bool large(void *threshold, size_t bytes)
{
	return bytes >= (size_t)(uintptr_t)threshold && !soda_python_forked();
}

static void *hook_malloc(void *threshold, size_t bytes)
{
	return large(threshold, bytes) ? fam_alloc(bytes, false) : malloc(bytes);
}

static void *hook_calloc(void *threshold, size_t n, size_t bytes)
{
	size_t all;

	if (__builtin_mul_overflow(n, bytes, &all))
		return NULL;
	return large(threshold, all) ? fam_alloc(all, true) : calloc(n, bytes);
}

static void hook_free(void *threshold, void *memory, size_t bytes)
{
	if (in_fam(memory))
		fam_free(memory, bytes);
	else
		free(memory);
}

/* A block of the heap stays one as long as it is not small: its size is not known here. */
static void *heap_realloc(void *memory, size_t bytes)
{
	void *grown = soda_realloc(memory, bytes);

	if (grown)
		widen(grown, bytes);
	return grown;
}

/* From local memory to fabric memory: of a block that had fewer bytes, how many nobody knows. */
static void *become_large(void *threshold, void *memory, size_t bytes)
{
	void *grown = hook_malloc(threshold, bytes), *longer;

	if (!grown || !memory)
		return grown;
	longer = realloc(memory, bytes);
	if (!longer) {
		hook_free(threshold, grown, bytes);
		return NULL;
	}
	memcpy(grown, longer, bytes);
	free(longer);
	return grown;
}

static void *hook_realloc(void *threshold, void *memory, size_t bytes)
{
	bool fam = in_fam(memory), stays = large(threshold, bytes);
	size_t before = fam ? object_bytes(memory, false) : 0;
	void *grown;

	if (!fam)
		return stays ? become_large(threshold, memory, bytes) : realloc(memory, bytes);
	if (stays && before >= bytes)
		return memory;
	if (stays && !before)
		return heap_realloc(memory, bytes);
	grown = hook_malloc(threshold, bytes);
	if (!grown)
		return NULL;
	/* A block of the heap had at least threshold bytes, and `bytes` is less. */
	memcpy(grown, memory, before && before < bytes ? before : bytes);
	hook_free(threshold, memory, before);
	return grown;
}

/* A child may free arrays, whatever another thread did at the fork. */
static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
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
	return pthread_atfork(before_fork, after_fork, after_fork) ||
			       PyModule_AddFunctions(module, methods)
		       ? -1
		       : 0;
}
