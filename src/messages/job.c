/* SPDX-License-Identifier: BSD-3-Clause */
#include "messages/job.h"

#include <errno.h>
#include <sched.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/log.h"
#include "base/wait.h"
#include "messages/hosts.h"
#include "messages/launch.h"
#include "messages/router.h"
#include "wire/field.h"

/* Errors */

static _Thread_local char last_error[320] __attribute__((tls_model("initial-exec")));
_Thread_local pid_t soda_msg_known SODA_MSG_TLS;

int soda_msg_failed(int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(last_error, sizeof(last_error), fmt, args);
	va_end(args);
	return err;
}

SODA_API const char *soda_msg_last_error(void)
{
	return last_error;
}

/* The thread that has forked is another one. */
static void forget_process(void)
{
	soda_msg_known = 0;
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, forget_process);
}

int soda_msg_check(const struct soda_msg_job *job)
{
	last_error[0] = 0;
	if (soda_msg_known != job->pid) { /* getpid() is a system call, and a push is not */
		soda_msg_known = getpid();
		if (soda_msg_known != job->pid)
			return soda_msg_failed(-ENOTSUP,
					       "this job is that of the process %d, before its"
					       " fork",
					       (int)job->pid);
	}
	return 0;
}

int soda_msg_error_locked(const struct soda_msg_job *job)
{
	return job->error ? soda_msg_failed(job->error, "%s", job->why.text) : 0;
}

uint64_t soda_msg_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void soda_msg_lose(struct soda_msg_job *job, int ret, const struct soda_why *why)
{
	const char *text = *why->text ? why->text : soda_strerror(ret);

	pthread_mutex_lock(&job->lock);
	if (!job->error && (soda_call_lost(ret) || ret == -ESTALE)) {
		job->error = -ENOTCONN;
		snprintf(job->why.text, sizeof(job->why.text),
			 "the connection to the agent is lost: %.200s", text);
	} else if (!job->error) {
		job->error = ret;
		snprintf(job->why.text, sizeof(job->why.text), "%s", text);
	}
	soda_quick_bar_locked(&job->quick, &soda_msg_known);
	soda_lanes_settle_locked(job); /* so that the next push sees it */
	soda_quick_open_locked(&job->quick);
	soda_gathers_bar_locked(job); /* likewise, and it stays so */
	soda_msg_work_locked(job);
	pthread_cond_broadcast(&job->room);
	soda_msg_news_locked(job);
	pthread_mutex_unlock(&job->lock);
}

void soda_msg_news_locked(struct soda_msg_job *job)
{
	if (!job->waiting)
		return;
	if (soda_msg_has_rings(job))
		soda_rings_tell(&job->rings);
	else
		pthread_cond_broadcast(&job->news);
}

void soda_msg_work_locked(struct soda_msg_job *job)
{
	if (job->listening)
		soda_rings_tell(&job->rings);
	else
		pthread_cond_signal(&job->work);
}

/* Start */

/* What the program said, with the environment for what it did not. */
struct how {
	char agent[SODA_ADDRESS_MAX + 1];
	uint32_t agents, here; /* how many, and which is ours */
	uint8_t *shape;	       /* of a JOIN, behind the name: places and addresses; or NULL */
	size_t shape_bytes;
	const char *name, *key;
	uint32_t rank, ranks, timeout_ms;
	bool routes;			   /* messages are routed in this process */
	char listen[SODA_ADDRESS_MAX + 1]; /* where, for other ranks' routers; "": there are none */
	struct soda_launch_sizes sizes;
	char found_name[SODA_WIRE_MAX_NAME + 1], found_key[SODA_LAUNCH_KEY_MAX + 1];
};

/* The address, in full. */
static int copy_address(const char *agent, size_t bytes, char address[SODA_ADDRESS_MAX + 1])
{
	char text[SODA_ADDRESS_MAX + 8];

	snprintf(text, sizeof(text), "%.*s", (int)bytes, agent);
	if (bytes >= sizeof(text) || soda_address_of(text, address) < 0)
		return soda_msg_failed(-EINVAL, "an agent's address has at most %d bytes",
				       SODA_ADDRESS_MAX);
	return 0;
}

static int set_agent(struct how *how, const char *agent, size_t bytes)
{
	return copy_address(agent, bytes, how->agent);
}

