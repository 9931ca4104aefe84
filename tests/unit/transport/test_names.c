/* SPDX-License-Identifier: BSD-3-Clause */
/* Names and their addresses: a name server that is silent, and addresses of several servers. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "base/lock.h"
#include "transport/stream/names.h"
#include "transport/stream/stream.h"

enum { SOON_MS = 50, LONG_MS = 60000 };

/* The C library's, as names.c sees it. */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool is_silent;	      /* the name server, of names that begin with "s" */
static unsigned asked;	      /* look-ups of those that have begun */
static const char *listed[4]; /* the addresses of every name */

static struct addrinfo *entry(const char *address, const char *port)
{
	struct addrinfo *a = calloc(1, sizeof(*a) + sizeof(struct sockaddr_in));
	struct sockaddr_in *at = (void *)(a + 1);

	at->sin_family = AF_INET;
	at->sin_port = htons((uint16_t)atoi(port));
	assert_int_equal(inet_pton(AF_INET, address, &at->sin_addr), 1);
	a->ai_family = AF_INET;
	a->ai_addr = (void *)at;
	a->ai_addrlen = sizeof(*at);
	return a;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
		struct addrinfo **list_p)
{
	struct in_addr ignored;

	if (inet_pton(AF_INET, node, &ignored) == 1) {
		*list_p = entry(node, service);
		return 0;
	}
	if (hints->ai_flags & AI_NUMERICHOST)
		return EAI_NONAME;
	pthread_mutex_lock(&mutex);
	asked += node[0] == 's';
	pthread_cond_broadcast(&changed);
	while (node[0] == 's' && is_silent)
		pthread_cond_wait(&changed, &mutex);
	*list_p = NULL;
	for (int i = 3; i >= 0; i--) {
		struct addrinfo *a = listed[i] ? entry(listed[i], service) : NULL;

		if (!a)
			continue;
		a->ai_next = *list_p;
		*list_p = a;
	}
	pthread_mutex_unlock(&mutex);
	return *list_p ? 0 : EAI_NONAME;
}

void freeaddrinfo(struct addrinfo *list)
{
	while (list) {
		struct addrinfo *next = list->ai_next;

		free(list);
		list = next;
	}
}

static void set_silent(bool silent)
{
	pthread_mutex_lock(&mutex);
	is_silent = silent;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
}

static void set_listed(const char *first, const char *second)
{
	pthread_mutex_lock(&mutex);
	listed[0] = first;
	listed[1] = second;
	pthread_mutex_unlock(&mutex);
}

static unsigned asked_now(void)
{
	unsigned n;

	pthread_mutex_lock(&mutex);
	n = asked;
	pthread_mutex_unlock(&mutex);
	return n;
}

static const char *text(const struct soda_place *at)
{
	const struct sockaddr_in *v4 = (const void *)at->at;
	static char out[INET_ADDRSTRLEN];

	return inet_ntop(AF_INET, &v4->sin_addr, out, sizeof(out));
}

static int find(const char *host, int timeout_ms, struct soda_names *names_p, struct soda_why *why)
{
	return soda_names_find(host, "7001", "tcp://it", soda_deadline(timeout_ms), names_p, why);
}

/* A name server that is silent has its time, and no more; and other names have theirs. */
static void silent_name_server(void **state)
{
	struct soda_names names;
	struct soda_why why;
	unsigned before;

	set_listed("10.0.0.1", NULL);
	set_silent(true);
	assert_int_equal(find("s.pool", SOON_MS, &names, &why), -ETIMEDOUT);
	assert_non_null(strstr(why.text, "no answer in time"));
	assert_int_equal(find("other.pool", LONG_MS, &names, &why), 0);
	assert_int_equal(find("10.0.0.7", SOON_MS, &names, &why), 0);
	assert_string_equal(text(&names.at[0]), "10.0.0.7");
	set_silent(false);
	assert_int_equal(find("s.pool", LONG_MS, &names, &why), 0);
	assert_string_equal(text(&names.at[0]), "10.0.0.1");
	/* it is silent again, and asked again: what it has said is used */
	set_silent(true);
	before = asked_now();
	while (asked_now() == before)
		assert_int_equal(find("s.pool", LONG_MS, &names, &why), 0);
	assert_int_equal(find("s.pool", LONG_MS, &names, &why), 0);
	assert_string_equal(text(&names.at[0]), "10.0.0.1");
	set_silent(false);
}

static void no_such_name(void **state)
{
	struct soda_names names;
	struct soda_why why;

	set_listed(NULL, NULL);
	assert_int_equal(find("none.pool", LONG_MS, &names, &why), -EHOSTUNREACH);
	assert_non_null(strstr(why.text, "\"none.pool\" cannot be resolved"));
	/* it comes later */
	set_listed("10.0.0.1", NULL);
	assert_int_equal(find("none.pool", LONG_MS, &names, &why), 0);
}

/* Servers at addresses, and who asked them. */

struct there {
	const char *address;
	int answer;
	bool knows; /* the client */
};

static const struct there *servers;
static char tried[128];
static uint64_t first_until_ns; /* what the first one was given */

static int meet(const struct soda_place *at, const char *rest, const struct soda_wire_hello *hello,
		const struct soda_conn_options *opt, uint64_t deadline_ns,
		struct soda_conn **conn_p, struct soda_wire_welcome *welcome_p,
		struct soda_why *why)
{
	const struct there *s = servers;

	while (strcmp(s->address, text(at)))
		s++;
	snprintf(tried + strlen(tried), sizeof(tried) - strlen(tried), "%s%s", tried[0] ? " " : "",
		 s->address + strlen("10.0.0."));
	first_until_ns = first_until_ns ? first_until_ns : deadline_ns;
	soda_why_set(why, "%s says %d", s->address, s->answer);
	*conn_p = NULL; /* nobody uses it */
	*welcome_p = (struct soda_wire_welcome){ .known = s->knows };
	return s->answer;
}

