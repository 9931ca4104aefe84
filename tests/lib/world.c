/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/world.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/harness.h"

enum { ARGS_MAX = 32 };

static void start_server(struct world *w, const char *listen)
{
	const char *args[ARGS_MAX] = { "--listen", listen, "--capacity", "1G", "--drain", "2s" };
	bool tenants = w->more && !strcmp(*w->more, "--tenants"); /* whose file has directories */
	size_t n = 6;

	if (!tenants) {
		args[n++] = "--export";
		args[n++] = w->export_dir;
	}
	for (const char *const *m = w->more; m && *m && n + 1 < ARGS_MAX; m++)
		args[n++] = *m;
	if (server_start(&w->server, args))
		fail_msg("the server does not start");
}

static enum world_transport chosen(void)
{
	const char *name = getenv("SODA_TEST_TRANSPORT");

	if (name && !strcmp(name, "verbs"))
		return WORLD_VERBS;
	return name && !strcmp(name, "shm") ? WORLD_SHM : WORLD_TCP;
}

/* How long agents wait for a server's answer. */
static const char *patience = "20s";

void world_has_silent_servers(void)
{
	patience = "4s";
}

/* Start an agent with the options, separated by spaces. */
static void start_agent_as(struct server *agent, const char *listen, const char *server,
			   const char *words)
{
	const char *args[ARGS_MAX] = { "--listen", listen, "--server",	server,
				       "--drain",  "2s",   "--timeout", patience };
	char *options = strdup(words), *rest = options, *word;
	size_t n = 8;

	while (options && (word = strsep(&rest, " ")))
		if (*word && n + 1 < ARGS_MAX)
			args[n++] = word;
	if (agent_start(agent, args))
		fail_msg("the agent does not start");
	free(options);
}

/* The server's address, with rules, of a variable, for what happens to connections to it. */
static const char *with_faults(const char *server, const char *variable, char text[384])
{
	const char *fault = getenv(variable);

	snprintf(text, 384, "%s%s%s", fault ? "fault+" : "", server, fault ? fault : "");
	return text;
}

static void start_agent(struct world *w, const char *listen)
{
	char text[384];

	start_agent_as(&w->agent, listen,
		       with_faults(w->below_address, "SODA_TEST_AGENT_FAULT", text),
		       getenv("SODA_TEST_AGENT"));
}

static void start_below(struct world *w, const char *listen)
{
	start_agent_as(&w->below, listen, w->server_address, getenv("SODA_TEST_AGENT_BELOW"));
}

/* listen: where, if not on shm. */
static void open_below(struct world *w, const char *listen)
{
	char shm[128];

	memcpy(w->below_address, w->server_address, sizeof(w->below_address));
	if (!getenv("SODA_TEST_AGENT_BELOW"))
		return;
	snprintf(shm, sizeof(shm), "shm://%s/below", w->dir);
	start_below(w, getenv("SODA_TEST_AGENT_BELOW_SHM") ? shm : listen);
	memcpy(w->below_address, w->below.address, sizeof(w->below_address));
}