static const char *either(const char *said, const char *name)
{
	const char *text = said ? said : getenv(name);

	return text && *text ? text : NULL;
}

/* Places as text: "0*2,1*2": agents' numbers, each with how many ranks in a row. */
static int read_places(const struct how *how, const char *text, uint8_t *places)
{
	uint32_t rank = 0;

	for (const char *at = text; *at;) {
		char *end;
		unsigned long agent = strtoul(at, &end, 10), n = 1;

		if (end != at && *end == '*') {
			at = end + 1;
			n = strtoul(at, &end, 10);
		}
		if (end == at || (*end && *end != ',') || agent >= how->agents || !n ||
		    n > how->ranks - rank)
			return soda_msg_failed(
				-EINVAL,
				"the places of %u ranks at %u agents are not \"%.100s\":"
				" numbers of agents, from 0, as AGENT*RANKS,...",
				how->ranks, how->agents, text);
		memset(places + rank, (int)agent, n);
		rank += (uint32_t)n;
		at = *end ? end + 1 : end;
	}
	return rank == how->ranks
		       ? 0
		       : soda_msg_failed(-EINVAL, "places are named for %u ranks of %u: \"%.100s\"",
					 rank, how->ranks, text);
}

/* Where no places are named each agent has as many ranks, in a row. */
static void spread_places(const struct how *how, uint8_t *places)
{
	for (uint32_t i = 0; i < how->ranks; i++)
		places[i] = (uint8_t)((uint64_t)i * how->agents / how->ranks);
}

/* The so many-th address of a list, not terminated. */
static const char *nth_address(const char *list, uint32_t nth, size_t *bytes_p)
{
	while (nth--)
		list = strchr(list, ',') + 1;
	*bytes_p = strcspn(list, ",");
	return list;
}

/* What a JOIN says of several agents. how->shape is the caller's. */
static int find_shape(struct how *how, const char *list, const char *places)
{
	int ret = 0;
	char *at;

	how->shape_bytes = how->ranks + strlen(list) + 1;
	how->shape = malloc(how->shape_bytes);
	if (!how->shape)
		return soda_msg_failed(-ENOMEM, "no memory for a job");
	if (places)
		ret = read_places(how, places, how->shape);
	else
		spread_places(how, how->shape);
	if (ret < 0)
		return ret;
	how->here = how->shape[how->rank];
	at = (char *)how->shape + how->ranks;
	strcpy(at, list);
	for (; *at; at++) {
		if (*at == ',')
			*at = 0;
	}
	return 0;
}

/* The list of agents, and which is whose. After ranks are known. */
static int set_list(struct how *how, const char *list, const char *places)
{
	size_t bytes;

	how->agents = 1;
	for (const char *at = list; at && *at; at += bytes + (at[bytes] == ',')) {
		bytes = strcspn(at, ",");
		if (!bytes || bytes > SODA_ADDRESS_MAX || (at[bytes] && !at[bytes + 1]))
			return soda_msg_failed(-EINVAL, "not a list of agents: \"%.100s\"", list);
		how->agents += at != list;
	}
	if (how->agents > SODA_MSG_AGENTS)
		return soda_msg_failed(-EINVAL, "a job has at most %u agents, not %u",
				       SODA_MSG_AGENTS, how->agents);
	return how->agents > 1 ? find_shape(how, list, places) : 0;
}

/* The agents of the job, and ours. */
static int set_agents(const struct soda_msg_options *said, struct how *how, const char *list,
		      const char *places)
{
	const char *agent = either(said->agent, "SODA_MSG_AGENT");
	size_t bytes;
	int ret = set_list(how, list, places);

	if (ret < 0)
		return ret;
	if (agent)
		return set_agent(how, agent, strlen(agent));
	if (list) {
		agent = nth_address(list, how->here, &bytes);
		return set_agent(how, agent, bytes);
	}
	agent = either(NULL, "SODA_DPU");
	return agent ? set_agent(how, agent, strlen(agent))
		     : soda_msg_failed(-EINVAL, "no agent is named: give its address, or set"
						" SODA_MSG_AGENT or SODA_MSG_HOSTS");
}