static struct soda_place place_of(const char *address)
{
	struct soda_names names;
	struct soda_why why;

	assert_int_equal(find(address, LONG_MS, &names, &why), 0);
	return names.at[0];
}

static int reach(const char *host, enum soda_conn_kind kind, uint64_t client,
		 struct soda_place *place, struct soda_why *why)
{
	const struct soda_conn_options opt = { .kind = kind,
					       .timeout_ms = LONG_MS,
					       .place = place };
	const struct soda_wire_hello hello = { .client_id = client };
	struct soda_wire_welcome welcome;
	struct soda_conn *conn;
	char rest[64];

	snprintf(rest, sizeof(rest), "%s:7001", host);
	tried[0] = '\0';
	first_until_ns = 0;
	return soda_names_connect("tcp://", rest, meet, &hello, &opt, &conn, &welcome, why);
}

/* The first address takes connections and says nothing: it has a part of the time. */
static void a_silent_address(void **state)
{
	static const struct there both[] = { { "10.0.0.1", -ETIMEDOUT, false },
					     { "10.0.0.2", 0, false } };
	struct soda_place place = { .bytes = 0 };
	uint64_t end_ns = soda_deadline(LONG_MS);
	struct soda_why why;

	set_listed("10.0.0.1", "10.0.0.2");
	servers = both;
	assert_int_equal(reach("a.pool", SODA_CONN_CONTROL, 0, &place, &why), 0);
	assert_string_equal(tried, "1 2");
	assert_true(first_until_ns < end_ns);
	assert_string_equal(text(&place), "10.0.0.2");
	/* data go where the server was met, and that one is asked first from now on */
	set_listed(NULL, NULL);
	assert_int_equal(reach("never-asked.pool", SODA_CONN_DATA, 5, &place, &why), 0);
	assert_string_equal(tried, "2");
	assert_int_equal(reach("a.pool", SODA_CONN_CONTROL, 5, &place, &why), 0);
	assert_string_equal(tried, "2");
}

/* The server does not answer at its address, and at another one of its name another server does. */
static void another_server(void **state)
{
	static const struct there refuses[] = { { "10.0.0.1", -ECONNREFUSED, false },
						{ "10.0.0.2", 0, false } };
	static const struct there is_stale[] = { { "10.0.0.1", -ECONNREFUSED, false },
						 { "10.0.0.2", -ESTALE, false } };
	static const struct there same[] = { { "10.0.0.1", -ETIMEDOUT, false },
					     { "10.0.0.2", 0, true } };
	struct soda_place place = place_of("10.0.0.1");
	struct soda_why why;

	set_listed("10.0.0.2", "10.0.0.1");
	servers = refuses;
	assert_int_equal(reach("b.pool", SODA_CONN_CONTROL, 5, &place, &why), -ECONNREFUSED);
	assert_string_equal(tried, "1 2");
	assert_string_equal(why.text, "10.0.0.1 says -111");
	assert_string_equal(text(&place), "10.0.0.1");
	servers = is_stale;
	assert_int_equal(reach("b.pool", SODA_CONN_CONTROL, 5, &place, &why), -ECONNREFUSED);
	assert_string_equal(tried, "1 2");
	/* as somebody new it goes nowhere else */
	assert_int_equal(reach("b.pool", SODA_CONN_CONTROL, 0, &place, &why), -ECONNREFUSED);
	assert_string_equal(tried, "1");
	/* the same server is there by another address, too */
	servers = same;
	assert_int_equal(reach("b.pool", SODA_CONN_CONTROL, 5, &place, &why), 0);
	assert_string_equal(tried, "1 2");
	assert_string_equal(text(&place), "10.0.0.2");
}

/* The answer of its own address counts. */
static void started_anew(void **state)
{
	static const struct there anew[] = { { "10.0.0.1", -ESTALE, false },
					     { "10.0.0.2", 0, true } };
	struct soda_place place = place_of("10.0.0.1");
	struct soda_why why;

	set_listed("10.0.0.2", "10.0.0.1");
	servers = anew;
	assert_int_equal(reach("c.pool", SODA_CONN_CONTROL, 5, &place, &why), -ESTALE);
	assert_string_equal(tried, "1");
}

/* The name has another address now: the server has moved, and the one that is there counts. */
static void moved(void **state)
{
	static const struct there there[] = { { "10.0.0.1", -ECONNREFUSED, false },
					      { "10.0.0.2", 0, false } };
	struct soda_place place = place_of("10.0.0.1");
	struct soda_why why;

	set_listed("10.0.0.2", NULL);
	servers = there;
	assert_int_equal(reach("d.pool", SODA_CONN_CONTROL, 5, &place, &why), 0);
	assert_string_equal(tried, "2");
	assert_string_equal(text(&place), "10.0.0.2");
}

/* A refusal is an answer: nobody else is asked. */
static void refused(void **state)
{
	static const struct there there[] = { { "10.0.0.1", -EBUSY, false },
					      { "10.0.0.2", 0, false } };
	struct soda_place place = { .bytes = 0 };
	struct soda_why why;

	set_listed("10.0.0.1", "10.0.0.2");
	servers = there;
	assert_int_equal(reach("e.pool", SODA_CONN_CONTROL, 0, &place, &why), -EBUSY);
	assert_string_equal(tried, "1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(silent_name_server),
		cmocka_unit_test(no_such_name),
		cmocka_unit_test(a_silent_address),
		cmocka_unit_test(another_server),
		cmocka_unit_test(started_anew),
		cmocka_unit_test(moved),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests_name("names", tests, NULL, NULL);
}
