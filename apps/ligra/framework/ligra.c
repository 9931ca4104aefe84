/* SPDX-License-Identifier: BSD-3-Clause */
#include "ligra/framework/ligra.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct ligra_array {
	struct ligra_array *next;
	void *object;
	size_t bytes;
};

void *ligra_array(struct ligra *l, uint64_t count, size_t size, const char *name)
{
	struct ligra_array *a;
	int ret;

	if (l->failed)
		return NULL;
	a = malloc(sizeof(*a));
	if (!a) {
		l->failed = soda_graph_fail(l->err, ENOMEM, "out of memory for %s", name);
		return NULL;
	}
	a->bytes = count * size;
	ret = mem_alloc(l->mem, a->bytes, name, &a->object, l->err);
	if (ret) {
		l->failed = ret;
		free(a);
		return NULL;
	}
	a->next = l->arrays;
	l->arrays = a;
	return a->object;
}

bool ligra_grow(struct ligra *l, void **array, uint64_t count, size_t size)
{
	void *larger;

	if (l->failed)
		return false;
	/* Full when the count is a power of two. */
	if (count & (count - 1))
		return true;
	larger = realloc(*array, (count ? 2 * count : 1) * size);
	if (!larger) {
		l->failed = soda_graph_fail(l->err, ENOMEM, "out of memory for a list");
		return false;
	}
	*array = larger;
	return true;
}

void ligra_fail(struct ligra *l, int code, const char *fmt, ...)
{
	va_list args;

	if (l->failed)
		return;
	l->failed = -code;
	va_start(args, fmt);
	vsnprintf(l->err->text, sizeof(l->err->text), fmt, args);
	va_end(args);
}

int ligra_end(struct ligra *l)
{
	while (l->arrays) {
		struct ligra_array *a = l->arrays;

		l->arrays = a->next;
		mem_free(l->mem, a->object, a->bytes);
		free(a);
	}
	return l->failed;
}
