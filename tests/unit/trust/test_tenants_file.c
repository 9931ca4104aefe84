/* SPDX-License-Identifier: BSD-3-Clause */
/* The tenants file: read, written, refused; files that others can read; identities. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "trust/identity.h"
#include "trust/tenants_file.h"

#define OTHER_KEY "ffeeddccbbaa99887766554433221100FFEEDDCCBBAA99887766554433221100"
#define KEY "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF"

#define A45 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static char dir[64], path[96];

static int parse(const char *text, struct soda_tenants_file *file, struct soda_conf_error *err)
{
	return soda_tenants_file_parse(text, strlen(text), "t.ini", file, err);
}

static void takes_all_of_it(void **state)
{
	static const char text[] = "; a comment\n[server]\n  name = mem1.example ; and one more\n\n"
				   "[tenant physics]\nrole = agent\nkey = " KEY "\n"
				   "previous = " KEY "\nprevious-until = 2026-12-31T23:59:59Z\n"
				   "quota = 16G\nrate = 500M\nrequests = 20000\nweight = 7\n"
				   "export = ro /srv/my graphs\nexport = rw /srv/p\n"
				   "[tenant b]\nkey=" KEY "\n";
	struct soda_tenants_file file;
	struct soda_conf_error err;
	const struct soda_tenant_entry *t;

	assert_int_equal(parse(text, &file, &err), 0);
	assert_string_equal(file.server, "mem1.example");
	assert_int_equal(file.n, 2);
	t = soda_tenants_file_find(&file, "physics");
	assert_int_equal(t->role, SODA_ROLE_AGENT);
	assert_int_equal(t->key[1], 0x11);
	assert_int_equal(t->key[31], 0xff);
	assert_true(t->has_previous);
	assert_int_equal(t->previous_until, 1798761599);
	assert_int_equal(t->quota, 16ull << 30);
	assert_int_equal(t->rate, 500u << 20);
	assert_int_equal(t->requests, 20000);
	assert_int_equal(t->weight, 7);
	assert_int_equal(t->exports_n, 2);
	assert_string_equal(t->exports[0].path, "/srv/my graphs");
	assert_false(t->exports[0].writable);
	assert_true(t->exports[1].writable);
	t = soda_tenants_file_find(&file, "b");
	assert_int_equal(t->role, SODA_ROLE_CLIENT);
	assert_false(t->has_previous);
	assert_null(soda_tenants_file_find(&file, "c"));
	soda_tenants_file_free(&file);
}

/* Each is refused with its line, and what was expected. */
static void says_what_is_wrong(void **state)
{
	static const struct {
		const char *text, *line, *says;
	} bad[] = {
		{ "", ":0:", "whose it is" },
		{ "name = x\n", ":1:", "expected [server]" },
		{ "[server]\nname = a b\n", ":2:", "[server] has one" },
		{ "[server]\nname = a\nname = b\n", ":3:", "[server] has one" },
		{ "[other]\n", ":1:", "[tenant NAME]" },
		{ "[tenant a b]\n", ":1:", "is no tenant's name" },
		{ "[tenant]\n", ":1:", "[tenant NAME]" },
		{ "[tenant x\n", ":1:", "expected '[server]'" },
		{ "[server]\nname = a\n[tenant x]\n", ":3:", "has no key" },
		{ "[tenant x]\nrole = client\n[server]\nname = a\n", ":4:", "has no key" },
		{ "[tenant x]\n[tenant y]\n", ":2:", "has no key" },
		{ "[tenant x]\nkey = 12\n", ":2:", "64 hexadecimal" },
		{ "[tenant x]\nkey = " KEY "0\n", ":2:", "64 hexadecimal" },
		{ "[tenant x]\nkey = " KEY "\nkey = " KEY "\n", ":3:", "already" },
		{ "[tenant x]\nkey = " KEY "\nprevious = " KEY "\n", ":3:", "both of previous" },
		{ "[tenant x]\nprevious-until = tomorrow\n", ":2:", "2026-12-31T23:59:59Z" },
		{ "[tenant x]\nrole = king\n", ":2:", "client, agent or operator" },
		{ "[tenant x]\nquota = much\n", ":2:", "16G" },
		{ "[tenant x]\nrate = fast\n", ":2:", "500M" },
		{ "[tenant x]\nrequests = -1\n", ":2:", "1000000000" },
		{ "[tenant x]\nrequests = 1k\n", ":2:", "1000000000" },
		{ "[tenant x]\nweight = 0\n", ":2:", "1 to 100" },
		{ "[tenant x]\nweight = 101\n", ":2:", "1 to 100" },
		{ "[tenant x]\nweight = 2\nweight = 2\n", ":3:", "once each" },
		{ "[tenant x]\nexport = /srv\n", ":2:", "ro /DIRECTORY" },
		{ "[tenant x]\nexport = ro srv\n", ":2:", "ro /DIRECTORY" },
		{ "[tenant x]\nexport = r\n", ":2:", "ro /DIRECTORY" },
		{ "[tenant x]\nexport = ro /a\x01z\n", ":2:", "control character" },
		{ "[tenant x]\nexport=ro /" A45 A45 A45 A45 "\n", ":2:", "at most 180 bytes" },
		{ "[tenant x]\nprevious-until = 9999-12-31T23:59:60Z\n", ":2:", "2026-12-31" },
		{ "[tenant x]\ncolour = red\n", ":2:", "are expected" },
		{ "[tenant x]\nnonsense\n", ":2:", "key = value" },
		{ "[tenant x]\nkey = " KEY "\n[tenant x]\n", ":3:", "there already" },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct soda_tenants_file file;
		struct soda_conf_error err = { "" };

		assert_int_equal(parse(bad[i].text, &file, &err), -EINVAL);
		if (!strstr(err.text, bad[i].line) || !strstr(err.text, bad[i].says))
			fail_msg("case %zu: '%s', expected %s and '%s'", i, err.text, bad[i].line,
				 bad[i].says);
	}
}

