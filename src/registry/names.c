/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/registry.h"

#define SCHEME "etcd://"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

int soda_registry_fail(struct soda_why *why, int ret, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, ap);
	va_end(ap);
	return ret;
}

bool soda_registry_is_name(const char *text)
{
	return text && !strncmp(text, SCHEME, strlen(SCHEME));
}

/* HOST:PORT; the host goes into a URL, and may be an IPv6 address in brackets. */
static bool endpoint_ok(const char *text)
{
	const char *colon = strrchr(text, ':');
	size_t host = colon ? (size_t)(colon - text) : 0, digits = colon ? strlen(colon + 1) : 0;
	bool v6 = *text == '[';
	size_t inside = strspn(text + v6, v6 ? "0123456789abcdefABCDEF:." : LETTERS ".-_");
	unsigned long port = digits ? strtoul(colon + 1, NULL, 10) : 0;

	if (!host || strspn(colon ? colon + 1 : "", "0123456789") != digits || digits > 5)
		return false;
	if (v6 && text[host - 1] != ']')
		return false;
	return inside && inside + 2u * v6 == host && port && port <= 65535;
}

static int add_endpoint(struct soda_registry_name *name, const char *at, size_t bytes,
			struct soda_why *why)
{
	char *to = name->endpoint[name->n];

	if (name->n == SODA_REGISTRY_ENDPOINTS)
		return soda_registry_fail(why, -EINVAL, "an etcd has at most %d endpoints",
					  SODA_REGISTRY_ENDPOINTS);
	if (!bytes || bytes > SODA_REGISTRY_HOST)
		return soda_registry_fail(why, -EINVAL,
					  "its endpoint %u has %zu bytes, and may have 1 to %d",
					  name->n + 1, bytes, SODA_REGISTRY_HOST);
	memcpy(to, at, bytes);
	to[bytes] = '\0';
	if (!endpoint_ok(to))
		return soda_registry_fail(why, -EINVAL, "'%.100s' is not HOST:PORT", to);
	name->n++;
	return 0;
}

static int take_apart(const char *text, struct soda_registry_name *name, struct soda_why *why)
{
	const char *at = text + strlen(SCHEME), *slash = strchr(at, '/');
	size_t pool = slash ? strlen(slash + 1) : 0;
	int ret = 0;

	if (!pool || pool > SODA_REGISTRY_POOL || strspn(slash + 1, LETTERS "._-") != pool)
		return soda_registry_fail(why, -EINVAL,
					  "behind the last endpoint a '/' and the pool's name are "
					  "wanted, 1 to %d of A-Z a-z 0-9 . _ -",
					  SODA_REGISTRY_POOL);
	name->n = 0;
	memcpy(name->pool, slash + 1, pool + 1);
	while (!ret) {
		size_t bytes = strcspn(at, ",/");

		ret = add_endpoint(name, at, bytes, why);
		if (at + bytes == slash)
			break;
		at += bytes + 1;
	}
	return ret;
}

int soda_registry_parse(const char *text, struct soda_registry_name *name_p, struct soda_why *why)
{
	struct soda_registry_name name;
	struct soda_why inner = { "" };

	if (!soda_registry_is_name(text))
		return soda_registry_fail(why, -EINVAL, "%.100s: not etcd://HOST:PORT/POOL", text);
	if (take_apart(text, &name, &inner))
		return soda_registry_fail(why, -EINVAL, "%.80s: %.160s", text, inner.text);
	*name_p = name;
	return 0;
}

void soda_registry_prefix(const struct soda_registry_name *name, char to[SODA_REGISTRY_KEY])
{
	snprintf(to, SODA_REGISTRY_KEY, "/soda/pools/%s/", name->pool);
}

void soda_registry_key(const struct soda_registry_name *name, uint64_t instance,
		       char to[SODA_REGISTRY_KEY])
{
	snprintf(to, SODA_REGISTRY_KEY, "/soda/pools/%s/%016llx", name->pool,
		 (unsigned long long)instance);
}
