/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/stream/names.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/limits.h"
#include "base/lock.h"
#include "transport/stream/stream.h"

/* A name that was asked for once. Fields are guarded by `lock`, but for those that are constant. */
struct name {
	struct name *next; /* constant, and so the next two */
	char host[256], port[8];
	struct soda_names known; /* n 0: there was no answer yet */
	int error;		 /* getaddrinfo's last one */
	bool running;		 /* a thread looks it up */
	uint64_t asked_ns, answered_ns;
	_Atomic uint32_t looks; /* futex: how many have ended */
};

static struct soda_lock lock = { .rank = SODA_RANK_NAMES };
static struct name *all; /* guarded by lock; what is in it stays */
static pid_t owner;	 /* guarded by lock: a child of a fork has none of the threads */

static void take(const struct addrinfo *list, struct soda_names *names)
{
	names->n = 0;
	for (const struct addrinfo *a = list; a && names->n < SODA_NAMES_MAX; a = a->ai_next) {
		struct soda_place *at = &names->at[names->n];

		if (a->ai_addrlen > sizeof(at->at))
			continue;
		*at = (struct soda_place){ .bytes = a->ai_addrlen };
		memcpy(at->at, a->ai_addr, a->ai_addrlen);
		names->n++;
	}
}

/* 0 or getaddrinfo's error. */
static int look_up(const char *host, const char *port, int flags, struct soda_names *names)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC,
					.ai_socktype = SOCK_STREAM,
					.ai_flags = flags };
	struct addrinfo *list;
	int ret = getaddrinfo(host[0] ? host : NULL, port, &hints, &list);

	if (ret)
		return ret;
	take(list, names);
	freeaddrinfo(list);
	return names->n ? 0 : EAI_NONAME;
}

static void *run(void *arg)
{
	struct soda_names found;
	struct name *name = arg;
	int error = look_up(name->host, name->port, 0, &found);

	soda_lock_acquire(&lock);
	if (!error)
		name->known = found;
	name->error = error;
	name->running = false;
	name->answered_ns = soda_now_ns();
	soda_lock_release(&lock);
	atomic_fetch_add(&name->looks, 1);
	soda_futex_wake(&name->looks, INT32_MAX);
	return NULL;
}

/*
 * By a thread that takes no signal of the program's.  SIGBUS and SIGSEGV stay open: the C library
 * may have got memory from the program's own allocator, which may be fabric memory.
 */
static bool start(struct name *name)
{
	sigset_t all_signals, saved;
	pthread_attr_t attr;
	pthread_t thread;
	bool done;

	if (pthread_attr_init(&attr))
		return false;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all_signals);
	sigdelset(&all_signals, SIGBUS);
	sigdelset(&all_signals, SIGSEGV);
	/* past what libsoda makes of the C library's function */
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all_signals, &saved, (size_t)8);
	done = !pthread_create(&thread, &attr, run, name);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &saved, NULL, (size_t)8);
	pthread_attr_destroy(&attr);
	return done;
}

static struct name *find_locked(const char *host, const char *port)
{
	struct name *name = all;

	if (owner != getpid())
		for (owner = getpid(); name; name = name->next)
			name->running = false;
	for (name = all; name; name = name->next)
		if (!strcmp(name->host, host) && !strcmp(name->port, port))
			return name;
	return NULL;
}

/* The name's entry; NULL: no memory. */
static struct name *enter(const char *host, const char *port)
{
	struct name *fresh = calloc(1, sizeof(*fresh)), *name;

	soda_lock_acquire(&lock);
	name = find_locked(host, port);
	if (!name && fresh) {
		strcpy(fresh->host, host); /* both are as large as soda_inet_split() says */
		strcpy(fresh->port, port);
		fresh->next = all;
		all = name = fresh;
		fresh = NULL;
	}
	soda_lock_release(&lock);
	free(fresh);
	return name;
}

/* See that it is looked up, if it is time. */
static void ask(struct name *name)
{
	uint64_t now = soda_now_ns();
	bool begins;

	soda_lock_acquire(&lock);
	begins = !name->running &&
		 (!name->known.n || now - name->answered_ns > SODA_NAME_FRESH_MS * SODA_MS_NS);
	if (begins) {
		name->running = true;
		name->asked_ns = now;
	}
	soda_lock_release(&lock);
	if (begins && !start(name))
		run(name);
}

/* Wait for an answer; where there is an older one, not for long. Then what is known of it. */
static int await(struct name *name, uint64_t deadline_ns, struct soda_names *names_p, int *error_p)
{
	for (;;) {
		uint64_t now = soda_now_ns(), until_ns = deadline_ns;
		uint32_t looks = atomic_load(&name->looks);
		bool running;

		soda_lock_acquire(&lock);
		running = name->running;
		*names_p = name->known;
		*error_p = name->error;
		if (name->known.n && name->asked_ns + SODA_NAME_WAIT_MS * SODA_MS_NS < until_ns)
			until_ns = name->asked_ns + SODA_NAME_WAIT_MS * SODA_MS_NS;
		soda_lock_release(&lock);
		if (!running || now >= until_ns)
			return names_p->n ? 0 : running ? -ETIMEDOUT : -EHOSTUNREACH;
		soda_futex_wait(&name->looks, looks, (int64_t)(until_ns - now));
	}
}

