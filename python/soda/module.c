/* SPDX-License-Identifier: BSD-3-Clause */
/* The module soda._soda: the runtime, advice for ranges of arrays, statistics. */
#include "module.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "soda.h"

PyMODINIT_FUNC PyInit__soda(void);

PyObject *soda_python_error;

static pid_t owner; /* the process that has imported the package */

bool soda_python_forked(void)
{
	return getpid() != owner;
}

PyObject *soda_python_say(int err, const char *text)
{
	PyObject *args = Py_BuildValue("is", err, text);

	if (args)
		PyErr_SetObject(soda_python_error, args);
	Py_XDECREF(args);
	return NULL;
}

PyObject *soda_python_raise(int ret)
{
	const char *why = soda_last_error();

	if (soda_python_forked())
		why = "the child of a fork has no fabric memory of its own: start processes with "
		      "multiprocessing's \"spawn\"";
	return soda_python_say(-ret, why[0] ? why : strerror(-ret));
}

/* None, or soda.Error where ret is one. */
static PyObject *none_or_error(int ret)
{
	if (ret)
		return soda_python_raise(ret);
	Py_RETURN_NONE;
}

static PyObject *module_init(PyObject *module, PyObject *args, PyObject *named)
{
	static const char *const names[] = { "server",	   "dpu",	"buffer",     "evict",
					     "mechanisms", "chunk",	"mode",	      "on_error",
					     "threads",	   "prefetch",	"fault_ms",   "poll_us",
					     "evict_high", "evict_low", "connect_ms", "log",
					     NULL };
	struct soda_config cfg = SODA_CONFIG_INIT;
	Py_ssize_t chunk = 0;
	int ret;

	if (!PyArg_ParseTupleAndKeywords(
		    args, named, "|$zzzzznIIIIIIIIII", (char **)(uintptr_t)names, &cfg.server,
		    &cfg.dpu, &cfg.buffer, &cfg.evict, &cfg.mechanisms, &chunk, &cfg.mode,
		    &cfg.on_error, &cfg.threads, &cfg.prefetch_chunks, &cfg.fault_timeout_ms,
		    &cfg.poll_us, &cfg.evict_high_pct, &cfg.evict_low_pct, &cfg.connect_timeout_ms,
		    &cfg.log_level))
		return NULL;
	cfg.chunk_bytes = (size_t)chunk;
	Py_BEGIN_ALLOW_THREADS ret = soda_init(&cfg);
	Py_END_ALLOW_THREADS return none_or_error(ret);
}

static PyObject *module_sync(PyObject *module, PyObject *array)
{
	char *start = NULL;
	size_t bytes = 0;
	int ret;

	if (array != Py_None && soda_python_array_range(array, &start, &bytes))
		return PyErr_Format(PyExc_TypeError, "sync() takes an array");
	if (array != Py_None && !bytes)
		Py_RETURN_NONE;
	Py_BEGIN_ALLOW_THREADS ret = soda_sync(start, bytes);
	Py_END_ALLOW_THREADS return none_or_error(ret);
}

/* Advice that changes what is in a range, or what may be done there: it is for that range alone. */
static int check_range(PyObject *array, const char *start, int advice)
{
	if (advice != SODA_DISCARD && advice != SODA_STATIC_CACHE)
		return 0;
	if (!soda_python_array_dense(array)) {
		PyErr_SetString(PyExc_ValueError, "the array is not contiguous: what lies between "
						  "its elements is not its own");
		return -1;
	}
	if (advice == SODA_STATIC_CACHE && soda_python_shares(start)) {
		PyErr_SetString(PyExc_ValueError,
				"the array may share chunks with others, to which nothing could "
				"be stored any more: use soda.empty() and the like");
		return -1;
	}
	return 0;
}

static int advise(char *start, size_t bytes, int advice)
{
	int ret;

	if (soda_python_forked()) /* refused, with a sentence */
		return soda_advise(start, bytes, advice);
	if (advice == SODA_PIN)
		ret = soda_python_pin_keep(start, bytes);
	else if (advice == SODA_UNPIN)
		ret = soda_python_pin_end(start, bytes);
	else
		ret = soda_advise(start, bytes, advice);
	return ret == -ENOBUFS ? -ENOMEM : ret;
}

static PyObject *module_advise(PyObject *module, PyObject *args)
{
	PyObject *array;
	size_t bytes;
	char *start;
	int advice, ret;

	if (!PyArg_ParseTuple(args, "Oi", &array, &advice))
		return NULL;
	if (soda_python_array_range(array, &start, &bytes))
		return PyErr_Format(PyExc_TypeError, "advice is for arrays");
	if (!bytes)
		Py_RETURN_NONE;
	if (check_range(array, start, advice))
		return NULL;
	Py_BEGIN_ALLOW_THREADS ret = advise(start, bytes, advice);
	Py_END_ALLOW_THREADS return none_or_error(ret);
}

static PyObject *module_prefetch(PyObject *module, PyObject *array)
{
	size_t bytes;
	char *start;

	if (soda_python_array_range(array, &start, &bytes))
		return PyErr_Format(PyExc_TypeError, "prefetch() takes an array");
	return bytes ? none_or_error(soda_prefetch(start, bytes)) : Py_NewRef(Py_None);
}

