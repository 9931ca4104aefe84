/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Servers that come while the program runs.  Who tells of them is a registry, by way of `soda run`
 * (run/core/join.c), or the DPU agent before the pool, which the keepers ask.  The thread that has
 * `busy` works on them.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "client/call.h"
#include "host_agent/core/agent.h"
#include "host_agent/core/helper.h"
#include "host_agent/core/thread.h"
#include "host_agent/life/servers.h"
#include "host_agent/pool/member.h"

enum { FAILED_MAX = 2 * SODA_MEMBERS_MAX, LOCK_LOOK_US = 1000 };

static struct {
	_Atomic uint64_t asked_ns; /* when the agent was asked last */
	_Atomic bool busy;
	/* of the thread that has `busy` */
	struct soda_members members; /* that the agent has named */
	struct failed {
		char address[SODA_ADDRESS_MAX + 1]; /* "": free */
		uint64_t again_ns;
	} failed[FAILED_MAX];
} join;

static struct failed *failed_before(const char *address)
{
	for (struct failed *f = join.failed; f < join.failed + FAILED_MAX; f++)
		if (!strcmp(f->address, address))
			return f;
	return NULL;
}

/* Note when it is tried again; say why, the first time. */
static void note(const char *address, const struct soda_why *why)
{
	struct failed *f = failed_before(address);
	bool told = f;

	if (!f)
		f = failed_before(""); /* where none is free it is just tried more often */
	if (!told)
		soda_log_warning("%s is in the pool, and the program goes on without it: %s",
				 address, why->text);
	if (!f)
		return;
	strcpy(f->address, address);
	f->again_ns = soda_now_ns() + SODA_JOIN_AGAIN_MS * SODA_MS_NS;
}

/* Whether it is time to try this one. */
static bool is_wanted(const char *address)
{
	const struct failed *before = failed_before(address);

	return !soda_servers_has(address) && (!before || soda_now_ns() >= before->again_ns);
}

static bool runs(void)
{
	return atomic_load(&soda_agent.life) == SODA_LIFE_RUNNING;
}

/* With api_lock. False: the runtime has ended. */
static bool join_one(const char *address, bool by_agent, int *ret_p, struct soda_why *why)
{
	bool still;

	while (!soda_lock_try(&soda_agent.api_lock)) {
		if (!runs())
			return false;
		usleep(LOCK_LOOK_US);
	}
	still = runs();
	if (still)
		*ret_p = soda_servers_join(address, by_agent, why);
	soda_lock_release(&soda_agent.api_lock);
	return still;
}

/*
 * One that has moved is found without api_lock: who has it may wait for that server.  False: the
 * runtime has ended.
 */
static bool try_one(const char *address, bool by_agent)
{
	struct failed *before = failed_before(address);
	struct soda_why why = { "" };
	int ret = soda_servers_moved(address, &why);
	bool still = ret || join_one(address, by_agent, &ret, &why);

	if (ret && ret != -EALREADY)
		note(address, &why);
	else if (before)
		before->address[0] = '\0';
	return still;
}

static bool try_all(const struct soda_members *m, bool by_agent)
{
	for (uint32_t i = 0; i < m->n; i++)
		if (is_wanted(m->address[i]) && !try_one(m->address[i], by_agent))
			return false;
	return true;
}

bool soda_servers_join_all(const struct soda_members *m)
{
	bool still;

	while (atomic_exchange(&join.busy, true)) {
		if (!runs())
			return false;
		usleep(LOCK_LOOK_US);
	}
	still = try_all(m, false);
	atomic_store(&join.busy, false);
	return still;
}

/* The pool of the DPU agent */

static void *join_named(void *arg)
{
	soda_thread_internal();
	try_all(&join.members, true);
	atomic_store(&join.busy, false);
	return NULL;
}

/* By a connection of its own: the program has none to a server of the agent's. */
static int ask_anew(struct soda_members *members_p)
{
	char text[SODA_MEMBERS_TEXT_MAX + 1];
	struct soda_wire_welcome w;
	struct soda_conn *conn;
	struct soda_why ignored;
	int ret = soda_conn_join_as(soda_agent.agent, soda_agent.identities[0], SODA_JOIN_MS, &conn,
				    &w, &ignored);

	if (ret)
		return ret;
	ret = soda_call_members(conn, text, sizeof(text), SODA_JOIN_MS, &ignored);
	soda_conn_leave(conn, SODA_JOIN_MS);
	return ret ? ret : soda_members_parse(text, members_p, &ignored);
}

static void *ask_and_join(void *arg)
{
	soda_thread_internal();
	if (!ask_anew(&join.members))
		try_all(&join.members, true);
	atomic_store(&join.busy, false);
	return NULL;
}

static bool any_wanted(void)
{
	for (uint32_t i = 0; i < join.members.n; i++)
		if (is_wanted(join.members.address[i]))
			return true;
	return false;
}

/* With `busy`, which stays taken for the thread that has begun; false: there is none. */
static bool begin_joining(struct soda_link *link)
{
	bool up = soda_server_up(&link->server);
	pthread_t thread;
	int ret;

	if (up && (soda_member_ask_list(link, &join.members) || !any_wanted()))
		return false;
	ret = soda_helper_start(&thread, "soda-join", up ? join_named : ask_and_join, NULL);
	if (!ret)
		pthread_detach(thread);
	else
		soda_log_warning("no thread to meet the new servers of %s: the program keeps those "
				 "that it has",
				 soda_agent.agent);
	return !ret;
}

void soda_servers_look(struct soda_link *link)
{
	uint64_t now, asked;

	/* where another one is UP its keeper asks */
	if (!soda_agent.agent[0] || (!soda_server_up(&link->server) && soda_servers_any_up()))
		return;
	now = soda_now_ns();
	asked = atomic_load(&join.asked_ns);
	if (now - asked < SODA_JOIN_ASK_MS * SODA_MS_NS || !runs() ||
	    !atomic_compare_exchange_strong(&join.asked_ns, &asked, now))
		return;
	if (!atomic_exchange(&join.busy, true) && !begin_joining(link))
		atomic_store(&join.busy, false);
}
