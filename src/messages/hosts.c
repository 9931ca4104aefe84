/* SPDX-License-Identifier: BSD-3-Clause */
#include "messages/hosts.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "wire/messages.h"

enum { NODE_MAX = 255 }; /* bytes of a node's name */

struct host {
	char address[SODA_ADDRESS_MAX + 1];
	uint32_t ranks; /* 0: not said */
};

struct list {
	uint32_t n;
	struct host all[SODA_MSG_AGENTS];
};

static __attribute__((format(printf, 2, 3))) int fail(struct soda_why *why, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, args);
	va_end(args);
	return -EINVAL;
}

static int no_memory(struct soda_why *why)
{
	fail(why, "no memory for the agents' addresses");
	return -ENOMEM;
}

/* Texts */

/* How many ranks each agent has: in all lines or in none, and enough. */
static int check_ranks(const struct list *list, uint32_t ranks, const char *name,
		       struct soda_why *why)
{
	uint64_t all = 0;
	uint32_t said = 0;

	for (uint32_t i = 0; i < list->n; i++) {
		all += list->all[i].ranks;
		said += list->all[i].ranks > 0;
	}
	if (!list->n)
		return fail(why, "%.100s names no agent", name);
	if (said && said < list->n)
		return fail(why, "%.100s: %u of %u agents have a number of ranks: all, or none",
			    name, said, list->n);
	if (said && all < ranks)
		return fail(why, "%.100s has agents for %llu ranks, and the job has %u", name,
			    (unsigned long long)all, ranks);
	return 0;
}

static int make_texts(const struct list *list, uint32_t ranks, struct soda_hosts *hosts_p)
{
	char *agents = NULL, *places = NULL;
	size_t agents_bytes, places_bytes;
	FILE *a = open_memstream(&agents, &agents_bytes);
	FILE *p = open_memstream(&places, &places_bytes);
	uint32_t left = ranks;
	bool failed = !a || !p;

	for (uint32_t i = 0; !failed && i < list->n && left; i++) {
		const struct host *h = &list->all[i];
		uint32_t n = h->ranks < left ? h->ranks : left;

		fprintf(a, "%s%s", i ? "," : "", h->address);
		fprintf(p, "%s%u*%u", i ? "," : "", i, n);
		left -= n;
	}
	failed |= a && fclose(a);
	failed |= p && fclose(p);
	if (failed || !list->all[0].ranks) {
		free(places);
		places = NULL;
	}
	if (failed) {
		free(agents);
		return -ENOMEM;
	}
	*hosts_p = (struct soda_hosts){ agents, places };
	return 0;
}

static int finish(struct list *list, uint32_t ranks, const char *name, struct soda_hosts *hosts_p,
		  struct soda_why *why)
{
	int ret = check_ranks(list, ranks, name, why);

	if (ret == 0 && make_texts(list, ranks, hosts_p) < 0)
		ret = no_memory(why);
	free(list);
	return ret;
}

/* Add an agent; where: how messages begin. */
static int add(struct list *list, const char *address, uint32_t ranks, const char *where,
	       struct soda_why *why)
{
	if (list->n == SODA_MSG_AGENTS)
		return fail(why, "%s: a job has at most %u agents", where, SODA_MSG_AGENTS);
	for (uint32_t i = 0; i < list->n; i++)
		if (!strcmp(list->all[i].address, address))
			return fail(why, "%s: %.60s is there already", where, address);
	snprintf(list->all[list->n].address, sizeof(list->all[0].address), "%s", address);
	list->all[list->n++].ranks = ranks;
	return 0;
}

/* A number of 1 to most at *at_p, which is moved behind it; 0: there is none. */
static uint32_t number(const char **at_p, uint32_t most)
{
	uint32_t value = 0;

	for (; isdigit((unsigned char)**at_p); (*at_p)++) {
		value = value * 10 + (uint32_t)(**at_p - '0');
		if (value > most)
			return 0;
	}
	return value;
}

/* Host files */

static bool is_address(const char *text)
{
	const char *behind = strstr(text, "://");

	return behind && behind > text && behind[3] && !strchr(text, ',') &&
	       strlen(text) <= SODA_ADDRESS_MAX;
}