/* Where this rank's router listens: as others know it, without a decorator, or as it is told. */
static int set_listen(struct how *how, const char *list)
{
	static const char decorator[] = "fault+";
	const char *said = either(NULL, "SODA_MSG_LISTEN"), *at = said;
	size_t bytes = said ? strlen(said) : 0;

	if (how->ranks == 1)
		return 0;
	if (!said) {
		at = nth_address(list, how->rank, &bytes);
		at += !strncmp(at, decorator, sizeof(decorator) - 1) ? sizeof(decorator) - 1 : 0;
		bytes = strcspn(at, ",?");
	}
	return copy_address(at, bytes, how->listen);
}

/* Each rank is its own agent: a list of agents stands for their ranks' routers. */
static int set_routers(struct how *how, const char *list, const char *places)
{
	struct soda_why why = { "" };
	char *routers = NULL;
	int ret;

	ret = set_list(how, list, places);
	if (ret < 0)
		return ret;
	ret = list ? soda_hosts_routers(list, how->shape, how->ranks, &routers, &why)
		   : soda_hosts_here(how->name, how->ranks, &routers, &why);
	free(how->shape);
	how->shape = NULL;
	how->shape_bytes = 0;
	if (ret < 0)
		return soda_msg_failed(ret, "%s", why.text);
	ret = set_list(how, routers, NULL);
	if (ret == 0)
		ret = set_listen(how, routers);
	free(routers);
	return ret;
}

/* Whether this process routes its messages. */
static int find_routing(const struct soda_msg_options *said, struct how *how)
{
	const char *routing = either(said->routing, "SODA_MSG_ROUTING");

	how->routes = routing && !strcmp(routing, "process");
	if (!routing || how->routes || !strcmp(routing, "agent"))
		return 0;
	return soda_msg_failed(-EINVAL,
			       "messages are routed by an \"agent\" or in the \"process\""
			       ", not \"%.40s\": see SODA_MSG_ROUTING",
			       routing);
}

/* The same, out of a host file or Slurm's nodes where nobody names them. */
static int find_agents(const struct soda_msg_options *said, struct how *how)
{
	const char *list = either(said->agents, "SODA_MSG_AGENTS");
	const char *places = either(said->places, "SODA_MSG_PLACES");
	struct soda_hosts hosts = { NULL, NULL };
	struct soda_why why;
	int ret = list ? 0 : soda_hosts_find(how->ranks, &hosts, &why);

	if (ret < 0)
		return soda_msg_failed(ret, "%s", why.text);
	list = list ? list : hosts.agents;
	places = places ? places : hosts.places;
	ret = how->routes ? set_routers(how, list, places) : set_agents(said, how, list, places);
	free(hosts.agents);
	free(hosts.places);
	return ret;
}

/* What the program did not say, its launcher does. */
static int find_part(const struct soda_msg_options *said, struct how *how)
{
	struct soda_launch launch = { said->rank, said->ranks };
	struct soda_why why;
	int ret = 0;

	how->name = said->job ? said->job : how->found_name;
	how->key = said->key ? said->key : how->found_key;
	if (!said->rank && !said->ranks)
		ret = soda_launch_find(&launch, &why);
	if (ret == 0 && !said->job)
		ret = soda_launch_name(how->found_name, &why);
	if (ret == 0 && !said->key)
		ret = soda_launch_key(how->found_key, &why);
	how->rank = launch.rank;
	how->ranks = launch.ranks;
	return ret < 0 ? soda_msg_failed(ret, "%s", why.text) : 0;
}

static int find_how(const struct soda_msg_options *said, struct how *how)
{
	struct soda_why why;
	int ret = 0;

	*how = (struct how){ .timeout_ms = said->timeout_ms ? said->timeout_ms : 60000 };
	if (soda_launch_sizes(&how->sizes, &why) < 0)
		return soda_msg_failed(-EINVAL, "%s", why.text);
	if (said->flush_us)
		how->sizes.flush_us = said->flush_us;
	ret = find_part(said, how);
	if (ret < 0)
		return ret;
	if (!soda_wire_name_ok(how->name, strlen(how->name)))
		return soda_msg_failed(-EINVAL,
				       "a job's name has 1 to %d printable characters of"
				       " ASCII, and no space: say it, or set SODA_MSG_JOB",
				       SODA_WIRE_MAX_NAME);
	if (!how->ranks || how->ranks > SODA_MSG_RANKS_MAX || how->rank >= how->ranks)
		return soda_msg_failed(-EINVAL,
				       "rank %u of %u: ranks are 0 to one less than their"
				       " number, which is at most %u",
				       how->rank, how->ranks, SODA_MSG_RANKS_MAX);
	ret = find_routing(said, how);
	return ret < 0 ? ret : find_agents(said, how);
}

