/* SPDX-License-Identifier: BSD-3-Clause */
#include "registry/etcd.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "registry/http.h"
#include "registry/wiping.h"
#include "trust/crypto.h"
#include "trust/identity.h"

/* Codes of gRPC that the gateway passes on. */
enum {
	CODE_UNKNOWN = 2,
	CODE_INVALID = 3,
	CODE_DEADLINE = 4,
	CODE_NOT_FOUND = 5,
	CODE_DENIED = 7,
	CODE_UNAVAILABLE = 14,
	CODE_UNAUTHENTICATED = 16,
};

/* In a soda_secret_new(). */
struct soda_etcd {
	struct soda_registry_name name;
	struct soda_http *http;
	bool tls;
	uint32_t at; /* the endpoint that answered last */
	/* name and password; "": nobody */
	char user[SODA_REGISTRY_USER_MAX + 1], password[SODA_REGISTRY_USER_MAX + 1];
	char token[SODA_REGISTRY_TOKEN_MAX + 1]; /* of user; "": to be asked for */
};

/* What an answer that is no success says. */
struct refusal {
	int code;
	char text[160];
};

/* The file of the user */

static int bad_file(struct soda_why *why, const char *path, int ret, const char *reason)
{
	return soda_registry_fail(why, ret, "the file of etcd's user, %.80s: %.120s", path, reason);
}

/* NAME:PASSWORD, to the end of the line. */
static int take_user(struct soda_etcd *etcd, char *line, const char *path, struct soda_why *why)
{
	char *colon = strchr(line, ':');

	line[strcspn(line, "\r\n")] = '\0';
	if (!colon || colon == line || !colon[1])
		return bad_file(why, path, -EINVAL, "it is to have one line, NAME:PASSWORD");
	*colon = '\0'; /* the line is not longer than either has room for */
	strcpy(etcd->user, line);
	strcpy(etcd->password, colon + 1);
	return 0;
}

static int read_user(struct soda_etcd *etcd, const char *path, struct soda_why *why)
{
	struct soda_conf_error err = { "" };
	char line[SODA_REGISTRY_USER_MAX + 1];
	struct stat st;
	int fd = soda_private_open(path, &st, &err), ret;
	ssize_t n;

	if (fd < 0)
		return soda_registry_fail(why, fd, "the file of etcd's user: %.200s", err.text);
	n = read(fd, line, sizeof(line) - 1);
	close(fd);
	line[n < 0 ? 0 : n] = '\0';
	ret = take_user(etcd, line, path, why);
	explicit_bzero(line, sizeof(line));
	return ret;
}

/* libcurl opens the files with each connection: what can be said of them is said now. */
static int check_certificates(const struct soda_registry_login *login, struct soda_why *why)
{
	const char *const files[] = { login->ca, login->cert };
	struct soda_conf_error err = { "" };
	struct stat st;
	int fd;

	if (!login->cert != !login->key || (login->cert && !login->ca))
		return soda_registry_fail(
			why, -EINVAL,
			"a certificate for etcd (etcd-cert) needs its key "
			"(etcd-key), and those that are believed of etcd (etcd-ca)");
	for (int i = 0; i < 2; i++)
		if (files[i] && access(files[i], R_OK))
			return soda_registry_fail(why, -errno,
						  "the certificates for etcd, %.120s: %s", files[i],
						  soda_strerror(errno));
	fd = login->key ? soda_private_open(login->key, &st, &err) : -1;
	if (fd >= 0)
		close(fd);
	else if (login->key)
		return soda_registry_fail(why, fd, "the key for etcd: %.200s", err.text);
	return 0;
}

/* An answer may have a token, and a request a password. */
static void make_json_wipe(void)
{
	json_set_alloc_funcs(malloc, soda_wiping_free);
}

int soda_etcd_open(const struct soda_registry_name *name, const struct soda_registry_login *login,
		   struct soda_etcd **etcd_p, struct soda_why *why)
{
	const struct soda_http_tls tls = { login->ca, login->cert, login->key };
	struct soda_etcd *etcd = soda_secret_new(sizeof(*etcd));
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int ret;

	pthread_once(&once, make_json_wipe);
	if (!etcd)
		return soda_registry_fail(why, -ENOMEM, "no memory to ask etcd");
	etcd->name = *name;
	etcd->tls = login->ca;
	ret = login->user_file ? read_user(etcd, login->user_file, why) : 0;
	ret = ret ? ret : check_certificates(login, why);
	if (!ret)
		ret = soda_http_open(&tls, &etcd->http, why);
	if (ret)
		soda_etcd_close(etcd);
	else
		*etcd_p = etcd;
	return ret;
}

