/* SPDX-License-Identifier: BSD-3-Clause */
/* The value of a member's key. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/registry.h"

static const char *const states[] = { "up", "draining", "ending" };
enum { STATES = sizeof(states) / sizeof(states[0]) };

char *soda_registry_encode(const struct soda_registry_member *m)
{
	char instance[20];
	json_t *all;
	char *text;

	snprintf(instance, sizeof(instance), "%016llx", (unsigned long long)m->instance);
	all = json_pack("{ss si ss ss sI sI ss ss}", "format", "soda-member", "version", 1,
			"address", m->address, "instance", instance, "capacity_bytes",
			(json_int_t)m->capacity, "free_bytes", (json_int_t)m->free_bytes, "domain",
			m->domain, "state", states[m->state]);
	text = all ? json_dumps(all, JSON_COMPACT) : NULL;
	json_decref(all);
	return text;
}

static const char *text_of(const json_t *from, const char *key)
{
	const char *text = json_string_value(json_object_get(from, key));

	return text ? text : "";
}

/* Of printable ASCII without what separates addresses: it goes into SODA_SERVER, and into logs. */
static bool plain(const char *text)
{
	for (; *text; text++)
		if (*text <= ' ' || *text > '~' || *text == ',')
			return false;
	return true;
}

static int count_of(const json_t *from, const char *key, uint64_t *to)
{
	const json_t *value = json_object_get(from, key);

	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return -EINVAL;
	*to = (uint64_t)json_integer_value(value);
	return 0;
}

static int take(const json_t *from, struct soda_registry_member *m)
{
	const char *address = text_of(from, "address"), *domain = text_of(from, "domain");
	const char *instance = text_of(from, "instance"), *state = text_of(from, "state");
	uint32_t at = 0;

	if (strcmp(text_of(from, "format"), "soda-member") ||
	    json_integer_value(json_object_get(from, "version")) != 1)
		return -EINVAL;
	if (!strstr(address, "://") || strlen(address) > SODA_ADDRESS_MAX || !plain(address) ||
	    strlen(domain) > SODA_REGISTRY_DOMAIN || !plain(domain))
		return -EINVAL;
	if (strlen(instance) != 16 || strspn(instance, "0123456789abcdef") != 16)
		return -EINVAL;
	while (at < STATES && strcmp(state, states[at]))
		at++;
	if (at == STATES || count_of(from, "capacity_bytes", &m->capacity) ||
	    count_of(from, "free_bytes", &m->free_bytes))
		return -EINVAL;
	strcpy(m->address, address);
	strcpy(m->domain, domain);
	m->instance = strtoull(instance, NULL, 16);
	m->state = (enum soda_registry_state)at;
	return 0;
}

int soda_registry_decode(const char *value, size_t bytes, struct soda_registry_member *member_p)
{
	json_t *from = json_loadb(value, bytes, JSON_REJECT_DUPLICATES, NULL);
	struct soda_registry_member member;
	int ret = json_is_object(from) ? take(from, &member) : -EINVAL;

	json_decref(from);
	if (!ret)
		*member_p = member;
	return ret;
}
