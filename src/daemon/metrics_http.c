/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The endpoint by libmicrohttpd, in that library's own thread.  Its time-out restarts with each
 * byte that a peer sends, and where all places are taken it takes nobody more; so a newcomer gets
 * the place of whoever has been there longest.
 */
#include "base/limits.h"
#include "daemon/metrics_http.h"

#include <errno.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"

enum {
	LOW_PRIORITY = 10,
};

struct soda_metrics_http {
	struct soda_metrics_source source; /* set before start, then constant, and so below */
	struct MHD_Daemon *daemon;
	char url[128];
	int visitors[SODA_METRICS_CONNECTIONS_MAX]; /* descriptors, -1: none; the thread's, and so
						       below */
	uint64_t came;		   /* visitors; each has the place of the one so many before */
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

/*
 * A visitor comes, or its connection is about to be closed.  One that still stands where a
 * newcomer's place is has had its time: libmicrohttpd sees the end, and closes it.
 */
static void on_connection(void *arg, struct MHD_Connection *connection, void **slot_p,
			  enum MHD_ConnectionNotificationCode code)
{
	struct soda_metrics_http *http = arg;
	int fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
	int *place = *slot_p;

	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (place && *place == fd)
			*place = -1;
		return;
	}
	if (!http->came) { /* the thread is not ours to start */
		pthread_setname_np(pthread_self(), "soda-metrics");
		setpriority(PRIO_PROCESS, (id_t)gettid(), LOW_PRIORITY);
	}
	place = &http->visitors[http->came++ % SODA_METRICS_CONNECTIONS_MAX];
	if (*place >= 0)
		shutdown(*place, SHUT_RDWR);
	*place = fd;
	*slot_p = place;
}

/* Start and stop */

static void destroy(struct soda_metrics_http *http)
{
	if (http->daemon)
		MHD_stop_daemon(http->daemon);
	if (http->text)
		MHD_destroy_response(http->text);
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
	for (unsigned i = 0; i < SODA_METRICS_CONNECTIONS_MAX; i++)
		http->visitors[i] = -1;
	r = soda_metrics_listen(address, &fd, where, err);
	if (r) {
		destroy(http);
		return r;
	}
	snprintf(http->url, sizeof(http->url), "http://%s/metrics", where);
	http->daemon =
		MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, handle, http,
				 MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
				 SODA_METRICS_CONNECTIONS_MAX + 1u, /* the newcomer */
				 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)SODA_METRICS_IDLE_S,
				 MHD_OPTION_CONNECTION_MEMORY_LIMIT,
				 (size_t)SODA_METRICS_REQUEST_MAX, MHD_OPTION_STRICT_FOR_CLIENT, 1,
				 MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_END);
	if (!http->daemon) {
		close(fd);
		destroy(http);
		return soda_conf_fail(err, -EAGAIN, "metrics: libmicrohttpd cannot serve: %s",
				      soda_strerror(errno));
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
	if (http)
		destroy(http);
}
