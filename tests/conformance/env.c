/* SPDX-License-Identifier: BSD-3-Clause */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "soda.h"

bool env_is_verbs(const struct env *e)
{
	return strncmp(e->variant->listen, VERBS, strlen(VERBS)) == 0;
}

void env_start(struct env *e, const struct variant *v, const struct soda_listener_options *options)
{
	const char *format = v->listen;
	char address[128];
	int ret;

	memset(e, 0, sizeof(*e));
	e->variant = v;
	if (env_is_verbs(e))
		format = getenv("SODA_TEST_VERBS");
	if (options)
		e->options = *options;
	e->options.engine = v->engine;
	if (strcmp(v->listen, VERBS_SEND) == 0)
		e->options.answer = SODA_ANSWER_SEND;
	if (!e->options.hello_timeout_ms)
		e->options.hello_timeout_ms = HELLO_TIMEOUT_MS;
	fake_init(&e->fake);
	e->fake.tells = strcmp(v->listen, VERBS) == 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(address, sizeof(address), format, (int)getpid());
#pragma GCC diagnostic pop
	if (v->two_sided)
		fake_start_answering(&e->fake);
	ret = soda_listener_open(address, v->two_sided ? &fake_two_sided_service : &fake_service,
				 &e->fake, &e->options, &e->listener, &e->why);
	if (ret < 0)
		fail_msg("%s: %s", address, e->why.text);
	assert_int_equal(soda_listener_start(e->listener), 0);
	snprintf(e->address, sizeof(e->address), "%s%s", v->decorate,
		 soda_listener_address(e->listener));
}

void env_stop(struct env *e)
{
	soda_listener_close(e->listener);
	if (e->variant->two_sided)
		fake_stop_answering(&e->fake);
	assert_int_equal(e->fake.bad, 0);
	assert_int_equal(e->fake.holds, 0);
	assert_int_equal(e->fake.hellos, e->fake.gone);
	fake_destroy(&e->fake);
}

int env_setup(void **state)
{
	struct env *e = malloc(sizeof(*e));

	env_start(e, *state, NULL);
	*state = e;
	return 0;
}

int env_teardown(void **state)
{
	env_stop(*state);
	free(*state);
	return 0;
}

struct soda_conn *env_connect(struct env *e, const char *query, enum soda_conn_kind kind,
			      uint32_t depth, int *err_p)
{
	struct soda_wire_hello hello = { .chunk_bytes = CHUNK_BYTES, .epoch = 1 };
	struct soda_conn_options opt = { .kind = kind, .depth = depth, .timeout_ms = TIMEOUT_MS };
	struct soda_wire_welcome welcome;
	struct soda_conn *conn = NULL;
	char address[512];
	int ret;

	if (kind == SODA_CONN_DATA) {
		hello.client_id = e->fake.client_id;
		hello.secret = FAKE_SECRET;
	}
	snprintf(address, sizeof(address), "%s%s", e->address, query);
	ret = soda_conn_connect(address, &hello, &opt, &conn, &welcome, &e->why);
	if (err_p)
		*err_p = ret;
	else if (ret < 0)
		fail_msg("%s: %s", address, e->why.text);
	return ret < 0 ? NULL : conn;
}

bool env_is_shm(const struct env *e)
{
	return strncmp(e->variant->listen, "shm", 3) == 0;
}

bool env_one_sided(const struct env *e)
{
	return e->variant->memory || (env_is_verbs(e) && !e->variant->two_sided);
}

bool env_has_verbs(void)
{
	return getenv("SODA_TEST_VERBS") != NULL;
}

void test_no_verbs(void **state)
{
	print_message("SKIP: no RDMA device is named (SODA_TEST_VERBS); ./check rdma has one\n");
	skip();
}

uint32_t env_max_data(const struct env *e)
{
	return e->variant->two_sided && env_is_shm(e) ? CHUNK_BYTES : SODA_WIRE_MAX_DATA;
}

void region_open(struct env *e, struct soda_conn *control, uint16_t id, uint32_t flags,
		 struct soda_mr *mr_p)
{
	struct soda_wire_open open = { .region_id = id, .flags = flags, .bytes = REGION_BYTES };
	struct soda_wire_opened opened;

	assert_int_equal(
		soda_conn_open_region(control, &open, "", &opened, mr_p, TIMEOUT_MS, &e->why), 0);
	assert_int_equal(opened.bytes, REGION_BYTES);
	assert_int_equal(opened.file_id, 3);
	assert_int_equal(opened.generation, 4);
	assert_int_equal(mr_p->bytes, REGION_BYTES);
	assert_int_equal(mr_p->writable, !(flags & SODA_READ_ONLY));
	assert_int_equal(mr_p->map != NULL, e->variant->memory);
}

void link_open(struct env *e, struct link *l, const char *query, uint32_t flags, uint32_t depth)
{
	l->control = env_connect(e, "", SODA_CONN_CONTROL, 0, NULL);
	region_open(e, l->control, 7, flags, &l->mr);
	l->data = env_connect(e, query, SODA_CONN_DATA, depth, NULL);
}

void link_close(struct link *l)
{
	soda_conn_close(l->data);
	soda_conn_unmap_region(&l->mr);
	soda_conn_close(l->control);
}

void finish(struct soda_conn *data, int n, int status)
{
	struct soda_done done[16];

	assert_int_equal(soda_conn_flush(data, false), 0);
	while (n) {
		int got = soda_conn_poll(data, done, n < 16 ? n : 16, (int64_t)TIMEOUT_MS * MS, 0);

		assert_true(got > 0);
		for (int i = 0; i < got; i++)
			assert_int_equal(done[i].status, status);
		n -= got;
	}
}

size_t wrong_bytes(const uint8_t *buf, uint16_t region_id, uint64_t offset, size_t bytes)
{
	size_t wrong = 0;

	for (size_t i = 0; i < bytes; i++)
		wrong += buf[i] != fake_byte(region_id, offset + i);
	return wrong;
}

void await_count(struct env *e, const unsigned *counter, unsigned value)
{
	for (int i = 0; i < 2000 * fake_patience() && fake_count(&e->fake, counter) < value; i++)
		usleep(1000);
	assert_true(fake_count(&e->fake, counter) >= value);
}

int main(int argc, char **argv)
{
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	if (argc > 1 && strcmp(argv[1], VERBS) == 0)
		return run_contract_on_verbs() + run_faults_on_verbs() + run_keys_on_verbs() +
				       run_asked_on_verbs()
			       ? 1
			       : 0;
	return run_strangers() + run_contract() + run_faults() + run_abuse() + run_hostile() +
			       run_install() + run_ending()
		       ? 1
		       : 0;
}