/* A JOIN as it travels. It is the caller's. NULL: no memory. */
static uint8_t *make_join(const struct how *how, uint64_t life, enum soda_msg_role role, bool again,
			  size_t *bytes_p)
{
	struct soda_wire_msg_join join = { .version = SODA_MSG_VERSION,
					   .role = role,
					   .rank = how->rank,
					   .ranks = how->ranks,
					   .life = life,
					   .agents = how->agents,
					   .here = how->here,
					   .name_bytes = (uint32_t)strlen(how->name),
					   .again = again };
	uint8_t *body = malloc(SODA_WIRE_MSG_JOIN_BYTES + join.name_bytes + how->shape_bytes);

	if (!body)
		return NULL;
	soda_wire_put_msg_join(body, &join);
	memcpy(body + SODA_WIRE_MSG_JOIN_BYTES, how->name, join.name_bytes);
	if (how->shape)
		memcpy(body + SODA_WIRE_MSG_JOIN_BYTES + join.name_bytes, how->shape,
		       how->shape_bytes);
	*bytes_p = SODA_WIRE_MSG_JOIN_BYTES + join.name_bytes + how->shape_bytes;
	return body;
}

static int sign_join(const struct soda_msg_job *job, struct soda_conn *conn, uint8_t *join,
		     size_t bytes, int timeout_ms, struct soda_why *why)
{
	uint8_t body[sizeof(uint32_t)], reply[SODA_WIRE_MSG_CHALLENGE_BYTES];
	struct iovec iov = { body, sizeof(body) };
	struct soda_wire_msg_challenge of;
	size_t n = 0;
	int ret;

	soda_wire_put_u32(body, SODA_MSG_VERSION);
	ret = soda_conn_call(conn, (enum soda_msg)SODA_MSG_MESSAGES_CHALLENGE, &iov, 1, reply,
			     sizeof(reply), &n, timeout_ms, why);
	if (ret == 0)
		ret = soda_wire_get_msg_challenge(reply, n, &of);
	return ret < 0 ? ret : soda_job_sign_join(job->pair, &of, join, bytes);
}

int soda_msg_connect(const struct soda_msg_job *job, uint8_t *join, size_t bytes, int timeout_ms,
		     struct soda_conn **conn_p, struct soda_why *why)
{
	struct iovec iov = { join, bytes };
	const struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL,
					       .timeout_ms = timeout_ms,
					       .calls = SODA_MSG_AHEAD };
	int call_ms = timeout_ms ? timeout_ms : SODA_MSG_CALL_MS;
	struct soda_wire_welcome welcome;
	struct soda_conn *conn;
	uint8_t reply[4];
	size_t n = 0;
	/* what the environment says of keys is not for this process's own router */
	int ret = job->router ? soda_conn_join_with(job->agent, &opt, &conn, &welcome, why)
			      : soda_conn_join_as_told(job->agent, &opt, &conn, &welcome, why);

	if (ret < 0)
		return ret;
	if (job->pair)
		ret = sign_join(job, conn, join, bytes, call_ms, why);
	if (ret == 0)
		ret = soda_conn_call(conn, (enum soda_msg)SODA_MSG_MESSAGES_JOIN, &iov, 1, reply,
				     sizeof(reply), &n, call_ms, why);
	if (ret < 0)
		soda_conn_close(conn);
	else
		*conn_p = conn;
	return ret;
}

static int connect_one(struct soda_msg_job *job, const struct how *how, enum soda_msg_role role,
		       struct soda_conn **conn_p)
{
	size_t bytes = 0;
	uint8_t *body = make_join(how, job->life, role, false, &bytes);
	struct soda_why why = { "" };
	int ret;

