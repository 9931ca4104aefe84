/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/pool/member.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/failure.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "client/call.h"
#include "client/server.h"
#include "host_agent/core/agent.h"
#include "host_agent/move/calls.h"
#include "host_agent/move/limit.h"
#include "host_agent/object/copies.h"
#include "host_agent/pool/rebuild.h"
#include "pool/pool.h"

/* What the program has, of all members; guarded by soda_regions_lock. */
static struct tally {
	uint64_t program; /* random; 0: not drawn yet */
	uint64_t counted_ns;
	uint32_t slabs, missing, here[SODA_MEMBERS_MAX];
} tally;

static int count_slab(struct soda_region *r, void *arg)
{
	uint64_t copies = soda_copies(r);

	if (r->going)
		return 0;
	tally.slabs++;
	tally.missing += soda_copies_missing(r);
	if (!copies)
		tally.here[r->link->index]++;
	for (uint32_t k = 0; copies && k < SODA_COPY_PLACES; k++)
		if (soda_copy_is_written(copies, k))
			tally.here[soda_copy_link(r, k)->index]++;
	return 0;
}

static void count_slabs_locked(void)
{
	uint64_t now = soda_now_ns();

	if (!tally.program && getrandom(&tally.program, sizeof(tally.program), 0) < 0)
		tally.program = now; /* statistics alone depend on it */
	if (tally.counted_ns && now - tally.counted_ns < SODA_MEMBER_COUNT_MS * SODA_MS_NS)
		return;
	tally.counted_ns = now;
	tally.slabs = tally.missing = 0;
	memset(tally.here, 0, sizeof(tally.here));
	soda_regions_each(count_slab, NULL);
}

static struct soda_wire_tell gather(const struct soda_link *link)
{
	struct soda_rebuild_counts copies;
	struct soda_wire_tell tell;

	soda_rebuild_count(&copies);
	soda_regions_lock();
	count_slabs_locked();
	tell = (struct soda_wire_tell){
		.program = tally.program,
		.members = soda_agent.settings.servers,
		.slabs = tally.slabs,
		.missing = tally.missing,
		.here = tally.here[link->index],
	};
	soda_regions_unlock();
	tell.expelled = copies.expelled;
	tell.rebuilt = copies.completed;
	tell.moved = copies.moved;
	tell.rebuilt_bytes = copies.bytes;
	tell.held = atomic_load(&link->held);
	return tell;
}

/* The first of the members that have the same domain. soda_regions_lock held. */
static uint32_t first_of_domain(uint32_t member)
{
	const char *name = soda_agent.links[member].domain_name;

	for (uint32_t i = 0; *name && i < member; i++)
		if (!strcmp(soda_agent.links[i].domain_name, name))
			return i;
	return member;
}

static void set_domain(struct soda_link *link, const char *name)
{
	uint32_t n = soda_members();

	soda_regions_lock();
	strcpy(link->domain_name, name);
	n = n > link->index ? n : link->index + 1; /* it may be the next one */
	for (uint32_t i = 0; i < n; i++)
		atomic_store(&soda_agent.links[i].domain, first_of_domain(i));
	soda_regions_unlock();
}

/* One call and its answer; what is to be told, and then what the server has said. */
struct exchange {
	struct soda_wire_tell tell;
	struct soda_wire_member member;
};

static int exchange(struct soda_conn *control, void *arg, bool again, int timeout_ms,
		    struct soda_why *why)
{
	uint8_t body[SODA_WIRE_TELL_BYTES], reply[SODA_WIRE_MEMBER_BYTES + 256];
	struct iovec iov = { body, sizeof(body) };
	struct exchange *x = arg;
	size_t bytes;
	int ret;

	soda_wire_put_tell(body, &x->tell);
	ret = soda_conn_call(control, SODA_MSG_POOL, &iov, 1, reply, sizeof(reply), &bytes,
			     timeout_ms, why);
	if (ret)
		return ret;
	/* not -EPROTO: that is the answer of a server that does not know the call */
	return soda_wire_get_member(reply, bytes, &x->member) ? -ECONNABORTED : 0;
}