/* A line, which is changed. */
static int read_line(struct list *list, char *line, const char *where, struct soda_why *why)
{
	static const char blanks[] = " \t\r\n";
	char *rest = NULL, *address, *ranks;
	const char *end;
	uint32_t n = 0;

	line[strcspn(line, "#")] = 0;
	address = strtok_r(line, blanks, &rest);
	ranks = strtok_r(NULL, blanks, &rest);
	if (!address)
		return 0;
	if (!is_address(address))
		return fail(why, "%s: %.60s is not an agent's address: tcp://HOST:PORT", where,
			    address);
	if (ranks) {
		end = ranks;
		n = number(&end, SODA_MSG_RANKS);
		if (!n || *end)
			return fail(why, "%s: %.60s is not a number of ranks, 1 to %u", where,
				    ranks, SODA_MSG_RANKS);
		if (strtok_r(NULL, blanks, &rest))
			return fail(why, "%s: more than an address and a number of ranks", where);
	}
	return add(list, address, n, where, why);
}

int soda_hosts_read(FILE *file, const char *name, uint32_t ranks, struct soda_hosts *hosts_p,
		    struct soda_why *why)
{
	struct list *list = calloc(1, sizeof(*list));
	unsigned line_number = 0;
	char *line = NULL;
	size_t room = 0;
	ssize_t n;
	int ret = 0;

	if (!list)
		return no_memory(why);
	while (ret == 0 && (n = getline(&line, &room, file)) >= 0) {
		char where[160];

		snprintf(where, sizeof(where), "%.100s:%u", name, ++line_number);
		ret = strlen(line) == (size_t)n ? read_line(list, line, where, why)
						: fail(why, "%s: is not text", where);
	}
	if (ret == 0 && ferror(file)) {
		ret = errno ? -errno : -EIO;
		fail(why, "%.100s: %s", name, soda_strerror(ret));
	}
	free(line);
	if (ret == 0)
		return finish(list, ranks, name, hosts_p, why);
	free(list);
	return ret;
}

/* Slurm */

static const char slurm[] = "Slurm's nodes";

struct nodes {
	struct list *list;
	const char *tasks;    /* what is left of them */
	uint32_t each, times; /* tasks on so many next nodes */
	uint32_t port;
	struct soda_why *why;
};

/* How many tasks the next node has: of "2(x3),1" first 2, three times. */
static int next_tasks(struct nodes *s)
{
	const char *text = s->tasks;

	if (s->times) {
		s->times--;
		return 0;
	}
	s->each = number(&s->tasks, SODA_MSG_RANKS);
	s->times = 1;
	if (!strncmp(s->tasks, "(x", 2)) {
		s->tasks += 2;
		s->times = number(&s->tasks, SODA_MSG_RANKS);
		if (*s->tasks != ')')
			return fail(s->why, "%s: tasks \"%.60s\"", slurm, text);
		s->tasks++;
	}
	if (!s->each || !s->times || (*s->tasks && *s->tasks != ','))
		return fail(s->why, "%s: tasks \"%.60s\"", slurm, text);
	s->tasks += *s->tasks == ',';
	s->times--;
	return 0;
}

static int add_node(struct nodes *s, const char *name)
{
	char address[NODE_MAX + 32];
	int ret = next_tasks(s);

	snprintf(address, sizeof(address), "tcp://%s:%u", name, s->port);
	return ret < 0 ? ret : add(s->list, address, s->each, slurm, s->why);
}

/* The numbers behind a prefix, "1-3,07]", up to the bracket; *at_p is moved behind that. */
static int add_numbers(struct nodes *s, const char *prefix, const char **at_p)
{
	const char *text = *at_p;

	for (;;) {
		const char *begin = *at_p;
		uint32_t first = number(at_p, 99999999), last = first;
		int width = (int)(*at_p - begin), ret = 0;
		bool digits = width > 0 && width <= 8;

		if (**at_p == '-') {
			begin = ++*at_p;
			last = number(at_p, 99999999);
			digits &= *at_p > begin && *at_p - begin <= 8;
		}
		if (!digits || last < first || (**at_p != ',' && **at_p != ']'))
			return fail(s->why, "%s: \"%.20s[%.60s\"", slurm, prefix, text);
		for (uint32_t i = first; ret == 0 && i <= last; i++) {
			char name[NODE_MAX + 16];

			snprintf(name, sizeof(name), "%s%0*u", prefix, width, i);
			ret = add_node(s, name);
		}
		if (ret < 0)
			return ret;
		if (*(*at_p)++ == ']')
			return 0;
	}
}