	job->join[role - 1] = make_join(how, job->life, role, true, &job->join_bytes);
	if (!body || !job->join[role - 1]) {
		free(body);
		return soda_msg_failed(-ENOMEM, "no memory for a job");
	}
	ret = soda_msg_connect(job, body, bytes, 0, conn_p, &why);
	free(body);
	if ((ret == -ENOTSUP && strncmp(why.text, "messages:", 9) != 0) || ret == -EPROTO)
		return soda_msg_failed(-ENOTSUP,
				       "%s routes no messages: it needs to be a"
				       " soda-dpu-agent with --msg-memory (%s)",
				       how->agent, why.text);
	return ret < 0 ? soda_msg_failed(ret, "%s", *why.text ? why.text : soda_strerror(ret)) : 0;
}

/* How many ranks are missing, waiting so many milliseconds for them. 0; the job's error. */
static int await_once(struct soda_msg_job *job, uint32_t ms,
		      struct soda_wire_msg_missing *missing_p)
{
	uint8_t body[4], reply[SODA_WIRE_MSG_MISSING_BYTES];
	size_t n = 0;
	int ret;

	soda_wire_put_u32(body, ms);
	ret = soda_msg_call(job, SODA_MSG_PUSHES, SODA_MSG_MESSAGES_AWAIT, body, sizeof(body),
			    reply, sizeof(reply), &n, 0);
	if (ret == 0 && soda_wire_get_msg_missing(reply, n, missing_p) < 0)
		return soda_msg_failed(-ENOTCONN, "the agent's answer makes no sense");
	return ret < 0 ? soda_msg_error_locked(job) : 0; /* no thread uses the job yet */
}

/* Wait until all ranks have come. */
static int await_ranks(struct soda_msg_job *job, const struct how *how)
{
	uint64_t end_ns = soda_msg_now_ns() + how->timeout_ms * 1000000ull;
	struct soda_wire_msg_missing missing = { 0 };

	do {
		int ret = await_once(job, SODA_MSG_AWAIT_MS, &missing);

		if (ret < 0)
			return ret;
		if (!missing.n)
			return 0;
	} while (soda_msg_now_ns() < end_ns);
	return soda_msg_failed(
		-ETIMEDOUT, "%u of the %u ranks of the job %s have not come: rank %u%s", missing.n,
		how->ranks, how->name, missing.first, missing.n > 1 ? " and others" : "");
}

/* The rings, where the agent is on this machine and has memory for them: 0 also if it has not. */
static int take_rings(struct soda_msg_job *job)
{
	struct soda_why why = { "" };
	int ret = strstr(job->agent, "shm://")
			  ? soda_rings_ask(&job->rings, job->push_conn, job->ranks, &why)
			  : 0;

	if (ret < 0)
		return soda_msg_failed(ret, "%s", *why.text ? why.text : soda_strerror(ret));
	return 0;
}

static int take_inbox(struct soda_msg_job *job)
{
	struct soda_wire_msg_missing missing;
	struct soda_why why = { "" };
	int ret = soda_rings_ask_inbox(&job->rings, job->pull_conn, &why);

	if (ret == 0)
		return 0;
	/* it has joined another job of that name: the first one was broken off, and knows why */
	if (ret == -ESTALE && await_once(job, 0, &missing) == -ECANCELED)
		return soda_msg_error_locked(job);
	return soda_msg_failed(ret, "%s", *why.text ? why.text : soda_strerror(ret));
}

/* The lanes' slots, where the rings have none. */
static int take_slots(struct soda_msg_job *job)
{
	size_t each = SODA_MSG_LANES_BYTES / SODA_LANE_SLOTS / job->ranks & ~(size_t)4095, bytes;

	job->slot_bytes = each > SODA_MSG_PACKET_MAX   ? SODA_MSG_PACKET_MAX
			  : each < SODA_MSG_SLOT_LEAST ? SODA_MSG_SLOT_LEAST
						       : (uint32_t)each;
	bytes = (size_t)job->ranks * SODA_LANE_SLOTS * job->slot_bytes;
	job->slots = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (job->slots == MAP_FAILED)
		job->slots = NULL;
	return job->slots ? 0 : soda_msg_failed(-ENOMEM, "no memory for a job");
}

