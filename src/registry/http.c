/* SPDX-License-Identifier: BSD-3-Clause */
#include "registry/http.h"

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "registry/registry.h"
#include "registry/wiping.h"

#define LIBRARY "libcurl.so.4"

enum { POLL_MS = 10000 }; /* libcurl has its own timers, and soda_http_stop() wakes */

static struct {
	CURLcode (*start)(long flags, curl_malloc_callback m, curl_free_callback f,
			  curl_realloc_callback r, curl_strdup_callback s, curl_calloc_callback c);
	CURL *(*init)(void);
	CURLcode (*set)(CURL *curl, CURLoption option, ...);
	CURLcode (*get)(CURL *curl, CURLINFO info, ...);
	void (*cleanup)(CURL *curl);
	/* a transfer that another thread can end */
	CURLM *(*multi)(void);
	CURLMcode (*add)(CURLM *multi, CURL *curl);
	CURLMcode (*remove)(CURLM *multi, CURL *curl);
	CURLMcode (*perform)(CURLM *multi, int *running);
	CURLMcode (*poll)(CURLM *multi, struct curl_waitfd *more, unsigned more_n, int timeout_ms,
			  int *n);
	CURLMcode (*wake)(CURLM *multi);
	CURLMsg *(*read)(CURLM *multi, int *left);
	CURLMcode (*cleanup_multi)(CURLM *multi);
	struct curl_slist *(*append)(struct curl_slist *list, const char *text);
	void (*free_list)(struct curl_slist *list);
	bool ready;
} lib; /* set by load(), then constant */

struct soda_http {
	CURL *curl;
	CURLM *multi;
	atomic_bool stop;
	struct soda_http_answer answer;		   /* of the call under way */
	bool (*line)(void *arg, const char *text); /* of a stream; NULL: the answer is kept */
	void *line_arg;
	bool enough; /* the line's taker has said so */
	char error[CURL_ERROR_SIZE];
};

static void load(void)
{
	/* dlsym() gives an object pointer; its place is filled, as POSIX shows it */
	const struct {
		const char *name;
		void *to;
	} symbols[] = {
		{ "curl_global_init_mem", &lib.start },
		{ "curl_easy_init", &lib.init },
		{ "curl_easy_setopt", &lib.set },
		{ "curl_easy_getinfo", &lib.get },
		{ "curl_easy_cleanup", &lib.cleanup },
		{ "curl_multi_init", &lib.multi },
		{ "curl_multi_add_handle", &lib.add },
		{ "curl_multi_remove_handle", &lib.remove },
		{ "curl_multi_perform", &lib.perform },
		{ "curl_multi_poll", &lib.poll },
		{ "curl_multi_wakeup", &lib.wake },
		{ "curl_multi_info_read", &lib.read },
		{ "curl_multi_cleanup", &lib.cleanup_multi },
		{ "curl_slist_append", &lib.append },
		{ "curl_slist_free_all", &lib.free_list },
	};
	void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	bool all = handle;

	for (size_t i = 0; all && i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *found = dlsym(handle, symbols[i].name);

		memcpy(symbols[i].to, &found, sizeof(found));
		all = found;
	}
	/* requests have tokens, and a request for one a password */
	lib.ready = all && lib.start(CURL_GLOBAL_DEFAULT, malloc, soda_wiping_free,
				     soda_wiping_realloc, strdup, calloc) == CURLE_OK;
}

/* Hand over the lines that are whole. */
static void hand_over(struct soda_http *http)
{
	struct soda_http_answer *a = &http->answer;
	char *from = a->body, *end;

	while (!http->enough && (end = memchr(from, '\n', a->bytes - (size_t)(from - a->body)))) {
		*end = '\0';
		http->enough = !http->line(http->line_arg, from);
		from = end + 1;
	}
	a->bytes -= (size_t)(from - a->body);
	memmove(a->body, from, a->bytes);
}

static size_t take(char *data, size_t size, size_t n, void *arg)
{
	struct soda_http *http = arg;
	struct soda_http_answer *to = &http->answer;
	char *more;

	n *= size;
	if (n > SODA_REGISTRY_ANSWER_MAX - to->bytes)
		return 0;
	more = soda_wiping_realloc(to->body, to->bytes + n + 1);
	if (!more)
		return 0;
	memcpy(more + to->bytes, data, n);
	to->body = more;
	to->bytes += n;
	if (http->line)
		hand_over(http);
	return http->enough ? 0 : n;
}

static void set_always(struct soda_http *http, const struct soda_http_tls *tls)
{
	CURL *c = http->curl;

	lib.set(c, CURLOPT_NOSIGNAL, 1L);
	lib.set(c, CURLOPT_PROXY, ""); /* whatever the environment says */
	lib.set(c, CURLOPT_PROTOCOLS_STR, "http,https");
	lib.set(c, CURLOPT_FOLLOWLOCATION, 0L);
	lib.set(c, CURLOPT_ERRORBUFFER, http->error);
	lib.set(c, CURLOPT_WRITEFUNCTION, take);
	lib.set(c, CURLOPT_WRITEDATA, http);
	if (tls->ca) {
		lib.set(c, CURLOPT_CAINFO, tls->ca);
		lib.set(c, CURLOPT_CAPATH, NULL);
	}
	if (tls->cert) {
		lib.set(c, CURLOPT_SSLCERT, tls->cert);
		lib.set(c, CURLOPT_SSLKEY, tls->key);
	}
}

