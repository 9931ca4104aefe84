/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda tenant`, and tools and programs with the keys that it makes, at a real server. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/proc.h"
#include "trust/crypto.h"

static char dir[64], file[96], key[96], operator_key[96];
static struct server server;
static struct program p;

static void soda(int status, const char *const *args)
{
	assert_int_equal(program_run("tools/soda/soda", args, &p), 0);
	if (p.status != status)
		fail_msg("soda %s %s: status %d: %s", args[0], args[1], p.status, p.err);
}
#define SODA(status, ...) soda(status, (const char *const[]){ __VA_ARGS__, NULL })

static void reload(const char *logs)
{
	assert_int_equal(kill(server.pid, SIGHUP), 0);
	assert_true(server_logs(&server, logs));
}

static void expect_mode_0600(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
}

static void has(const char *key_name, const char *value)
{
	char text[160];

	snprintf(text, sizeof(text), "\"%s\": %s", key_name, value);
	if (!strstr(p.out, text))
		fail_msg("'%s' is not in: %s", text, p.out);
}

/* The last command, with --json, tells its change of tenant ops; a new key, or none. */
static void has_changed(bool new_key)
{
	char path[128];

	has("tenant", "\"ops\"");
	has("server", "\"127.0.0.1\"");
	snprintf(path, sizeof(path), "\"%s\"", operator_key);
	if (new_key) {
		has("key_file", path);
		has("new_key", "true");
	}
}

static void goes_through_a_tenants_life(void **state)
{
	/* made with the file, whose server must be named */
	SODA(1, "tenant", "add", "physics", "--file", file, "--key-file", key);
	assert_non_null(strstr(p.err, "--server-name"));
	SODA(0, "tenant", "add", "physics", "--file", file, "--server-name", "127.0.0.1",
	     "--key-file", key, "--quota", "16M", "--read", dir);
	expect_mode_0600(file);
	expect_mode_0600(key);
	SODA(1, "tenant", "add", "physics", "--file", file, "--key-file", key);
	assert_non_null(strstr(p.err, "there already"));
	SODA(1, "tenant", "add", "biology", "--file", file, "--key-file", key);
	assert_non_null(strstr(p.err, "is the key of tenant physics"));
	SODA(2, "tenant", "add", "a b", "--file", file);
	SODA(0, "tenant", "add", "ops", "--file", file, "--key-file", operator_key, "--role",
	     "operator", "--rate", "20M", "--requests", "500", "--weight", "9", "--json");
	has_changed(true);
	SODA(2, "tenant", "add", "z", "--file", file, "--weight", "0");
	SODA(0, "tenant", "list", "--file", file, "--json");
	assert_non_null(strstr(p.out, "\"rate_bytes\": 20971520"));
	assert_non_null(strstr(p.out, "\"rate_requests\": 500"));
	assert_non_null(strstr(p.out, "\"weight\": 9"));
	SODA(0, "tenant", "list", "--file", file);
	assert_non_null(strstr(p.out, "ops"));
	assert_null(strstr(p.out, "key ="));

	/* a server of it: tools with a key, and without */
	assert_int_equal(SERVER_START(&server, "--tenants", file, "--capacity", "64M",
				      "--log-level", "debug"),
			 0);
	SODA(1, "stat", server.address);
	assert_non_null(strstr(p.err, "SODA_KEY_FILE"));
	setenv("SODA_KEY_FILE", key, 1);
	SODA(0, "stat", "--json", server.address);
	assert_non_null(strstr(p.out, "physics"));
	assert_null(strstr(p.out, "ops"));
	SODA(1, "pool", "drain", server.address);
	assert_non_null(strstr(p.err, "role operator may drain this server"));
	SODA(1, "pool", "drain", "--cancel", server.address);
	setenv("SODA_KEY_FILE", operator_key, 1);
	SODA(0, "stat", "--json", server.address);
	assert_non_null(strstr(p.out, "physics"));
	assert_non_null(strstr(p.out, "ops"));
	assert_non_null(strstr(p.out, "\"pool_draining\":false"));
	SODA(0, "pool", "drain", server.address);
	assert_non_null(strstr(p.out, "is empty"));
	SODA(0, "pool", "status", server.address);
	assert_non_null(strstr(p.out, "draining"));
	SODA(0, "pool", "drain", "--cancel", "--json", server.address);
	assert_string_equal(p.out, "{\"state\":\"cancelled\"}\n");
	SODA(0, "stat", "--json", server.address);
	assert_non_null(strstr(p.out, "\"pool_draining\":false"));

	/* rotated: the key file has the new key at once, the server takes it when it is told */
	SODA(0, "tenant", "rotate", "ops", "--file", file, "--key-file", operator_key,
	     "--keep-days", "0", "--json");
	has_changed(true);
	SODA(1, "stat", server.address);
	reload("read again: 2 tenants");
	SODA(0, "stat", "--json", server.address);

	/* a key that others can read is no key */
	assert_int_equal(chmod(operator_key, 0644), 0);
	SODA(1, "stat", server.address);
	assert_non_null(strstr(p.err, "chmod 600"));
	assert_int_equal(chmod(operator_key, 0600), 0);

	SODA(0, "tenant", "remove", "ops", "--file", file, "--json");
	has_changed(false);
	reload("read again: 1 tenants");
	SODA(1, "stat", server.address);
	unsetenv("SODA_KEY_FILE");
	assert_int_equal(server_stop(&server), 0);
	server_forget(&server);
}

static void run_minimal(int status)
{
	assert_int_equal(program_run("examples/minimal", (const char *const[]){ NULL }, &p), 0);
	if (p.status != status)
		fail_msg("minimal: status %d: %s", p.status, p.err);
}

/* Programs, by their environment. */
static void programs_use_it(void **state)
{
	SODA(0, "tenant", "add", "chemistry", "--file", file, "--server-name", "127.0.0.1",
	     "--key-file", operator_key);
	assert_int_equal(SERVER_START(&server, "--tenants", file, "--capacity", "256M",
				      "--log-level", "debug"),
			 0);
	setenv("SODA_SERVER", server.address, 1);
	run_minimal(1);
	assert_non_null(strstr(p.err, "SODA_KEY_FILE"));
	setenv("SODA_KEY_FILE", operator_key, 1);
	run_minimal(0);
	assert_true(server_logs(&server, "of tenant chemistry is new"));
	setenv("SODA_TENANT", "physics", 1);
	run_minimal(1);
	assert_non_null(strstr(p.err, "is of tenant chemistry"));
	unsetenv("SODA_TENANT");
	setenv("SODA_SERVER_NAME", "mem9", 1);
	run_minimal(1);
	assert_int_equal(chmod(operator_key, 0604), 0);
	run_minimal(1);
	assert_non_null(strstr(p.err, "chmod 600"));
	/* a private server has no tenants, and needs no key */
	unsetenv("SODA_SERVER");
	run_minimal(0);
	unsetenv("SODA_SERVER_NAME");
	unsetenv("SODA_KEY_FILE");
	assert_int_equal(server_stop(&server), 0);
	server_forget(&server);
}

static int set_up(void **state)
{
	strcpy(dir, "/tmp/soda-tenant-tool-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(file, sizeof(file), "%s/tenants.ini", dir);
	snprintf(key, sizeof(key), "%s/physics.key", dir);
	snprintf(operator_key, sizeof(operator_key), "%s/ops.key", dir);
	return 0;
}

static int tear_down(void **state)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

/* The key file of the first test is another tenant's. */
static int forget_keys(void **state)
{
	unlink(file);
	unlink(operator_key);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(goes_through_a_tenants_life),
		cmocka_unit_test_setup(programs_use_it, forget_keys),
	};
	struct soda_conf_error err;

	if (soda_crypto_ready(&err)) {
		printf("SKIP: %s\n", err.text);
		return 77;
	}
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