static int take_memory(struct soda_msg_job *job)
{
	int ret = 0;

	job->parts = calloc(job->ranks, sizeof(job->parts[0]));
	if (!job->parts)
		return soda_msg_failed(-ENOMEM, "no memory for a job");
	if (soda_msg_has_rings(job)) {
		job->slots = job->rings.slots;
		job->slot_bytes = job->rings.sizes.slot_bytes;
	} else {
		ret = take_slots(job);
		job->flights = calloc(1, sizeof(*job->flights));
		if (ret == 0 && !job->flights)
			ret = soda_msg_failed(-ENOMEM, "no memory for a job");
	}
	if (job->packet_bytes > job->slot_bytes)
		job->packet_bytes = job->slot_bytes;
	return ret;
}

/* The threads take no signal: they are the program's. */
static int start_threads(struct soda_msg_job *job)
{
	sigset_t all, saved;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	ret = pthread_create(&job->sender, NULL, soda_msg_sender_main, job);
	if (!ret) {
		job->threads++;
		ret = pthread_create(&job->receiver, NULL, soda_msg_receiver_main, job);
		job->threads += !ret;
	}
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	return ret ? soda_msg_failed(-ret, "cannot start a thread: %s", soda_strerror(ret)) : 0;
}

static void destroy(struct soda_msg_job *job)
{
	soda_conn_close(job->push_conn);
	soda_conn_close(job->pull_conn);
	soda_msg_router_close(job->router);
	if (soda_msg_has_rings(job))
		soda_rings_unmap(&job->rings);
	else if (job->slots)
		munmap(job->slots, (size_t)job->ranks * SODA_LANE_SLOTS * job->slot_bytes);
	for (uint32_t i = 0; i < job->ranks; i++) {
		free(job->lanes[i].large);
		if (job->parts)
			free(job->parts[i].data);
	}
	free(job->parts);
	free(job->given);
	free(job->flights);
	soda_gathers_free(&job->gathers);
	free(job->join[0]);
	free(job->join[1]);
	soda_secret_free(job->pair, sizeof(*job->pair));
	pthread_cond_destroy(&job->news);
	pthread_cond_destroy(&job->room);
	pthread_cond_destroy(&job->work);
	pthread_mutex_destroy(&job->lock);
	free(job);
}

/* The router of this process is its agent. */
static int start_router(struct soda_msg_job *job, struct how *how)
{
	struct soda_why why = { "" };
	int ret = soda_msg_router_open(*how->listen ? how->listen : NULL, how->ranks, &job->router,
				       &why);

	if (ret < 0)
		return soda_msg_failed(ret, "rank %u cannot route messages: %s", how->rank,
				       *why.text ? why.text : soda_strerror(ret));
	snprintf(how->agent, sizeof(how->agent), "%s", soda_msg_router_address(job->router));
	return 0;
}

/* The pair is derived of the job's key; the key itself is forgotten. */
static int take_key(struct soda_msg_job *job, struct how *how)
{
	int ret = 0;

	if (how->key && *how->key) {
		job->pair = soda_secret_new(sizeof(*job->pair));
		ret = job->pair ? soda_job_pair_make(how->key, how->name, job->pair) : -ENOMEM;
	}
	soda_wipe(how->found_key, sizeof(how->found_key));
	how->key = NULL;
	if (ret == -ENOTSUP)
		return soda_msg_failed(ret, "a job's key needs OpenSSL's libcrypto, with Ed25519 "
					    "(Debian: libssl3)");
	return ret < 0 ? soda_msg_failed(ret, "the job's key: %s", soda_strerror(ret)) : 0;
}

static int set_up(struct soda_msg_job *job, struct how *how)
{
	int ret = take_key(job, how);

	if (ret == 0 && how->routes)
		ret = start_router(job, how);
	memcpy(job->agent, how->agent, sizeof(job->agent));
	if (ret == 0)
		ret = connect_one(job, how, SODA_MSG_PUSHES, &job->push_conn);
	if (ret == 0)
		ret = take_rings(job);
	if (ret == 0)
		ret = take_memory(job);
	if (ret == 0)
		ret = connect_one(job, how, SODA_MSG_PULLS, &job->pull_conn);
	if (ret == 0 && soda_msg_has_rings(job))
		ret = take_inbox(job);
	if (ret == 0)
		ret = await_ranks(job, how);
	return ret < 0 ? ret : start_threads(job);
}

