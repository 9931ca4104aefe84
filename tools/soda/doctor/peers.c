/* SPDX-License-Identifier: BSD-3-Clause */
/* What others say: a server or agent that is asked, and a child process that uses fabric memory. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"
#include "soda.h"
#include "soda/base/json.h"
#include "soda/base/source.h"
#include "soda/doctor/doctor.h"

static int ask_statistics(struct soda_doctor_peer *p, struct soda_conn *conn, int timeout_ms)
{
	json_t *stats;
	int ret = soda_stat_fetch(conn, timeout_ms, &stats, &p->why);

	if (ret)
		return ret;
	snprintf(p->version, sizeof(p->version), "%.31s", soda_json_text(stats, "version"));
	soda_make_printable(p->version);
	p->draining = json_is_true(json_object_get(stats, "draining"));
	json_decref(stats);
	return 0;
}

void soda_doctor_ask(struct soda_doctor_peer *p, int timeout_ms)
{
	char address[SODA_ADDRESS_MAX + 1];
	struct soda_wire_welcome welcome;
	uint64_t begin = soda_now_ns();
	struct soda_conn *conn;

	p->why = (struct soda_why){ "" };
	p->err = soda_address_of(p->address, address);
	if (p->err)
		snprintf(p->why.text, sizeof(p->why.text), "an address has at most %d bytes",
			 SODA_ADDRESS_MAX);
	else
		p->err = soda_stat_join(address, timeout_ms, &conn, &welcome, &p->why);
	if (!p->err) {
		p->agent = welcome.agent;
		p->capacity = welcome.capacity;
		p->free_bytes = welcome.free_bytes;
		p->err = ask_statistics(p, conn, timeout_ms);
		p->ms = (uint32_t)((soda_now_ns() - begin) / SODA_MS_NS);
		soda_conn_leave(conn, timeout_ms);
	}
	if (p->err && !p->why.text[0])
		snprintf(p->why.text, sizeof(p->why.text), "%s", soda_strerror(p->err));
	soda_make_printable(p->why.text);
}

/* The child: what a program does. */

enum { TRIAL_BYTES = 1 << 20, TRIAL_STEP = 4096 };

struct outcome {
	int err;
	struct soda_why why;
};

static void drop_message(int level, const char *message, void *arg)
{
}

static unsigned char pattern(size_t at)
{
	return (unsigned char)(at / TRIAL_STEP * 7 + 1);
}

/* soda_last_error() has the reason of all but the last. */
static int use_memory(const struct soda_config *cfg, struct soda_why *why)
{
	int ret = soda_init(cfg);
	unsigned char *p = ret ? NULL : soda_alloc(TRIAL_BYTES, 0);

	if (!ret && !p)
		ret = errno ? -errno : -ENOMEM;
	for (size_t at = 0; p && at < TRIAL_BYTES; at += TRIAL_STEP)
		p[at] = pattern(at);
	if (!ret)
		ret = soda_sync(p, TRIAL_BYTES);
	if (!ret)
		ret = soda_advise(p, TRIAL_BYTES, SODA_COLD);
	if (ret) {
		snprintf(why->text, sizeof(why->text), "%.255s", soda_last_error());
		return ret;
	}
	for (size_t at = 0; at < TRIAL_BYTES; at += TRIAL_STEP)
		if (p[at] != pattern(at)) {
			snprintf(why->text, sizeof(why->text),
				 "byte %zu of what was stored is another one now", at);
			return -EIO;
		}
	soda_free(p);
	return soda_shutdown();
}

static void be_program(const char *server, const char *dpu, int timeout_ms, int out)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	struct outcome outcome = { 0 };

	if (server || dpu) {
		unsetenv("SODA_SERVER");
		unsetenv("SODA_DPU");
	}
	cfg.server = server;
	cfg.dpu = dpu;
	cfg.log = drop_message;
	cfg.connect_timeout_ms = (uint32_t)timeout_ms;
	cfg.fault_timeout_ms = (uint32_t)timeout_ms;
	outcome.err = use_memory(&cfg, &outcome.why);
	_exit(write(out, &outcome, sizeof(outcome)) != sizeof(outcome));
}

/* The child's words; without them, how it ended. */
static void hear(pid_t child, int in, int timeout_ms, struct soda_doctor_trial *t)
{
	struct pollfd p = { .fd = in, .events = POLLIN };
	struct outcome outcome = { 0 };
	int status = 0;

	if (poll(&p, 1, 4 * timeout_ms) == 1 && read(in, &outcome, sizeof(outcome)) > 0) {
		t->err = outcome.err;
		t->why = outcome.why;
		waitpid(child, NULL, 0);
		return;
	}
	t->err = -ETIMEDOUT;
	if (p.revents) { /* its end, and no words */
		waitpid(child, &status, 0);
		t->err = -EFAULT;
		snprintf(t->why.text, sizeof(t->why.text), "the process ended %s %d",
			 WIFSIGNALED(status) ? "by signal" : "with status",
			 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		return;
	}
	snprintf(t->why.text, sizeof(t->why.text), "the process had not done it after %d ms",
		 4 * timeout_ms);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

void soda_doctor_try(const char *server, const char *dpu, int timeout_ms,
		     struct soda_doctor_trial *t)
{
	const char *env_server = getenv("SODA_SERVER"), *env_dpu = getenv("SODA_DPU");
	int fds[2];
	pid_t child;

	*t = (struct soda_doctor_trial){ .private_server = !server && !dpu &&
							   !(env_server && *env_server) &&
							   !(env_dpu && *env_dpu) };
	if (pipe2(fds, O_CLOEXEC)) {
		t->err = -errno;
		return;
	}
	fflush(NULL);
	child = fork();
	if (child == 0) {
		close(fds[0]);
		be_program(server, dpu, timeout_ms, fds[1]);
	}
	close(fds[1]);
	if (child < 0)
		t->err = -errno;
	else
		hear(child, fds[0], timeout_ms, t);
	close(fds[0]);
	if (t->err && !t->why.text[0])
		snprintf(t->why.text, sizeof(t->why.text), "%s", soda_strerror(t->err));
	soda_make_printable(t->why.text);
}
