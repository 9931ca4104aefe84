/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of the transport conformance program share. */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "service_fake.h"

enum { CHUNK_BYTES = 65536 };
enum { MS = 1000000, REGION_BYTES = 8 << 20, HELLO_TIMEOUT_MS = 300, STUCK_MS = 900 };
#define TIMEOUT_MS (5000 * fake_patience())

/* One way to reach a listener. */
struct variant {
	const char *name;
	const char *listen;   /* "%d" is the process id; VERBS: what SODA_TEST_VERBS says */
	const char *decorate; /* in front of the address, or "" */
	enum soda_engine engine;
	bool memory;	/* regions are mapped: no request reaches the server */
	bool two_sided; /* the daemon answers later */
};

/* A listener with the fake daemon, made new for each test. */
struct env {
	const struct variant *variant;
	struct fake fake;
	struct soda_listener *listener;
	struct soda_listener_options options;
	char address[256]; /* to connect to, decorated */
	struct soda_why why;
};

/* cmocka fixtures; *state is the variant before, the env after. */
int env_setup(void **state);
int env_teardown(void **state);
void env_start(struct env *e, const struct variant *v, const struct soda_listener_options *options);
void env_stop(struct env *e);

/* Connect to e->address with `query` behind it. NULL and *err_p on failure (err_p NULL: assert). */
struct soda_conn *env_connect(struct env *e, const char *query, enum soda_conn_kind kind,
			      uint32_t depth, int *err_p);
/* A control connection, a region of REGION_BYTES, a data connection. */
struct link {
	struct soda_conn *control, *data;
	struct soda_mr mr;
};
void link_open(struct env *e, struct link *l, const char *query, uint32_t flags, uint32_t depth);
void link_close(struct link *l);
void region_open(struct env *e, struct soda_conn *control, uint16_t id, uint32_t flags,
		 struct soda_mr *mr_p);

/* Flush and await n completions, all with `status`. */
void finish(struct soda_conn *data, int n, int status);
bool env_is_shm(const struct env *e);
bool env_is_verbs(const struct env *e);
/* No request reaches the daemon: its memory is mapped, or the device reads and writes it. */
bool env_one_sided(const struct env *e);
/* verbs needs a device: an address in SODA_TEST_VERBS, such as verbs://10.0.0.1:0. */
#define VERBS "verbs"
/* Two-sided: READs are answered by SEND, and the daemon does not tell of its memory. */
#define VERBS_SEND "verbs, SEND"
bool env_has_verbs(void);
/* A case that says that it has none. */
void test_no_verbs(void **state);
/* The largest request that the variant takes. */
uint32_t env_max_data(const struct env *e);
/* How many of the bytes are not what a fresh region has there. */
size_t wrong_bytes(const uint8_t *buf, uint16_t region_id, uint64_t offset, size_t bytes);

/* Await, for at most two seconds, that the counter reaches the value. */
void await_count(struct env *e, const unsigned *counter, unsigned value);

/* Of the contract: depth.c. */
void test_pipeline(void **state);
void test_errors_between(void **state);
void test_descriptor_tells(void **state);
void test_tells(void **state);
void test_many_at_once(void **state);
void test_deep_writes(void **state);

int run_strangers(void);
int run_contract(void);
int run_contract_on_verbs(void);
int run_faults(void);
int run_faults_on_verbs(void);
int run_keys_on_verbs(void);
int run_asked_on_verbs(void);
int run_abuse(void);
int run_hostile(void);
int run_install(void);
int run_ending(void);

/* raw.c: a peer made by hand, for what the transports' own functions would never send. */

/* A socket, connected; receiving gives up after half a minute. */
int raw_connect(const struct env *e);
/* All of it, or the test fails. */
void raw_send(int fd, const void *bytes, size_t n);
void raw_trickle(int fd, const uint8_t *bytes, size_t n);
void raw_recv(int fd, void *bytes, size_t n);

/* Each encodes one message, or its beginning, and returns how long it is. */
size_t raw_frame(uint8_t *out, unsigned type, uint32_t length);
size_t raw_hello(uint8_t *out, uint32_t magic, uint32_t version, uint32_t kind);
size_t raw_read_request(uint8_t *out, uint16_t region, uint64_t page, uint32_t size, uint64_t tag);
size_t raw_write_request(uint8_t *out, uint16_t region, uint64_t page, uint32_t size);

/* A data connection that has said HELLO, and was welcome. */
int raw_data(const struct env *e);
void assert_reply(int fd, unsigned type, unsigned status, uint64_t tag, uint32_t data);
/* The peer closes, whatever it may have said before, and does not keep us waiting. Closes fd. */
void assert_closed(int fd);
/* A good client's link works. */
void assert_works(struct link *l);

#endif
