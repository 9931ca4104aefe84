/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program answers on the abstract UNIX socket soda/stat/PID: one JSON object, then
 * end of file.  A server answers SODA_MSG_STATS on a control connection.
 */
#include "stat_source.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/transport/transport.h"

static json_t *parse(const char *target, const char *text, size_t bytes)
{
	json_error_t why;
	json_t *found = json_loadb(text, bytes, 0, &why);

	if (!found)
		fprintf(stderr, "soda stat: %s: the answer is not JSON: %s\n", target, why.text);
	return found;
}

/* Everything up to end of file; -EMSGSIZE when it does not end. */
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

static void explain_dial(long pid, int err)
{
	if (pid > INT_MAX || (kill((pid_t)pid, 0) && errno == ESRCH))
		fprintf(stderr, "soda stat: no process %ld\n", pid);
	else if (err == -ECONNREFUSED)
		fprintf(stderr,
			"soda stat: process %ld does not use SODA, or has not allocated yet\n",
			pid);
	else
		fprintf(stderr, "soda stat: process %ld: %s\n", pid, strerror(-err));
}

static json_t *read_program(const char *target, int timeout_ms)
{
	char text[64 << 10];
	long pid = strtol(target, NULL, 10);
	int fd = dial(pid, timeout_ms);

	if (fd < 0) {
		explain_dial(pid, fd);
		return NULL;
	}
	ssize_t n = read_all(fd, text, sizeof(text));
	close(fd);
	if (n == 0 || n == -ECONNRESET)
		fprintf(stderr,
			"soda stat: process %ld does not answer this user; ask as its owner or "
			"root\n",
			pid);
	else if (n == -EAGAIN)
		fprintf(stderr, "soda stat: process %ld did not answer within %d ms\n", pid,
			timeout_ms);
	else if (n < 0)
		fprintf(stderr, "soda stat: process %ld: %s\n", pid, strerror((int)-n));
	return n > 0 ? parse(target, text, (size_t)n) : NULL;
}

static json_t *read_server(const char *target, int timeout_ms)
{
	const struct soda_wire_hello hello = {
		.magic = SODA_WIRE_MAGIC,
		.version = SODA_WIRE_VERSION,
		.uid = getuid(),
		.gid = getgid(),
		.pid = (uint32_t)getpid(),
		.epoch = 1,
	};
	const struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL,
					       .timeout_ms = timeout_ms };
	static char text[SODA_WIRE_MAX_CONTROL];
	struct soda_wire_welcome welcome;
	struct soda_why why = { "" };
	struct soda_conn *conn;
	size_t bytes = 0;
	int err = soda_conn_connect(target, &hello, &opt, &conn, &welcome, &why);

	if (!err) {
		err = soda_conn_call(conn, SODA_MSG_STATS, NULL, 0, text, sizeof(text), &bytes,
				     timeout_ms, &why);
		if (!err) /* leave, so that the server does not wait for this client's return */
			soda_conn_call(conn, SODA_MSG_BYE, NULL, 0, NULL, 0, NULL, timeout_ms,
				       &why);
		soda_conn_close(conn);
	}
	if (err) {
		fprintf(stderr, "soda stat: %s: %s\n", target,
			*why.text ? why.text : strerror(-err));
		return NULL;
	}
	return parse(target, text, bytes);
}

json_t *soda_stat_read(const char *target, int timeout_ms)
{
	if (*target && strspn(target, "0123456789") == strlen(target))
		return read_program(target, timeout_ms);
	if (strstr(target, "://"))
		return read_server(target, timeout_ms);
	fprintf(stderr,
		"soda stat: '%s' is neither a process id nor an address (tcp://HOST:PORT, "
		"shm://...)\n",
		target);
	return NULL;
}
