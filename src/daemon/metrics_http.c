/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The endpoint by libmicrohttpd, which is run in a loop of our own: its time-out
 * restarts with each byte that a peer sends, ours does not.
 */
#include "base/limits.h"
#include "daemon/metrics_http.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"

enum {
	LOW_PRIORITY = 10,
};

#define SECOND_NS 1000000000u

/* One connection; used by the endpoint's thread only. */
struct visitor {
	int fd; /* -1: none */
	uint64_t until_ns;
};

struct soda_metrics_http {
	struct soda_metrics_source source; /* set before start, then constant, and so below */
	struct MHD_Daemon *daemon;
	int epoll_fd, stop_fd;
	pthread_t thread;
	char url[128];
	struct visitor visitors[SODA_METRICS_CONNECTIONS_MAX]; /* the thread's, and so below */
	bool left; /* somebody has: libmicrohttpd accepts again when it is run once more */
	struct MHD_Response *text; /* the last statistics; NULL: none yet */
	uint64_t text_ns;
};

/* Answers */

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status,
			      const char *header, const char *value, const char *body)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(
		strlen(body), (void *)(uintptr_t)body, MHD_RESPMEM_PERSISTENT);
	enum MHD_Result r;

	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, "Connection", "close");
	MHD_add_response_header(response, header, value);
	r = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return r;
}

/* The statistics in a new answer. NULL: no memory. */
static struct MHD_Response *collect(const struct soda_metrics_source *source)
{
	struct MHD_Response *response;
	char *text;
	size_t bytes;

	if (soda_metrics_prometheus(source->walk, source->arg, source->prefix, &text, &bytes))
		return NULL;
	response = MHD_create_response_from_buffer(bytes, text, MHD_RESPMEM_MUST_FREE);
	if (!response) {
		free(text);
		return NULL;
	}
	MHD_add_response_header(response, "Connection", "close");
	MHD_add_response_header(response, "Content-Type",
				"text/plain; version=0.0.4; charset=utf-8");
	return response;
}

static enum MHD_Result answer_metrics(struct soda_metrics_http *http,
				      struct MHD_Connection *connection)
{
	uint64_t now = soda_now_ns();

	if (http->text && now - http->text_ns >= SODA_METRICS_FRESH_MS * SODA_MS_NS) {
		MHD_destroy_response(http->text); /* those who still send it hold it */
		http->text = NULL;
	}
	if (!http->text) {
		http->text = collect(&http->source);
		http->text_ns = now;
	}
	if (http->text)
		return MHD_queue_response(connection, MHD_HTTP_OK, http->text);
	return answer(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "Content-Type", "text/plain",
		      "no memory\n");
}

static enum MHD_Result handle(void *arg, struct MHD_Connection *connection, const char *url,
			      const char *method, const char *version, const char *upload,
			      size_t *upload_bytes, void **request)
{
	struct soda_metrics_http *http = arg;

	if (strcmp(method, MHD_HTTP_METHOD_GET))
		return answer(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "Allow", "GET",
			      "GET only\n");
	if (!strcmp(url, "/metrics"))
		return answer_metrics(http, connection);
	if (strcmp(url, "/healthz"))
		return answer(connection, MHD_HTTP_NOT_FOUND, "Content-Type", "text/plain",
			      "there are /metrics and /healthz\n");
	return atomic_load(http->source.draining)
		       ? answer(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "Content-Type",
				"text/plain", "draining\n")
		       : answer(connection, MHD_HTTP_OK, "Content-Type", "text/plain", "ok\n");
}

/* The lives of connections */

static void on_connection(void *arg, struct MHD_Connection *connection, void **slot_p,
			  enum MHD_ConnectionNotificationCode code)
{
	struct soda_metrics_http *http = arg;
	struct visitor *v = *slot_p;

	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (v)
			v->fd = -1; /* it is closed only after this */
		http->left = true;
		return;
	}
	for (unsigned i = 0; i < SODA_METRICS_CONNECTIONS_MAX; i++) {
		v = &http->visitors[i];
		if (v->fd >= 0)
			continue;
		v->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)
				->connect_fd;
		v->until_ns = soda_now_ns() + (uint64_t)SODA_METRICS_LIFE_S * SECOND_NS;
		*slot_p = v;
		return;
	}
}

