/* SPDX-License-Identifier: BSD-3-Clause */
#include "tenancy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "trust/proof.h"

void tenancy_open(struct tenancy *t, const char *server)
{
	*t = (struct tenancy){ .dir = "/tmp/soda-tenancy-XXXXXX" };
	assert_non_null(mkdtemp(t->dir));
	snprintf(t->file, sizeof(t->file), "%s/tenants.ini", t->dir);
	snprintf(t->content.server, sizeof(t->content.server), "%s", server);
}

void tenancy_close(struct tenancy *t)
{
	for (unsigned i = 0; i < t->content.n; i++)
		unlink(tenancy_key(t, t->content.tenants[i].name));
	soda_tenants_file_free(&t->content);
	unlink(t->file);
	assert_int_equal(rmdir(t->dir), 0);
}

const char *tenancy_key(const struct tenancy *t, const char *name)
{
	static char path[160];

	snprintf(path, sizeof(path), "%s/%s.key", t->dir, name);
	return path;
}

static void make_key(const struct tenancy *t, const char *name, uint8_t root[SODA_KEY_BYTES])
{
	char text[256], hex[SODA_KEY_TEXT_BYTES];
	struct soda_conf_error err;
	int n;

	assert_int_equal(soda_random(root, SODA_KEY_BYTES), 0);
	n = snprintf(text, sizeof(text), "[tenant]\nname = %s\nkey = %s\n", name,
		     soda_key_format(root, SODA_KEY_BYTES, hex));
	assert_int_equal(soda_private_write(tenancy_key(t, name), text, (size_t)n, &err), 0);
}

void tenancy_rotate(struct tenancy *t, const char *name)
{
	struct soda_tenant_entry *entry = tenancy_of(t, name);
	uint8_t root[SODA_KEY_BYTES];

	memcpy(entry->previous, entry->key, SODA_KEY_BYTES);
	entry->has_previous = true;
	entry->previous_until = time(NULL) + 3600;
	make_key(t, name, root);
	assert_int_equal(soda_key_for_server(root, t->content.server, entry->key), 0);
}

struct soda_tenant_entry *tenancy_add(struct tenancy *t, const char *name)
{
	struct soda_tenant_entry *entry;
	uint8_t root[SODA_KEY_BYTES];
	struct soda_conf_error err;

	make_key(t, name, root);
	assert_int_equal(soda_tenants_file_add(&t->content, name, &entry, &err), 0);
	assert_int_equal(soda_key_for_server(root, t->content.server, entry->key), 0);
	return entry;
}

struct soda_tenant_entry *tenancy_of(struct tenancy *t, const char *name)
{
	struct soda_tenant_entry *entry = soda_tenants_file_find(&t->content, name);

	assert_non_null(entry);
	return entry;
}

void tenancy_save(const struct tenancy *t)
{
	struct soda_conf_error err;

	assert_int_equal(soda_tenants_file_write(t->file, &t->content, &err), 0);
}

struct soda_identity *tenancy_identity(const struct tenancy *t, const char *name,
				       const char *address)
{
	struct soda_conf_error err = { "" };
	struct soda_identity *identity;

	if (soda_identity_load(name, tenancy_key(t, name), t->content.server, address, &identity,
			       &err))
		fail_msg("%s", err.text);
	return identity;
}
