/* SPDX-License-Identifier: BSD-3-Clause */
#include "graph/format/error.h"

#include <stdarg.h>
#include <stdio.h>

int soda_graph_fail(struct soda_graph_error *err, int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, args);
	va_end(args);
	return -code;
}