void soda_etcd_close(struct soda_etcd *etcd)
{
	if (!etcd)
		return;
	soda_http_close(etcd->http);
	soda_secret_free(etcd, sizeof(*etcd));
}

void soda_etcd_stop(struct soda_etcd *etcd, bool stop)
{
	soda_http_stop(etcd->http, stop);
}

/* One call */

static const char *token_of(const struct soda_etcd *etcd)
{
	return *etcd->token ? etcd->token : NULL;
}

static bool lacks_token(const struct soda_etcd *etcd)
{
	return *etcd->user && !*etcd->token;
}

static const char *endpoint(const struct soda_etcd *etcd)
{
	return etcd->name.endpoint[etcd->at];
}

/* Of a call's answer that is not as etcd answers. */
static int strange(const struct soda_etcd *etcd, struct soda_why *why)
{
	return soda_registry_fail(
		why, -EPROTO,
		"what answers at %.100s is not etcd's JSON gateway (/v3, etcd 3.4 "
		"or later)",
		endpoint(etcd));
}

/* {"error", "message", "code"}, the first not of all versions; of a stream that with other names.
 */
static void take_refusal(const json_t *from, long status, struct refusal *refusal)
{
	const json_t *error = json_object_get(from, "error");
	const json_t *inner = json_is_object(error) ? error : from;
	const char *text = json_string_value(json_object_get(inner, "message"));

	if (json_is_string(error))
		text = json_string_value(error);
	refusal->code = (int)json_integer_value(
		json_object_get(inner, inner == from ? "code" : "grpc_code"));
	if (!refusal->code && status >= 500)
		refusal->code = CODE_UNAVAILABLE;
	snprintf(refusal->text, sizeof(refusal->text), "%s", text ? text : "no reason");
	soda_make_printable(refusal->text);
}

/* Each of etcd's answers has a header, within "result" if it is of a stream. */
static bool is_success(const json_t *all, long status)
{
	return status == 200 && (json_object_get(all, "header") || json_object_get(all, "result"));
}

/*
 * Ask one endpoint.  0: *answer_p is etcd's, or NULL, and the refusal says why; -EIO: it does not
 * answer; -EPROTO; -ECANCELED.
 */
static int ask(struct soda_etcd *etcd, const char *path, const char *body, json_t **answer_p,
	       struct refusal *refusal, struct soda_why *why)
{
	char url[SODA_REGISTRY_HOST + 64];
	struct soda_http_answer answer;
	json_t *all;
	int ret;

	snprintf(url, sizeof(url), "http%s://%s/v3/%s", etcd->tls ? "s" : "", endpoint(etcd), path);
	ret = soda_http_post(etcd->http, url, token_of(etcd), body, SODA_REGISTRY_CALL_MS, &answer,
			     why);
	if (ret)
		return ret;
	all = answer.body ? json_loadb(answer.body, answer.bytes, 0, NULL) : NULL;
	soda_wiping_free(answer.body);
	*answer_p = NULL;
	if (is_success(all, answer.status)) {
		*answer_p = all;
		return 0;
	}
	take_refusal(all, answer.status, refusal);
	json_decref(all);
	return refusal->code ? 0 : strange(etcd, why);
}

/* Whether another endpoint may do what this one could not; what is no etcd hides none that is. */
static bool elsewhere(int ret, const json_t *answer, const struct refusal *refusal)
{
	return ret == -EIO || ret == -EPROTO ||
	       (!ret && !answer &&
		(refusal->code == CODE_UNAVAILABLE || refusal->code == CODE_DEADLINE));
}

/* As ask, of the endpoints in turn; -EPROTO: none of them is etcd. */
static int ask_any(struct soda_etcd *etcd, const char *path, const char *body, json_t **answer_p,
		   struct refusal *refusal, struct soda_why *why)
{
	struct soda_why last = { "" };
	int ret = -EIO, all = -EPROTO;

	for (uint32_t tried = 0; tried < etcd->name.n; tried++) {
		*refusal = (struct refusal){ .code = 0 };
		ret = ask(etcd, path, body, answer_p, refusal, &last);
		if (!elsewhere(ret, *answer_p, refusal))
			return ret;
		if (ret != -EPROTO)
			all = -EIO;
		soda_registry_fail(why, -EIO,
				   "etcd cannot be asked, the last tried was %.80s: %.120s",
				   endpoint(etcd), ret ? last.text : refusal->text);
		etcd->at = (etcd->at + 1) % etcd->name.n;
	}
	if (all == -EPROTO)
		*why = last;
	return all;
}

