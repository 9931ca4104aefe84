/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The C half of the Python package `soda`: memory, and what numpy asks of it.  The package's own
 * functions are in __init__.py.  All functions need the GIL but where it is said.
 *
 *   module.c  the module: the runtime, ranges, statistics
 *   buffer.c  an object in fabric memory as a Python object
 *   array.c   ndarray's subclass, whose memory the kernel can be given
 *   pins.c    what stays in the page buffer
 *   hook.c    numpy's allocations in fabric memory
 */
#ifndef SODA_PYTHON_MODULE_H
#define SODA_PYTHON_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

extern PyObject *soda_python_error; /* soda.Error */

/* Raise soda.Error(-ret, soda_last_error()); NULL. */
PyObject *soda_python_raise(int ret);
/* The same with a sentence of our own. */
PyObject *soda_python_say(int err, const char *text);
/* Whether this process is a child of the one that imported the package. No GIL needed. */
bool soda_python_forked(void);

/* buffer.c: add the type Buffer; 0, -1. */
int soda_python_buffer_add(PyObject *module);
/* Objects that are alive. */
Py_ssize_t soda_python_buffers(void);

/* array.c: numpy's C interface, and the type ArrayBase; 0, -1. */
int soda_python_array_add(PyObject *module);
/* The bytes between the first and the last element of an ndarray; -1: it is none. */
int soda_python_array_range(PyObject *array, char **start_p, size_t *bytes_p);

/*
 * Whether an ndarray has all of the bytes between its first and its last element, each once. -1: it
 * is none.
 */
int soda_python_array_dense(PyObject *array);

/* pins.c.  None of these needs the GIL, and none may be called in a fork's child. */
struct soda_python_pin;
/* 0, -errno: before the others, once. */
int soda_python_pins_begin(void);
/* Fetch a range and keep it until unpin. Errors of SODA_PIN; -ENOBUFS: no local memory. */
int soda_python_pin(char *start, size_t bytes, struct soda_python_pin **pin_p);
void soda_python_unpin(struct soda_python_pin *pin);
/* The same until pin_end() of the range, or of its parts, or until it is forgotten. */
int soda_python_pin_keep(char *start, size_t bytes);
/* 0, also where a buffer has the range still; -EINVAL: outside of every object; -ENOBUFS. */
int soda_python_pin_end(char *start, size_t bytes);
/* The memory is about to be freed. */
void soda_python_pins_forget(char *start, size_t bytes);

/* hook.c: use_handler(threshold) and put_handler(handler); those who call it have numpy's
 * interface. */
int soda_python_hook_add(PyObject *module);
/* Blocks that are alive. No GIL needed. */
Py_ssize_t soda_python_blocks(void);
/* Whether the memory is in a block that may share chunks with others. No GIL needed. */
bool soda_python_shares(const void *memory);

#endif
