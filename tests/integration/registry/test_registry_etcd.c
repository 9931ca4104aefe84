/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory servers that are registered in a real etcd of three nodes, and programs that find them by
 * `soda run`: servers come and go, the leader is killed, then all of etcd, while a program works.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "etcd_rig.h"
#include "../run/way.h"
#include "lib/proc.h"
#include "registry/etcd.h"
#include "registry/http.h"
#include "registry/registry.h"

#define SODA "tools/soda/soda"

static char dir[] = "/tmp/soda-test-registry-XXXXXX";
static char self[512];
static struct rig rig;
static struct program run;

/* "etcd://.../POOL"; a static buffer. */
static const char *pool(const char *name)
{
	static char text[160];

	snprintf(text, sizeof(text), "%s/%s", rig.list, name);
	return text;
}

static void begin_server(struct server *server, const char *name, const char *listen,
			 const char *domain)
{
	const char *args[] = { "--listen", listen,   "--capacity",
			       "64M",	   "--pool", pool(name),
			       "--drain",  "1s",     domain ? "--domain" : NULL,
			       domain,	   NULL };

	assert_int_equal(server_start(server, args), 0);
}

static void end_server(struct server *server)
{
	assert_int_equal(server_stop(server), 0);
	server_forget(server);
}

/* Until it has nothing. */
static void drain(const struct server *server)
{
	const char *args[] = { "pool", "drain", server->address, NULL };

	assert_int_equal(program_run(SODA, args, &run), 0);
	if (run.status)
		fail_msg("%s%s", run.out, run.err);
}

/* The list that a program gets; "": none, and the run has failed. */
static const char *found(const char *name)
{
	const char *args[] = { "run",	   "--quiet",  "--children=none",
			       "--server", pool(name), "--",
			       "/bin/sh",  "-c",       "echo $SODA_SERVER",
			       NULL };

	assert_int_equal(program_run(SODA, args, &run), 0);
	run.out[strcspn(run.out, "\n")] = '\0';
	return run.status ? "" : run.out;
}

static int count_addresses(const char *list)
{
	int n = *list != '\0';

	for (; *list; list++)
		n += *list == ',';
	return n;
}

/* Until so many servers are found, the one of that address, where one is given, among them. */
static void await_found(const char *name, int n, const char *address)
{
	const char *list = "";

	for (int i = 0; i < RIG_LOOKS; i++) {
		list = found(name);
		if (count_addresses(list) == n && (!address || strstr(list, address)))
			return;
		usleep(RIG_LOOK_US);
	}
	fail_msg("%d servers of pool %s are wanted, found: '%s' %s", n, name, list, run.err);
}

/* How many watches etcd's nodes have begun. */
static unsigned long watches(void)
{
	static const char line[] = "grpc_server_started_total{grpc_method=\"Watch\"";
	const struct soda_http_tls none = { NULL, NULL, NULL };
	unsigned long sum = 0;

	for (int i = 0; i < rig.n; i++) {
		struct soda_http_answer answer = { .body = NULL };
		struct soda_http *http;
		struct soda_why why;
		const char *at;
		char url[64], *text;

		snprintf(url, sizeof(url), "http://127.0.0.1:%d/metrics", rig.port[i]);
		assert_int_equal(soda_http_open(&none, &http, &why), 0);
		if (!soda_http_post(http, url, NULL, "", 2000, &answer, &why)) {
			text = strndup(answer.body, answer.bytes);
			at = strstr(text, line);
			sum += at ? strtoul(strchr(at, '}') + 1, NULL, 10) : 0;
			free(text);
		}
		free(answer.body);
		soda_http_close(http);
	}
	return sum;
}

/* It is refused, with these words. */
static void refused(const char *const *args, int status, const char *words)
{
	assert_int_equal(program_run(SODA, args, &run), 0);
	if (run.status != status || !strstr(run.err, words))
		print_error("status %d: %s", run.status, run.err);
	assert_int_equal(run.status, status);
	assert_non_null(strstr(run.err, words));
}

/* A program that works: this one, with the argument `work` */

enum { WORK = 24 << 20, MORE = 4, PAGE = 4096 };

struct work {
	pid_t pid;
	/* it makes the first file; when the others are there it has more memory, or ends */
	char begun[96], more[96], enough[96];
	const char *mem, *log; /* its page buffer; a file that gets its standard error, or NULL */
	const char *way;       /* of `soda run`, to its server: an option */
};

/* Words of all pages get values of this round, and are read. */
static int go_through(uint64_t *p, uint64_t round)
{
	for (size_t i = 0; i < WORK / PAGE; i++)
		p[i * (PAGE / 8) + i % 500] = round * i;
	for (size_t i = 0; i < WORK / PAGE; i++)
		if (p[i * (PAGE / 8) + i % 500] != round * i)
			return 3;
	return 0;
}