/*
 * It is the token that is refused: etcd does not know it, or its users have changed since it was
 * given (the tokens of --auth-token jwt), for which etcd has no code.
 */
static bool is_of_token(const struct refusal *refusal)
{
	if (refusal->code == CODE_UNKNOWN || refusal->code == CODE_INVALID)
		return strstr(refusal->text, "revision of auth store is old") ||
		       strstr(refusal->text, "revision in header is old");
	return refusal->code == CODE_UNAUTHENTICATED;
}

static int refused(const struct soda_etcd *etcd, const struct refusal *refusal,
		   struct soda_why *why)
{
	int ret = -EPROTO;

	if (refusal->code == CODE_NOT_FOUND)
		ret = -ENOENT;
	if (refusal->code == CODE_DENIED || is_of_token(refusal))
		ret = -EACCES;
	return soda_registry_fail(why, ret, "etcd at %.80s refuses: %.140s", endpoint(etcd),
				  refusal->text);
}

/* Take the reference to the request, as text. */
static char *text_of(json_t *request)
{
	char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;

	json_decref(request);
	return text;
}

static int take_token(struct soda_etcd *etcd, const json_t *answer, struct soda_why *why)
{
	const char *token = json_string_value(json_object_get(answer, "token"));

	if (!token || strlen(token) > SODA_REGISTRY_TOKEN_MAX || strpbrk(token, "\r\n"))
		return strange(etcd, why);
	strcpy(etcd->token, token);
	return 0;
}

static int authenticate(struct soda_etcd *etcd, struct soda_why *why)
{
	char *body = text_of(json_pack("{ss ss}", "name", etcd->user, "password", etcd->password));
	struct refusal refusal;
	json_t *answer = NULL;
	int ret;

	soda_wipe(etcd->token, sizeof(etcd->token));
	if (!body)
		return soda_registry_fail(why, -EACCES,
					  "name and password of etcd's user are to be UTF-8");
	ret = ask_any(etcd, "auth/authenticate", body, &answer, &refusal, why);
	soda_wiping_free(body);
	if (!ret && !answer) {
		refused(etcd, &refusal, why);
		ret = -EACCES;
	}
	if (!ret)
		ret = take_token(etcd, answer, why);
	json_decref(answer);
	return ret;
}

/* Whether a new token may help after a refusal. */
static bool forgotten(const struct soda_etcd *etcd, int ret, const json_t *answer,
		      const struct refusal *refusal)
{
	return *etcd->user && !ret && !answer && is_of_token(refusal);
}

/* Takes the reference to the request. */
static int call(struct soda_etcd *etcd, const char *path, json_t *request, json_t **answer_p,
		struct soda_why *why)
{
	char *body = text_of(request);
	struct refusal refusal = { .code = 0 };
	int ret = 0;

	*answer_p = NULL;
	if (!body)
		return soda_registry_fail(why, -ENOMEM, "no memory to ask etcd");
	if (lacks_token(etcd))
		ret = authenticate(etcd, why);
	if (!ret)
		ret = ask_any(etcd, path, body, answer_p, &refusal, why);
	if (forgotten(etcd, ret, *answer_p, &refusal)) {
		ret = authenticate(etcd, why);
		if (!ret)
			ret = ask_any(etcd, path, body, answer_p, &refusal, why);
	}
	free(body);
	return ret || *answer_p ? ret : refused(etcd, &refusal, why);
}

/* Leases and keys */

int soda_etcd_grant(struct soda_etcd *etcd, int seconds, char lease[SODA_ETCD_LEASE],
		    struct soda_why *why)
{
	const char *id;
	json_t *answer;
	int ret = call(etcd, "lease/grant", json_pack("{si}", "TTL", seconds), &answer, why);

	if (ret)
		return ret;
	id = json_string_value(json_object_get(answer, "ID")); /* 64 bits: a string */
	if (id && *id && strlen(id) < SODA_ETCD_LEASE && strspn(id, "-0123456789") == strlen(id))
		strcpy(lease, id);
	else
		ret = strange(etcd, why);
	json_decref(answer);
	return ret;
}

int soda_etcd_renew(struct soda_etcd *etcd, const char *lease, struct soda_why *why)
{
	const char *left;
	json_t *answer;
	int ret = call(etcd, "lease/keepalive", json_pack("{ss}", "ID", lease), &answer, why);

	if (ret)
		return ret;
	/* of a stream, of which one message was asked for; a lease that has ended has none left */
	left = json_string_value(json_object_get(json_object_get(answer, "result"), "TTL"));
	if (!left || strtol(left, NULL, 10) <= 0)
		ret = soda_registry_fail(why, -ENOENT, "etcd's lease has ended");
	json_decref(answer);
	return ret;
}

