/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
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

void soda_registry_choose(struct soda_registry_member *members, uint32_t n,
			  struct soda_members *members_p)
{
	uint32_t most = n < SODA_MEMBERS_MAX ? n : SODA_MEMBERS_MAX;

	for (uint32_t i = 0; i < most; i++) {
		uint32_t at = best(members, i, n);
		struct soda_registry_member taken = members[at];

		members[at] = members[i];
		members[i] = taken;
		strcpy(members_p->address[i], taken.address);
	}
	members_p->n = most;
}

static int none(const char *text, const struct found *f, struct soda_why *why)
{
	if (f->no_memory)
		return soda_registry_fail(why, -ENOMEM, "%.100s: no memory for its servers", text);
	if (f->leaving || f->strange)
		return soda_registry_fail(
			why, -ENOENT,
			"%.100s: no server of this pool is up: %u drain or end, %u "
			"are of another version",
			text, f->leaving, f->strange);
	return soda_registry_fail(why, -ENOENT,
				  "%.100s: no server is registered in this pool: start some with "
				  "soda-mem-server --pool, or mend the pool's name",
				  text);
}

int soda_registry_resolve(const char *text, const struct soda_registry_login *login, bool leaving,
			  struct soda_members *members_p, struct soda_why *why)
{
	char prefix[SODA_REGISTRY_KEY];
	struct soda_registry_name name;
	struct soda_etcd *etcd = NULL;
	struct found found = { .all = leaving };
	struct soda_why inner = { "" };
	int ret = soda_registry_parse(text, &name, why);

	if (ret)
		return ret;
	ret = soda_etcd_open(&name, login, NULL, &etcd, &inner);
	soda_registry_prefix(&name, prefix);
	if (!ret)
		ret = soda_etcd_list(etcd, prefix, take, &found, &inner);
	if (ret)
		soda_registry_fail(why, ret, "%.60s: %.190s", text, inner.text);
	else if (!found.n || found.no_memory)
		ret = none(text, &found, why);
	else
		soda_registry_choose(found.members, found.n, members_p);
	free(found.members);
	soda_etcd_close(etcd);
	return ret;
}

int soda_registry_list(const char *text, const struct soda_registry_login *login,
		       char list[SODA_MEMBERS_TEXT_MAX + 1], struct soda_why *why)
{
	struct soda_members members;
	int ret = soda_registry_resolve(text, login, false, &members, why);
	char *to = list;

	for (uint32_t i = 0; !ret && i < members.n; i++)
		to += sprintf(to, "%s%s", i ? "," : "", members.address[i]);
	return ret;
}

/* Changes */

struct following {
	void (*look)(void *arg);
	void *arg;
	uint64_t looked_ns;
};

/* Servers tell what they have free in a row, each for itself: one look for all of that. */
static void look_paced(void *arg)
{
	struct following *f = arg;
	uint64_t since_ms = (soda_now_ns() - f->looked_ns) / 1000000u;

	if (f->looked_ns && since_ms < SODA_REGISTRY_WATCH_MS)
		usleep((useconds_t)(SODA_REGISTRY_WATCH_MS - since_ms) * 1000);
	f->looked_ns = soda_now_ns();
	f->look(f->arg);
}

int soda_registry_follow(const char *text, const struct soda_registry_login *login,
			 void (*look)(void *arg), void *arg, struct soda_why *why)
{
	struct following f = { .look = look, .arg = arg };
	char prefix[SODA_REGISTRY_KEY];
	struct soda_registry_name name;
	struct soda_etcd *etcd = NULL;
	struct soda_why ignored;
	int ret = soda_registry_parse(text, &name, why);

	if (!ret)
		ret = soda_etcd_open(&name, login, NULL, &etcd, why);
	if (ret)
		return ret;
	soda_registry_prefix(&name, prefix);
	for (;;)
		if (soda_etcd_watch(etcd, prefix, SODA_REGISTRY_STREAM_MS, look_paced, &f,
				    &ignored))
			look_paced(&f);
}