#define FIELD(name)                                                                                \
	{                                                                                          \
#name, offsetof(struct soda_stats, name)                                           \
	}

static PyObject *module_stats(PyObject *module, PyObject *none)
{
	static const struct {
		const char *name;
		size_t at;
	} fields[] = {
		FIELD(faults),
		FIELD(faults_joined),
		FIELD(zero_fills),
		FIELD(local_refaults),
		FIELD(wp_faults),
		FIELD(fetches),
		FIELD(prefetched),
		FIELD(prefetch_useless),
		FIELD(bytes_fetched),
		FIELD(bytes_written_back),
		FIELD(evicted_clean),
		FIELD(evicted_dirty),
		FIELD(evict_waits),
		FIELD(reconnects),
		FIELD(errors),
		FIELD(fam_bytes),
		FIELD(buffer_bytes),
		FIELD(resident_bytes),
		FIELD(resident_peak_bytes),
		FIELD(pinned_bytes),
		FIELD(metadata_bytes),
		FIELD(fault_p50_ns),
		FIELD(fault_p99_ns),
		FIELD(polled),
		FIELD(slept),
		FIELD(installed),
		FIELD(stalled_ns),
		FIELD(store_maps),
		FIELD(store_asks),
		FIELD(store_bytes_mapped),
		FIELD(store_bytes_asked),
		FIELD(store_object_bytes),
		FIELD(copies_missing),
		FIELD(copies_expelled),
		FIELD(copies_rebuilt),
		FIELD(rebuilt_bytes),
		FIELD(bytes_sealed),
		FIELD(bytes_opened),
		FIELD(seal_metadata_bytes),
		FIELD(fault_max_ns),
		FIELD(copies_moved),
		FIELD(bytes_cleaned),
	};
	struct soda_stats st = { 0 };
	PyObject *all = PyDict_New();
	int ret = soda_get_stats(&st, sizeof(st));

	if (ret) {
		Py_XDECREF(all);
		return soda_python_raise(ret);
	}
	for (size_t i = 0; all && i < sizeof(fields) / sizeof(fields[0]); i++) {
		uint64_t value;
		PyObject *number;

		memcpy(&value, (char *)&st + fields[i].at, sizeof(value));
		number = PyLong_FromUnsignedLongLong(value);
		if (!number || PyDict_SetItemString(all, fields[i].name, number))
			Py_CLEAR(all);
		Py_XDECREF(number);
	}
	return all;
}

static PyObject *module_shutdown(PyObject *module, PyObject *none)
{
	Py_ssize_t alive = soda_python_buffers() + soda_python_blocks();
	char text[128];
	int ret;

	if (alive && !soda_python_forked()) {
		snprintf(text, sizeof(text),
			 "%zd objects are still in use: views of them would be of nothing", alive);
		return soda_python_say(EBUSY, text);
	}
	Py_BEGIN_ALLOW_THREADS ret = soda_shutdown();
	Py_END_ALLOW_THREADS return none_or_error(ret);
}

static PyObject *module_live(PyObject *module, PyObject *none)
{
	return PyLong_FromSsize_t(soda_python_buffers() + soda_python_blocks());
}

static PyObject *module_forked(PyObject *module, PyObject *none)
{
	return PyBool_FromLong(soda_python_forked());
}

static PyMethodDef methods[] = {
	{ "init", (PyCFunction)(void (*)(void))module_init, METH_VARARGS | METH_KEYWORDS,
	  "init(**settings): start the runtime" },
	{ "sync", module_sync, METH_O, "sync(array or None)" },
	{ "advise", module_advise, METH_VARARGS, "advise(array, number)" },
	{ "prefetch", module_prefetch, METH_O, "prefetch(array)" },
	{ "stats", module_stats, METH_NOARGS, "stats() -> dict" },
	{ "shutdown", module_shutdown, METH_NOARGS, "shutdown()" },
	{ "live", module_live, METH_NOARGS, "live() -> number of objects and blocks" },
	{ "forked", module_forked, METH_NOARGS, "forked() -> whether this is a fork's child" },
	{ NULL, NULL, 0, NULL },
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, .m_name = "soda._soda", .m_doc = "The C half of the package soda.",
	.m_size = -1,	       .m_methods = methods,
};

PyMODINIT_FUNC PyInit__soda(void)
{
	PyObject *module = PyModule_Create(&definition);

	if (!module)
		return NULL;
	owner = getpid();
	soda_python_error = PyErr_NewExceptionWithDoc(
		"soda.Error", "What libsoda could not do: errno, and a sentence that says why.",
		PyExc_OSError, NULL);
	if (!soda_python_error || soda_python_pins_begin() ||
	    PyModule_AddObjectRef(module, "Error", soda_python_error) ||
	    soda_python_array_add(module) || soda_python_buffer_add(module) ||
	    soda_python_hook_add(module) ||
	    PyModule_AddObject(module, "OFF", PyLong_FromUnsignedLong(SODA_OFF)) ||
	    PyModule_AddStringConstant(module, "__version__", soda_version())) {
		Py_DECREF(module);
		return NULL;
	}
	return module;
}