int soda_etcd_revoke(struct soda_etcd *etcd, const char *lease, struct soda_why *why)
{
	json_t *answer;
	int ret = call(etcd, "lease/revoke", json_pack("{ss}", "ID", lease), &answer, why);

	json_decref(answer);
	return ret;
}

int soda_etcd_put(struct soda_etcd *etcd, const char *key, const char *value, const char *lease,
		  struct soda_why *why)
{
	char *key64 = soda_base64_encode(key, strlen(key));
	char *value64 = soda_base64_encode(value, strlen(value));
	json_t *answer = NULL;
	int ret = -ENOMEM;

	if (key64 && value64)
		ret = call(etcd, "kv/put",
			   json_pack("{ss ss ss}", "key", key64, "value", value64, "lease", lease),
			   &answer, why);
	else
		soda_registry_fail(why, ret, "no memory to ask etcd");
	json_decref(answer);
	free(key64);
	free(value64);
	return ret;
}

/* All keys with the prefix: up to the one whose last byte is one more. NULL: no memory. */
static json_t *keys_of(const char *prefix)
{
	size_t n = strlen(prefix);
	char *from = soda_base64_encode(prefix, n), *to = NULL, *end = strdup(prefix);
	json_t *request = NULL;

	if (end) {
		end[n - 1]++;
		to = soda_base64_encode(end, n);
	}
	if (from && to)
		request = json_pack("{ss ss}", "key", from, "range_end", to);
	free(end);
	free(from);
	free(to);
	return request;
}

static json_t *range_of(const char *prefix)
{
	json_t *request = keys_of(prefix);

	if (request)
		json_object_update_new(request, json_pack("{ss ss si}", "sort_target", "CREATE",
							  "sort_order", "ASCEND", "limit",
							  SODA_REGISTRY_ASKED));
	return request;
}

int soda_etcd_list(struct soda_etcd *etcd, const char *prefix,
		   void (*each)(void *arg, const char *value, size_t bytes), void *arg,
		   struct soda_why *why)
{
	json_t *answer, *at;
	size_t i;
	int ret = call(etcd, "kv/range", range_of(prefix), &answer, why);

	json_array_foreach(json_object_get(answer, "kvs"), i, at)
	{
		const char *text = json_string_value(json_object_get(at, "value"));
		size_t bytes = 0;
		char *value = text ? soda_base64_decode(text, &bytes) : NULL;

		if (value)
			each(arg, value, bytes);
		free(value);
	}
	json_decref(answer);
	return ret;
}

/* Changes */

struct watching {
	void (*look)(void *arg);
	void *arg;
	bool told, refused; /* it has told something; it will not any more */
};

/* A message of the stream. false: there is none after it. */
static bool take_message(void *arg, const char *text)
{
	struct watching *w = arg;
	json_t *all = json_loads(text, 0, NULL);
	const json_t *result = json_object_get(all, "result");

	w->refused = !result || json_is_true(json_object_get(result, "canceled"));
	if (!w->refused && (json_is_true(json_object_get(result, "created")) ||
			    json_array_size(json_object_get(result, "events")))) {
		w->told = true;
		w->look(w->arg);
	}
	json_decref(all);
	return !w->refused;
}

int soda_etcd_watch(struct soda_etcd *etcd, const char *prefix, int timeout_ms,
		    void (*look)(void *arg), void *arg, struct soda_why *why)
{
	struct watching w = { .look = look, .arg = arg };
	char *body = text_of(json_pack("{so}", "create_request", keys_of(prefix)));
	char url[SODA_REGISTRY_HOST + 64];
	int ret = body ? 0 : soda_registry_fail(why, -ENOMEM, "no memory to ask etcd");

	if (!ret && lacks_token(etcd))
		ret = authenticate(etcd, why);
	snprintf(url, sizeof(url), "http%s://%s/v3/watch", etcd->tls ? "s" : "", endpoint(etcd));
	if (!ret)
		ret = soda_http_stream(etcd->http, url, token_of(etcd), body, timeout_ms,
				       take_message, &w, why);
	if (!ret && (w.refused || !w.told))
		ret = soda_registry_fail(why, -EIO, "etcd at %.80s tells of no changes",
					 endpoint(etcd));
	if (ret) {
		etcd->at = (etcd->at + 1) % etcd->name.n;
		soda_wipe(etcd->token, sizeof(etcd->token)); /* it may be what was refused */
	}
	free(body);
	return ret;
}