/* "a[1-3,07],b": one after the other. */
static int add_nodes(struct nodes *s, const char *at)
{
	while (*at) {
		size_t n = strcspn(at, ",[");
		char prefix[NODE_MAX + 1];
		int ret;

		if (!n || n > NODE_MAX || at[n - 1] == ']')
			return fail(s->why, "%s: \"%.60s\"", slurm, at);
		snprintf(prefix, sizeof(prefix), "%.*s", (int)n, at);
		at += n;
		if (*at == '[') {
			at++;
			ret = add_numbers(s, prefix, &at);
		} else {
			ret = add_node(s, prefix);
		}
		if (ret == 0 && *at && (*at != ',' || !at[1]))
			ret = fail(s->why, "%s: \"%.60s\" behind a bracket, or at the end", slurm,
				   at);
		if (ret < 0)
			return ret;
		at += *at == ',';
	}
	return 0;
}

int soda_hosts_expand(const char *nodes, const char *tasks, uint32_t port, uint32_t ranks,
		      struct soda_hosts *hosts_p, struct soda_why *why)
{
	struct nodes s = { calloc(1, sizeof(struct list)), tasks, 0, 0, port, why };
	int ret;

	if (!s.list)
		return no_memory(why);
	ret = add_nodes(&s, nodes);
	if (ret == 0 && (*s.tasks || s.times))
		ret = fail(why, "%s: tasks of more nodes than \"%.60s\"", slurm, nodes);
	if (ret == 0)
		return finish(s.list, ranks, slurm, hosts_p, why);
	free(s.list);
	return ret;
}

/* The environment */

static int find_slurm(const char *port_text, uint32_t ranks, struct soda_hosts *hosts_p,
		      struct soda_why *why)
{
	const char *nodes = getenv("SLURM_STEP_NODELIST");
	const char *tasks = getenv("SLURM_STEP_TASKS_PER_NODE");
	const char *end = port_text;
	uint32_t port = number(&end, 65535);

	if (!port || *end)
		return fail(why, "SODA_MSG_PORT=%.40s is not a port", port_text);
	if (!nodes || !tasks)
		return fail(why, "SODA_MSG_PORT is the port of an agent on each of Slurm's nodes,"
				 " and srun has not started this process");
	return soda_hosts_expand(nodes, tasks, port, ranks, hosts_p, why);
}

int soda_hosts_find(uint32_t ranks, struct soda_hosts *hosts_p, struct soda_why *why)
{
	const char *path = getenv("SODA_MSG_HOSTS"), *port = getenv("SODA_MSG_PORT");
	FILE *file;
	int ret;

	*hosts_p = (struct soda_hosts){ NULL, NULL };
	if (!path || !*path)
		return port && *port ? find_slurm(port, ranks, hosts_p, why) : 0;
	file = fopen(path, "re");
	if (!file) {
		ret = -errno;
		fail(why, "SODA_MSG_HOSTS=%.100s: %s", path, soda_strerror(ret));
		return ret;
	}
	ret = soda_hosts_read(file, path, ranks, hosts_p, why);
	fclose(file);
	return ret;
}

/* Routers */

/* The k-th address behind one; up to a ?, behind which a decorator's rules are. */
static int put_behind(FILE *out, const char *address, size_t bytes, uint32_t k,
		      struct soda_why *why)
{
	size_t n = strcspn(address, "?"), host;
	uint32_t port;
	const char *at;

	n = n < bytes ? n : bytes;
	for (host = n; host && isdigit((unsigned char)address[host - 1]); host--)
		;
	at = address + host;
	port = number(&at, 65535);
	if (!k)
		fprintf(out, "%.*s", (int)bytes, address);
	else if (memmem(address, n, "shm://", 6))
		fprintf(out, "%.*s.%u%.*s", (int)n, address, k, (int)(bytes - n), address + n);
	else if (!host || address[host - 1] != ':' || !port || port + k > 65535)
		return fail(why, "%.*s: %u ports behind it there is none for a rank's router",
			    (int)n, address, k);
	else
		fprintf(out, "%.*s%u%.*s", (int)host, address, port + k, (int)(bytes - n),
			address + n);
	return 0;
}

static int put_routers(FILE *out, const char *agents, const uint8_t *places, uint32_t ranks,
		       struct soda_why *why)
{
	uint32_t behind[SODA_MSG_AGENTS] = { 0 };

	for (uint32_t i = 0; i < ranks; i++) {
		uint32_t agent = places ? places[i] : 0;
		const char *at = agents;
		int ret;

		for (uint32_t k = agent; k; k--)
			at = strchr(at, ',') + 1;
		if (i)
			fputc(',', out);
		ret = put_behind(out, at, strcspn(at, ","), behind[agent]++, why);
		if (ret < 0)
			return ret;
	}
	return 0;
}

