/* SPDX-License-Identifier: BSD-3-Clause */
/* The library's options: defaults, environment, struct soda_config, and what is wrong with them. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/limits.h"
#include "host_agent/core/agent.h"
#include "host_agent/life/start.h"
#include "host_agent/core/settings.h"

static const char *const variables[] = {
	"SODA_SERVER",	   "SODA_BUFFER",     "SODA_CHUNK",	      "SODA_MODE",
	"SODA_EVICT",	   "SODA_MECHANISMS", "SODA_ON_ERROR",	      "SODA_THREADS",
	"SODA_EVICT_HIGH", "SODA_EVICT_LOW",  "SODA_PREFETCH",	      "SODA_POLL",
	"SODA_LOG",	   "SODA_MEM_SERVER", "SODA_CONNECT_TIMEOUT", "SODA_FAULT_TIMEOUT",
};
enum { VARIABLES = sizeof(variables) / sizeof(variables[0]) };

static int setup(void **state)
{
	for (int i = 0; i < VARIABLES; i++)
		unsetenv(variables[i]);
	unsetenv("SODA_DPU");
	return 0;
}

static struct soda_settings load(const struct soda_config *cfg)
{
	struct soda_why why = { "" };
	struct soda_settings s;

	if (soda_settings_load(cfg, &s, &why))
		fail_msg("refused: %s", why.text);
	return s;
}

/* Refused, with both of these in the message. */
static void refused(const struct soda_config *cfg, const char *what, const char *expected)
{
	struct soda_why why = { "" };
	struct soda_settings s;

	assert_int_equal(soda_settings_load(cfg, &s, &why), -EINVAL);
	if (!strstr(why.text, what) || !strstr(why.text, expected))
		fail_msg("\"%s\" says nothing of \"%s\" or \"%s\"", why.text, what, expected);
}

static void defaults(void **state)
{
	struct soda_settings s = load(NULL);
	cpu_set_t set;

	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	assert_null(s.server);
	assert_null(s.buffer);
	assert_null(s.server_program);
	assert_string_equal(s.evict, "ghost");
	assert_int_equal(s.chunk_bytes, 65536);
	assert_int_equal(s.mode, SODA_MODE_INLINE);
	assert_int_equal(s.mechanisms, 0);
	assert_int_equal(s.on_error, SODA_ON_ERROR_SIGBUS);
	assert_int_equal(s.threads, CPU_COUNT(&set));
	assert_int_equal(s.evict_high_pct, 95);
	assert_int_equal(s.evict_low_pct, 90);
	assert_in_range(s.prefetch_chunks, 8, 64); /* tuned by measurement */
	assert_int_equal(s.poll_us, 50);
	assert_int_equal(s.connect_timeout_ms, 5000);
	assert_int_equal(s.fault_timeout_ms, 30000);
	assert_int_equal(s.log_level, SODA_LOG_WARNING);
	assert_int_equal(s.buffer_bytes, 0);
	assert_int_equal(s.buffer_num, 1);
	assert_int_equal(s.buffer_den, 3);
	soda_settings_free(&s);
}

static void environment(void **state)
{
	static const char *const values[VARIABLES] = {
		"tcp://h:1", "3/4", "16K", "handler", "fifo", "copy", "wait",  "7",
		"80",	     "70",  "off", "200",     "off",  "/srv", "250ms", "2m",
	};
	struct soda_settings s;

	for (int i = 0; i < VARIABLES; i++)
		setenv(variables[i], values[i], 1);
	s = load(NULL);
	assert_string_equal(s.server, "tcp://h:1");
	assert_int_equal(s.buffer_num, 3);
	assert_int_equal(s.buffer_den, 4);
	assert_int_equal(s.chunk_bytes, 16384);
	assert_int_equal(s.mode, SODA_MODE_HANDLER);
	assert_string_equal(s.evict, "fifo");
	assert_int_equal(s.mechanisms, 1);
	assert_int_equal(s.on_error, SODA_ON_ERROR_WAIT);
	assert_int_equal(s.threads, 7);
	assert_int_equal(s.evict_high_pct, 80);
	assert_int_equal(s.evict_low_pct, 70);
	assert_int_equal(s.prefetch_chunks, 0);
	assert_int_equal(s.poll_us, 200);
	assert_int_equal(s.log_level, 0);
	assert_string_equal(s.server_program, "/srv");
	assert_int_equal(s.connect_timeout_ms, 250);
	assert_int_equal(s.fault_timeout_ms, 120000);
	soda_settings_free(&s);
	for (int i = 0; i < VARIABLES; i++) /* set to nothing: as if unset */
		setenv(variables[i], "", 1);
	s = load(NULL);
	assert_int_equal(s.chunk_bytes, 65536);
	assert_null(s.server);
	soda_settings_free(&s);
}