int soda_names_find(const char *host, const char *port, const char *peer, uint64_t deadline_ns,
		    struct soda_names *names_p, struct soda_why *why)
{
	struct soda_names names;
	struct name *name;
	int error, ret;

	if (!look_up(host, port, AI_NUMERICHOST, &names)) {
		*names_p = names;
		return 0;
	}
	name = enter(host, port);
	if (!name)
		return -ENOMEM;
	ask(name);
	ret = await(name, deadline_ns, &names, &error);
	if (!ret)
		*names_p = names;
	else
		soda_why_set(why, "%.128s: the name \"%.64s\" cannot be resolved: %s", peer, host,
			     ret == -ETIMEDOUT ? "there was no answer in time"
					       : gai_strerror(error));
	return ret;
}

/* One attempt, whose addresses are tried in turn. */
struct attempt {
	const char *rest;
	soda_names_fn *fn;
	const struct soda_wire_hello *hello;
	const struct soda_conn_options *opt;
	uint64_t deadline_ns;
	struct soda_names names;
	bool kept; /* names.at[0] is where the session's server was met */
};

static bool same_place(const struct soda_place *a, const struct soda_place *b)
{
	return a->bytes == b->bytes && !memcmp(a->at, b->at, a->bytes);
}

/* Move the place where the server was met to the front. */
static void prefer(struct attempt *a, const struct soda_place *met)
{
	for (unsigned i = 0; i < a->names.n && !a->kept; i++) {
		if (!same_place(&a->names.at[i], met))
			continue;
		a->names.at[i] = a->names.at[0];
		a->names.at[0] = *met;
		a->kept = true;
	}
}

/* The addresses to try. */
static int choose(struct attempt *a, const char *prefix, struct soda_why *why)
{
	const struct soda_place *met = a->opt->place;
	char host[256], port[8], peer[160];
	int ret = soda_inet_split(prefix, a->rest, host, port, why);

	if (ret)
		return ret;
	if (met && met->bytes && a->opt->kind == SODA_CONN_DATA) {
		a->names = (struct soda_names){ .n = 1, .at = { *met } };
		return 0;
	}
	snprintf(peer, sizeof(peer), "%s%.128s", prefix, a->rest);
	ret = soda_names_find(host, port, peer, a->deadline_ns, &a->names, why);
	if (!ret && met && met->bytes)
		prefer(a, met);
	return ret;
}

/* When the attempt at address i has to end: the place that is known has two parts of the time. */
static uint64_t part_of_time(const struct attempt *a, unsigned i)
{
	unsigned weight = a->kept && !i ? 2 : 1, left = a->names.n - i + weight - 1;
	uint64_t now = soda_now_ns();

	if (a->deadline_ns == UINT64_MAX || now >= a->deadline_ns || left == weight)
		return a->deadline_ns;
	return now + (a->deadline_ns - now) * weight / left;
}

/* Whether a server has said something, instead of nobody. */
static bool is_answer(int err)
{
	return !err || soda_is_refusal(err) || err == -EPROTO || err == -ESHUTDOWN;
}

/* A server that does not know the client: it has made a new one, which nobody wants. */
static int refuse_stranger(struct soda_conn *conn, const struct soda_wire_welcome *welcome)
{
	if (welcome->known)
		return 0;
	soda_conn_leave(conn, SODA_NAME_WAIT_MS);
	return -ESTALE;
}

static int try_all(const struct attempt *a, struct soda_conn **conn_p,
		   struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	unsigned n = a->kept && !a->hello->client_id ? 1 : a->names.n;
	int first = 0;

	for (unsigned i = 0; i < n; i++) {
		const struct soda_place *at = &a->names.at[i];
		struct soda_why said = { "" };
		int ret = a->fn(at, a->rest, a->hello, a->opt, part_of_time(a, i), conn_p,
				welcome_p, &said);

		if (!ret && a->kept && i)
			ret = refuse_stranger(*conn_p, welcome_p);
		if (!ret && a->opt->place && a->opt->kind == SODA_CONN_CONTROL)
			*a->opt->place = *at;
		if (ret && (!first || !a->kept)) { /* what the one that is meant has said */
			first = ret;
			soda_why_set(why, "%s", said.text);
		}
		if (!ret || (is_answer(ret) && (!a->kept || !i)))
			return ret;
	}
	return first;
}

int soda_names_connect(const char *prefix, const char *rest, soda_names_fn *fn,
		       const struct soda_wire_hello *hello, const struct soda_conn_options *opt,
		       struct soda_conn **conn_p, struct soda_wire_welcome *welcome_p,
		       struct soda_why *why)
{
	struct attempt a = { .rest = rest,
			     .fn = fn,
			     .hello = hello,
			     .opt = opt,
			     .deadline_ns = soda_deadline(opt->timeout_ms) };
	int ret = choose(&a, prefix, why);

	return ret ? ret : try_all(&a, conn_p, welcome_p, why);
}