/* What is written into a text, by whatever writes it. */
static int take_text(int ret, FILE *out, char **text, char **list_p, struct soda_why *why)
{
	if (fclose(out) && ret == 0)
		ret = no_memory(why);
	if (ret < 0)
		free(*text);
	else
		*list_p = *text;
	return ret;
}

static int check_routers(uint32_t ranks, struct soda_why *why)
{
	if (ranks <= SODA_MSG_AGENTS)
		return 0;
	return fail(why,
		    "SODA_MSG_ROUTING=process is for at most %u ranks, and the job has %u: more"
		    " need agents",
		    SODA_MSG_AGENTS, ranks);
}

int soda_hosts_routers(const char *agents, const uint8_t *places, uint32_t ranks, char **list_p,
		       struct soda_why *why)
{
	int ret = check_routers(ranks, why);
	char *text = NULL;
	size_t bytes;
	FILE *out;

	if (ret < 0)
		return ret;
	out = open_memstream(&text, &bytes);
	if (!out)
		return no_memory(why);
	return take_text(put_routers(out, agents, places, ranks, why), out, &text, list_p, why);
}

/* The longest directory whose sockets' names, of 16 digits and a rank, fit into an address. */
#define SOCKETS_FOLDER_MAX                                                                         \
	(sizeof(((struct sockaddr_un *)NULL)->sun_path) - sizeof("/0123456789abcdef.63"))

/* The directory, which is made where there is none. */
static int own_directory(char *path, size_t room, struct soda_why *why)
{
	const char *tmp = getenv("TMPDIR");
	struct stat st;

	if (snprintf(path, room, "%s/soda-msg-%u", tmp && *tmp == '/' ? tmp : "/tmp",
		     (unsigned)geteuid()) >= (int)room)
		return fail(why,
			    "TMPDIR=%.100s... is too long for the sockets of ranks' routers: %zu "
			    "bytes at most, or name addresses by SODA_MSG_AGENTS",
			    tmp, room - sizeof("/soda-msg-4294967295"));
	if ((mkdir(path, 0700) && errno != EEXIST) || lstat(path, &st)) {
		int ret = -errno;

		fail(why, "%.100s, for the sockets of ranks' routers: %s", path,
		     soda_strerror(ret));
		return ret;
	}
	if (S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 077))
		return 0;
	fail(why,
	     "%.100s, for the sockets of ranks' routers, is not a directory of yours alone: remove"
	     " it, or name addresses by SODA_MSG_AGENTS",
	     path);
	return -EACCES;
}

/* Whether a launcher says that this machine has other ranks than all. */
static bool are_elsewhere(uint32_t ranks)
{
	static const char *const here[] = { "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS" };
	const char *nodes = getenv("SLURM_STEP_NUM_NODES");

	for (unsigned i = 0; i < sizeof(here) / sizeof(here[0]); i++) {
		const char *n = getenv(here[i]);

		if (n && *n && strtoul(n, NULL, 10) != ranks)
			return true;
	}
	return nodes && *nodes && strtoul(nodes, NULL, 10) != 1;
}

int soda_hosts_here(const char *job, uint32_t ranks, char **list_p, struct soda_why *why)
{
	uint64_t name = 0xcbf29ce484222325; /* FNV-1a: a file's name, of any job's */
	int ret = check_routers(ranks, why);
	char path[SOCKETS_FOLDER_MAX], *text = NULL;
	size_t bytes;
	FILE *out;

	if (ret == 0 && are_elsewhere(ranks))
		return fail(why,
			    "SODA_MSG_ROUTING=process, and ranks on several machines: name their"
			    " addresses by SODA_MSG_HOSTS, or SODA_MSG_PORT under srun");
	if (ret == 0)
		ret = own_directory(path, sizeof(path), why);
	if (ret < 0)
		return ret;
	for (const char *at = job; *at; at++)
		name = (name ^ (uint8_t)*at) * 0x100000001b3;
	out = open_memstream(&text, &bytes);
	if (!out)
		return no_memory(why);
	for (uint32_t i = 0; i < ranks; i++)
		fprintf(out, "%sshm://%s/%016llx.%u", i ? "," : "", path, (unsigned long long)name,
			i);
	return take_text(0, out, &text, list_p, why);
}
