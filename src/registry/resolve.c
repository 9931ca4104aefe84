/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/etcd.h"
#include "registry/registry.h"

/* What has been found so far. */
struct found {
	struct soda_registry_member *members; /* one for each address */
	uint32_t n;
	bool all;		   /* those that drain or end, too */
	uint32_t leaving, strange; /* servers that drain or end; values that nobody understands */
	bool no_memory;
};

/* The place of a server with that address, a new one at the end. */
static uint32_t place_of(const struct found *f, const char *address)
{
	uint32_t i = 0;

	while (i < f->n && strcmp(f->members[i].address, address))
		i++;
	return i;
}

static void take(void *arg, const char *value, size_t bytes)
{
	struct soda_registry_member member, *more;
	struct found *f = arg;
	uint32_t at;

	if (soda_registry_decode(value, bytes, &member)) {
		f->strange++;
		return;
	}
	if (!f->all && member.state != SODA_REGISTRY_UP) {
		f->leaving++;
		return;
	}
	at = place_of(f, member.address);
	more = at < f->n ? f->members : realloc(f->members, (f->n + 1) * sizeof(*more));
	if (!more) {
		f->no_memory = true;
		return;
	}
	f->members = more;
	f->n += at == f->n;
	f->members[at] = member; /* the newer one: it was started anew */
}

/* How many of the first n are in the same failure domain; a server without one is alone. */
static uint32_t beside(const struct soda_registry_member *members, uint32_t n, const char *domain)
{
	uint32_t count = 0;

	for (uint32_t i = 0; *domain && i < n; i++)
		count += !strcmp(members[i].domain, domain);
	return count;
}

/* The next to be taken, of those from `taken` on: of a domain with few so far, with much free. */
static uint32_t best(const struct soda_registry_member *members, uint32_t taken, uint32_t n)
{
	uint32_t at = taken, at_beside = UINT32_MAX;

	for (uint32_t i = taken; i < n; i++) {
		uint32_t count = beside(members, taken, members[i].domain);

		if (count < at_beside ||
		    (count == at_beside && members[i].free_bytes > members[at].free_bytes)) {
			at = i;
			at_beside = count;
		}
	}
	return at;
}

static void exchange(struct soda_registry_member *members, uint32_t a, uint32_t b)
{
	struct soda_registry_member taken = members[a];

	members[a] = members[b];
	members[b] = taken;
}

void soda_registry_choose(struct soda_registry_member *members, uint32_t n,
			  const struct soda_members *keep, struct soda_members *members_p)
{
	uint32_t most = n < SODA_MEMBERS_MAX ? n : SODA_MEMBERS_MAX, taken = 0;

	for (uint32_t i = 0; keep && i < n && taken < most; i++)
		if (soda_members_has(keep, members[i].address))
			exchange(members, taken++, i);
	for (; taken < most; taken++)
		exchange(members, taken, best(members, taken, n));
	members_p->n = most;
	for (uint32_t i = 0; i < most; i++)
		strcpy(members_p->address[i], members[i].address);
}

static int none(const struct found *f, struct soda_why *why)
{
	if (f->no_memory)
		return soda_registry_fail(why, -ENOMEM, "no memory for its servers");
	if (f->leaving || f->strange)
		return soda_registry_fail(why, -ENOENT,
					  "no server of this pool is up: %u drain or end, %u are "
					  "of another version",
					  f->leaving, f->strange);
	return soda_registry_fail(why, -ENOENT,
				  "no server is registered in this pool: start some with "
				  "soda-mem-server --pool, or mend the pool's name");
}

int soda_registry_ask(struct soda_etcd *etcd, const struct soda_registry_name *name, bool leaving,
		      const struct soda_members *keep, struct soda_members *members_p,
		      struct soda_why *why)
{
	struct found found = { .all = leaving };
	char prefix[SODA_REGISTRY_KEY];
	int ret;

	soda_registry_prefix(name, prefix);
	ret = soda_etcd_list(etcd, prefix, take, &found, why);
	if (!ret && (!found.n || found.no_memory))
		ret = none(&found, why);
	else if (!ret)
		soda_registry_choose(found.members, found.n, keep, members_p);
	free(found.members);
	return ret;
}

int soda_registry_resolve(const char *text, const struct soda_registry_login *login, bool leaving,
			  struct soda_members *members_p, struct soda_why *why)
{
	struct soda_registry_name name;
	struct soda_etcd *etcd = NULL;
	struct soda_why inner = { "" };
	int ret = soda_registry_parse(text, &name, why);

	if (ret)
		return ret;
	ret = soda_etcd_open(&name, login, &etcd, &inner);
	if (!ret)
		ret = soda_registry_ask(etcd, &name, leaving, NULL, members_p, &inner);
	if (ret)
		soda_registry_fail(why, ret, "%.60s: %.190s", text, inner.text);
	soda_etcd_close(etcd);
	return ret;
}

int soda_registry_list(const char *text, const struct soda_registry_login *login,
		       char list[SODA_MEMBERS_TEXT_MAX + 1], struct soda_why *why)
{
	struct soda_members members;
	int ret = soda_registry_resolve(text, login, false, &members, why);

	if (!ret)
		soda_members_list(&members, list);
	return ret;
}