static void on_log(int level, const char *message, void *arg)
{
}

static void struct_wins(void **state)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	struct soda_settings s;
	char server[] = "shm://@x";

	setenv("SODA_CHUNK", "4K", 1);
	setenv("SODA_EVICT", "fifo", 1);
	setenv("SODA_SERVER", "tcp://other:2", 1);
	setenv("SODA_THREADS", "3", 1);
	setenv("SODA_MODE", "handler", 1);
	cfg.server = server;
	cfg.chunk_bytes = 1 << 20;
	cfg.buffer = "512M";
	cfg.mode = SODA_MODE_INLINE;
	cfg.on_error = SODA_ON_ERROR_ABORT;
	cfg.prefetch_chunks = SODA_OFF;
	cfg.poll_us = SODA_OFF;
	cfg.connect_timeout_ms = 17;
	cfg.fault_timeout_ms = 90000;
	cfg.evict_high_pct = 99;
	cfg.evict_low_pct = 98;
	cfg.log = on_log;
	cfg.log_arg = &s;
	cfg.log_level = SODA_LOG_DEBUG;
	s = load(&cfg);
	server[0] = '!'; /* strings are copied */
	assert_string_equal(s.server, "shm://@x");
	assert_int_equal(s.chunk_bytes, 1 << 20);
	assert_int_equal(s.buffer_bytes, 512 << 20);
	assert_int_equal(s.mode, SODA_MODE_INLINE);
	assert_int_equal(s.on_error, SODA_ON_ERROR_ABORT);
	assert_int_equal(s.prefetch_chunks, 0);
	assert_int_equal(s.poll_us, 0);
	assert_int_equal(s.connect_timeout_ms, 17);
	assert_int_equal(s.fault_timeout_ms, 90000);
	assert_int_equal(s.evict_high_pct, 99);
	assert_int_equal(s.evict_low_pct, 98);
	assert_int_equal(s.log_level, SODA_LOG_DEBUG);
	assert_ptr_equal(s.log, on_log);
	assert_ptr_equal(s.log_arg, &s);
	assert_string_equal(s.evict, "fifo"); /* not in the struct: the environment's */
	assert_int_equal(s.threads, 3);
	soda_settings_free(&s);
}