/* End those whose time is over; when to look again, in milliseconds, -1: nobody is there. */
static int expire(struct soda_metrics_http *http)
{
	uint64_t now = soda_now_ns(), next = UINT64_MAX;

	for (unsigned i = 0; i < SODA_METRICS_CONNECTIONS_MAX; i++) {
		struct visitor *v = &http->visitors[i];

		if (v->fd < 0)
			continue;
		if (v->until_ns <= now) {
			shutdown(v->fd, SHUT_RDWR); /* libmicrohttpd sees the end, and closes */
			v->until_ns = now + SECOND_NS;
		}
		if (v->until_ns < next)
			next = v->until_ns;
	}
	return next == UINT64_MAX ? -1 : (int)((next - now) / 1000000) + 1;
}

static int time_to_wait(struct soda_metrics_http *http)
{
	int ours = expire(http);
	MHD_UNSIGNED_LONG_LONG theirs;

	if (http->left) {
		http->left = false;
		return 0;
	}
	if (MHD_get_timeout(http->daemon, &theirs) != MHD_YES)
		return ours;
	return ours < 0 || theirs < (MHD_UNSIGNED_LONG_LONG)ours ? (int)theirs : ours;
}

static void *serve(void *arg)
{
	struct soda_metrics_http *http = arg;
	struct pollfd fds[2] = { { .fd = http->stop_fd, .events = POLLIN },
				 { .fd = http->epoll_fd, .events = POLLIN } };

	pthread_setname_np(pthread_self(), "soda-metrics");
	setpriority(PRIO_PROCESS, (id_t)gettid(), LOW_PRIORITY);
	while (!fds[0].revents) {
		poll(fds, 2, time_to_wait(http));
		MHD_run(http->daemon);
	}
	return NULL;
}

/* Start and stop */

static int start_daemon(struct soda_metrics_http *http, int fd)
{
	const union MHD_DaemonInfo *info;

	http->daemon = MHD_start_daemon(
		MHD_USE_EPOLL, 0, NULL, NULL, handle, http, MHD_OPTION_LISTEN_SOCKET, fd,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned)SODA_METRICS_CONNECTIONS_MAX,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)SODA_METRICS_IDLE_S,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)SODA_METRICS_REQUEST_MAX,
		MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_CONNECTION, on_connection, http,
		MHD_OPTION_END);
	if (!http->daemon)
		return -ENOMEM;
	info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	if (!info)
		return -ENOTSUP;
	http->epoll_fd = info->epoll_fd;
	http->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (http->stop_fd < 0)
		return -errno;
	return -pthread_create(&http->thread, NULL, serve, http);
}

static void destroy(struct soda_metrics_http *http)
{
	if (http->daemon)
		MHD_stop_daemon(http->daemon);
	if (http->text)
		MHD_destroy_response(http->text);
	if (http->stop_fd >= 0)
		close(http->stop_fd);
	free(http);
}

int soda_metrics_http_start(const char *address, const struct soda_metrics_source *source,
			    struct soda_metrics_http **http_p, struct soda_conf_error *err)
{
	struct soda_metrics_http *http = calloc(1, sizeof(*http));
	char where[96];
	int fd, r;

	if (!http)
		return soda_conf_fail(err, -ENOMEM, "metrics: %s", soda_strerror(ENOMEM));
	http->source = *source;
	http->stop_fd = -1;
	for (unsigned i = 0; i < SODA_METRICS_CONNECTIONS_MAX; i++)
		http->visitors[i].fd = -1;
	r = soda_metrics_listen(address, &fd, where, err);
	if (r) {
		destroy(http);
		return r;
	}
	snprintf(http->url, sizeof(http->url), "http://%s/metrics", where);
	r = start_daemon(http, fd);
	if (r) {
		if (!http->daemon)
			close(fd);
		destroy(http);
		return soda_conf_fail(err, r, "metrics: cannot serve: %s", soda_strerror(r));
	}
	*http_p = http;
	return 0;
}

const char *soda_metrics_http_url(const struct soda_metrics_http *http)
{
	return http->url;
}

void soda_metrics_http_stop(struct soda_metrics_http *http)
{
	uint64_t one = 1;

	if (!http)
		return;
	if (write(http->stop_fd, &one, sizeof(one)) < 0)
		soda_log_error("metrics: the thread cannot be woken: %s", soda_strerror(errno));
	soda_wait_join(http->thread, "the endpoint of metrics to end");
	destroy(http);
}
