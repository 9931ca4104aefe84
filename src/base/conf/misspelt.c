/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/conf/conf.h"

#include <string.h>
#include <unistd.h>

enum { NAME_LENGTH = 40 }; /* longer names are nobody's slip */

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Letters that are too many, missing, others, or two that are exchanged: how many of these. */
static unsigned slips(const char *a, size_t a_n, const char *b, size_t b_n)
{
	unsigned before[NAME_LENGTH + 1] = { 0 }, row[NAME_LENGTH + 1] = { 0 },
				      next[NAME_LENGTH + 1] = { 0 };

	for (size_t j = 0; j <= b_n; j++)
		row[j] = (unsigned)j;
	memcpy(before, row, sizeof(before));
	for (size_t i = 1; i <= a_n; i++) {
		next[0] = (unsigned)i;
		for (size_t j = 1; j <= b_n; j++) {
			next[j] = least(row[j - 1] + (a[i - 1] != b[j - 1]),
					least(row[j], next[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				next[j] = least(next[j], before[j - 2] + 1);
		}
		memcpy(before, row, sizeof(before));
		memcpy(row, next, sizeof(row));
	}
	return row[b_n];
}

/* The option whose variable is nearest to the name, if it is near enough and not the same. */
static const char *nearest(const struct soda_conf *conf, const char *name, size_t n)
{
	const char *found = NULL;

	for (size_t i = 0; i < conf->options_n; i++) {
		const char *env = conf->options[i].env;
		size_t env_n = env ? strlen(env) : 0;

		if (!env || env_n > NAME_LENGTH)
			continue;
		if (env_n == n && !memcmp(env, name, n))
			return NULL;
		/* short names are near to each other by chance */
		if (!found && slips(name, n, env, env_n) <= 1)
			found = env;
	}
	return found;
}

const char *soda_conf_misspelt(const struct soda_conf *conf, const char **given_p, int *length_p)
{
	for (char **v = environ; v && *v; v++) {
		size_t n = strcspn(*v, "=");
		const char *meant = NULL;

		if (n <= NAME_LENGTH && !strncmp(*v, "SODA_", 5))
			meant = nearest(conf, *v, n);
		if (!meant)
			continue;
		*given_p = *v;
		*length_p = (int)n;
		return meant;
	}
	return NULL;
}
