/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program answers on the abstract UNIX socket soda/stat/PID: one JSON object, then
 * end of file.  A server answers SODA_MSG_STATS on a control connection.
 */
#include "soda/base/source.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "trust/identity.h"

enum { ASK_TIMEOUT_MS = 60000 };

__attribute__((format(printf, 2, 3))) static void say(struct soda_why *why, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, args);
	va_end(args);
}

static bool is_pid(const char *target)
{
	return *target && strspn(target, "0123456789") == strlen(target);
}

static json_t *parse(const char *text, size_t bytes, struct soda_why *why)
{
	json_error_t error;
	json_t *found = json_loadb(text, bytes, 0, &error);

	if (!found)
		say(why, "the answer is not JSON: %s", error.text);
	else if (!json_is_object(found))
		say(why, "the answer is not a JSON object");
	if (json_is_object(found))
		return found;
	json_decref(found);
	return NULL;
}

/* Read up to end of file; -EMSGSIZE: there is more than `bytes`. */
static ssize_t read_all(int fd, char *out, size_t bytes)
{
	size_t n = 0;

	while (n < bytes) {
		ssize_t got = read(fd, out + n, bytes - n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return (ssize_t)n;
		n += (size_t)got;
	}
	return -EMSGSIZE;
}

static int dial(long pid, int timeout_ms)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval limit = { timeout_ms / 1000, timeout_ms % 1000 * 1000 };
	int n = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "soda/stat/%ld", pid);
	socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&address, bytes)) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

enum { GENERATIONS = 8 };

/* A process that `pid` has started, or one of them has, and that uses SODA; 0: there is none. */
static long below(long pid, int generations)
{
	char path[64];
	long child, found = 0;
	FILE *list;

	snprintf(path, sizeof(path), "/proc/%ld/task/%ld/children", pid, pid);
	list = generations ? fopen(path, "re") : NULL;
	while (list && !found && fscanf(list, "%ld", &child) == 1) {
		int fd = dial(child, 1000);

		if (fd >= 0)
			close(fd);
		found = fd >= 0 ? child : below(child, generations - 1);
	}
	if (list)
		fclose(list);
	return found;
}

static void explain_dial(long pid, int err, struct soda_why *why)
{
	long other = err == -ECONNREFUSED ? below(pid, GENERATIONS) : 0;

	if (pid > INT_MAX || (kill((pid_t)pid, 0) && errno == ESRCH))
		say(why, "no process %ld", pid);
	else if (other)
		say(why, "process %ld does not use SODA, but its child %ld does", pid, other);
	else if (err == -ECONNREFUSED)
		say(why, "process %ld does not use SODA, or has not allocated yet", pid);
	else
		say(why, "process %ld: %s", pid, strerror(-err));
}

static json_t *read_program(const char *target, int timeout_ms, struct soda_why *why)
{
	char text[64 << 10];
	long pid = strtol(target, NULL, 10);
	int fd = dial(pid, timeout_ms);

	if (fd < 0) {
		explain_dial(pid, fd, why);
		return NULL;
	}
	ssize_t n = read_all(fd, text, sizeof(text));
	close(fd);
	if (n == 0 || n == -ECONNRESET)
		say(why, "process %ld does not answer this user; ask as its owner or root", pid);
	else if (n == -EAGAIN)
		say(why, "process %ld did not answer within %d ms", pid, timeout_ms);
	else if (n < 0)
		say(why, "process %ld: %s", pid, strerror((int)-n));
	return n > 0 ? parse(text, (size_t)n, why) : NULL;
}

int soda_stat_fetch(struct soda_conn *conn, int timeout_ms, json_t **stats_p, struct soda_why *why)
{
	char *text = malloc(SODA_WIRE_MAX_CONTROL);
	json_t *found = NULL;
	size_t bytes = 0;
	int err = -ENOMEM;

	if (text)
		err = soda_conn_call(conn, SODA_MSG_STATS, NULL, 0, text, SODA_WIRE_MAX_CONTROL,
				     &bytes, timeout_ms, why);
	if (!err) {
		found = parse(text, bytes, why);
		err = found ? 0 : -EPROTO;
	}
	free(text);
	if (!err)
		*stats_p = found;
	return err;
}

int soda_stat_join(const char *address, int timeout_ms, struct soda_conn **conn_p,
		   struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	struct soda_conf_error err = { "" };
	struct soda_identity *identity;
	int ret = soda_identity_of_environment(address, &identity, &err);

	if (ret) {
		say(why, "%s", err.text);
		return ret;
	}
	ret = soda_conn_join_as(address, identity, timeout_ms, conn_p, welcome_p, why);
	soda_identity_free(identity);
	return ret;
}

static json_t *read_server(struct soda_stat_source *source, int timeout_ms, struct soda_why *why)
{
	struct soda_wire_welcome welcome;
	json_t *found = NULL;
	int err = 0;

	if (!source->conn)
		err = soda_stat_join(source->target, timeout_ms, &source->conn, &welcome, why);
	if (!err)
		err = soda_stat_fetch(source->conn, timeout_ms, &found, why);
	if (err)
		soda_stat_close(source, timeout_ms);
	if (err && !*why->text)
		say(why, "%s", strerror(-err));
	return found;
}

int soda_stat_open(struct soda_stat_source *source, const char *target, struct soda_why *why)
{
	*source = (struct soda_stat_source){ .target = target };
	if (is_pid(target) || strstr(target, "://"))
		return 0;
	say(why, "'%s' is neither a process id nor an address (tcp://HOST:PORT, shm://...)",
	    target);
	return -EINVAL;
}

json_t *soda_stat_read(struct soda_stat_source *source, int timeout_ms, struct soda_why *why)
{
	*why = (struct soda_why){ "" };
	return is_pid(source->target) ? read_program(source->target, timeout_ms, why)
				      : read_server(source, timeout_ms, why);
}

void soda_stat_close(struct soda_stat_source *source, int timeout_ms)
{
	soda_conn_leave(source->conn, timeout_ms);
	source->conn = NULL;
}

json_t *soda_stat_ask(const char *who, const char *target)
{
	struct soda_stat_source source;
	struct soda_why why = { "" };
	json_t *stats = NULL;

	if (!soda_stat_open(&source, target, &why)) {
		stats = soda_stat_read(&source, ASK_TIMEOUT_MS, &why);
		soda_stat_close(&source, ASK_TIMEOUT_MS);
	}
	if (!stats)
		fprintf(stderr, "%s: counters of %s: %s\n", who, target, why.text);
	return stats;
}