/*
 * What the program has on a server that is drained moves away by the rebuild's thread, which may
 * not run yet.  api_lock is tried, as its holder may wait for the keeper: else the next answer
 * comes here again.
 */
static void start_moving(const struct soda_link *link)
{
	if (soda_redundant() || !soda_lock_try(&soda_agent.api_lock))
		return;
	if (soda_rebuild_start())
		soda_log_error("what lies on %s is to move, and there is no memory for a thread "
			       "that moves it",
			       link->server.address);
	soda_lock_release(&soda_agent.api_lock);
}

static void set_draining(struct soda_link *link, bool draining)
{
	if (draining)
		start_moving(link);
	if (atomic_exchange(&link->draining, draining) == draining)
		return;
	if (draining)
		soda_log_info("%s is drained: what lies there moves to other servers",
			      link->server.address);
	else
		soda_log_info("%s is not drained any more", link->server.address);
}

static void learn(struct soda_link *link, const struct soda_wire_member *member)
{
	atomic_store(&link->free_bytes, member->free_bytes);
	set_draining(link, member->flags & SODA_WIRE_MEMBER_DRAINS);
	if (member->flags & SODA_WIRE_MEMBER_SPREADS)
		start_moving(link);
	atomic_store(&link->spreading, member->flags & SODA_WIRE_MEMBER_SPREADS);
	if (strcmp(link->domain_name, member->domain)) /* this thread alone changes it */
		set_domain(link, member->domain);
}

int soda_member_meet(struct soda_link *link, struct soda_conn *control, struct soda_why *why)
{
	struct exchange x = { .tell = gather(link) };
	int ret = exchange(control, &x, false, link->server.connect_ms, why);

	link->asked_ns = soda_now_ns();
	link->asks_nothing = ret == -EPROTO;
	if (ret && ret != -EPROTO)
		return ret;
	set_domain(link, x.member.domain);
	atomic_store(&link->draining, x.member.flags & SODA_WIRE_MEMBER_DRAINS);
	if (!ret)
		atomic_store(&link->free_bytes, x.member.free_bytes);
	return 0;
}

void soda_member_place(struct soda_link *link)
{
	if (soda_agent.agent[0])
		soda_server_behind(&link->server, soda_agent.agent,
				   soda_agent.behind.address[link->index],
				   soda_members_hash(soda_agent.behind.address[link->index]));
}

int soda_member_learn(struct soda_link *link, struct soda_conn *control, struct soda_why *why)
{
	static char text[SODA_MEMBERS_TEXT_MAX + 1]; /* large; api_lock is held */
	struct soda_why said = { "" };
	int ret;

	if (soda_agent.settings.servers > 1 || !(link->server.welcome.agent & SODA_WIRE_AGENT_POOL))
		return 0;
	ret = soda_call_members(control, text, sizeof(text), link->server.connect_ms, why);
	if (ret || !text[0])
		return ret;
	if (soda_members_parse(text, &soda_agent.behind, &said) ||
	    soda_members_differ(&soda_agent.behind, &said)) {
		snprintf(why->text, sizeof(why->text), "the pool of the agent %.80s: %.150s",
			 link->server.address, said.text);
		return -EPROTO;
	}
	snprintf(soda_agent.agent, sizeof(soda_agent.agent), "%s", soda_server_peer(&link->server));
	soda_agent.settings.servers = soda_agent.behind.n;
	soda_agent.settings.alone = false;
	soda_member_place(link);
	why->text[0] = '\0';
	ret = soda_limit_refit_first(why);
	if (ret && !why->text[0])
		snprintf(why->text, sizeof(why->text),
			 "the page buffer (SODA_BUFFER) has no room for the %u servers of the "
			 "agent's pool",
			 soda_agent.behind.n);
	return ret;
}

static int ping(struct soda_conn *control, void *arg, bool again, int timeout_ms,
		struct soda_why *why)
{
	return soda_conn_call(control, SODA_MSG_PING, NULL, 0, NULL, 0, NULL, timeout_ms, why);
}

