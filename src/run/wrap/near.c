/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/wrap/near.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Memory for a local copy of `bytes` bytes. NULL: there is none. */
static char *place(struct run_near *near, void *given, size_t bytes, bool back)
{
	size_t whole = (bytes + 15) & ~(size_t)15, bounce = 0;
	char *local;

	if (near->n == RUN_NEAR_ARGS)
		abort(); /* a wrapper has more arguments than RUN_NEAR_ARGS */
	if (whole >= bytes && whole <= RUN_NEAR_ROOM - near->used) {
		local = near->room + near->used;
		near->used += whole;
	} else {
		local = bytes <= PTRDIFF_MAX ? run_bounce_get(bytes, &bounce) : NULL;
		if (!local)
			return NULL;
	}
	near->args[near->n].given = given;
	near->args[near->n].local = local;
	near->args[near->n].bytes = bytes;
	near->args[near->n].bounce = bounce;
	near->args[near->n++].back = back;
	return local;
}

void *run_near(struct run_near *near, const void *p, size_t bytes, bool back)
{
	void *local;

	if (!run_fam(p))
		return (void *)(uintptr_t)p;
	local = place(near, (void *)(uintptr_t)p, bytes, back);
	return local ? memcpy(local, p, bytes) : (void *)-1;
}

char *run_near_string(struct run_near *near, const char *s)
{
	return run_near(near, s, run_fam(s) ? strlen(s) + 1 : 0, false);
}

char *const *run_near_strings(struct run_near *near, char *const *v)
{
	size_t n = 0, bytes = 0;
	bool any = run_fam(v);
	char **local, *text;

	for (; v && v[n]; n++) {
		bytes += strlen(v[n]) + 1;
		any |= run_fam(v[n]);
	}
	if (!any)
		return v;
	local = (char **)(void *)place(near, NULL, (n + 1) * sizeof(*local) + bytes, false);
	if (!local)
		return (char *const *)-1;
	text = (char *)(local + n + 1);
	for (size_t i = 0; i < n; i++) {
		local[i] = text;
		text = stpcpy(text, v[i]) + 1;
	}
	local[n] = NULL;
	return local;
}

void run_near_end(struct run_near *near)
{
	int saved = errno;

	for (unsigned i = 0; i < near->n; i++) {
		if (near->args[i].back)
			memcpy(near->args[i].given, near->args[i].local, near->args[i].bytes);
		if (near->args[i].bounce)
			run_bounce_put(near->args[i].local, near->args[i].bounce);
	}
	errno = saved;
}
