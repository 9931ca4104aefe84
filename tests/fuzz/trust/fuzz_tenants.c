/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A server's tenants file, and what travels behind a HELLO of version 2.  First byte: even: the
 * rest is a file, which is read, and if it could be, written and read again: the same; odd: bytes
 * of an ASK.
 */
#include "fuzz/fuzz.h"
#include "trust/identity.h"
#include "trust/tenants_file.h"

static char path[256];

static void check_same(const struct soda_tenants_file *a, const struct soda_tenants_file *b)
{
	MUST(a->n == b->n && !strcmp(a->server, b->server));
	for (unsigned i = 0; i < a->n; i++) {
		const struct soda_tenant_entry *x = &a->tenants[i], *y = &b->tenants[i];

		MUST(soda_wire_tenant_ok(x->name) && !strcmp(x->name, y->name));
		MUST(!memcmp(x->key, y->key, sizeof(x->key)));
		MUST(x->quota == y->quota && x->role == y->role);
		MUST(x->exports_n == y->exports_n && x->has_previous == y->has_previous);
		for (unsigned j = 0; j < x->exports_n; j++)
			MUST(!strcmp(x->exports[j].path, y->exports[j].path));
	}
}

static void try_file(const char *text, size_t bytes)
{
	struct soda_conf_error err = { "" };
	struct soda_tenants_file file, again;

	if (soda_tenants_file_parse(text, bytes, "tenants", &file, &err)) {
		MUST(*err.text);
		return;
	}
	MUST(soda_tenants_file_write(path, &file, &err) == 0);
	MUST(soda_tenants_file_read(path, &again, &err) == 0);
	check_same(&file, &again);
	soda_tenants_file_free(&file);
	soda_tenants_file_free(&again);
}

static void try_ask(const uint8_t *data, size_t bytes)
{
	uint8_t out[SODA_WIRE_ASK_BYTES];
	struct soda_wire_ask ask;

	if (soda_wire_get_ask(data, bytes, &ask))
		return;
	MUST(soda_wire_tenant_ok(ask.tenant));
	soda_wire_put_ask(out, &ask);
	MUST(!memcmp(out, data, sizeof(out)));
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	fuzz_quiet();
	fuzz_path("tenants.ini", path);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	if (bytes && data[0] % 2)
		try_ask(data + 1, bytes - 1);
	else if (bytes)
		try_file((const char *)data + 1, bytes - 1);
	return 0;
}