int soda_http_open(const struct soda_http_tls *tls, struct soda_http **http_p, struct soda_why *why)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct soda_http *http;

	pthread_once(&once, load);
	if (!lib.ready)
		return soda_registry_fail(why, -ENOTSUP,
					  "etcd is asked by " LIBRARY ", which is not installed "
					  "(Debian: libcurl4)");
	http = calloc(1, sizeof(*http));
	if (http) {
		http->curl = lib.init();
		http->multi = lib.multi();
	}
	if (!http || !http->curl || !http->multi) {
		soda_http_close(http);
		return soda_registry_fail(why, -ENOMEM, "no memory for a connection to etcd");
	}
	set_always(http, tls);
	*http_p = http;
	return 0;
}

/* How the transfer has ended; it is the only one. */
static CURLcode code_of(struct soda_http *http)
{
	const CURLMsg *said;
	int left;

	while ((said = lib.read(http->multi, &left)))
		if (said->msg == CURLMSG_DONE)
			return said->data.result;
	return atomic_load(&http->stop) ? CURLE_ABORTED_BY_CALLBACK : CURLE_RECV_ERROR;
}

static CURLcode transfer(struct soda_http *http)
{
	int running = 1;
	CURLcode code;

	if (lib.add(http->multi, http->curl) != CURLM_OK)
		return CURLE_FAILED_INIT;
	while (running && !atomic_load(&http->stop))
		if (lib.perform(http->multi, &running) != CURLM_OK ||
		    (running && lib.poll(http->multi, NULL, 0, POLL_MS, NULL) != CURLM_OK))
			break;
	code = code_of(http);
	lib.remove(http->multi, http->curl);
	return code;
}

static int perform(struct soda_http *http, struct soda_why *why)
{
	CURLcode code = transfer(http);

	if (code == CURLE_OK) {
		lib.get(http->curl, CURLINFO_RESPONSE_CODE, &http->answer.status);
		return 0;
	}
	if (code == CURLE_ABORTED_BY_CALLBACK)
		return -ECANCELED;
	if (code == CURLE_OPERATION_TIMEDOUT)
		return soda_registry_fail(why, -ETIMEDOUT, "%.150s",
					  *http->error ? http->error : "no answer");
	if (code == CURLE_WRITE_ERROR)
		return soda_registry_fail(why, -EIO, "its answer has more than %d bytes",
					  SODA_REGISTRY_ANSWER_MAX);
	return soda_registry_fail(why, -EIO, "%.150s",
				  *http->error ? http->error : "no connection");
}

static struct curl_slist *headers_for(const char *token)
{
	char line[SODA_REGISTRY_TOKEN_MAX + 32];
	struct curl_slist *list = lib.append(NULL, "Content-Type: application/json"), *more;

	if (!list || !token)
		return list;
	snprintf(line, sizeof(line), "Authorization: %s", token);
	more = lib.append(list, line);
	explicit_bzero(line, sizeof(line));
	if (!more)
		lib.free_list(list);
	return more;
}

/* -ETIMEDOUT: the time is over, of which soda_http_post() has no word of its own. */
static int request(struct soda_http *http, const char *url, const char *token, const char *body,
		   int timeout_ms, struct soda_why *why)
{
	struct curl_slist *headers = headers_for(token);
	int ret;

	if (!headers)
		return soda_registry_fail(why, -EIO, "no memory for a request");
	http->answer = (struct soda_http_answer){ .body = NULL };
	http->enough = false;
	http->error[0] = '\0';
	lib.set(http->curl, CURLOPT_URL, url);
	lib.set(http->curl, CURLOPT_HTTPHEADER, headers);
	lib.set(http->curl, CURLOPT_POSTFIELDS, body);
	lib.set(http->curl, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
	lib.set(http->curl, CURLOPT_CONNECTTIMEOUT_MS, (long)timeout_ms);
	ret = perform(http, why);
	lib.free_list(headers);
	return ret;
}

int soda_http_post(struct soda_http *http, const char *url, const char *token, const char *body,
		   int timeout_ms, struct soda_http_answer *answer_p, struct soda_why *why)
{
	int ret = request(http, url, token, body, timeout_ms, why);
	if (ret == -ETIMEDOUT)
		ret = -EIO;
	if (ret)
		soda_wiping_free(http->answer.body);
	else
		*answer_p = http->answer;
	return ret;
}

int soda_http_stream(struct soda_http *http, const char *url, const char *token, const char *body,
		     int timeout_ms, bool (*line)(void *arg, const char *text), void *arg,
		     struct soda_why *why)
{
	int ret;

	http->line = line;
	http->line_arg = arg;
	ret = request(http, url, token, body, timeout_ms, why);
	http->line = NULL;
	soda_wiping_free(http->answer.body);
	return http->enough || ret == -ETIMEDOUT ? 0 : ret;
}

void soda_http_stop(struct soda_http *http, bool stop)
{
	atomic_store(&http->stop, stop);
	lib.wake(http->multi);
}

void soda_http_close(struct soda_http *http)
{
	if (!http)
		return;
	lib.cleanup(http->curl); /* NULL is fine for both */
	lib.cleanup_multi(http->multi);
	free(http);
}