/* End the threads; where the agent is silent, its connections first. */
static void stop_threads(struct soda_msg_job *job)
{
	uint64_t until_ns = soda_msg_now_ns() + SODA_MSG_GOODBYE_MS * 1000000ull;
	struct timespec until = { (time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000) };
	bool silent;

	pthread_mutex_lock(&job->lock);
	job->stop = true;
	soda_msg_work_locked(job);
	pthread_cond_broadcast(&job->room);
	while (job->stopped < job->threads)
		if (pthread_cond_timedwait(&job->news, &job->lock, &until))
			break;
	silent = job->stopped < job->threads;
	job->silent = silent;
	if (silent && job->push_conn)
		soda_conn_abort(job->push_conn);
	if (silent && job->pull_conn)
		soda_conn_abort(job->pull_conn);
	pthread_mutex_unlock(&job->lock);
	if (job->threads > 0)
		pthread_join(job->sender, NULL);
	if (job->threads > 1)
		pthread_join(job->receiver, NULL);
	if (silent && !job->error)
		job->error = -ENOTCONN;
}

SODA_API int soda_msg_start(const struct soda_msg_options *said, struct soda_msg_job **job_p)
{
	static const struct soda_msg_options nothing;
	static pthread_once_t forks = PTHREAD_ONCE_INIT;
	struct soda_msg_job *job;
	int saved = errno, ret;
	struct how how;

	last_error[0] = 0;
	pthread_once(&forks, watch_forks);
	ret = find_how(said ? said : &nothing, &how);
	if (ret < 0) {
		free(how.shape);
		return ret;
	}
	job = calloc(1, sizeof(*job) + how.ranks * sizeof(job->lanes[0]));
	if (!job || getrandom(&job->life, sizeof(job->life), 0) != sizeof(job->life)) {
		free(job);
		free(how.shape);
		return soda_msg_failed(-ENOMEM, "no memory for a job");
	}
	job->life |= 1;
	job->pid = getpid();
	job->rank = how.rank;
	job->ranks = how.ranks;
	job->flush_ns = how.sizes.flush_us * 1000ull;
	job->packet_bytes = how.sizes.packet_bytes;
	job->lane_slots = how.sizes.slots;
	soda_quick_init(&job->quick);
	pthread_mutex_init(&job->lock, NULL);
	soda_cond_init(&job->work);
	soda_cond_init(&job->room);
	soda_cond_init(&job->news);
	ret = set_up(job, &how);
	if (ret < 0) {
		stop_threads(job);
		destroy(job);
	} else {
		*job_p = job;
	}
	free(how.shape);
	errno = saved;
	return ret;
}

SODA_API void soda_msg_end(struct soda_msg_job *job)
{
	int saved = errno;

	if (!job || soda_msg_check(job) < 0)
		return;
	stop_threads(job);
	if (job->error != -ENOTCONN) { /* so that others know at once, and the name is free */
		soda_conn_leave(job->push_conn, SODA_MSG_GOODBYE_MS);
		soda_conn_leave(job->pull_conn, SODA_MSG_GOODBYE_MS);
		job->push_conn = job->pull_conn = NULL;
	}
	destroy(job);
	errno = saved;
}

SODA_API unsigned soda_msg_rank(const struct soda_msg_job *job)
{
	return job->rank;
}

SODA_API unsigned soda_msg_ranks(const struct soda_msg_job *job)
{
	return job->ranks;
}

SODA_API void soda_msg_get_stats(struct soda_msg_job *job, struct soda_msg_stats *stats_p)
{
	uint64_t gathered, gathered_bytes;

	*stats_p = (struct soda_msg_stats){ 0 };
	if (soda_msg_check(job) < 0) /* the lock may be another thread's, which the child has not */
		return;
	pthread_mutex_lock(&job->lock);
	soda_quick_bar_locked(&job->quick, &soda_msg_known);
	soda_lanes_settle_locked(job);
	soda_quick_open_locked(&job->quick);
	soda_gathers_count_locked(job, &gathered, &gathered_bytes);
	*stats_p = job->stats;
	stats_p->pushed += gathered;
	stats_p->pushed_bytes += gathered_bytes;
	pthread_mutex_unlock(&job->lock);
	stats_p->received_calls += atomic_load_explicit(&job->ranges, memory_order_relaxed);
	stats_p->received_bytes += atomic_load_explicit(&job->ranges_bytes, memory_order_relaxed);
	stats_p->pulled = atomic_load_explicit(&job->pulled, memory_order_relaxed);
	stats_p->pulled_bytes = atomic_load_explicit(&job->pulled_bytes, memory_order_relaxed);
}