static int work(const char *begun, const char *more, const char *enough)
{
	uint64_t *p[1 + MORE], round = 1;
	int n = 0, ret = 0;

	for (; !ret && (round == 1 || access(enough, F_OK)); round++) {
		for (int want = access(more, F_OK) ? 1 : 1 + MORE; n < want; n++)
			if (!(p[n] = malloc(WORK)))
				return 4;
		for (int i = 0; i < n && !ret; i++)
			ret = go_through(p[i], round);
		close(open(begun, O_WRONLY | O_CREAT, 0600));
	}
	return ret;
}

static void work_become(const struct work *w, const char *server, pid_t parent)
{
	char soda[512];
	const char *argv[] = { soda, "run",  "--mem",  w->mem,	w->way,	   server, "--",
			       self, "work", w->begun, w->more, w->enough, NULL };

	snprintf(soda, sizeof(soda), "%s", build_path(SODA));
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (w->log)
		dup2(open(w->log, O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
	if (getppid() == parent)
		execv(soda, (char *const *)argv);
	_exit(126);
}

/* By w->way to that server. */
static void work_begin_at(struct work *w, const char *server, const char *mem, const char *log)
{
	pid_t parent = getpid();

	w->mem = mem;
	w->log = log;
	snprintf(w->begun, sizeof(w->begun), "%s/begun", dir);
	snprintf(w->more, sizeof(w->more), "%s/more", dir);
	snprintf(w->enough, sizeof(w->enough), "%s/enough", dir);
	unlink(w->begun);
	unlink(w->more);
	unlink(w->enough);
	w->pid = fork();
	if (!w->pid)
		work_become(w, server, parent);
	for (int i = 0; i < RIG_LOOKS && access(w->begun, F_OK); i++)
		usleep(RIG_LOOK_US);
	assert_int_equal(access(w->begun, F_OK), 0);
}

static void work_begin_with(struct work *w, const char *name, const char *mem, const char *log)
{
	w->way = "--server";
	work_begin_at(w, pool(name), mem, log);
}

static void work_begin(struct work *w, const char *name)
{
	work_begin_with(w, name, "16M", NULL);
}

/* It has gone on: another round has ended since this call began. */
static void work_goes_on(struct work *w)
{
	assert_int_equal(unlink(w->begun), 0);
	for (int i = 0; i < RIG_LOOKS && access(w->begun, F_OK); i++)
		usleep(RIG_LOOK_US);
	assert_int_equal(access(w->begun, F_OK), 0);
}

static void work_end(struct work *w)
{
	int status = -1;
	pid_t got = 0;

	close(open(w->enough, O_WRONLY | O_CREAT, 0600));
	for (int i = 0; i < RIG_LOOKS && !got; i++) {
		got = waitpid(w->pid, &status, WNOHANG);
		usleep(RIG_LOOK_US);
	}
	if (!got) {
		kill(w->pid, SIGKILL);
		waitpid(w->pid, &status, 0);
	}
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void await_logged(const char *log, const char *words)
{
	char text[4096];

	for (int i = 0; i < RIG_LOOKS; i++) {
		int fd = open(log, O_RDONLY);
		ssize_t n = read(fd, text, sizeof(text) - 1);

		close(fd);
		text[n < 0 ? 0 : n] = '\0';
		if (strstr(text, words))
			return;
		usleep(RIG_LOOK_US);
	}
	fail_msg("'%s' is not in: %s", words, text);
}

/* Servers come and go */

static void test_come_and_go(void **state)
{
	struct server servers[3];
	char address[128];
	struct work w;

	for (int i = 0; i < 3; i++)
		begin_server(&servers[i], "a", "tcp://127.0.0.1:0", i ? "rack1" : NULL);
	for (int i = 0; i < 3; i++)
		await_found("a", 3, servers[i].address);
	work_begin(&w, "a");
	work_goes_on(&w);
	work_end(&w);
	/* one that ends goes at once; one that is killed, with its lease */
	end_server(&servers[0]);
	assert_int_equal(count_addresses(found("a")), 2);
	snprintf(address, sizeof(address), "%s", servers[1].address);
	server_kill(&servers[1]);
	server_forget(&servers[1]);
	/* and when it is there again before that, it is one server */
	begin_server(&servers[1], "a", address, NULL);
	await_found("a", 2, address);
	server_kill(&servers[1]);
	server_forget(&servers[1]);
	await_found("a", 1, servers[2].address);
	end_server(&servers[2]);
	assert_string_equal(found("a"), "");
	assert_int_equal(run.status, 127);
	assert_non_null(strstr(run.err, "no server is registered in this pool"));
}

/* Base64 of /soda/pools/k/ and of /soda/pools/k0, which is behind all keys of pool k. */
#define KEYS_OF_K "\"key\":\"L3NvZGEvcG9vbHMvay8=\",\"range_end\":\"L3NvZGEvcG9vbHMvazA=\""

/* Whether etcd did this with the keys of pool k, and how many it tells of by that name. */
static json_int_t keys_of_k(const char *path, const char *number)
{
	json_t *answer = rig_ask(&rig, 0, path, "{" KEYS_OF_K "}", NULL);
	const char *text = json_string_value(json_object_get(answer, number));
	json_int_t n = text ? strtoll(text, NULL, 10) : 0;

	json_decref(answer);
	return n;
}

/* Give the first key of pool k another value. */
static void overwrite_key_of_k(void)
{
	json_t *answer = rig_ask(&rig, 0, "kv/range", "{" KEYS_OF_K "}", NULL);
	const json_t *first = json_array_get(json_object_get(answer, "kvs"), 0);
	char body[512];

	assert_non_null(first);
	snprintf(body, sizeof(body), "{\"key\":\"%s\",\"value\":\"e30=\"}",
		 json_string_value(json_object_get(first, "key")));
	rig_do(&rig, "kv/put", body);
	json_decref(answer);
}

/* A server's key comes back after an operator has deleted it, or has written another in its place.
 */
static void test_key_deleted(void **state)
{
	struct server server;

	begin_server(&server, "k", "tcp://127.0.0.1:0", NULL);
	await_found("k", 1, server.address);
	assert_int_equal(keys_of_k("kv/deleterange", "deleted"), 1);
	await_found("k", 1, server.address);
	overwrite_key_of_k();
	await_found("k", 1, server.address);
	end_server(&server);
	assert_int_equal(keys_of_k("kv/range", "count"), 0);
}

static void test_drained(void **state)
{
	struct server servers[2];

	for (int i = 0; i < 2; i++)
		begin_server(&servers[i], "drained", "tcp://127.0.0.1:0", NULL);
	await_found("drained", 2, NULL);
	drain(&servers[0]);
	/* programs that begin do not get it, who looks sees it */
	await_found("drained", 1, servers[1].address);
	assert_int_equal(
		program_run(SODA, (const char *const[]){ "pool", "status", pool("drained"), NULL },
			    &run),
		0);
	assert_int_equal(run.status, 0);
	assert_non_null(strstr(run.out, "draining"));
	assert_non_null(strstr(run.out, servers[0].address));
	assert_non_null(strstr(run.out, servers[1].address));
	for (int i = 0; i < 2; i++)
		end_server(&servers[i]);
}

/* A member of the JSON that `soda pool status` prints of that server. */
static json_int_t told_of(const char *name, const char *address, const char *key)
{
	json_t *all, *at;
	json_int_t value = -1;
	size_t i;

	assert_int_equal(
		program_run(SODA,
			    (const char *const[]){ "pool", "status", "--json", pool(name), NULL },
			    &run),
		0);
	all = json_loads(run.out, 0, NULL);
	json_array_foreach(
		json_object_get(all, "servers"), i,
		at) if (!strcmp(json_string_value(json_object_get(at, "address")), address)) value =
		json_integer_value(json_object_get(at, key));
	json_decref(all);
	return value;
}

static void await_told(const char *name, const char *address, const char *key, json_int_t least)
{
	for (int i = 0; i < RIG_LOOKS && told_of(name, address, key) < least; i++)
		usleep(RIG_LOOK_US);
	if (told_of(name, address, key) < least)
		fail_msg("%s of %s is to be %lld: %s", key, address, (long long)least, run.out);
}

/*
 * Servers that come while a program runs: what it allocates from then on goes there, and is more
 * than those have that it began with.  Servers of another pool are none of its.
 */
static void test_join(void **state)
{
	struct server servers[4], other;
	struct work w;

	for (int i = 0; i < 2; i++)
		begin_server(&servers[i], "j", "tcp://127.0.0.1:0", NULL);
	begin_server(&other, "j2", "tcp://127.0.0.1:0", NULL);
	await_found("j", 2, NULL);
	work_begin(&w, "j");
	assert_int_equal(told_of("j", servers[0].address, "clients"), 1);
	for (int i = 2; i < 4; i++)
		begin_server(&servers[i], "j", "tcp://127.0.0.1:0", NULL);
	for (int i = 2; i < 4; i++)
		await_told("j", servers[i].address, "clients", 1);
	assert_true(watches() > 0); /* `soda run` was told, and has not asked */
	close(open(w.more, O_WRONLY | O_CREAT, 0600));
	for (int i = 2; i < 4; i++)
		await_told("j", servers[i].address, "used_bytes", 4 << 20);
	work_goes_on(&w);
	work_goes_on(&w);
	assert_int_equal(told_of("j2", other.address, "clients"), 0);
	work_end(&w);
	for (int i = 0; i < 4; i++)
		end_server(&servers[i]);
	end_server(&other);
}

/*
 * With two copies on two servers none of them could be drained: one that comes takes what one of
 * them has, which ends.
 */
static void test_join_and_drain(void **state)
{
	struct server servers[3];
	struct work w;

	for (int i = 0; i < 2; i++)
		begin_server(&servers[i], "m", "tcp://127.0.0.1:0", NULL);
	await_found("m", 2, NULL);
	setenv("SODA_REDUNDANCY", "mirror:2", 1);
	work_begin(&w, "m");
	unsetenv("SODA_REDUNDANCY");
	begin_server(&servers[2], "m", "tcp://127.0.0.1:0", NULL);
	await_told("m", servers[2].address, "clients", 1);
	drain(&servers[0]);
	assert_true(told_of("m", servers[2].address, "used_bytes") >= WORK);
	end_server(&servers[0]);
	work_goes_on(&w);
	work_goes_on(&w);
	work_end(&w);
	end_server(&servers[1]);
	end_server(&servers[2]);
}

/* A DPU agent that finds the servers of the pool in etcd */

static void begin_agent(struct server *agent, const char *name, const char *listen)
{
	const char *args[] = { "--server", pool(name), "--listen", listen, NULL };

	assert_int_equal(agent_start(agent, args), 0);
}

/* Before it, as on a node, or that one itself. */
static const struct server *begin_node(struct server *node, const struct server *agent, bool two)
{
	const char *args[] = { "--server", agent->address, "--listen", "tcp://127.0.0.1:0", NULL };

	*node = (struct server){ .pid = 0 };
	if (!two)
		return agent;
	assert_int_equal(agent_start(node, args), 0);
	return node;
}

static void end_node(struct server *node)
{
	if (node->pid)
		end_server(node);
}

static void work_begin_behind(struct work *w, const struct server *agent)
{
	w->way = "--dpu";
	work_begin_at(w, agent->address, "16M", NULL);
}

/*
 * Servers that come while a program runs behind the agent are its servers; an agent that was
 * started anew finds all of them, whatever their order; one that went is no server of programs that
 * begin.
 */
static void behind_agent(const char *name, bool two)
{
	struct server servers[4], agent, node;
	const struct server *first;
	char address[128];
	struct work w;

	begin_server(&servers[0], name, "tcp://127.0.0.1:0", NULL);
	await_found(name, 1, NULL);
	begin_agent(&agent, name, "tcp://127.0.0.1:0");
	snprintf(address, sizeof(address), "%s", agent.address);
	first = begin_node(&node, &agent, two);
	work_begin_behind(&w, first);
	for (int i = 1; i < 4; i++)
		begin_server(&servers[i], name, "tcp://127.0.0.1:0", NULL);
	for (int i = 1; i < 4; i++)
		await_told(name, servers[i].address, "clients", 1);
	close(open(w.more, O_WRONLY | O_CREAT, 0600)); /* more than the first one has */
	for (int i = 1; i < 4; i++)
		await_told(name, servers[i].address, "used_bytes", 4 << 20);
	work_goes_on(&w);
	server_kill(&agent);
	server_forget(&agent);
	begin_agent(&agent, name, address);
	work_goes_on(&w);
	work_goes_on(&w);
	work_end(&w);
	end_server(&servers[0]);
	assert_true(server_logs(&agent, "is not registered any more"));
	work_begin_behind(&w, first);
	work_goes_on(&w);
	assert_int_equal(told_of(name, servers[1].address, "clients"), 1);
	work_end(&w);
	for (int i = 1; i < 4; i++)
		end_server(&servers[i]);
	end_node(&node);
	end_server(&agent);
}

static void test_agent(void **state)
{
	behind_agent("g", false);
	behind_agent("g2", true);
}

/* The value of a key of that pool, as a server with that address would write it. */
static void register_as(const char *name, uint64_t instance, const char *address)
{
	struct soda_registry_member m = { .instance = instance,
					  .capacity = 64 << 20,
					  .free_bytes = 64 << 20 };
	struct soda_registry_name pool_name;
	struct soda_why why;
	char key[SODA_REGISTRY_KEY], body[1024];
	char *value, *key64, *value64;

	snprintf(m.address, sizeof(m.address), "%s", address);
	assert_int_equal(soda_registry_parse(pool(name), &pool_name, &why), 0);
	soda_registry_key(&pool_name, instance, key);
	value = soda_registry_encode(&m);
	key64 = soda_base64_encode(key, strlen(key));
	value64 = soda_base64_encode(value, strlen(value));
	snprintf(body, sizeof(body), "{\"key\": \"%s\", \"value\": \"%s\"}", key64, value64);
	rig_do(&rig, "kv/put", body);
	free(value64);
	free(key64);
	free(value);
}

/*
 * Servers whose addresses in etcd become others, one after the other, while a program runs behind
 * the agent: they are found there, with what they have.
 */
static void move_behind_agent(const char *name, bool two)
{
	enum { N = 2 };
	struct server servers[N], agent, node;
	char log[sizeof(dir) + 8];
	struct work w;
	pid_t ways[N];

	for (int i = 0; i < N; i++) {
		char address[WAY_ADDRESS];

		assert_int_equal(SERVER_START(&servers[i], "--listen", "tcp://127.0.0.1:0",
					      "--capacity", "64M", "--drain", "1s"),
				 0);
		ways[i] = way_begin(servers[i].address, address);
		register_as(name, 1 + (uint64_t)i, address);
	}
	begin_agent(&agent, name, "tcp://127.0.0.1:0");
	snprintf(log, sizeof(log), "%s/log", dir);
	w.way = "--dpu";
	setenv("SODA_LOG", "info", 1);
	work_begin_at(&w, begin_node(&node, &agent, two)->address, "16M", log);
	unsetenv("SODA_LOG");
	for (int i = 0; i < N; i++) {
		work_goes_on(&w);
		way_end(ways[i]);
		register_as(name, 1 + (uint64_t)i, servers[i].address);
		work_goes_on(&w);
		work_goes_on(&w);
	}
	for (int i = 0; i < N; i++) {
		char words[192];

		snprintf(words, sizeof(words), "is to be found at %s from now on",
			 servers[i].address);
		await_logged(log, words);
	}
	work_end(&w);
	for (int i = 0; i < N; i++)
		end_server(&servers[i]);
	end_node(&node);
	end_server(&agent);
}

static void test_agent_and_moves(void **state)
{
	move_behind_agent("mv", false);
	move_behind_agent("mv2", true);
}

/* With two copies, behind an agent: what is drained moves to a server that has come. */
static void test_agent_and_drain(void **state)
{
	struct server servers[3], agent;
	struct work w;

	for (int i = 0; i < 2; i++)
		begin_server(&servers[i], "gm", "tcp://127.0.0.1:0", NULL);
	await_found("gm", 2, NULL);
	begin_agent(&agent, "gm", "tcp://127.0.0.1:0");
	setenv("SODA_REDUNDANCY", "mirror:2", 1);
	work_begin_behind(&w, &agent);
	unsetenv("SODA_REDUNDANCY");
	begin_server(&servers[2], "gm", "tcp://127.0.0.1:0", NULL);
	await_told("gm", servers[2].address, "clients", 1);
	drain(&servers[0]);
	end_server(&servers[0]);
	work_goes_on(&w);
	work_goes_on(&w);
	work_end(&w);
	for (int i = 1; i < 3; i++)
		end_server(&servers[i]);
	end_server(&agent);
}

static void agent_refused(const char *const *args, const char *words)
{
	char path[512];

	snprintf(path, sizeof(path), "%s", "src/dpu_agent/soda-dpu-agent");
	assert_int_equal(program_run(path, args, &run), 0);
	if (!run.status || !strstr(run.err, words))
		fail_msg("status %d: %s", run.status, run.err);
}

static void test_agent_refusals(void **state)
{
	const char *nobody[] = { "--server", pool("nobody"), NULL };
	const char *list[] = { "--server", "tcp://127.0.0.1:7001", "--etcd-ca", "ca.pem", NULL };
	struct server server;

	agent_refused(nobody, "no server is registered in this pool");
	agent_refused(list, "are for --server etcd://");
	begin_server(&server, "gr", "tcp://127.0.0.1:0", NULL);
	await_found("gr", 1, NULL);
	agent_refused(
		(const char *const[]){ "--server", pool("gr"), "--server-name", "mem1", NULL },
		"--server-name is the name of one server");
	end_server(&server);
}

/* A page buffer that is just enough for the servers that there are: others are not used. */
static void test_no_room(void **state)
{
	const char *args[] = { "run", "--mem", "64K", "--server", pool("n"), "--",
			       self,  "work",  "/",   "/",	  "/",	     NULL };
	struct server servers[3];
	char mem[24] = "", log[96];
	struct work w;

	for (int i = 0; i < 2; i++)
		begin_server(&servers[i], "n", "tcp://127.0.0.1:0", NULL);
	await_found("n", 2, NULL);
	assert_int_equal(program_run(SODA, args, &run), 0);
	assert_int_equal(run.status, 2);
	assert_non_null(strstr(run.err, " need "));
	sscanf(strstr(run.err, " need "), " need %20[0-9K]", mem);
	snprintf(log, sizeof(log), "%s/log", dir);
	work_begin_with(&w, "n", mem, log);
	begin_server(&servers[2], "n", "tcp://127.0.0.1:0", NULL);
	await_logged(log, "no room for one server more");
	work_goes_on(&w);
	work_goes_on(&w);
	assert_int_equal(told_of("n", servers[2].address, "clients"), 0);
	work_end(&w);
	for (int i = 0; i < 3; i++)
		end_server(&servers[i]);
}

/* What was there before a server came moves to it, with and without redundancy. */
static void rebalanced(const char *name, const char *redundancy)
{
	json_int_t used, most = 0, least = INT64_MAX;
	struct server servers[3];
	struct work w;

	for (int i = 0; i < 2; i++)
		begin_server(&servers[i], name, "tcp://127.0.0.1:0", NULL);
	await_found(name, 2, NULL);
	setenv("SODA_REDUNDANCY", redundancy, 1);
	setenv("SODA_SLAB", "2M", 1);
	work_begin(&w, name);
	unsetenv("SODA_REDUNDANCY");
	unsetenv("SODA_SLAB");
	begin_server(&servers[2], name, "tcp://127.0.0.1:0", NULL);
	await_told(name, servers[2].address, "clients", 1);
	assert_int_equal(told_of(name, servers[2].address, "used_bytes"), 0);
	assert_int_equal(program_run(SODA,
				     (const char *const[]){ "pool", "rebalance", pool(name), NULL },
				     &run),
			 0);
	if (run.status)
		fail_msg("%s%s", run.out, run.err);
	for (int i = 0; i < 3; i++) {
		used = told_of(name, servers[i].address, "used_bytes");
		most = used > most ? used : most;
		least = used < least ? used : least;
	}
	assert_true(least >= 4 << 20);
	if (most - least > 6 << 20)
		fail_msg("%lld to %lld: %s", (long long)least, (long long)most, run.out);
	work_goes_on(&w);
	work_goes_on(&w);
	work_end(&w);
	for (int i = 0; i < 3; i++)
		end_server(&servers[i]);
}

static void test_rebalance(void **state)
{
	rebalanced("r", "none");
	rebalanced("rm", "mirror:2");
}

/* etcd's nodes end */

static void test_leader_killed(void **state)
{
	struct server first, second;
	struct work w;
	int leader;

	begin_server(&first, "b", "tcp://127.0.0.1:0", NULL);
	await_found("b", 1, NULL);
	work_begin(&w, "b");
	leader = rig_leader(&rig);
	rig_kill(&rig, leader);
	work_goes_on(&w);
	begin_server(&second, "b", "tcp://127.0.0.1:0", NULL);
	await_found("b", 2, second.address);
	assert_non_null(strstr(found("b"), first.address));
	work_end(&w);
	rig_start(&rig, leader);
	end_server(&first);
	end_server(&second);
}

static void test_all_killed(void **state)
{
	struct server servers[2];
	struct work w;

	begin_server(&servers[0], "c", "tcp://127.0.0.1:0", NULL);
	await_found("c", 1, NULL);
	work_begin(&w, "c");
	for (int i = 0; i < RIG_NODES; i++)
		rig_kill(&rig, i);
	assert_true(server_logs(&servers[0], "it goes on, and tries again"));
	work_goes_on(&w);
	assert_string_equal(found("c"), "");
	assert_int_equal(run.status, 127);
	assert_non_null(strstr(run.err, "etcd cannot be asked"));
	/* a server begins, and one ends, without etcd */
	begin_server(&servers[1], "c", "tcp://127.0.0.1:0", NULL);
	assert_true(server_logs(&servers[1], "it goes on, and tries again"));
	for (int i = 0; i < RIG_NODES; i++)
		rig_start(&rig, i);
	await_found("c", 2, servers[1].address);
	work_goes_on(&w);
	work_end(&w);
	for (int i = 0; i < RIG_NODES; i++)
		rig_kill(&rig, i);
	end_server(&servers[0]);
	end_server(&servers[1]);
	for (int i = 0; i < RIG_NODES; i++)
		rig_start(&rig, i);
	rig_await(&rig);
}

/* What is refused */

static void test_refusals(void **state)
{
	const char *no_pool[] = { "pool", "status", pool("nothing"), NULL };
	struct program minimal;

	refused(no_pool, 1, "no server is registered in this pool");
	refused((const char *const[]){ "pool", "status", "etcd://127.0.0.1:1", NULL }, 2,
		"the pool's name");
	refused((const char *const[]){ "run", "--server", "etcd://127.0.0.1/p", "--", "true",
				       NULL },
		127, "'127.0.0.1' is not HOST:PORT");
	/* a program that asks by itself */
	setenv("SODA_SERVER", pool("nothing"), 1);
	assert_int_equal(program_run("examples/minimal", (const char *const[]){ NULL }, &minimal),
			 0);
	unsetenv("SODA_SERVER");
	assert_int_not_equal(minimal.status, 0);
	assert_non_null(strstr(minimal.err, "soda run --server etcd://"));
}

static void test_server_refusals(void **state)
{
	static const struct {
		const char *args[8], *words;
	} cases[] = {
		{ { "--pool", "etcd://127.0.0.1:1" }, "the pool's name" },
		{ { "--pool", "etcd://127.0.0.1:1/p", "--listen", "tcp://0.0.0.0:0" },
		  "--pool-address" },
		{ { "--pool", "etcd://127.0.0.1:1/p", "--pool-address", "tcp://a:1,tcp://b:1" },
		  "one address" },
		{ { "--etcd-ca", "/nothing" }, "are for --pool" },
		{ { "--pool", "etcd://127.0.0.1:1/p", "--etcd-cert", "/nothing" },
		  "needs its key" },
		{ { "--pool", "etcd://127.0.0.1:1/p", "--etcd-ca", "/nothing" }, "/nothing" },
		{ { "--pool", "etcd://127.0.0.1:1/p", "--etcd-user", "/nothing" }, "/nothing" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *args[16] = { "--capacity", "16M" };
		int n = 2;

		if (!cases[i].args[2] || strcmp(cases[i].args[2], "--listen")) {
			args[n++] = "--listen";
			args[n++] = "tcp://127.0.0.1:0";
		}
		for (int k = 0; cases[i].args[k]; k++)
			args[n++] = cases[i].args[k];
		assert_int_equal(program_run("src/mem_server/soda-mem-server", args, &run), 0);
		assert_int_equal(run.status, 1);
		if (!strstr(run.err, cases[i].words))
			fail_msg("%s", run.err);
	}
}

/* A user, and TLS */

static void write_file(const char *path, const char *text, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void make_certificates(void)
{
	char command[1024];

	snprintf(command, sizeof(command),
		 "cd %s && exec 2>/dev/null;"
		 "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
		 " -subj /CN=ca -keyout ca.key -out ca.pem &&"
		 "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=x"
		 " -keyout key.pem -out csr && printf 'subjectAltName=IP:127.0.0.1' >ext &&"
		 "openssl x509 -req -in csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2"
		 " -extfile ext -out cert.pem",
		 dir);
	assert_int_equal(system(command), 0);
}

/* User soda may write and read below /soda/pools/t/, and nothing else. */
static void make_users(const struct rig *one)
{
	rig_do(one, "auth/user/add", "{\"name\":\"root\",\"password\":\"r\"}");
	rig_do(one, "auth/role/add", "{\"name\":\"root\"}");
	rig_do(one, "auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}");
	rig_do(one, "auth/user/add", "{\"name\":\"soda\",\"password\":\"pass:word\"}");
	rig_do(one, "auth/role/add", "{\"name\":\"pools\"}");
	rig_do(one, "auth/role/grant",
	       "{\"name\":\"pools\",\"perm\":{\"permType\":\"READWRITE\","
	       "\"key\":\"L3NvZGEvcG9vbHMvdC8=\",\"range_end\":\"L3NvZGEvcG9vbHMvdDA=\"}}");
	rig_do(one, "auth/user/grant", "{\"user\":\"soda\",\"role\":\"pools\"}");
	rig_do(one, "auth/enable", "{}");
}

static void status_with(const struct rig *one, const char *name, const char *ca, const char *user,
			int status, const char *words)
{
	const char *args[12] = { "pool", "status" };
	char at[160];
	int n = 2;

	snprintf(at, sizeof(at), "%s/%s", one->list, name);
	args[n++] = at;
	if (ca) {
		args[n++] = "--etcd-ca";
		args[n++] = ca;
	}
	if (user) {
		args[n++] = "--etcd-user";
		args[n++] = user;
	}
	for (int i = 0; i < RIG_LOOKS; i++) {
		assert_int_equal(program_run(SODA, args, &run), 0);
		if (run.status == status && strstr(status ? run.err : run.out, words))
			return;
		usleep(RIG_LOOK_US);
	}
	fail_msg("status %d: %s%s", run.status, run.out, run.err);
}

/* An etcd that is reached by TLS alone. */
static void open_secure(struct rig *one, bool wants_certificates)
{
	if (system("openssl version >/dev/null 2>&1")) {
		printf("SKIP: no openssl program to make certificates with\n");
		skip();
	}
	make_certificates();
	rig_open(one, 1, dir, dir, wants_certificates);
}

static void test_user_and_tls(void **state)
{
	char at[160], ca[96], user[96], wrong[96], open_to_all[96];
	struct server server, agent;
	struct rig one;

	open_secure(&one, false);
	make_users(&one);
	snprintf(at, sizeof(at), "%s/t", one.list);
	snprintf(ca, sizeof(ca), "%s/ca.pem", dir);
	snprintf(user, sizeof(user), "%s/user", dir);
	snprintf(wrong, sizeof(wrong), "%s/wrong", dir);
	snprintf(open_to_all, sizeof(open_to_all), "%s/open", dir);
	write_file(user, "soda:pass:word\n", 0600);
	write_file(wrong, "soda:other\n", 0600);
	write_file(open_to_all, "soda:pass:word\n", 0644);
	assert_int_equal(SERVER_START(&server, "--capacity", "64M", "--pool", at, "--etcd-ca", ca,
				      "--etcd-user", user),
			 0);
	status_with(&one, "t", ca, user, 0, server.address);
	status_with(&one, "t", ca, wrong, 1, "authentication failed");
	status_with(&one, "t", ca, NULL, 1, "refuses");
	status_with(&one, "other", ca, user, 1, "permission denied");
	assert_int_equal(agent_start(&agent, (const char *const[]){ "--server", at, "--etcd-ca", ca,
								    "--etcd-user", user, NULL }),
			 0);
	assert_int_equal(server_stop(&agent), 0);
	server_forget(&agent);
	agent_refused((const char *const[]){ "--server", at, "--etcd-ca", ca, "--etcd-user", wrong,
					     NULL },
		      "authentication failed");
	status_with(&one, "t", ca, open_to_all, 1, "others than its owner can use this file");
	status_with(&one, "t", NULL, user, 1, "etcd");
	/* etcd forgets its tokens, and gives new ones */
	rig_kill(&one, 0);
	assert_true(server_logs(&server, "tries again"));
	rig_start(&one, 0);
	status_with(&one, "t", ca, user, 0, server.address);
	end_server(&server);
	status_with(&one, "t", ca, user, 1, "no server is registered");
	rig_close(&one);
}

/* An etcd that wants certificates of its clients. */
static void test_client_certificate(void **state)
{
	char at[160], ca[96], cert[96], key[96], open_to_all[128], command[400];
	struct server server;
	struct rig one;

	open_secure(&one, true);
	snprintf(at, sizeof(at), "%s/c", one.list);
	snprintf(ca, sizeof(ca), "%s/ca.pem", dir);
	snprintf(cert, sizeof(cert), "%s/cert.pem", dir);
	snprintf(key, sizeof(key), "%s/key.pem", dir);
	snprintf(open_to_all, sizeof(open_to_all), "%s/open.key", dir);
	snprintf(command, sizeof(command), "cp %s %s && chmod 644 %s", key, open_to_all,
		 open_to_all);
	assert_int_equal(system(command), 0);
	assert_int_equal(SERVER_START(&server, "--capacity", "64M", "--pool", at, "--etcd-ca", ca,
				      "--etcd-cert", cert, "--etcd-key", key),
			 0);
	status_with(&one, "c", ca, NULL, 1, "etcd cannot be asked");
	setenv("SODA_ETCD_CERT", cert, 1);
	status_with(&one, "c", ca, NULL, 2, "needs its key");
	setenv("SODA_ETCD_KEY", open_to_all, 1);
	status_with(&one, "c", ca, NULL, 1, "others than its owner can use this file");
	setenv("SODA_ETCD_KEY", key, 1);
	status_with(&one, "c", ca, NULL, 0, server.address);
	status_with(&one, "c", NULL, NULL, 2, "etcd-ca");
	unsetenv("SODA_ETCD_CERT");
	unsetenv("SODA_ETCD_KEY");
	end_server(&server);
	rig_close(&one);
}

static int open_group(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	rig_open(&rig, RIG_NODES, dir, NULL, false);
	return 0;
}

static int close_group(void **state)
{
	char command[128];

	rig_close(&rig);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_come_and_go),
		cmocka_unit_test(test_key_deleted),
		cmocka_unit_test(test_drained),
		cmocka_unit_test(test_join),
		cmocka_unit_test(test_join_and_drain),
		cmocka_unit_test(test_agent),
		cmocka_unit_test(test_agent_and_moves),
		cmocka_unit_test(test_agent_and_drain),
		cmocka_unit_test(test_agent_refusals),
		cmocka_unit_test(test_rebalance),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_leader_killed),
		cmocka_unit_test(test_all_killed),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_server_refusals),
		cmocka_unit_test(test_user_and_tls),
		cmocka_unit_test(test_client_certificate),
	};
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (argc == 5 && !strcmp(argv[1], "work"))
		return work(argv[2], argv[3], argv[4]);
	if (n < 0 || argc > 1)
		return 1;
	if (!rig_possible()) {
		printf("SKIP: no etcd to register servers in (Debian: etcd-server)\n");
		return 77;
	}
	cmocka_set_test_filter(getenv("SODA_TEST_ONLY")); /* NULL: all of them */
	return cmocka_run_group_tests(tests, open_group, close_group);
}
