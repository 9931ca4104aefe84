/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The endpoint, by libmicrohttpd in that library's own thread.  libmicrohttpd's time-out restarts
 * with each byte that a peer sends, and when all places are taken it accepts no connection; so here
 * a new connection gets the place of the oldest, which is ended.
 */
#include "base/limits.h"
#include "daemon/metrics_http.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h> /* PATH_MAX */
#include <microhttpd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"
#include "trust/identity.h"
#include "trust/tls.h"

enum {
	LOW_PRIORITY = 10,
	PEM_MAX = 1 << 20, /* bytes of a key, or of certificates */
};

struct soda_metrics_http {
	struct soda_metrics_source source; /* set before start, then constant, and so below */
	int fd;				   /* listens */
	char url[128];
	/* the main thread's, and so the next */
	struct MHD_Daemon *daemon;
	char *key, *chain; /* of https, PEM; NULL: http */
	/* Places: descriptors, -1: free.  This and below: the thread's alone. */
	int places[SODA_METRICS_CONNECTIONS_MAX];
	uint64_t came;		   /* connections so far; each takes the next place in turn */
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

/* Collect the statistics into a new response. NULL: no memory. */
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
		MHD_destroy_response(http->text); /* connections that still send it keep it */
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
 * A connection begins, or is about to be closed.  A new one takes the next place; if another
 * connection has it, that is shut down, and libmicrohttpd then closes it.
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
	if (!http->came) { /* here, because libmicrohttpd starts the thread */
		pthread_setname_np(pthread_self(), "soda-metrics");
		setpriority(PRIO_PROCESS, (id_t)gettid(), LOW_PRIORITY);
	}
	place = &http->places[http->came++ % SODA_METRICS_CONNECTIONS_MAX];
	if (*place >= 0)
		shutdown(*place, SHUT_RDWR);
	*place = fd;
	*slot_p = place;
}

/* Start and stop */

static void forget_certificates(char *key, char *chain)
{
	if (key)
		soda_wipe(key, strlen(key));
	free(key);
	free(chain);
}

static void destroy(struct soda_metrics_http *http)
{
	if (http->daemon)
		MHD_stop_daemon(http->daemon);
	if (http->text)
		MHD_destroy_response(http->text);
	if (http->fd >= 0)
		close(http->fd);
	forget_certificates(http->key, http->chain);
	free(http);
}

/* A file of the directory of certificates, as text. */
static int read_pem(const char *dir, const char *name, bool is_private, char **text_p,
		    struct soda_conf_error *err)
{
	char path[PATH_MAX];
	struct stat st = { .st_size = 0 };
	ssize_t got = -1;
	int fd;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return soda_conf_fail(err, -ENAMETOOLONG, "metrics: %.180s: too long", dir);
	fd = is_private ? soda_private_open(path, &st, err) : open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return is_private ? fd
				  : soda_conf_fail(err, -errno, "metrics: %.150s: %s", path,
						   soda_strerror(errno));
	if (!fstat(fd, &st) && st.st_size <= PEM_MAX)
		*text_p = calloc(1, (size_t)st.st_size + 1);
	if (*text_p)
		got = read(fd, *text_p, (size_t)st.st_size);
	close(fd);
	return got == st.st_size && got
		       ? 0
		       : soda_conf_fail(err, -EIO, "metrics: %.150s: cannot read", path);
}

/* Key and certificate, where there are any. */
static int prepare_tls(struct soda_metrics_http *http, struct soda_conf_error *err)
{
	const char *dir = http->source.certificates;
	int r;

	if (!dir)
		return 0;
	if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
		return soda_conf_fail(
			err, -ENOTSUP,
			"metrics: this libmicrohttpd has no TLS: leave --metrics out, "
			"or --tls-certificates");
	r = read_pem(dir, SODA_TLS_KEY, true, &http->key, err);
	return r ? r : read_pem(dir, SODA_TLS_CHAIN, false, &http->chain, err);
}

static bool is_local(const char *where)
{
	return !strncmp(where, "127.", 4) || !strncmp(where, "[::1]", 5);
}