static void reads_what_it_wrote(void **state)
{
	struct soda_tenants_file file = { .server = "mem1" }, got;
	struct soda_tenant_entry *t;
	struct soda_conf_error err;
	struct stat st;

	assert_int_equal(soda_tenants_file_add(&file, "a", &t, &err), 0);
	memset(t->key, 0xa5, sizeof(t->key));
	assert_int_equal(soda_tenants_file_add(&file, "b", &t, &err), 0);
	assert_int_equal(soda_tenants_file_add(&file, "b", &t, &err), -EEXIST);
	t = soda_tenants_file_find(&file, "b");
	t->quota = 12345;
	t->rate = 1000;
	t->requests = 30;
	t->weight = 5;
	t->role = SODA_ROLE_OPERATOR;
	t->has_previous = true;
	t->previous_until = 1798761599;
	assert_int_equal(soda_tenant_export_add(t, "rw /srv/x", &err), 0);
	assert_int_equal(soda_tenants_file_write(path, &file, &err), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(soda_tenants_file_read(path, &got, &err), 0);
	assert_int_equal(got.n, 2);
	assert_memory_equal(got.tenants[0].key, file.tenants[0].key, SODA_KEY_BYTES);
	assert_int_equal(got.tenants[1].quota, 12345);
	assert_int_equal(got.tenants[1].rate, 1000);
	assert_int_equal(got.tenants[1].requests, 30);
	assert_int_equal(got.tenants[1].weight, 5);
	assert_int_equal(got.tenants[1].previous_until, 1798761599);
	assert_string_equal(got.tenants[1].exports[0].path, "/srv/x");
	soda_tenants_file_remove(&got, &got.tenants[0]);
	assert_int_equal(got.n, 1);
	assert_string_equal(got.tenants[0].name, "b");
	soda_tenants_file_free(&got);
	/* what others can read, or is no file, is not used */
	assert_int_equal(chmod(path, 0640), 0);
	assert_int_equal(soda_tenants_file_read(path, &got, &err), -EACCES);
	assert_non_null(strstr(err.text, "chmod 600"));
	assert_int_equal(soda_tenants_file_read(dir, &got, &err), -EACCES);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(soda_tenants_file_read(path, &got, &err), -EACCES);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(soda_tenants_file_read(path, &got, &err), -ENOENT);
	soda_tenants_file_free(&file);
}

/* What a line of the file could not hold is refused when it is named, not when it is read. */
/* A service has a user of its own, and root has made its file: what is to be done is said. */
static void says_whose_it_is(void **state)
{
	struct soda_tenants_file got;
	struct soda_conf_error err = { "" };
	int status;
	pid_t child;

	if (geteuid()) {
		print_message("SKIP: only root has files of another user\n");
		skip();
	}
	close(open(path, O_WRONLY | O_CREAT, 0600));
	assert_int_equal(chmod(dir, 0755), 0);
	child = fork();
	if (child == 0) {
		if (setuid(65534) || soda_tenants_file_read(path, &got, &err) != -EACCES)
			_exit(1);
		if (!strstr(err.text, "belongs to user 0, and this process runs as user 65534"))
			_exit(2);
		_exit(strstr(err.text, "chown 65534 ") ? 0 : 3);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(chmod(dir, 0700), 0);
	child = fork();
	if (child == 0) {
		if (setuid(65534) || soda_tenants_file_read(path, &got, &err) != -EACCES)
			_exit(1);
		_exit(strstr(err.text, "may not look into a folder") ? 0 : 2);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	unlink(path);
}

static void takes_only_what_it_can_write(void **state)
{
	static const char *const bad[] = { "ro /srv/a ;b", "ro /srv/a ",
					   "ro /srv/a\nrole = operator", "ro /" A45 A45 A45 A45 };
	struct soda_tenants_file file = { .server = "mem1" }, got;
	struct soda_tenant_entry *t;
	struct soda_conf_error err;

	assert_int_equal(soda_tenants_file_add(&file, "a", &t, &err), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(soda_tenant_export_add(t, bad[i], &err), -EINVAL);
	assert_int_equal(soda_tenant_export_add(t, "ro /srv/a;b  c", &err), 0);
	assert_int_equal(soda_tenant_export_add(t,
						"ro /aaaa" A45 A45 A45 "aaaaaaaaaaaaaaaaaaaaa"
						"aaaaaaaaaaaaaaaaaaa",
						&err),
			 0);
	assert_int_equal(soda_tenants_file_write(path, &file, &err), 0);
	assert_int_equal(soda_tenants_file_read(path, &got, &err), 0);
	assert_string_equal(got.tenants[0].exports[0].path, "/srv/a;b  c");
	assert_int_equal(strlen(got.tenants[0].exports[1].path), 180);
	soda_tenants_file_free(&got);
	soda_tenants_file_free(&file);
	assert_int_equal(unlink(path), 0);
}

/* A line that begins with any blank is a line of its own: no second value of the one before. */
static void joins_no_lines(void **state)
{
	static const char text[] = "[server]\nname = a\n[tenant x]\nkey = " KEY
				   "\nexport = ro /a\n\vexport = rw /b\n\fexport = rw /c\n";
	struct soda_tenants_file file;
	struct soda_conf_error err;

	assert_int_equal(parse(text, &file, &err), 0);
	assert_int_equal(file.tenants[0].exports_n, 3);
	soda_tenants_file_free(&file);
	assert_int_equal(parse("[server]\nname = a\n[tenant x]\nkey = " KEY
			       "\nexport = ro /a\n\vrw /b ;c\n",
			       &file, &err),
			 -EINVAL);
}

static void expect_server(const char *address, const char *server)
{
	struct soda_identity *identity;
	struct soda_conf_error err = { "" };

	if (soda_identity_load(NULL, path, NULL, address, &identity, &err))
		fail_msg("%s", err.text);
	assert_string_equal(identity->tenant, "physics");
	assert_string_equal(identity->server, server);
	soda_identity_free(identity);
}

static void knows_which_server_is_meant(void **state)
{
	static const char text[] = "[tenant]\nname = physics\nkey = " KEY "\n";
	struct soda_identity *identity;
	struct soda_conf_error err;

	if (soda_crypto_ready(&err)) {
		print_message("without keys: %s\n", err.text);
		return;
	}
	assert_int_equal(soda_private_write(path, text, sizeof(text) - 1, &err), 0);
	expect_server("tcp://10.0.0.1:7001", "10.0.0.1");
	expect_server("tcp://mem1.example:7001", "mem1.example");
	expect_server("tcp://[fe80::1]:7001", "fe80::1");
	expect_server("shm:///run/soda/mem.sock", "localhost");
	expect_server("fault+tcp://mem2:1?cut=3", "mem2");
	expect_server("verbs://10.0.0.2:1", "10.0.0.2");
	/* another tenant is wanted; a tenant and no key; neither */
	assert_int_equal(soda_identity_load("biology", path, NULL, "tcp://a:1", &identity, &err),
			 -EINVAL);
	assert_int_equal(soda_identity_load("physics", NULL, NULL, "tcp://a:1", &identity, &err),
			 -EINVAL);
	assert_int_equal(soda_identity_load(NULL, NULL, NULL, "tcp://a:1", &identity, &err), 0);
	assert_null(identity);
	assert_int_equal(chmod(path, 0644), 0);
	assert_int_equal(soda_identity_load(NULL, path, NULL, "tcp://a:1", &identity, &err),
			 -EACCES);
	assert_int_equal(unlink(path), 0);
}

static void write_key(const char *digits)
{
	struct soda_conf_error err = { "" };
	char text[160];
	int n = snprintf(text, sizeof(text), "[tenant]\nname = physics\nkey = %s\n", digits);

	if (soda_private_write(path, text, (size_t)n, &err))
		fail_msg("%s", err.text);
}

/* Who goes on with an older key is told so: what it makes by that is wrong. */
static void says_that_a_key_is_old(void **state)
{
	struct soda_identity *identity;
	struct soda_conf_error err;
	uint8_t first[SODA_KEY_BYTES];

	if (soda_crypto_ready(&err)) {
		print_message("without keys: %s\n", err.text);
		return;
	}
	write_key(KEY);
	assert_int_equal(soda_identity_load(NULL, path, NULL, "tcp://a:1", &identity, &err), 0);
	memcpy(first, identity->key, sizeof(first));
	assert_int_equal(soda_identity_refresh(identity), 0);
	write_key(OTHER_KEY);
	assert_int_equal(chmod(path, 0644), 0);
	assert_int_equal(soda_identity_refresh(identity), -EACCES);
	assert_memory_equal(identity->key, first, sizeof(first));
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(soda_identity_refresh(identity), 0);
	assert_memory_not_equal(identity->key, first, sizeof(first));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(soda_identity_refresh(identity), -ENOENT);
	soda_identity_free(identity);
}

static int set_up(void **state)
{
	strcpy(dir, "/tmp/soda-tenants-file-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/tenants.ini", dir);
	return 0;
}

static int tear_down(void **state)
{
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(takes_all_of_it),
		cmocka_unit_test(says_what_is_wrong),
		cmocka_unit_test(reads_what_it_wrote),
		cmocka_unit_test(takes_only_what_it_can_write),
		cmocka_unit_test(joins_no_lines),
		cmocka_unit_test(says_whose_it_is),
		cmocka_unit_test(knows_which_server_is_meant),
		cmocka_unit_test(says_that_a_key_is_old),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