static void bad_environment(void **state)
{
	static const struct {
		const char *name, *value, *expected;
	} cases[] = {
		{ "SODA_CHUNK", "12", "4" },
		{ "SODA_CHUNK", "4M", "2" },
		{ "SODA_CHUNK", "48K", "power of two" },
		{ "SODA_CHUNK", "big", "big" },
		{ "SODA_BUFFER", "lots", "512M" },
		{ "SODA_BUFFER", "0", "1/3" },
		{ "SODA_BUFFER", "1/0", "1/3" },
		{ "SODA_BUFFER", "0/3", "1/3" },
		{ "SODA_BUFFER", "4/3", "1/3" },
		{ "SODA_BUFFER", "1/3x", "1/3x" },
		{ "SODA_MODE", "fast", "handler" },
		{ "SODA_MECHANISMS", "move", "copy" },
		{ "SODA_ON_ERROR", "ignore", "abort" },
		{ "SODA_THREADS", "0", "1" },
		{ "SODA_THREADS", "-1", "-1" },
		{ "SODA_THREADS", "2000", "1024" },
		{ "SODA_EVICT_HIGH", "101", "100" },
		{ "SODA_EVICT_LOW", "96", "95" }, /* over the default high mark */
		{ "SODA_PREFETCH", "300", "256" },
		{ "SODA_PREFETCH", "some", "some" },
		{ "SODA_POLL", "99999", "10000" },
		{ "SODA_CONNECT_TIMEOUT", "0", "0" },
		{ "SODA_FAULT_TIMEOUT", "soon", "soon" },
		{ "SODA_LOG", "loud", "debug" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		setenv(cases[i].name, cases[i].value, 1);
		refused(NULL, cases[i].name, cases[i].expected);
		unsetenv(cases[i].name);
	}
}

static void bad_struct(void **state)
{
	struct soda_config cfg = { 0 };

	refused(&cfg, "struct soda_config", "SODA_CONFIG_INIT");
	cfg = (struct soda_config)SODA_CONFIG_INIT;
	cfg.reserved = 1;
	refused(&cfg, "struct soda_config", "SODA_CONFIG_INIT");
	cfg = (struct soda_config)SODA_CONFIG_INIT;
	cfg.chunk_bytes = 5000;
	refused(&cfg, "chunk", "power of two");
	cfg = (struct soda_config)SODA_CONFIG_INIT;
	cfg.chunk_bytes = 4 << 20;
	refused(&cfg, "struct soda_config", "chunk");
	cfg = (struct soda_config)SODA_CONFIG_INIT;
	cfg.mode = 9;
	refused(&cfg, "mode", "9");
	cfg = (struct soda_config)SODA_CONFIG_INIT;
	cfg.on_error = 4;
	refused(&cfg, "on-error", "4");
	cfg = (struct soda_config)SODA_CONFIG_INIT;
	cfg.log_level = SODA_OFF;
	refused(&cfg, "log", "4294967295");
	cfg = (struct soda_config)SODA_CONFIG_INIT;
	cfg.buffer = "2/1";
	refused(&cfg, "buffer", "2/1");
	cfg = (struct soda_config)SODA_CONFIG_INIT;
	cfg.evict_high_pct = 50;
	cfg.evict_low_pct = 60;
	refused(&cfg, "evict-low", "60");
	cfg = (struct soda_config)SODA_CONFIG_INIT;
	cfg.threads = SODA_OFF; /* not everything can be off */
	refused(&cfg, "threads", "off");
}

/* A start that fails says why, may be tried again, and touches nothing of the program's. */
static void failed_start(void **state)
{
	static const struct {
		const char *name, *value, *expected;
	} cases[] = {
		{ "SODA_EVICT", "lru", "ghost" },
		{ "SODA_BUFFER", "64K", "too small" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct soda_why why = { "" };

		setenv(cases[i].name, cases[i].value, 1);
		soda_lock_acquire(&soda_agent.api_lock);
		assert_int_equal(soda_agent_start(NULL, &why), -EINVAL);
		soda_lock_release(&soda_agent.api_lock);
		unsetenv(cases[i].name);
		if (!strstr(why.text, cases[i].name) || !strstr(why.text, cases[i].expected))
			fail_msg("\"%s\"", why.text);
		assert_int_equal(soda_agent.life, SODA_LIFE_NEW);
		for (int fd = 0; fd < 3; fd++)
			assert_true(fcntl(fd, F_GETFD) >= 0);
	}
}

/* The longest address is taken whole, and one more byte is refused, not cut off. */
static void long_address(void **state)
{
	static const char *const names[] = { "SODA_SERVER", "SODA_DPU" };
	char text[SODA_ADDRESS_MAX + 2] = "unix:///";
	struct soda_settings s;

	memset(text + 8, 'a', sizeof(text) - 9);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		text[SODA_ADDRESS_MAX] = 'a';
		text[SODA_ADDRESS_MAX + 1] = '\0';
		setenv(names[i], text, 1);
		refused(NULL, names[i], "at most 511");
		text[SODA_ADDRESS_MAX] = '\0';
		setenv(names[i], text, 1);
		s = load(NULL);
		assert_int_equal(strlen(s.server), SODA_ADDRESS_MAX - i); /* shm:// is shorter */
		soda_settings_free(&s);
		unsetenv(names[i]);
	}
}

/* An agent takes the server's place; its socket's name is a transport's then. */
static void an_agent(void **state)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	struct soda_settings s;

	setenv("SODA_DPU", "tcp://10.0.0.1:7002", 1);
	s = load(NULL);
	assert_string_equal(s.server, "tcp://10.0.0.1:7002");
	soda_settings_free(&s);
	cfg.dpu = "unix:///run/soda/dpu.sock";
	s = load(&cfg);
	assert_string_equal(s.server, "shm:///run/soda/dpu.sock");
	assert_string_equal(s.dpu, "unix:///run/soda/dpu.sock");
	soda_settings_free(&s);
	cfg.server = "tcp://10.0.0.2:7001";
	refused(&cfg, "SODA_SERVER", "SODA_DPU");
	unsetenv("SODA_DPU");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(defaults, setup),
		cmocka_unit_test_setup(environment, setup),
		cmocka_unit_test_setup(struct_wins, setup),
		cmocka_unit_test_setup(bad_environment, setup),
		cmocka_unit_test_setup(bad_struct, setup),
		cmocka_unit_test_setup(failed_start, setup),
		cmocka_unit_test_setup(an_agent, setup),
		cmocka_unit_test_setup(long_address, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
