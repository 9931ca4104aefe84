/* SPDX-License-Identifier: BSD-3-Clause */
#include "pool/pool.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static int refuse(struct soda_why *why, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, ap);
	va_end(ap);
	return -EINVAL;
}

bool soda_members_has(const struct soda_members *m, const char *address)
{
	for (uint32_t i = 0; i < m->n; i++)
		if (!strcmp(m->address[i], address))
			return true;
	return false;
}

/* The address of so many bytes at `at`, the next in the list. */
static int add(struct soda_members *out, const char *at, size_t bytes, struct soda_why *why)
{
	char *to;

	if (!bytes)
		return refuse(why, "the list of servers has an empty place, its %uth", out->n + 1);
	if (bytes > SODA_ADDRESS_MAX)
		return refuse(why,
			      "the list of servers: its address %u has %zu bytes, and may have at "
			      "most %d",
			      out->n + 1, bytes, SODA_ADDRESS_MAX);
	if (out->n == SODA_MEMBERS_MAX)
		return refuse(why, "the list of servers has more than %d members",
			      SODA_MEMBERS_MAX);
	to = out->address[out->n];
	memcpy(to, at, bytes);
	to[bytes] = '\0';
	if (soda_members_has(out, to))
		return refuse(why, "the list of servers has %.150s twice: name each server once",
			      to);
	out->n++;
	return 0;
}

static bool begins_address(const char *text)
{
	size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz+");

	return n && !strncmp(text + n, "://", 3);
}

/*
 * How many bytes the address at `at` has.  Behind its '?', in the rules of transport/fault, a comma
 * ends it only where another address follows.
 */
static size_t length(const char *at)
{
	bool rules = false;
	size_t n = 0;

	for (; at[n] && !(at[n] == ',' && (!rules || begins_address(at + n + 1))); n++)
		rules = rules || at[n] == '?';
	return n;
}

/* FNV-1a (Fowler, Noll, Vo), folded; not 0. */
uint16_t soda_members_hash(const char *address)
{
	uint32_t h = 2166136261u;

	for (; *address; address++)
		h = (h ^ (uint8_t)*address) * 16777619u;
	h ^= h >> 16;
	return (uint16_t)h ? (uint16_t)h : 1;
}

int soda_members_differ(const struct soda_members *m, struct soda_why *why)
{
	for (uint32_t i = 0; i < m->n; i++)
		for (uint32_t k = 0; k < i; k++)
			if (soda_members_hash(m->address[i]) == soda_members_hash(m->address[k]))
				return refuse(why,
					      "%.80s and %.80s have one number (a hash of 16 bits) "
					      "by which programs tell the agent's servers apart: "
					      "let one of them listen on another port",
					      m->address[k], m->address[i]);
	return 0;
}

int soda_members_parse(const char *list, struct soda_members *out, struct soda_why *why)
{
	const char *at = list;
	int ret;

	out->n = 0;
	if (!strncmp(list, "etcd://", 7))
		return refuse(why,
			      "%.80s is a registry, which no program asks itself: start it with "
			      "soda run --server etcd://..., or name the servers, which soda pool "
			      "status etcd://... shows",
			      list);
	for (;;) {
		size_t bytes = length(at);

		ret = add(out, at, bytes, why);
		if (ret || !at[bytes])
			break;
		at += bytes + 1;
	}
	for (uint32_t i = 0; !ret && out->n > 1 && i < out->n; i++)
		if (!strstr(out->address[i], "://"))
			ret = refuse(
				why,
				"the list of servers: '%.100s' is no address; write each as "
				"tcp://HOST:PORT, verbs://HOST:PORT or shm:///PATH, with commas "
				"between",
				out->address[i]);
	return ret;
}

void soda_members_list(const struct soda_members *m, char *list)
{
	list[0] = '\0';
	for (uint32_t i = 0; i < m->n; i++)
		list += sprintf(list, "%s%s", i ? "," : "", m->address[i]);
}
