/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The C half of the Python package `soda`: memory, and what numpy asks of it.  The package's own
 * functions are in __init__.py.  All functions need the GIL but where it is said.
 *
 *   module.c  the module: the runtime, ranges, statistics
 *   buffer.c  an object in fabric memory as a Python object
 *   array.c   ndarray's subclass, whose memory the kernel can be given
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

/* hook.c: use_handler(threshold) and put_handler(handler); those who call it have numpy's
 * interface. */
int soda_python_hook_add(PyObject *module);
/* Blocks that are alive. */
Py_ssize_t soda_python_blocks(void);

#endif