void world_open(struct world *w, enum world_transport transport, const char *const *more)
{
	char listen[128] = "tcp://127.0.0.1:0";

	if (transport == WORLD_DEFAULT)
		transport = chosen();
	*w = (struct world){ .more = more };
	snprintf(w->dir, sizeof(w->dir), "%.40s/soda-test-XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	assert_non_null(mkdtemp(w->dir));
	snprintf(w->export_dir, sizeof(w->export_dir), "%s/export", w->dir);
	assert_return_code(mkdir(w->export_dir, 0755), errno);
	if (transport == WORLD_SHM)
		snprintf(listen, sizeof(listen), "shm://%s/sock", w->dir);
	/* the address of an RDMA device, and port 0 */
	if (transport == WORLD_VERBS)
		snprintf(listen, sizeof(listen), "%s", getenv("SODA_TEST_VERBS"));
	start_server(w, listen);
	memcpy(w->server_address, w->server.address, sizeof(w->address));
	memcpy(w->address, w->server.address, sizeof(w->address));
	if (transport == WORLD_SHM || !getenv("SODA_TEST_AGENT"))
		return;
	if (transport != WORLD_VERBS)
		snprintf(listen, sizeof(listen), "tcp://127.0.0.1:0");
	open_below(w, listen);
	if (getenv("SODA_TEST_AGENT_SHM"))
		snprintf(listen, sizeof(listen), "shm://%s/agent", w->dir);
	start_agent(w, listen);
	memcpy(w->address, w->agent.address, sizeof(w->address));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

/* Ends the agent, if there is one; *complaints_p: add what it has logged that is no information. */
static int close_agent(struct server *agent, bool noisy, int *complaints_p)
{
	int status = agent->pid ? server_stop(agent) : 0;

	if (agent->address[0]) {
		*complaints_p += noisy ? 0 : server_complaints(agent);
		server_forget(agent);
	}
	/* noisy: data that it had taken over is lost with the server */
	return noisy && status == 1 ? 0 : status;
}

static void close_world(struct world *w, bool noisy)
{
	int complaints = 0;
	int agent_status = close_agent(&w->agent, noisy, &complaints);
	int below_status = close_agent(&w->below, noisy, &complaints);
	int status = w->server.pid ? server_stop(&w->server) : 0;

	complaints += noisy ? 0 : server_complaints(&w->server);
	server_forget(&w->server);
	nftw(w->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	assert_int_equal(status, 0);
	assert_int_equal(agent_status, 0);
	assert_int_equal(below_status, 0);
	assert_int_equal(complaints, 0);
}

void world_close(struct world *w)
{
	close_world(w, false);
}

void world_close_noisy(struct world *w)
{
	close_world(w, true);
}

void world_kill(struct world *w)
{
	server_kill(&w->server);
	server_forget(&w->server);
}

void world_restart(struct world *w)
{
	start_server(w, w->server_address);
}

void world_kill_agent(struct world *w)
{
	server_kill(&w->agent);
	server_forget(&w->agent);
}

void world_restart_agent(struct world *w)
{
	start_agent(w, w->address);
}

void world_kill_below(struct world *w)
{
	server_kill(&w->below);
	server_forget(&w->below);
}

void world_restart_below(struct world *w)
{
	start_below(w, w->below_address);
}

unsigned long long world_stat(const char *address, const char *key)
{
	const char *const args[] = { "stat", "--json", address, NULL };
	static struct program program;
	char quoted[64];
	const char *at;

	assert_int_equal(program_run("tools/soda/soda", args, &program), 0);
	snprintf(quoted, sizeof(quoted), "\"%s\":", key);
	at = strstr(program.out, quoted);
	if (!at)
		fail_msg("no %s in %s%s", quoted, program.out, program.err);
	return strtoull(at + strlen(quoted), NULL, 10);
}

void world_write_file(struct world *w, const char *name, const void *data, size_t bytes)
{
	char path[256], *slash;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", w->export_dir, name);
	for (slash = strchr(path + strlen(w->export_dir) + 1, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(path, 0755);
		*slash = '/';
	}
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	assert_return_code(fd, errno);
	assert_int_equal(write(fd, data, bytes), bytes);
	close(fd);
}

char *world_read_file(struct world *w, const char *name, size_t bytes)
{
	char path[256], *data = malloc(bytes + 1);
	int fd;

	assert_non_null(data);
	snprintf(path, sizeof(path), "%s/%s", w->export_dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_return_code(fd, errno);
	assert_int_equal(read(fd, data, bytes + 1), bytes);
	close(fd);
	return data;
}

static const char *any_address(void)
{
	const char *verbs = getenv("SODA_TEST_VERBS");

	return verbs ? verbs : "tcp://127.0.0.1:0";
}

/* One that seals leaves its keys to the next one. */
static void start_with_list(struct front *f, const char *listen)
{
	const char *options = getenv("SODA_TEST_POOL_AGENT");
	char text[256];

	if (front_seals() && !f->state[0]) {
		snprintf(f->state, sizeof(f->state), "/dev/shm/soda-test-XXXXXX");
		assert_non_null(mkdtemp(f->state));
	}
	snprintf(text, sizeof(text), "%s%s%s", options, f->state[0] ? " --seal-state=" : "",
		 f->state);
	start_agent_as(&f->agent, listen, f->list, text);
	snprintf(f->agent_address, sizeof(f->agent_address), "%s", f->agent.address);
}

/* listen: where programs come to.  Those that run stay. */
static void start_front(struct front *f, const char *listen)
{
	const char *node = getenv("SODA_TEST_POOL_NODE");
	const char *between = f->agent_address[0] ? f->agent_address : any_address();

	if (!f->agent.pid)
		start_with_list(f, node ? between : listen);
	if (node && !f->node.pid)
		start_agent_as(&f->node, listen, f->agent_address, node);
	snprintf(f->address, sizeof(f->address), "%s", node ? f->node.address : f->agent_address);
}

bool front_seals(void)
{
	const char *options = getenv("SODA_TEST_POOL_AGENT");

	return options && strstr(options, "--seal");
}

void front_open(struct front *f, const char *list)
{
	char listen[128];

	*f = (struct front){ 0 };
	snprintf(f->list, sizeof(f->list), "%s", list);
	memcpy(f->address, f->list, sizeof(f->address));
	if (!getenv("SODA_TEST_POOL_AGENT"))
		return;
	snprintf(listen, sizeof(listen), "%s", any_address());
	if (getenv("SODA_TEST_AGENT_SHM") || getenv("SODA_TEST_POOL_NODE")) {
		snprintf(f->dir, sizeof(f->dir), "%.40s/soda-test-XXXXXX",
			 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
		assert_non_null(mkdtemp(f->dir));
		snprintf(listen, sizeof(listen), "shm://%s/agent", f->dir);
	}
	start_front(f, listen);
}

const char *front_options(void)
{
	return getenv("SODA_TEST_POOL_NODE") ? "SODA_TEST_POOL_NODE" : "SODA_TEST_POOL_AGENT";
}

void front_required(void)
{
	if (getenv("SODA_TEST_POOL_AGENT"))
		return;
	puts("SKIP: no agent stands in front of this pool");
	skip();
}

static int stop(struct server *agent)
{
	int status = agent->pid ? server_stop(agent) : 0;

	if (agent->address[0])
		server_forget(agent);
	return status;
}

void front_close(struct front *f)
{
	int node_status = stop(&f->node), status = stop(&f->agent);

	if (f->dir[0])
		nftw(f->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	if (f->state[0])
		nftw(f->state, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	assert_int_equal(node_status, 0);
	assert_int_equal(status, 0);
}

void front_kill_some(struct front *f, unsigned number)
{
	number = f->node.pid ? number % 3 : 1;
	if (number != 1) {
		server_kill(&f->node);
		server_forget(&f->node);
	}
	if (number != 2) {
		server_kill(&f->agent);
		server_forget(&f->agent);
	}
}

void front_kill(struct front *f)
{
	front_kill_some(f, 0);
}

void front_restart(struct front *f)
{
	char address[sizeof(f->address)];

	memcpy(address, f->address, sizeof(address));
	start_front(f, address);
}

/* The world of world_run(). */
static struct world *shared;
static bool shared_noisy;

static int open_shared(void **state)
{
	world_open(shared, WORLD_DEFAULT, NULL);
	return 0;
}

static int close_shared(void **state)
{
	close_world(shared, shared_noisy);
	return 0;
}

int world_run(const char *name, struct world *w, bool noisy, const struct CMUnitTest *tests,
	      size_t n)
{
	shared = w;
	shared_noisy = noisy;
	return _cmocka_run_group_tests(name, tests, n, open_shared, close_shared);
}

void write_seal_key(const char *path, unsigned number)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_true(dprintf(fd, "[seal]\nkey = %064u\n", number) > 0);
	close(fd);
}