/* With the listener that there is, of which libmicrohttpd has a descriptor of its own. */
static int start_daemon(struct soda_metrics_http *http, struct soda_conf_error *err)
{
	struct MHD_OptionItem tls[] = {
		{ MHD_OPTION_END, 0, NULL },
		{ MHD_OPTION_HTTPS_MEM_CERT, 0, http->chain },
		{ MHD_OPTION_HTTPS_PRIORITIES, 0,
		  (void *)(uintptr_t) "SECURE128:-VERS-ALL:+VERS-TLS1.3" },
		{ MHD_OPTION_END, 0, NULL },
	};
	int fd = fcntl(http->fd, F_DUPFD_CLOEXEC, 0);

	if (http->key)
		tls[0] = (struct MHD_OptionItem){ MHD_OPTION_HTTPS_MEM_KEY, 0, http->key };
	http->daemon =
		fd < 0 ? NULL
		       : MHD_start_daemon(
				 MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC |
					 (http->key ? MHD_USE_TLS : 0),
				 0, NULL, NULL, handle, http, MHD_OPTION_LISTEN_SOCKET, fd,
				 MHD_OPTION_CONNECTION_LIMIT,
				 SODA_METRICS_CONNECTIONS_MAX + 1u, /* with the new one */
				 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)SODA_METRICS_IDLE_S,
				 MHD_OPTION_CONNECTION_MEMORY_LIMIT,
				 (size_t)SODA_METRICS_REQUEST_MAX, MHD_OPTION_STRICT_FOR_CLIENT, 1,
				 MHD_OPTION_NOTIFY_CONNECTION, on_connection, http,
				 MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
	if (http->daemon)
		return 0;
	if (fd >= 0)
		close(fd);
	return soda_conf_fail(err, -EAGAIN, "metrics: libmicrohttpd cannot serve: %s",
			      soda_strerror(errno));
}

int soda_metrics_http_start(const char *address, const struct soda_metrics_source *source,
			    struct soda_metrics_http **http_p, struct soda_conf_error *err)
{
	struct soda_metrics_http *http = calloc(1, sizeof(*http));
	char where[96];
	int r;

	if (!http)
		return soda_conf_fail(err, -ENOMEM, "metrics: %s", soda_strerror(ENOMEM));
	http->source = *source;
	http->fd = -1;
	for (unsigned i = 0; i < SODA_METRICS_CONNECTIONS_MAX; i++)
		http->places[i] = -1;
	r = prepare_tls(http, err);
	if (!r)
		r = soda_metrics_listen(address, &http->fd, where, err);
	if (!r && source->local_only && !http->key && !is_local(where))
		r = soda_conf_fail(err, -EACCES,
				   "metrics: http in clear at %.80s, beyond this machine, is what "
				   "--tls require forbids: give --tls-certificates, or 127.0.0.1",
				   where);
	if (!r) {
		snprintf(http->url, sizeof(http->url), "http%s://%s/metrics", http->key ? "s" : "",
			 where);
		r = start_daemon(http, err);
	}
	if (r)
		destroy(http);
	else
		*http_p = http;
	return r;
}

int soda_metrics_http_reload(struct soda_metrics_http *http, struct soda_conf_error *err)
{
	MHD_socket listener = MHD_INVALID_SOCKET;
	char *key, *chain;
	int r;

	if (!http || !http->key)
		return 0;
	key = http->key;
	chain = http->chain;
	http->key = http->chain = NULL;
	r = prepare_tls(http, err);
	if (!r && http->daemon) {
		/* first: the end of a daemon shuts its listener down; who connects meanwhile waits
		 */
		listener = MHD_quiesce_daemon(http->daemon);
		r = listener != MHD_INVALID_SOCKET
			    ? 0
			    : soda_conf_fail(err, -ENOTSUP, "metrics: libmicrohttpd cannot pause");
	}
	if (r) {
		forget_certificates(http->key, http->chain);
		http->key = key;
		http->chain = chain;
		return r;
	}
	if (http->daemon) {
		close(listener);
		MHD_stop_daemon(http->daemon);
	}
	http->daemon = NULL;
	http->came = 0;
	forget_certificates(key, chain);
	return start_daemon(http, err);
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
