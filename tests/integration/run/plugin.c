/* SPDX-License-Identifier: BSD-3-Clause */
/* A plug-in that frees and lengthens what the program has allocated, and the other way round. */
#include <stdlib.h>
#include <string.h>

#define PLUGIN __attribute__((visibility("default")))

PLUGIN void plugin_free(void *p);
PLUGIN char *plugin_make(size_t n);
PLUGIN void *plugin_grow(void *p, size_t n);

void plugin_free(void *p)
{
	free(p);
}

char *plugin_make(size_t n)
{
	char *p = malloc(n);

	return p ? memset(p, 'x', n) : NULL;
}

void *plugin_grow(void *p, size_t n)
{
	return realloc(p, n);
}
