/* SPDX-License-Identifier: BSD-3-Clause */
/* A DPU agent in front of a memory server with tenants: its programs are the agent's tenant. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/peer.h"
#include "lib/proc.h"
#include "trust/proof.h"
#include "trust/tenants_file.h"

#define MIB (1ull << 20)
#define PAGE 4096u

static char dir[64], file[96], key[96];
static struct server server, agent;
static struct soda_tenants_file content;

static void write_key(const char *path, const char *name, const uint8_t *root)
{
	char text[256], hex[SODA_KEY_TEXT_BYTES];
	struct soda_conf_error err;
	int n = snprintf(text, sizeof(text), "[tenant]\nname = %s\nkey = %s\n", name,
			 soda_key_format(root, SODA_KEY_BYTES, hex));

	assert_int_equal(soda_private_write(path, text, (size_t)n, &err), 0);
}

static void start_server(enum soda_role role)
{
	struct soda_tenant_entry *entry;
	uint8_t root[SODA_KEY_BYTES];
	struct soda_conf_error err;

	strcpy(content.server, "127.0.0.1");
	assert_int_equal(soda_tenants_file_add(&content, "node7", &entry, &err), 0);
	assert_int_equal(soda_random(root, sizeof(root)), 0);
	assert_int_equal(soda_key_for_server(root, content.server, entry->key), 0);
	entry->role = role;
	entry->quota = 16 * MIB;
	assert_int_equal(soda_tenants_file_write(file, &content, &err), 0);
	soda_tenants_file_free(&content);
	write_key(key, "node7", root);
	assert_int_equal(SERVER_START(&server, "--tenants", file, "--capacity", "64M",
				      "--log-level", "debug"),
			 0);
}

static void end_server(void)
{
	assert_int_equal(server_stop(&server), 0);
	server_forget(&server);
}

static void start_agent(const char *key_file)
{
	const char *const with[] = { "--listen",   "tcp://127.0.0.1:0",
				     "--server",   server.address,
				     "--key-file", key_file,
				     NULL };
	const char *const without[] = { "--listen", "tcp://127.0.0.1:0", "--server", server.address,
					NULL };

	assert_int_equal(agent_start(&agent, key_file ? with : without), 0);
}

static void end_agent(void)
{
	int status = server_stop(&agent);

	if (status)
		fail_msg("the agent ended with %d: %s", status, server_log(&agent));
	server_forget(&agent);
}

static void programs_are_the_agents_tenant(void **state)
{
	static uint8_t page[PAGE], got[PAGE];
	struct soda_identity *identity;
	struct soda_conf_error err;
	struct peer program, other;
	struct soda_mr mr, none;

	start_server(SODA_ROLE_AGENT);
	start_agent(key);
	assert_non_null(strstr(server_log(&agent), "all programs of this agent are tenant node7"));
	assert_int_equal(peer_join(&program, agent.address), 0);
	assert_int_equal(peer_open(&program, 1, NULL, 8 * MIB, 0, &mr, NULL), 0);
	memset(page, 0x3c, sizeof(page));
	assert_int_equal(peer_write(&program, &mr, PAGE, page, PAGE), 0);
	assert_int_equal(peer_call(&program, SODA_MSG_SYNC, 1), 0);
	assert_int_equal(peer_read(&program, &mr, PAGE, got, PAGE), 0);
	assert_memory_equal(page, got, PAGE);
	assert_non_null(strstr(server_log(&server), "of tenant node7 is new"));
	/* one quota for all of them */
	assert_int_equal(peer_join(&other, agent.address), 0);
	assert_int_equal(peer_open(&other, 1, NULL, 12 * MIB, 0, &none, NULL), -EDQUOT);
	assert_non_null(strstr(other.why.text, "tenant's quota"));
	peer_leave(&other);
	/* the agent itself proves nothing: who wants a proof of it is told */
	assert_int_equal(soda_identity_load(NULL, key, NULL, agent.address, &identity, &err), 0);
	assert_int_equal(peer_join_as(&other, agent.address, identity), -EPROTONOSUPPORT);
	soda_identity_free(identity);
	/* the agent keeps what it proves itself with, for a client that comes back */
	peer_vanish(&program);
	usleep(1000000);
	assert_int_equal(peer_return(&other, agent.address, &program.welcome, 2), 0);
	assert_int_equal(other.welcome.known, 1);
	memset(got, 0, sizeof(got));
	assert_int_equal(peer_read(&other, &mr, PAGE, got, PAGE), 0);
	assert_memory_equal(page, got, PAGE);
	soda_conn_unmap_region(&mr);
	peer_leave(&other);
	end_agent();
	assert_int_equal(server_complaints(&server), 0);
	end_server();
}

/* The server decides, and the program hears its sentence. */
static void others_are_refused(void **state)
{
	struct peer program;

	start_server(SODA_ROLE_CLIENT);
	start_agent(key);
	assert_true(peer_join(&program, agent.address) < 0);
	assert_non_null(strstr(program.why.text, "by way of an agent"));
	end_agent();
	start_agent(NULL);
	assert_true(peer_join(&program, agent.address) < 0);
	assert_non_null(strstr(program.why.text, "tenants only"));
	end_agent();
	end_server();
}

static int set_up(void **state)
{
	strcpy(dir, "/tmp/soda-dpu-tenants-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(file, sizeof(file), "%s/tenants.ini", dir);
	snprintf(key, sizeof(key), "%s/node7.key", dir);
	return 0;
}

static int tear_down(void **state)
{
	unlink(file);
	unlink(key);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(programs_are_the_agents_tenant),
		cmocka_unit_test(others_are_refused),
	};
	struct soda_conf_error err;

	if (soda_crypto_ready(&err)) {
		printf("SKIP: %s\n", err.text);
		return 77;
	}
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