static int patience(void)
{
	uint32_t ms = soda_agent.settings.fault_timeout_ms;

	return soda_calls_patience((int)(ms < SODA_MEMBER_ANSWER_MS ? ms : SODA_MEMBER_ANSWER_MS));
}

/*
 * Make a call to see whether the server answers.  While another thread's call has the connection,
 * a copy's server is asked on a connection of its own.
 */
static int look(struct soda_link *link, soda_call_fn *fn, void *arg)
{
	struct soda_server *server = &link->server;
	struct soda_why ignored;
	int ret = soda_call_aside(server, fn, arg, SODA_WATCH_WAIT_MS, patience(), &ignored);

	if (ret != -EBUSY)
		soda_watch_rest(server);
	else if (soda_redundant() && soda_watch_is_silent(server, patience()))
		soda_server_report(server, -ETIMEDOUT);
	if (soda_server_up(server) && !soda_call_lost(ret))
		atomic_store(&link->heard_ns, soda_now_ns());
	return ret;
}

void soda_member_ask(struct soda_link *link)
{
	uint64_t now = soda_now_ns();
	uint32_t pace_ms = soda_redundant() ? SODA_COPIES_PING_MS / 2 : SODA_MEMBER_ASK_MS;
	struct exchange x;

	if (soda_agent.settings.servers <= 1 || now - link->asked_ns < pace_ms * SODA_MS_NS)
		return;
	link->asked_ns = now;
	if (link->asks_nothing) {
		look(link, ping, NULL);
		return;
	}
	x.tell = gather(link);
	if (!look(link, exchange, &x))
		learn(link, &x.member);
}

static int ask_list(struct soda_conn *control, void *arg, bool again, int timeout_ms,
		    struct soda_why *why)
{
	return soda_call_members(control, arg, SODA_MEMBERS_TEXT_MAX + 1, timeout_ms, why);
}

int soda_member_ask_list(struct soda_link *link, struct soda_members *members_p)
{
	char text[SODA_MEMBERS_TEXT_MAX + 1];
	struct soda_why ignored;
	int ret = soda_call_once(&link->server, ask_list, text, patience(), &ignored);

	return ret ? ret : soda_members_parse(text, members_p, &ignored);
}

/* Where a server is addressed, which may be behind an agent, as text within JSON. */
static const char *address_of(const struct soda_link *link, char out[SODA_ADDRESS_MAX + 1])
{
	snprintf(out, SODA_ADDRESS_MAX + 1, "%s", link->server.address);
	for (char *c = out; *c; c++)
		if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ')
			*c = '?';
	return out;
}

/* "stale": it is there, and what it has may be old until it is rebuilt. */
static const char *state_of(const struct soda_link *link)
{
	if (!soda_server_up(&link->server))
		return "away";
	return atomic_load(&link->expelled_ns) ? "stale" : "up";
}

size_t soda_member_list(char *out, size_t bytes)
{
	char address[SODA_ADDRESS_MAX + 1];
	uint32_t n = soda_members();
	size_t at = 0;

	if (n < 2)
		return 0;
	soda_regions_lock();
	count_slabs_locked();
	for (uint32_t i = 0; i < n && at < bytes; i++) {
		const struct soda_link *link = &soda_agent.links[i];

		at += (size_t)snprintf(
			out + at, bytes - at,
			"%s{\"address\": \"%s\", \"domain\": \"%s\", \"state\": \"%s\", "
			"\"draining\": %s, \"slabs_here\": %u, \"free_bytes\": %llu}",
			i ? ", " : ", \"server_list\": [", address_of(link, address),
			link->domain_name, state_of(link),
			atomic_load(&link->draining) ? "true" : "false", tally.here[i],
			(unsigned long long)atomic_load(&link->free_bytes));
	}
	soda_regions_unlock();
	if (at < bytes)
		at += (size_t)snprintf(out + at, bytes - at, "]");
	return at < bytes ? at : 0;
}