/* Waiting */

static bool pushable_locked(struct soda_msg_job *job)
{
	return soda_lane_used_locked(job, job->denied) < job->lane_slots &&
	       !job->lanes[job->denied].large;
}

static bool here_locked(struct soda_msg_job *job, unsigned what)
{
	return ((what & SODA_MSG_PULL) && soda_msg_pullable_locked(job)) ||
	       ((what & SODA_MSG_PUSH) && pushable_locked(job)) ||
	       ((what & SODA_MSG_COLLECTIVE) && soda_msg_complete_locked(job));
}

/*
 * Others run meanwhile, and what is waited for is mostly there soon: a processor that goes to sleep
 * wakes up much later.
 */
static void yield_in_rings(struct soda_msg_job *job, unsigned what, uint64_t until_ns)
{
	uint64_t end_ns = soda_msg_now_ns() + SODA_MSG_YIELD_US * 1000ull;

	if (end_ns > until_ns)
		end_ns = until_ns;
	while (!here_locked(job, what) && !job->error && soda_msg_now_ns() < end_ns) {
		pthread_mutex_unlock(&job->lock);
		sched_yield();
		pthread_mutex_lock(&job->lock);
	}
}

/* Sleep once, without the lock, until there is news or the time is over. */
static void sleep_in_rings(struct soda_msg_job *job, unsigned what, uint64_t until_ns)
{
	struct soda_rings *r = &job->rings;
	uint32_t word;
	uint64_t now;

	soda_rings_begin_sleep(r);
	word = soda_rings_word(r);
	if (!here_locked(job, what) && !job->error) {
		pthread_mutex_unlock(&job->lock);
		now = soda_msg_now_ns();
		soda_rings_sleep(r, word, until_ns > now ? until_ns - now : 0);
		pthread_mutex_lock(&job->lock);
	}
	soda_rings_end_sleep(r);
}

/* Once. True: the time is over. */
static bool await_news_locked(struct soda_msg_job *job, unsigned what, uint64_t until_ns)
{
	struct timespec until = { (time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000) };

	if (soda_msg_has_rings(job)) {
		sleep_in_rings(job, what, until_ns);
		return soda_msg_now_ns() >= until_ns;
	}
	if (until_ns == UINT64_MAX)
		return pthread_cond_wait(&job->news, &job->lock) != 0;
	return pthread_cond_timedwait(&job->news, &job->lock, &until) == ETIMEDOUT;
}

static int wait_locked(struct soda_msg_job *job, unsigned what, int timeout_ms)
{
	uint64_t until_ns =
		timeout_ms < 0 ? UINT64_MAX : soda_msg_now_ns() + (uint64_t)timeout_ms * 1000000;
	bool over = false;

	/* who still has packets under way waits no longer than others for more */
	if (!soda_msg_has_rings(job) || !soda_msg_under_way_locked(job))
		soda_msg_flush_locked(job);
	job->waiting++;
	if (soda_msg_has_rings(job))
		yield_in_rings(job, what, until_ns);
	while (!here_locked(job, what) && !job->error && !over)
		over = await_news_locked(job, what, until_ns);
	job->waiting--;
	if (here_locked(job, what))
		return 0;
	return job->error ? soda_msg_error_locked(job)
			  : soda_msg_failed(-ETIMEDOUT, "nothing came in %d ms", timeout_ms);
}

SODA_API int soda_msg_wait(struct soda_msg_job *job, unsigned what, int timeout_ms)
{
	int ret = soda_msg_check(job);

	if (ret < 0)
		return ret;
	if (!what || (what & ~(SODA_MSG_PULL | SODA_MSG_PUSH | SODA_MSG_COLLECTIVE)))
		return soda_msg_failed(-EINVAL, "nothing to wait for: %#x", what);
	pthread_mutex_lock(&job->lock);
	ret = wait_locked(job, what, timeout_ms);
	pthread_mutex_unlock(&job->lock);
	return ret;
}
